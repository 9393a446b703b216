"""K22 on real parts: an account takes its spot machines back; where a rule says so, GitHub runs the job again."""

from __future__ import annotations

import pytest

from scheduling.lifecycle import RerunState
from tests.daemon.place import POLICY, Place, until

SPOT = POLICY.replace(
    "instance_types: {types}",
    "instance_types: {{t: {{cpus: 2, memory_gib: 4, on_demand: 0.1 USD/h, spot: 0.03 USD/h}}}}, "
    "faults: {{preempted: 1}}",
).replace(
    "cpus: 2}}}}\n",
    "cpus: 2}}, max_lifetime: 6h, offers: [{{provider: east, purchase: [spot]}}, {{provider: west}}]}}\n",
)
RULE = 'rules: [{{match: {{repository: "octo/*"}}, rerun: true}}]\n'


@pytest.mark.parametrize("rules", [RULE, ""], ids=["rule", "no rule"])
async def test_k22_a_job_whose_spot_machine_was_taken_is_run_again(tmp_path, rules: str) -> None:
    place = Place(tmp_path, speed=400.0, policy=SPOT + rules)
    await place.open()
    try:
        replica = await place.leading()
        world = replica.daemon.world
        assert world is not None
        (job_id,) = place.push(seconds=2 * 3600)  # longer than any spot machine here lives
        await until(lambda: world.jobs.get(f"{job_id}.1") and world.jobs[f"{job_id}.1"].runner)
        first = world.runners[world.jobs[f"{job_id}.1"].runner]
        assert first.offer.provider == "east"
        await until(lambda: world.reruns.get(f"{job_id}.1"))
        assert first.interrupted_ms
        assert first.interrupted_ms < first.taken_ms
        rerun = world.reruns[f"{job_id}.1"]
        if rules:
            await until(lambda: rerun.state is RerunState.ASKED)
            await until(
                lambda: any(job.run_id == rerun.run_id and job.key.endswith(".2") for job in world.jobs.values())
            )
            assert len(place.around.github.jobs()) == 2
        else:
            assert rerun.detail == "no rule says `rerun: true` for it"
            await until(place.at_rest)
            assert len(place.around.github.jobs()) == 1
    finally:
        await place.close()
