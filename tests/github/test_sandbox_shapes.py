"""The stand-in's answers fit GitHub's published schemas, as githubkit packages them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from githubkit import AppAuthStrategy
from githubkit import GitHub as GitHubKit
from githubkit.exception import RequestFailed
from githubkit_schemas.latest.models import (
    OrgsOrgActionsRunnersGenerateJitconfigPostResponse201,
    WebhookWorkflowJobQueued,
)

from autoscaler.sandbox.github import GitHubStandIn, JobRequest
from tests.github.world import LABELS, OWNER, REPOSITORY, Receiver

REPO = REPOSITORY.partition("/")[2]


@pytest.fixture
async def kit(standin: GitHubStandIn) -> GitHubKit[Any]:
    app = standin.access.apps["1"]
    token, _ = standin.access.mint(app, app.installations[OWNER])
    return GitHubKit(token, base_url=standin.url, http_cache=False, auto_retry=False)


async def test_rest_answers_fit_their_schemas(standin: GitHubStandIn, kit: GitHubKit[Any]) -> None:
    run = standin.add_run(REPOSITORY, [JobRequest("build", LABELS)], fork=True, event="pull_request")
    standin.add_group(OWNER, "gpu")
    actions = kit.rest.actions
    made = await actions.async_generate_runner_jitconfig_for_repo(
        OWNER, REPO, name="fleet-r1", runner_group_id=1, labels=list(LABELS)
    )
    jit = made.parsed_data
    assert isinstance(jit, OrgsOrgActionsRunnersGenerateJitconfigPostResponse201)
    one = (await actions.async_get_self_hosted_runner_for_repo(OWNER, REPO, jit.runner.id)).parsed_data
    assert (one.name, one.status, one.busy) == ("fleet-r1", "offline", False)
    listed = (await actions.async_list_self_hosted_runners_for_repo(OWNER, REPO)).parsed_data
    assert [each.id for each in listed.runners] == [one.id]
    groups = (await actions.async_list_self_hosted_runner_groups_for_org(OWNER)).parsed_data
    assert [each.name for each in groups.runner_groups] == ["Default", "gpu"]
    runs = (await actions.async_list_workflow_runs_for_repo(OWNER, REPO, status="queued")).parsed_data
    assert [each.id for each in runs.workflow_runs] == [run.id]
    found = (await actions.async_get_workflow_run(OWNER, REPO, run.id)).parsed_data
    assert (found.event, found.head_repository.full_name) == ("pull_request", f"contributor/{REPO}")
    jobs = (await actions.async_list_jobs_for_workflow_run(OWNER, REPO, run.id)).parsed_data
    job = (await actions.async_get_job_for_workflow_run(OWNER, REPO, run.jobs[0])).parsed_data
    assert (job.id, job.status, job.labels) == (jobs.jobs[0].id, "queued", list(LABELS))
    repositories = (await kit.rest.apps.async_list_repos_accessible_to_installation()).parsed_data
    assert [each.full_name for each in repositories.repositories] == [REPOSITORY]
    with pytest.raises(RequestFailed):
        await actions.async_get_self_hosted_runner_for_org(OWNER, one.id)  # registered elsewhere
    await actions.async_delete_self_hosted_runner_from_repo(OWNER, REPO, one.id)


async def test_app_answers_fit_their_schemas(
    standin: GitHubStandIn, key: rsa.RSAPrivateKey, receiver: Receiver
) -> None:
    """Asked with githubkit's own App authentication."""
    auth = AppAuthStrategy("1", standin.new_app("1", [OWNER, "alice"], key))
    kit = GitHubKit(auth, base_url=standin.url, http_cache=False, auto_retry=False)
    receiver.status = 500
    standin.webhook(receiver.url, b"s3cret")
    standin.add_run(REPOSITORY, [JobRequest("build", LABELS)])
    await standin.settled()
    listed = (await kit.rest.apps.async_list_installations()).parsed_data
    organisation = (await kit.rest.apps.async_get_org_installation(OWNER)).parsed_data
    person = (await kit.rest.apps.async_get_user_installation("alice")).parsed_data
    assert [each.id for each in listed] == [organisation.id, person.id]
    token = (await kit.rest.apps.async_create_installation_access_token(person.id)).parsed_data
    assert token.token.startswith("ghs_")
    failed = (await kit.rest.apps.async_list_webhook_deliveries(status="failure")).parsed_data
    assert [(each.action, each.status_code, each.redelivery) for each in failed] == [("queued", 500, False)]
    answer = await kit.rest.apps.async_redeliver_webhook_delivery(failed[0].id)
    assert answer.status_code == 202
    await standin.settled()
    again = (await kit.rest.apps.async_list_webhook_deliveries(status="failure")).parsed_data
    assert [(each.guid, each.redelivery) for each in again] == [(failed[0].guid, True), (failed[0].guid, False)]


async def test_a_delivery_fits_its_schema(standin: GitHubStandIn, receiver: Receiver) -> None:
    standin.webhook(receiver.url, b"s3cret")
    run = standin.add_run(REPOSITORY, [JobRequest("build", LABELS)])
    await standin.settled()
    parsed = WebhookWorkflowJobQueued.model_validate(json.loads(receiver.got[0][1]))
    assert parsed.workflow_job.run_id == run.id
