"""The demo's world: one policy, four simulated accounts with other people's money behind them, and seeded jobs.

The policy is an ordinary policy file. What decides where a job runs is in the structure, not in races: small jobs
may run at two clouds and belong to the fund that would expire unused; large ones only fit one cloud; GPUs are a
donated lab's; ARM machines cost cash. So one seed gives the same picture in every run.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from string import Template

from autoscaler.sandbox.github_records import JobRequest
from scheduling.model import DurationMs, UnixMs

FLEET = "demo"
OWNERS = ("octo",)
MINUTE_MS: DurationMs = 60_000
JOB_GAP_MS: DurationMs = 12_000  # five jobs a minute on average
SHORTEST_MS, LONGEST_MS = MINUTE_MS, 15 * MINUTE_MS

POLICY = Template("""\
# The demo's fleet. `kind: sim` stands for the vendor that the provider is named after; the rest is what a project
# with donated credits writes.
version: 1
ignore_labels: ["ubuntu-*", "windows-*", "macos-*"]
limits: {runners: 200}
funds:
  aws-grant: {credit: 1000000 USD, until: $next_year, pays: [aws], spent: {amount: 412000 USD, as_of: $today}}
  gcp-gift: {credit: 50000 USD, until: $next_week, pays: [gcp], spent: {amount: 31500 USD, as_of: $today}}
  cash: {cash: 2000 USD/month, pays: [arm-cloud], spent: {amount: 120 USD, as_of: $today}}
providers:
  aws:
    kind: sim
    regions: [us-east-1]
    endpoint: $clouds/aws
    settings:
      seed: $seed
      latency_ms: 900
      boot_seconds: 40
      zones: 2
      instance_types:
        c5.large: {cpus: 2, memory_gib: 4, on_demand: 0.085 USD/h, spot: 0.034 USD/h}
        c5.4xlarge: {cpus: 16, memory_gib: 32, on_demand: 0.68 USD/h, spot: 0.272 USD/h}
        c6i.4xlarge: {cpus: 16, memory_gib: 32, on_demand: 0.70 USD/h}
      faults: {no_capacity: 0.03, answer_lost: 0.04, boot_failure: 0.03, orphan: 0.02}
  gcp:
    kind: sim
    regions: [us-central1]
    endpoint: $clouds/gcp
    settings:
      seed: $seed
      latency_ms: 1500
      boot_seconds: 30
      zones: 2
      instance_types:
        e2-standard-2: {cpus: 2, memory_gib: 8, on_demand: 0.067006 USD/h}
        n2-standard-2: {cpus: 2, memory_gib: 8, on_demand: 0.097118 USD/h}
      faults: {no_capacity: 0.04, transient: 0.02, boot_hang: 0.02, zombie: 0.03, stale_list: 0.02}
  rocm-lab:
    kind: sim
    price: 0 USD/h
    max_runners: 6
    endpoint: $clouds/rocm-lab
    settings:
      seed: $seed
      latency_ms: 200
      boot_seconds: 8
      instance_types:
        mi300-slot: {cpus: 24, memory_gib: 192, on_demand: 1.99 USD/h, gpu: {vendor: amd, model: gfx942}}
  arm-cloud:
    kind: sim
    regions: [fsn1]
    endpoint: $clouds/arm-cloud
    settings:
      seed: $seed
      latency_ms: 700
      boot_seconds: 20
      instance_types:
        cax31: {cpus: 8, memory_gib: 16, arch: arm64, on_demand: 0.0242 USD/h}
        cax41: {cpus: 16, memory_gib: 32, arch: arm64, on_demand: 0.0482 USD/h}
      faults: {transient: 0.05, applied_late: 0.04}
defaults:
  boot_timeout: 4m
  register_timeout: 3m
  idle_timeout: 2m
  max_lifetime: 1h
  ready_max_age: 30m
  access: {repositories: ["octo/*"], forks: deny}
runner_types:
  linux.small:
    labels: [self-hosted, linux, x64, linux.small]
    hardware: {os: linux, arch: x64, cpus: 2, memory: 4 GiB}
    max_price: 0.20 USD/h
    offers:
      - {provider: gcp}
      - {provider: aws, instance_types: [c5.large], purchase: [on_demand, spot]}
  linux.large:
    labels: [self-hosted, linux, x64, linux.large]
    hardware: {os: linux, arch: x64, cpus: 16, memory: 32 GiB}
    offers:
      - {provider: aws, instance_types: [c5.4xlarge, c6i.4xlarge], purchase: [on_demand, spot]}
  linux.gpu:
    labels: [self-hosted, linux, linux.gpu]
    hardware: {os: linux, gpu: {vendor: amd, model: gfx942, count: 1}}
    offers: [{provider: rocm-lab}]
  linux.arm64:
    labels: [self-hosted, linux, arm64, linux.arm64]
    hardware: {os: linux, arch: arm64, cpus: 8, memory: 16 GiB}
    offers: [{provider: arm-cloud}]
""")


@dataclass(frozen=True, slots=True)
class Workflow:
    """What one kind of run consists of: (jobs, their runner type, median duration)."""

    name: str
    repository: str
    weight: int
    parts: tuple[tuple[int, str, DurationMs], ...]


LABELS = {
    "linux.small": ("self-hosted", "linux", "x64", "linux.small"),
    "linux.large": ("self-hosted", "linux", "x64", "linux.large"),
    "linux.gpu": ("self-hosted", "linux", "linux.gpu"),
    "linux.arm64": ("self-hosted", "linux", "arm64", "linux.arm64"),
}
WORKFLOWS = (
    Workflow("ci", "octo/engine", 6, ((3, "linux.small", 4 * MINUTE_MS), (2, "linux.large", 6 * MINUTE_MS))),
    Workflow("gpu tests", "octo/models", 3, ((2, "linux.gpu", 4 * MINUTE_MS),)),
    Workflow("arm", "octo/engine", 3, ((2, "linux.arm64", 5 * MINUTE_MS),)),
    Workflow("docs", "octo/docs", 4, ((1, "linux.small", 2 * MINUTE_MS),)),
    Workflow("wheels", "octo/models", 2, ((3, "linux.large", 8 * MINUTE_MS), (1, "linux.arm64", 6 * MINUTE_MS))),
    Workflow("matrix", "octo/engine", 1, ((12, "linux.small", 3 * MINUTE_MS),)),
)


@dataclass(frozen=True, slots=True)
class DemoRun:
    """A workflow run to be queued `after_ms` of simulated time."""

    after_ms: DurationMs
    repository: str
    workflow: str
    event: str
    ref: str
    jobs: tuple[JobRequest, ...]


def policy_text(*, seed: int, clouds_url: str, now_ms: UnixMs) -> str:
    """The policy file's text. `clouds_url` is where the simulated accounts listen."""
    today = datetime.fromtimestamp(now_ms / 1000, UTC).date()
    return POLICY.substitute(
        seed=seed,
        clouds=clouds_url.rstrip("/"),
        today=today,
        next_week=today + timedelta(days=7),
        next_year=today + timedelta(days=365),
    )


def demo_runs(seed: int, count: int) -> list[DemoRun]:
    """Runs with exactly `count` jobs in all; a longer list begins with the shorter one's runs."""
    runs: list[DemoRun] = []
    for run in endless_runs(seed):
        jobs = run.jobs[:count]
        if jobs:
            runs.append(DemoRun(run.after_ms, run.repository, run.workflow, run.event, run.ref, jobs))
        count -= len(jobs)
        if not count:
            return runs
    raise AssertionError("unreachable: the runs are endless")


def endless_runs(seed: int) -> Iterator[DemoRun]:
    """The demo's workload. Every workflow comes once at first, so that even a short demo shows every provider."""
    rng = random.Random(f"demo/{seed}")
    weights = [flow.weight for flow in WORKFLOWS]
    after_ms = 0
    for number in itertools.count():
        flow = WORKFLOWS[number] if number < len(WORKFLOWS) else rng.choices(WORKFLOWS, weights)[0]
        jobs = tuple(_jobs(flow, rng))
        event, ref = rng.choice(
            (("push", "refs/heads/main"), ("pull_request", f"refs/pull/{rng.randrange(9999)}/merge"))
        )
        yield DemoRun(after_ms, flow.repository, flow.name, event, ref, jobs)
        after_ms += int(rng.expovariate(1) * JOB_GAP_MS * len(jobs))


def _jobs(flow: Workflow, rng: random.Random) -> Iterator[JobRequest]:
    for count, runner_type, median_ms in flow.parts:
        for number in range(1, count + 1):
            labels = list(LABELS[runner_type])
            if rng.random() < 0.2:  # as people write them
                rng.shuffle(labels)
                labels = [label.upper() if rng.random() < 0.5 else label.title() for label in labels]
            duration_ms = int(median_ms * rng.lognormvariate(0, 0.6))
            duration_ms = min(max(duration_ms, SHORTEST_MS), LONGEST_MS)
            yield JobRequest(f"{runner_type.removeprefix('linux.')} ({number})", tuple(labels), duration_ms)
