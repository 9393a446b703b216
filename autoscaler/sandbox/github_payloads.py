"""GitHub's JSON: REST objects and `workflow_job` deliveries in their full shape and size (7 to 9 KB).

Shapes: docs.github.com/en/rest/actions/workflow-jobs, /rest/actions/workflow-runs,
/rest/actions/self-hosted-runners and docs.github.com/en/webhooks/webhook-events-and-payloads#workflow_job.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from typing import Any

from autoscaler.sandbox.github_records import Group, Job, Registration, Run
from scheduling.model import UnixMs

API = "https://api.github.com"
SITE = "https://github.com"
FORKER = "contributor"

_USER_LINKS = ("followers", "subscriptions", "orgs", "repos", "received_events")
_USER_TEMPLATES = {
    "following_url": "following{/other_user}",
    "gists_url": "gists{/gist_id}",
    "starred_url": "starred{/owner}{/repo}",
    "events_url": "events{/privacy}",
}
_REPOSITORY_LINKS = {
    "forks": "forks",
    "keys": "keys{/key_id}",
    "collaborators": "collaborators{/collaborator}",
    "teams": "teams",
    "hooks": "hooks",
    "issue_events": "issues/events{/number}",
    "events": "events",
    "assignees": "assignees{/user}",
    "branches": "branches{/branch}",
    "tags": "tags",
    "blobs": "git/blobs{/sha}",
    "git_tags": "git/tags{/sha}",
    "git_refs": "git/refs{/sha}",
    "trees": "git/trees{/sha}",
    "statuses": "statuses/{sha}",
    "languages": "languages",
    "stargazers": "stargazers",
    "contributors": "contributors",
    "subscribers": "subscribers",
    "subscription": "subscription",
    "commits": "commits{/sha}",
    "git_commits": "git/commits{/sha}",
    "comments": "comments{/number}",
    "issue_comment": "issues/comments{/number}",
    "contents": "contents/{+path}",
    "compare": "compare/{base}...{head}",
    "merges": "merges",
    "archive": "{archive_format}{/ref}",
    "downloads": "downloads",
    "issues": "issues{/number}",
    "pulls": "pulls{/number}",
    "milestones": "milestones{/number}",
    "notifications": "notifications{?since,all,participating}",
    "labels": "labels{/name}",
    "releases": "releases{/id}",
    "deployments": "deployments",
}
_CREATED = "2019-05-15T15:19:25Z"


def number_of(name: str) -> int:
    """A stable id for an owner or a repository, whatever the case of its name."""
    return zlib.crc32(name.casefold().encode())


def instant(at_ms: UnixMs) -> str | None:
    """GitHub's form of a time, in whole seconds; 0 is null."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at_ms else None


def account(login: str, kind: str) -> dict[str, Any]:
    """A user or an organisation as an account (`type` User, Organization or Bot)."""
    links = {f"{link.replace('orgs', 'organizations')}_url": f"{API}/users/{login}/{link}" for link in _USER_LINKS}
    return {
        "login": login,
        "id": number_of(login),
        "node_id": f"U_{number_of(login):x}",
        "avatar_url": f"https://avatars.githubusercontent.com/u/{number_of(login)}?v=4",
        "gravatar_id": "",
        "url": f"{API}/users/{login}",
        "html_url": f"{SITE}/{login}",
        **links,
        **{key: f"{API}/users/{login}/{path}" for key, path in _USER_TEMPLATES.items()},
        "type": kind,
        "user_view_type": "public",
        "site_admin": False,
    }


def repository(full_name: str, kind: str = "Organization", fork: bool = False) -> dict[str, Any]:
    owner, name = full_name.split("/", 1)
    url = f"{API}/repos/{full_name}"
    return {
        "id": number_of(full_name),
        "node_id": f"R_{number_of(full_name):x}",
        "name": name,
        "full_name": full_name,
        "private": False,
        "owner": account(owner, kind),
        "html_url": f"{SITE}/{full_name}",
        "description": None,
        "fork": fork,
        "url": url,
        **{f"{key}_url": f"{url}/{path}" for key, path in _REPOSITORY_LINKS.items()},
        "created_at": _CREATED,
        "updated_at": _CREATED,
        "pushed_at": _CREATED,
        "git_url": f"git://github.com/{full_name}.git",
        "ssh_url": f"git@github.com:{full_name}.git",
        "clone_url": f"{SITE}/{full_name}.git",
        "svn_url": f"{SITE}/{full_name}",
        "homepage": None,
        "size": 0,
        "stargazers_count": 0,
        "watchers_count": 0,
        "language": None,
        "has_issues": True,
        "has_projects": True,
        "has_downloads": True,
        "has_wiki": True,
        "has_pages": False,
        "has_discussions": False,
        "forks_count": 0,
        "mirror_url": None,
        "archived": False,
        "disabled": False,
        "open_issues_count": 0,
        "license": None,
        "allow_forking": True,
        "is_template": False,
        "web_commit_signoff_required": False,
        "topics": [],
        "visibility": "public",
        "forks": 0,
        "open_issues": 0,
        "watchers": 0,
        "default_branch": "main",
        "custom_properties": {},
    }


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
    url = f"{API}/repos/{found.repository}/actions/runs/{found.id}"
    return {
        "id": found.id,
        "name": found.workflow,
        "node_id": f"WFR_{found.id:x}",
        "head_branch": found.branch,
        "head_sha": f"{found.id:040x}",
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
        "jobs_url": f"{url}/jobs",
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
        "default": False,
        "allows_public_repositories": True,
        "restricted_to_workflows": False,
        "selected_workflows": [],
    }


def delivery(action: str, found: Job, of: Run, kind: str, installation_id: int) -> dict[str, Any]:
    """The body of a `workflow_job` webhook."""
    owner = found.repository.partition("/")[0]
    url = f"{API}/orgs/{owner}"
    organization = {
        "login": owner,
        "id": number_of(owner),
        "node_id": f"O_{number_of(owner):x}",
        "url": url,
        **{f"{link}_url": f"{url}/{link}" for link in ("repos", "events", "hooks", "issues")},
        "members_url": f"{url}/members{{/member}}",
        "public_members_url": f"{url}/public_members{{/member}}",
        "avatar_url": f"https://avatars.githubusercontent.com/u/{number_of(owner)}?v=4",
        "description": "",
    }
    return {
        "action": action,
        "workflow_job": job(found, of),
        "repository": repository(found.repository, kind),
        **({"organization": organization} if kind == "Organization" else {}),
        "sender": account(FORKER if of.fork else "maintainer", "User"),
        "installation": {"id": installation_id, "node_id": f"I_{installation_id:x}"},
    }
