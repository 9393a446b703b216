"""What is looked at every few seconds, and what must hold at rest."""

from __future__ import annotations

from collections import Counter

from autoscaler.http.runner_api import callback_token
from autoscaler.sandbox import github_records as records
from providers.sim.settings import Fault
from scheduling.lifecycle import JobState, RunnerState
from scheduling.matching import matcher
from tests.simulation.github import CANARY
from tests.simulation.pages import shown

PAGES_EVERY = 40
"""Looks from one reading of all pages to the next."""
SECOND_MACHINE_S = 240
"""Two inventories, a boot and a poll."""


class Violation(Exception):
    """A promise was broken; the text begins with its number."""


class Looks:
    """The part of the checker that is asked, rather than told."""

    def look(self) -> None:
        """Every few seconds."""
        self._second_machines()
        self.looks += 1
        if self.looks % PAGES_EVERY == 0:
            self.pages()

    def _second_machines(self) -> None:
        """I2: a second machine of a runner is gone within two inventories, while clouds and Redis are well.

        One that hangs beside one that works is left until the work is over: nobody can tell which of them it is.
        """
        weather, now_s = self.world.weather.chances, self.world.loop.now
        ill = any(kind.startswith(("cloud_", "redis_", "callback_")) for kind in weather)
        every = [machine for cloud in self.world.clouds.values() for machine in cloud.machines()]
        count = Counter(machine.spec.runner_id for machine in every)
        doubled = {name for name, machines in count.items() if machines > 1}
        hung = {machine.spec.runner_id for machine in every if machine.fate.fault is Fault.BOOT_HANG}
        led = any(replica.leads for replica in self.world.replicas)
        for name in doubled:
            if ill or not led or (name in hung and name in self.configs):
                self.doubled_s[name] = now_s
            if now_s > self.doubled_s.setdefault(name, now_s) + SECOND_MACHINE_S:
                self.fail("I2", f"runner {name} has had {count[name]} machines for {SECOND_MACHINE_S} s")
                self.doubled_s[name] = now_s
        self.doubled_s = {name: since for name, since in self.doubled_s.items() if name in doubled}

    def pages(self) -> None:
        """I11, in what people are shown."""
        secrets = [CANARY, *(callback_token(self.world.fleet.key, name) for name in self.runners)]
        for replica in self.world.replicas:
            if replica.leads and replica.daemon is not None:
                for page, text in shown(replica.daemon, replica.metrics):
                    if any(secret in text for secret in secrets):
                        self.fail("I11", f"{page} shows a secret")

    def at_rest(self) -> bool:
        return not self.unrest()

    def unrest(self) -> list[str]:
        """What is still on its way."""
        world, found = self.world, []
        for job in world.truth.jobs.values():
            if job.state != "completed" and not self._may_wait(job):
                found.append(
                    f"I1: job {job.id}.{job.attempt} of {job.repository} {list(job.labels)} is {job.state}"
                )
        found += [f"I4: registration {each.name} is left" for each in world.truth.registrations.values()]
        live = [runner for runner in self.runners.values() if runner.state is not RunnerState.GONE]
        for runner in live:
            if runner.state is not RunnerState.READY or runner.pool:
                found.append(f"I3: runner {runner.id} is {runner.state} {runner.detail}")
        if len(live) != world.scenario.floor:
            found.append(f"I3: {len(live)} runners live, the ready floor is {world.scenario.floor}")
        for cloud in world.clouds.values():
            for machine in cloud.machines():
                if machine.spec.runner_id not in self.runners:
                    found.append(f"I3: machine {machine.ref} of {machine.spec.runner_id} has no record")
                elif self.runners[machine.spec.runner_id].state is RunnerState.GONE:
                    found.append(f"I3: machine {machine.ref} of {machine.spec.runner_id} outlives its runner")
            names = Counter(machine.spec.runner_id for machine in cloud.machines())
            found += [f"I2: {count} machines of {name} live" for name, count in names.items() if count > 1]
            found += [f"I3: disk {disk} is left" for disk in cloud.disks()]
        return found

    def _may_wait(self, job: records.Job) -> bool:
        """Not ours, or waiting with a stated reason."""
        rules = matcher(self.world.policy)
        if not rules.is_ours(job.labels):
            return True
        known = self.jobs.get(f"{job.id}.{job.attempt}")
        return (
            known is not None
            and known.state is JobState.QUEUED
            and known.blocked.startswith(
                ("unroutable", *(f"{name}: its access" for name in ("small", "big", "early", "forks")))
            )
        )

    def not_at_rest(self) -> None:
        for text in self.unrest():
            promise, _, rest = text.partition(": ")
            self.fail(promise, f"not within the bound: {rest}")
        raise Violation(self.violations[0])
