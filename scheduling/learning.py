"""What experience says: how long jobs take, how fast and surely an offer boots, how often a spot machine is taken.

Estimates are means of logarithms with each observation held within a factor of 4 of the present one, so that one
outlier moves little; the last 20 observations weigh most. Nothing learned yet: the stated priors.

| kind of key | value | unit |
|---|---|---|
| `job/REPO/WORKFLOW/NAME/TYPE`, `repository/REPO/TYPE`, `type/TYPE` | logarithm of the duration | log ms |
| `boot/OFFER` | logarithm of planned to booted | log ms |
| `launch/OFFER` | share of launches that gave a machine | 0 to 1 |
| `spot/OFFER` | machines taken back for each machine hour | 1/h |
"""

from __future__ import annotations

from math import exp, log

from scheduling.model import HOUR_MS, DurationMs, Estimate, Job, Runner
from scheduling.world import Key, World

JOB_PRIOR_MS: DurationMs = 15 * 60_000
BOOT_PRIOR_MS: DurationMs = 60_000
LAUNCH_PRIOR = 0.98
SPOT_PRIOR_PER_HOUR = 0.05

MEMORY = 20.0
"""Observations after which an old one weighs 1/e."""
OUTLIER = log(4.0)
ENOUGH = 3.0
"""Observations from which the finer key is believed before the coarser one."""
KEYS = 20_000
"""Estimates kept; job names beyond them are not learned, their repository and type still are."""

_CLASS = 2.0
"""Durations are used in classes of a factor of 2, so that many jobs share one rank."""


def job_ended(world: World, job: Job) -> set[Key]:
    """A job of ours that ran to success or failure: its length."""
    if job.notice and job.notice == job.runner:
        return set()
    if job.conclusion not in ("success", "failure") or not job.runner_type or job.completed_ms <= job.started_ms:
        return set()
    value = log(job.completed_ms - job.started_ms)
    return {_learn(world, name, value, log(JOB_PRIOR_MS)) for name in _job_keys(job)} - {("", "")}


def booted(world: World, runner: Runner) -> set[Key]:
    key = runner.offer.key
    found = {_learn(world, f"launch/{key}", 1.0, LAUNCH_PRIOR, clip=1.0)}
    if runner.booted_ms > runner.planned_ms:
        found.add(_learn(world, f"boot/{key}", log(runner.booted_ms - runner.planned_ms), log(BOOT_PRIOR_MS)))
    return found - {("", "")}


def launch_failed(world: World, runner: Runner) -> set[Key]:
    return {_learn(world, f"launch/{runner.offer.key}", 0.0, LAUNCH_PRIOR, clip=1.0)} - {("", "")}


def ended(world: World, runner: Runner, taken: bool) -> set[Key]:
    """A spot machine is gone: its hours, and whether its provider took it back."""
    start, end = runner.booted_ms, runner.stop_ms or runner.absent_ms
    if runner.offer.purchase != "spot" or not start or end <= start:
        return set()
    hours = (end - start) / HOUR_MS
    name = f"spot/{runner.offer.key}"
    estimate = world.learned.get(name) or Estimate(name, SPOT_PRIOR_PER_HOUR, 2.0)
    world.learned[name] = estimate
    estimate.value = (estimate.value * estimate.weight + taken) / (estimate.weight + hours)
    estimate.weight = min(estimate.weight + hours, 200.0)
    return {("estimate", name)}


def _learn(world: World, name: str, value: float, prior: float, clip: float = OUTLIER) -> Key:
    estimate = world.learned.get(name)
    if estimate is None:
        if name.startswith("job/") and len(world.learned) >= KEYS:
            return ("", "")
        estimate = world.learned[name] = Estimate(name, prior if clip != OUTLIER else value, 0.0)
    step = max(-clip, min(clip, value - estimate.value))
    estimate.weight = min(estimate.weight + 1.0, MEMORY)
    estimate.value += step / estimate.weight
    return ("estimate", name)


# ---- asking ------------------------------------------------------------------------------------------------


def _job_keys(job: Job) -> tuple[str, ...]:
    return (
        f"job/{job.repository}/{job.workflow}/{job.name}/{job.runner_type}",
        f"repository/{job.repository}/{job.runner_type}",
        f"type/{job.runner_type}",
    )


def job_ms(world: World, job: Job) -> DurationMs:
    """Expected length of this job, in a class of a factor of 2: by its name, else repository, else type."""
    for name in _job_keys(job):
        estimate = world.learned.get(name)
        if estimate is not None and estimate.weight >= ENOUGH:
            return _class(exp(estimate.value))
    return JOB_PRIOR_MS


def _class(ms: float) -> DurationMs:
    return int(60_000 * _CLASS ** max(-2, min(9, round(log(max(ms, 1.0) / 60_000) / log(_CLASS)))))


def boot_ms(world: World, offer_key: str) -> DurationMs:
    """From the decision to a booted machine, and what failed launches add to it on average."""
    boot = world.learned.get(f"boot/{offer_key}")
    once = exp(boot.value) if boot is not None and boot.weight >= ENOUGH else BOOT_PRIOR_MS
    launch = world.learned.get(f"launch/{offer_key}")
    share = launch.value if launch is not None and launch.weight >= ENOUGH else LAUNCH_PRIOR
    return int(once / max(share, 0.1))


def taken_per_hour(world: World, offer_key: str) -> float:
    estimate = world.learned.get(f"spot/{offer_key}")
    return estimate.value if estimate is not None else SPOT_PRIOR_PER_HOUR
