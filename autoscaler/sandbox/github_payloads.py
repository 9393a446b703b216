"""GitHub's JSON: REST objects and `workflow_job` deliveries in their full shape and size (7 to 9 KB).

Shapes: docs.github.com/en/rest/actions/workflow-jobs, /rest/actions/workflow-runs,
/rest/actions/self-hosted-runners and docs.github.com/en/webhooks/webhook-events-and-payloads#workflow_job.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from autoscaler.sandbox.github_owners import API, SITE, account, number_of, organization, repository
from autoscaler.sandbox.github_records import DEFAULT_GROUP, Group, Job, Registration, Run
from scheduling.model import UnixMs

FORKER = "contributor"


def instant(at_ms: UnixMs) -> str | None:
    """GitHub's form of a time, in whole seconds; 0 is null."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at_ms else None


def job(found: Job, run: Run) -> dict[str, Any]:
    """A job as REST and as `workflow_job` show it: no runner while queued, runner 0 when cancelled there."""
    url = f"{API}/repos/{found.repository}"
    waiting = found.state == "queued"
    return {
        "id": found.id,
        "run_id": run.id,
        "workflow_name": run.workflow,
        "head_branch": run.branch,
        "run_url": f"{url}/actions/runs/{run.id}",
        "run_attempt": found.attempt,
        "node_id": f"CR_{found.id:x}",
        "head_sha": f"{run.id:040x}",
        "url": f"{url}/actions/jobs/{found.id}",
        "html_url": f"{SITE}/{found.repository}/actions/runs/{run.id}/job/{found.id}",
        "status": found.state,
        "conclusion": found.conclusion or None,
        "created_at": instant(found.queued_ms),
        "started_at": instant(found.started_ms or found.queued_ms),
        "completed_at": instant(found.completed_ms),
        "name": found.name,
        "steps": _steps(found),
        "check_run_url": f"{url}/check-runs/{found.id}",
        "labels": list(found.labels),
        "runner_id": None if waiting else found.runner_id,
        "runner_name": None if waiting else found.runner_name,
        "runner_group_id": None if waiting else int(found.runner_id != 0),
        "runner_group_name": None if waiting else ("Default" if found.runner_id else ""),
    }


def _steps(found: Job) -> list[dict[str, Any]]:
    if not found.started_ms:
        return []
    done = found.state == "completed"
    return [
        {
            "name": "Set up job",
            "status": found.state,
            "conclusion": found.conclusion if done else None,
            "number": 1,
            "started_at": instant(found.started_ms),
            "completed_at": instant(found.completed_ms),
        }
    ]


def run(found: Run, status: str, kind: str) -> dict[str, Any]:
    """A run; of a fork's run the head repository is the contributor's."""
    name = found.repository.partition("/")[2]
    head = repository(f"{FORKER}/{name}", "User", True) if found.fork else repository(found.repository, kind)
    actions = f"{API}/repos/{found.repository}/actions"
    url, sha = f"{actions}/runs/{found.id}", f"{found.id:040x}"
    author = {"name": "Author", "email": "author@example.com"}
    return {
        "id": found.id,
        "name": found.workflow,
        "node_id": f"WFR_{found.id:x}",
        "head_branch": found.branch,
        "head_sha": sha,
        "head_commit": {
            "id": sha,
            "tree_id": sha,
            "message": "A change",
            "timestamp": instant(found.created_ms),
            "author": author,
            "committer": author,
        },
        "display_title": "A change",
        "workflow_id": 1,
        "path": ".github/workflows/ci.yml",
        "run_number": found.id % 1000,
        "run_attempt": found.attempt,
        "event": found.event,
        "status": status,
        "conclusion": "success" if status == "completed" else None,
        "created_at": instant(found.created_ms),
        "updated_at": instant(found.created_ms),
        "run_started_at": instant(found.created_ms),
        "url": url,
        "html_url": f"{SITE}/{found.repository}/actions/runs/{found.id}",
        **{f"{link}_url": f"{url}/{link}" for link in ("jobs", "logs", "artifacts", "cancel", "rerun")},
        "check_suite_url": f"{API}/repos/{found.repository}/check-suites/{found.id}",
        "workflow_url": f"{actions}/workflows/1",
        "pull_requests": [],
        "actor": account(FORKER, "User"),
        "repository": repository(found.repository, kind),
        "head_repository": head,
    }


def runner(found: Registration, busy: bool) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "os": "unknown" if not found.session else "linux",
        "status": "online" if found.online else "offline",
        "busy": busy,
        "ephemeral": True,
        "runner_group_id": found.group_id,
        "labels": [{"id": 0, "name": label, "type": "custom"} for label in found.labels],
    }


def runner_group(found: Group) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "visibility": "all" if found.repositories is None else "selected",
        "default": found.id == DEFAULT_GROUP,
        "runners_url": f"{API}/orgs/{found.owner}/actions/runner-groups/{found.id}/runners",
        "inherited": False,
        "allows_public_repositories": True,
        "restricted_to_workflows": False,
        "selected_workflows": [],
    }


def installation(number: int, app_id: str, owner: str, kind: str) -> dict[str, Any]:
    """An App's installation, as the App itself sees it."""
    url = f"{API}/app/installations/{number}"
    return {
        "id": number,
        "account": account(owner, kind),
        "access_tokens_url": f"{url}/access_tokens",
        "repositories_url": f"{API}/installation/repositories",
        "html_url": f"{SITE}/organizations/{owner}/settings/installations/{number}",
        "app_id": number_of(app_id),
        "app_slug": f"app-{app_id}",
        "target_id": number_of(owner),
        "target_type": kind,
        "permissions": {"actions": "read", "administration": "write", "metadata": "read"},
        "events": ["workflow_job"],
        "repository_selection": "all",
        "single_file_name": None,
        "created_at": "2019-05-15T15:19:25Z",
        "updated_at": "2019-05-15T15:19:25Z",
        "suspended_at": None,
        "suspended_by": None,
    }


def delivery(action: str, found: Job, of: Run, kind: str, installation_id: int) -> dict[str, Any]:
    """The body of a `workflow_job` webhook."""
    owner = found.repository.partition("/")[0]
    return {
        "action": action,
        "workflow_job": job(found, of),
        "repository": repository(found.repository, kind),
        **({"organization": organization(owner)} if kind == "Organization" else {}),
        "sender": account(FORKER if of.fork else "maintainer", "User"),
        "installation": {"id": installation_id, "node_id": f"I_{installation_id:x}"},
    }
