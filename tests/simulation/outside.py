"""What the outside world must never see: registrations, configs, steps, creates and stops, judged on the spot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from autoscaler.http.runner_api import callback_token
from autoscaler.sandbox import github_records as records
from autoscaler.sandbox.machines import GivenJob
from providers.base import LaunchSpec
from providers.sim import Machine
from scheduling.lifecycle import GoneReason, RunnerState
from scheduling.policy import matches
from tests.simulation.clouds import Cloud
from tests.simulation.github import CANARY
from tests.simulation.machines import Watcher
from tests.simulation.scenario import MAX_LIFETIME_MS

if TYPE_CHECKING:
    from tests.simulation.replica import Replica

SKEW_MS = 600_000
ENDED = (RunnerState.LEAVING, RunnerState.STOPPING, RunnerState.GONE)


class Outside(Watcher):
    """The part of the checker that sees GitHub, clouds and machines, and counts the rows of the crash matrix."""

    # ---- GitHub and machines -------------------------------------------------------------------------------

    def job_event(self, action: str, job: records.Job) -> None:
        self.tell(
            f"GitHub: job {job.id}.{job.attempt} of {job.repository} {action} {job.conclusion} {job.runner_name}"
        )
        if action == "in_progress":
            self.used.add(job.runner_name)

    def registered(self, registration: records.Registration) -> None:
        self.tell(f"GitHub: {registration.name} is registered as {registration.id} at {registration.target}")
        runner = registration.name[: len(self.fleet) + 22]  # the fleet, a dash, and r with 20 characters
        same = self.world.truth.named(runner)
        if len(same) > 1:
            self.fail("I2", f"{runner} has {len(same)} registrations at GitHub")

    def handed(self, machine: Machine, config: str) -> None:
        self.tell(f"machine {machine.ref} of {machine.spec.runner_id} has its JIT config")
        given = self.configs[machine.spec.runner_id]
        given.add((machine.ref, config))
        early = self.world.policy.runner_types[machine.spec.runner_type].bootstrap == "userdata"
        if len({ref for ref, _ in given}) > 1 and not early:  # in user data a second machine has it too
            self.fail("I2", f"runner {machine.spec.runner_id}: several machines were given a JIT config")
        elif len({config for _, config in given}) > 1:
            self.fail("I2", f"runner {machine.spec.runner_id}: {len(given)} JIT configs were handed out")

    def step_begins(self, machine: Machine, job: GivenJob) -> None:
        """I10, at the first step of a job."""
        self.tell(f"machine {machine.ref} of {machine.spec.runner_id} runs job {job.job_id}")
        rtype = self.world.policy.runner_types[machine.spec.runner_type]
        if self._refused(rtype, job.repository, job.fork):
            self.fail("I10", f"job {job.job_id} of {job.repository} runs on a machine of {rtype.name}")
        for rule in self.world.policy.rules:
            if (
                rule.repository
                and matches(rule.repository, job.repository)
                and machine.spec.offer.provider in rule.deny
            ):
                self.fail("I10", f"job {job.job_id} of {job.repository} runs at {machine.spec.offer.provider}")

    def creating(self, spec: LaunchSpec) -> None:
        """I3: the intent is in the store before the create call is sent."""
        self.tell(f"create of {spec.runner_id} at {spec.offer.key}")
        boot = json.loads(spec.boot)
        boot.pop("jit", None)  # `bootstrap: userdata` puts it there, and nowhere else
        launch_data = f"{spec.tags} {boot}"
        if CANARY in launch_data or callback_token(self.world.fleet.key, spec.runner_id) in str(spec.tags):
            self.fail("I11", f"the tags or the launch data of {spec.runner_id} hold a secret")
        intent = self.runners.get(spec.runner_id)
        if intent is not None and intent.offer.key != spec.offer.key:
            self.fail("I2", f"{spec.runner_id} is asked for at {spec.offer.key}: its intent is {intent.offer.key}")
        if spec.runner_id not in self.launched:
            self.fail("I3", f"runner {spec.runner_id} is created at {spec.offer.key} before its intent is stored")

    def terminated(self, cloud: Cloud, ref: str) -> None:
        """I6, as the terminate call arrives."""
        machine = cloud.machine(ref)
        if machine is None:
            return
        self.tell(f"terminate {ref} of {machine.spec.runner_id}")
        job = self.world.machines.running.get(ref)
        if job is None or self.world.truth.jobs[job.job_id].state == "completed":
            return
        runner = self.runners.get(machine.spec.runner_id)
        age_ms = self.world.clock.now_ms() - machine.from_ms
        if runner and runner.reason is GoneReason.MAX_LIFETIME and age_ms > MAX_LIFETIME_MS - SKEW_MS:
            return
        self.fail("I6", f"machine {ref} of {machine.spec.runner_id} is stopped while job {job.job_id} runs on it")

    # ---- crash matrix --------------------------------------------------------------------------------------

    def replica_died(self, replica: Replica) -> None:
        """What the world looks like at this instant: the row of the crash matrix."""
        world, rows = self.world, self.rows
        self.tell(f"replica {replica.process.name} dies")
        existing = {machine.spec.runner_id for cloud in world.clouds.values() for machine in cloud.machines()}
        names = {each.name for each in world.truth.registrations.values()}
        jobs = world.truth.jobs
        for runner in self.runners.values():
            there, registered = runner.id in existing, f"{self.fleet}-{runner.id}" in names
            match runner.state:
                case RunnerState.PLANNED | RunnerState.UNKNOWN:
                    rows["created, not recorded" if there else "after commit, before create"] += 1
                case RunnerState.REGISTERING if registered and not runner.registration_id:
                    rows["JIT created, answer lost"] += 1
                case RunnerState.REGISTERING if runner.registration_id and runner.id not in self.configs:
                    rows["JIT stored, poll answer lost"] += 1
                case RunnerState.LEAVING | RunnerState.BUSY if there and not registered:
                    rows["DELETE done, not terminated"] += 1
                case RunnerState.STOPPING if runner.absences:
                    rows["half-way through settlement"] += 1
            if there and runner.running and jobs[int(runner.running.split(".")[0])].state == "completed":
                rows["job done, not terminated"] += 1

    def policy_reloaded(self) -> None:
        """The other policy begins."""
        launching = (RunnerState.PLANNED, RunnerState.UNKNOWN, RunnerState.STARTING)
        under_way = any(runner.state in launching for runner in self.runners.values())
        self.rows["policy reload during a launch"] += under_way
