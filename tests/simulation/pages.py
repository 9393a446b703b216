"""What people and their tools are shown of a schedule: every `/api/v1` document and the metrics, as text."""

from __future__ import annotations

import json
from collections.abc import Iterator

from autoscaler.daemon import Daemon
from autoscaler.metrics import Metrics
from autoscaler.source import Source
from autoscaler.views import fleet, funds, jobs_and_runners, why


def shown(daemon: Daemon, metrics: Metrics) -> Iterator[tuple[str, str]]:
    """(page, its text) of a replica that leads; nothing of one that does not."""
    leader = daemon.leader
    if leader is None:
        return
    view = Source(daemon)._view(leader.world, leader.refusals, leading=True)
    documents = {
        "summary": fleet.summary(view),
        "jobs": jobs_and_runners.jobs(view, {}),
        "runners": jobs_and_runners.runners(view, {}),
        "providers": fleet.providers(view),
        "funds": funds.funds(view),
        "cooldowns": fleet.cooldowns(view),
        "placements": fleet.placements(view, {}),
        **{f"jobs/{job.job_id}": why.job_document(view, job) for job in leader.world.jobs.values()},
    }
    for page, document in documents.items():
        yield f"/api/v1/{page}", json.dumps(document)
    yield "/metrics", metrics.text(view).decode()
