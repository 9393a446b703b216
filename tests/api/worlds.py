"""Worlds for tests and for looking at the pages: grown from real events and plans, never filled in by hand.

`Fleet` plays GitHub, the clouds and the machines on a clock of its own: it answers what `pending` says must be
done with the events that the real effects would bring back.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autoscaler.github.budget import Budget
from autoscaler.policy.file import load, provider_config
from autoscaler.views.jobs_and_runners import View
from providers import registry
from scheduling import messages as m
from scheduling.evolve import evolve
from scheduling.lifecycle import JobState
from scheduling.model import RunFacts, Runner, Verdict
from scheduling.pending import pending
from scheduling.plan import plan
from scheduling.world import World

NOON = 1_796_040_000_000  # 2026-11-30 12:00:00 UTC, a Monday
SECOND, MINUTE = 1_000, 60_000

POLICY = """\
version: 1
ignore_labels: ["ubuntu-*"]
limits: {runners: 60}
funds:
  aws-2026: {credit: 1000000 USD, until: 2027-02-01, pays: [aws], spent: {amount: 412000 USD, as_of: 2026-11-30}}
  gcp-gift: {credit: 50000 USD, until: 2026-12-31, pays: [gcp], spent: {amount: 31500 USD, as_of: 2026-11-30}}
  arm-cash: {cash: 2000 USD/month, pays: [arm-cloud], spent: {amount: 120 USD, as_of: 2026-11-30}}
  old-grant: {credit: 9000 USD, until: 2027-06-01, pays: [aws]}
providers:
  aws:
    kind: sim
    regions: [us-east-1]
    max_runners: 30
    settings:
      zones: 2
      instance_types:
        c5.large: {cpus: 2, memory_gib: 4, on_demand: 0.085 USD/h, spot: 0.034 USD/h}
        c5.4xlarge: {cpus: 16, memory_gib: 32, on_demand: 0.68 USD/h, spot: 0.272 USD/h}
        c6i.4xlarge: {cpus: 16, memory_gib: 32, on_demand: 0.70 USD/h}
  gcp:
    kind: sim
    regions: [us-central1]
    settings:
      zones: 2
      instance_types:
        e2-standard-2: {cpus: 2, memory_gib: 8, on_demand: 0.067006 USD/h}
  rocm-lab:
    kind: sim
    price: 0 USD/h
    max_runners: 2
    available: "Mon-Fri 08:00-20:00 Europe/Berlin"
    settings: {instance_types: {mi300-slot: {cpus: 24, memory_gib: 192, on_demand: 1.99 USD/h,
               gpu: {vendor: amd, model: gfx942}}}}
  night-lab:
    kind: sim
    price: 0 USD/h
    available: "Mon-Fri 22:00-06:00 Europe/Berlin"
    settings: {instance_types: {night-slot: {cpus: 8, memory_gib: 32, on_demand: 1 USD/h}}}
  arm-cloud:
    kind: sim
    regions: [fsn1]
    settings: {instance_types: {cax31: {cpus: 8, memory_gib: 16, arch: arm64, on_demand: 0.0242 USD/h}}}
defaults:
  access: {repositories: ["octo/*"], forks: allow}
runner_types:
  linux.small:
    labels: [self-hosted, linux, x64, linux.small]
    hardware: {cpus: 2, memory: 4 GiB}
    offers: [{provider: gcp}, {provider: aws, instance_types: [c5.large], purchase: [on_demand, spot]}]
    max_runners: 40
  linux.large:
    labels: [self-hosted, linux, x64, linux.large]
    hardware: {cpus: 16, memory: 32 GiB}
    offers: [{provider: aws, instance_types: [c5.4xlarge, c6i.4xlarge], purchase: [on_demand, spot]}]
  linux.any:
    labels: [self-hosted, linux, x64, linux.small, linux.large]
    hardware: {cpus: 16, memory: 32 GiB}
    offers: [{provider: aws, instance_types: [c6i.4xlarge]}]
  linux.gpu:
    labels: [self-hosted, linux, linux.gpu]
    hardware: {gpu: {vendor: amd, model: gfx942, count: 1}}
    offers: [{provider: rocm-lab}]
  linux.night:
    labels: [self-hosted, linux, linux.night]
    hardware: {cpus: 8}
    offers: [{provider: night-lab}]
  linux.arm64:
    labels: [self-hosted, linux, arm64, linux.arm64]
    hardware: {arch: arm64, cpus: 8, memory: 16 GiB}
    offers: [{provider: arm-cloud}]
    ready: [{count: 2}]
  linux.fork:
    labels: [self-hosted, linux, linux.fork]
    access: {forks: only}
    hardware: {cpus: 2}
    offers: [{provider: gcp}]
"""

SMALL = ("self-hosted", "Linux", "X64", "linux.small")
LARGE = ("self-hosted", "linux", "x64", "linux.large")
GPU = ("self-hosted", "linux", "linux.gpu")
ARM = ("self-hosted", "linux", "arm64", "linux.arm64")
Create = Callable[[Runner], m.Event | None]


class Fleet:
    """A world and everything around it. `create` answers a create call; None: the machine comes."""

    def __init__(self, folder: Path, policy: str = POLICY, now_ms: int = NOON) -> None:
        path = folder / "policy.yaml"
        path.write_text(policy, encoding="utf-8")
        self.loaded = load(path, now_ms)
        self.policy = self.loaded.policy
        self.world = World("ci")
        self.now_ms = now_ms
        self.refusals: dict[str, tuple[Verdict, ...]] = {}
        self.create: Create = lambda runner: None
        self.boot_ms, self.job_ms = 40 * SECOND, 10 * MINUTE
        self._later: list[tuple[int, int, m.Event]] = []
        self._count = itertools.count(1)
        self._asked: set[m.Command] = set()
        self._given: set[str] = set()
        self.tell(m.LeadershipTaken(now_ms, (), "epoch"))
        self.tell(m.PolicyActivated(now_ms, self.policy.hash))
        for name, provider in self.policy.providers.items():
            config = provider_config(self.policy, name, self.loaded.settings[name], "ci")
            offers = tuple(registry.kind(provider.kind).catalogue(config))
            self.tell(m.OffersListed(now_ms, name, offers))

    # ---- what happens --------------------------------------------------------------------------------------

    def tell(self, event: m.Event) -> None:
        evolve(self.world, event, self.now_ms)

    def later(self, after_ms: int, event: m.Event) -> None:
        heapq.heappush(self._later, (self.now_ms + after_ms, next(self._count), event))

    def job(
        self,
        job_id: int,
        labels: tuple[str, ...] = SMALL,
        state: JobState = JobState.QUEUED,
        repository: str = "octo/engine",
        fork: bool | None = None,
        attempt: int = 1,
        **more: str,
    ) -> str:
        """A delivery of GitHub's; the job's key. `fork`: what GitHub says of its run when it is asked."""
        names = {"name": f"build ({job_id})", "workflow": "ci", "branch": "main"} | more
        self.tell(m.JobReported(self.now_ms, state, job_id, job_id * 10, attempt, repository, labels, **names))
        if fork is not None:
            facts = RunFacts("pull_request" if fork else "push", fork)
            self.tell(m.RunFactsLearned(self.now_ms, repository, job_id * 10, facts))
        return f"{job_id}.{attempt}"

    def plan(self) -> None:
        self.refusals = plan(self.world, self.policy, self.now_ms).refusals

    def run(self, span_ms: int, step_ms: int = SECOND) -> None:
        """Let time pass: plan, do what is pending, and let machines and GitHub answer."""
        end_ms = self.now_ms + span_ms
        while True:
            while self._later and self._later[0][0] <= self.now_ms:
                self._happen(replace(heapq.heappop(self._later)[2], at_ms=self.now_ms))
            self.plan()
            for command in pending(self.world, self.now_ms).due:
                if command not in self._asked:
                    self._asked.add(command)
                    self._perform(command)
            if self.now_ms >= end_ms:
                return
            self.now_ms += step_ms

    def view(self, *, leading: bool = True, policy_error: str = "") -> View:
        budgets = (Budget("1", "core", 5000, 4211, self.now_ms + 20 * MINUTE, "octo"),)
        return View(self.world, self.policy, self.refusals, leading, policy_error, self.now_ms, budgets)

    # ---- who answers ---------------------------------------------------------------------------------------

    def _perform(self, command: m.Command) -> None:
        now_ms = self.now_ms
        match command:
            case m.CreateMachine(runner_id):
                answer = self.create(self.world.runners[runner_id])
                self.later(SECOND, answer or m.MachineCreated(now_ms, runner_id, f"i-{runner_id[1:9]}"))
                if answer is None:
                    self.later(self.boot_ms, m.StageReported(now_ms, runner_id, m.Stage.BOOTED))
            case m.CreateJit(runner_id):
                self.later(SECOND, m.JitStored(now_ms, runner_id, next(self._count)))
                self.later(4 * SECOND, m.StageReported(now_ms, runner_id, m.Stage.REGISTERED))
            case m.DeleteRegistration(runner_id):
                self.later(SECOND, m.RegistrationDeleted(now_ms, runner_id))
            case m.StopMachine(runner_id):
                self.later(SECOND, m.StopAccepted(now_ms, runner_id))
                for after_ms in (15 * SECOND, 40 * SECOND):
                    self.later(after_ms, m.MachineAbsent(now_ms + after_ms, runner_id))

    def _happen(self, event: m.Event) -> None:
        self.tell(event)
        if isinstance(event, m.StageReported) and event.stage is m.Stage.REGISTERED:
            self._give_job(self.world.runners[event.runner_id])

    def _give_job(self, runner: Runner) -> None:
        """GitHub's rule: any queued job of the pool; here the oldest."""
        free = [key for key in self.world.queued.get(runner.pool, ()) if key not in self._given]
        if not free:
            return
        self._given.add(free[0])
        job = self.world.jobs[free[0]]
        for after_ms, state in ((2 * SECOND, JobState.IN_PROGRESS), (self.job_ms, JobState.COMPLETED)):
            conclusion = "success" if state is JobState.COMPLETED else ""
            self.later(
                after_ms,
                m.JobReported(
                    0, state, job.job_id, job.run_id, 1, job.repository, job.labels, job.name, job.workflow,
                    conclusion=conclusion, runner_name=f"ci-{runner.id}",
                ),
            )  # fmt: skip


def no_capacity(*offers: str) -> Create:
    """Clouds that are sold out where the offer's key contains one of these."""

    def create(runner: Runner) -> m.Event | None:
        if any(part in runner.offer.key for part in offers):
            text = f"no capacity for {runner.offer.instance_type} in {runner.offer.zone}"
            return m.CreateFailed(0, runner.id, m.Trouble.NO_CAPACITY, text)
        return None

    return create


def busy_fleet(folder: Path) -> Fleet:
    """An afternoon: jobs of every kind and state, a sold-out zone, a full lab, an unroutable label."""
    fleet = Fleet(folder)
    fleet.create = no_capacity("us-east-1a/c5.4xlarge/spot")
    for index in range(6):
        fleet.job(1000 + index, SMALL)
        fleet.job(1100 + index, LARGE, repository="octo/models", workflow="wheels")
    fleet.job(1300, GPU, repository="octo/models", workflow="gpu tests")
    fleet.run(14 * MINUTE)
    for index in range(18):
        fleet.job(2000 + index, SMALL, name=f"unit tests ({index + 1})")
    fleet.run(30 * SECOND)
    for index in range(9):
        fleet.job(2100 + index, LARGE, repository="octo/models", workflow="wheels", name=f"wheel ({index + 1})")
        fleet.job(2300 + index, GPU, repository="octo/models", workflow="gpu tests", name=f"mi300 ({index + 1})")
    for index in range(5):
        fleet.job(2400 + index, ARM, workflow="arm")
    fleet.run(70 * SECOND)
    fleet.job(2500, ("self-hosted", "linux", "linux.night"), workflow="nightly")
    fleet.job(2600, ("self-hosted", "linux", "linux.smal"), workflow="docs")
    fleet.job(2601, ("self-hosted", "linux", "linux.smal"), workflow="docs")
    fleet.job(2602, ("<script>alert(1)</script>", "linux"), repository="octo/evil", name="<b>bold</b>")
    fleet.job(2700, ("self-hosted", "linux", "linux.fork"), workflow="forks")
    fleet.job(2800, ("linux.small", "linux.large"), workflow="either")
    fleet.job(2900, SMALL, state=JobState.WAITING, workflow="release")
    fleet.job(2950, SMALL, repository="stranger/repo")
    fleet.run(20 * SECOND)
    return fleet
