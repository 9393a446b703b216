"""A store that lost its records: machines are adopted, and what runs on them is not stopped."""

from __future__ import annotations

from scheduling import messages as m
from scheduling.lifecycle import JobState, RunnerState
from tests.core.fleet import MINUTE, Fleet, policy


def test_a_job_that_was_reported_before_its_machine_was_adopted_is_not_stopped() -> None:
    before = Fleet(policy())
    before.job(1)
    (runner,) = before.idle()

    fleet = Fleet(before.policy)
    fleet.cloud, fleet.busy = before.cloud, {runner.id}
    fleet.job(1, JobState.IN_PROGRESS, runner_name=f"acme-{runner.id}")
    adopted = m.MachineAdopted(
        fleet.now, runner.id, runner.ref, runner.runner_type, runner.offer, runner.price, runner.fund, runner.hold,
        runner.terms, fleet.now,
    )  # fmt: skip
    fleet.tell(adopted)

    fleet.run(runner.terms.boot_timeout_ms + 5 * MINUTE)
    record = fleet.world.runners[runner.id]
    assert (record.state, record.running) == (RunnerState.BUSY, "1.1")
    assert fleet.record(1).runner == runner.id
    assert runner.id in fleet.cloud.machines
