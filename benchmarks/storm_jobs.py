"""What a storm's people push, and the policy under which it runs: every effect of the daemon is needed."""

from __future__ import annotations

import random
from datetime import UTC, datetime

from autoscaler.sandbox.github import GitHubStandIn
from autoscaler.sandbox.github_records import JobRequest
from scheduling.model import UnixMs

POLICY = """\
version: 1
funds:
  grant: {{credit: 20 USD, until: 2030-01-01, pays: [east], spent: {{amount: 0 USD, as_of: {today}}}}}
  cash: {{cash: 400 USD/month, pays: [west, south], spent: {{amount: 0 USD, as_of: {today}}}}}
providers:
  east: {{kind: sim, endpoint: "{clouds}/east", settings: {{boot_seconds: 10, instance_types: {east}}}}}
  west: {{kind: sim, endpoint: "{clouds}/west", settings: {{boot_seconds: 10, instance_types: {west}}}}}
  south: {{kind: sim, endpoint: "{clouds}/south",
          settings: {{boot_seconds: 10, zones: 26, instance_types: {south}, faults: {{preempted: 1}}}}}}
defaults: {{access: {{repositories: ["octo/*"], forks: deny}}}}
runner_types:
  linux:
    labels: [self-hosted, linux]
    hardware: {{os: linux, arch: x64, cpus: 2}}
    offers: [{{provider: east}}, {{provider: west}}]
  spot:
    labels: [self-hosted, spot]
    hardware: {{os: linux, arch: x64, cpus: 2}}
    offers: [{{provider: south, purchase: [spot]}}]
rules:
  - {{match: {{repository: "octo/spot-*"}}, rerun: true}}
"""
EAST = "{t: {cpus: 2, memory_gib: 4, on_demand: 0.1 USD/h}}"
WEST = "{t: {cpus: 2, memory_gib: 4, on_demand: 0.2 USD/h}}"
SOUTH = "{t: {cpus: 2, memory_gib: 4, spot: 0.05 USD/h}}"
SPOT_REPOSITORIES = 20
"""Each may have 20 re-runs a day. Where machines are taken back the daemon stays away a while: hence the zones."""


def policy(clouds: str, now_ms: UnixMs) -> str:
    """Accounts listen at `clouds`/NAME. Forks are denied, so every run is asked about."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%d")
    return POLICY.format(clouds=clouds, today=today, east=EAST, west=WEST, south=SOUTH)


def push(github: GitHubStandIn, dice: random.Random, at_most: int, spot_share: float) -> int:
    """A workflow run: 1 to 20 short jobs, or one long job on a machine that is taken back within the hour.

    How many jobs it has.
    """
    if dice.random() < spot_share:
        job = JobRequest("job", ("self-hosted", "spot"), duration_ms=dice.randint(200_000, 500_000))
        github.add_run(f"octo/spot-{dice.randrange(SPOT_REPOSITORIES)}", [job])
        return 1
    count = min(at_most, dice.randint(1, 20))
    labels = ("self-hosted", "linux")
    jobs = [JobRequest(f"job {n}", labels, duration_ms=dice.randint(10_000, 60_000)) for n in range(count)]
    github.add_run(dice.choice(("octo/app", "octo/lib")), jobs)
    return count
