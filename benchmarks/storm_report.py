"""What a storm is asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from autoscaler.sandbox.github_records import Job


@dataclass(frozen=True, slots=True)
class Storm:
    """What is asked for. Real time: `limit_s` until it is given up, `server_s` between kills of the server."""

    jobs: int = 5000
    kills: int = 200
    speed: float = 10.0
    lease_s: float = 1.0
    seed: int = 1
    limit_s: float = 2400.0
    server_s: float = 20.0
    spot_share: float = 0.4
    """Of the runs that are pushed: one job each, against ten and a half of the others."""


@dataclass(slots=True)
class Report:
    """What came of it. All of the first block must be 0."""

    lost: int = 0
    doubled: int = 0
    leaked_machines: int = 0
    leaked_registrations: int = 0
    over_a_fund_micro_usd: int = 0
    unfinished: int = 0

    jobs: int = 0
    reruns: int = 0  # attempts more, after an account took the machine
    leader_kills: int = 0
    server_kills: int = 0
    pauses: int = 0
    boundaries: dict[str, int] = field(default_factory=dict)
    not_reached: list[str] = field(default_factory=list)
    lost_jobs: list[str] = field(default_factory=list)
    machines: int = 0
    repairs: int = 0
    repair_p50_s: float = 0.0
    repair_p99_s: float = 0.0
    repair_max_s: float = 0.0
    most_of_grant_used: float = 0.0
    wall_s: float = 0.0

    def count_jobs(self, jobs: Sequence[Job]) -> None:
        """GitHub's truth: a job whose last attempt did not succeed was lost with its machine.

        Doubled: one attempt that began twice, or an attempt more of a job that had not failed.
        """
        attempts = _attempts(jobs)
        self.jobs, self.reruns = len(attempts), len(jobs) - len(attempts)
        self.unfinished = sum(job.state != "completed" for job in jobs)
        self.lost = len(found := lost(jobs))
        self.lost_jobs = [
            f"{job.id} {','.join(job.labels)} {job.conclusion} on {job.runner_name}" for job in found
        ]
        self.doubled = sum(job.starts > 1 for job in jobs)
        self.doubled += sum(job.conclusion != "failure" for tries in attempts for job in tries[:-1])

    def count_repairs(self, seconds: Sequence[float], unrepaired: int) -> None:
        times = sorted(seconds)
        self.repairs, self.unfinished = len(times), self.unfinished + unrepaired
        if times:
            self.repair_p50_s = round(times[len(times) // 2], 2)
            self.repair_p99_s = round(times[min(len(times) - 1, int(0.99 * len(times)))], 2)
            self.repair_max_s = round(times[-1], 2)

    @property
    def broken(self) -> bool:
        promises = (self.lost, self.doubled, self.leaked_machines, self.leaked_registrations)
        return any((*promises, self.over_a_fund_micro_usd, self.unfinished))


def lost(jobs: Sequence[Job]) -> list[Job]:
    """Those that ended without success, and nobody has run them again."""
    last = [tries[-1] for tries in _attempts(jobs)]
    return [job for job in last if job.state == "completed" and job.conclusion != "success"]


def _attempts(jobs: Sequence[Job]) -> Collection[list[Job]]:
    """Of each job, in their order."""
    found: dict[tuple[int, str], list[Job]] = {}
    for job in jobs:
        found.setdefault((job.run_id, job.name), []).append(job)
    return found.values()
