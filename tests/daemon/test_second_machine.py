"""A cloud that makes two machines of one launch: one works, the other goes, whichever it is."""

from __future__ import annotations

import pytest

from autoscaler.store.keys import Keys
from providers.sim.cloud import Machine, SimCloud
from tests.daemon.place import Place, until


async def twin(place: Place) -> tuple[Machine, Machine]:
    """The machine of the only launch, and another one with the same launch data: the account forgot its key."""
    await until(lambda: place.around.existing())
    [first] = place.around.existing()
    cloud = place.around.clouds[first.spec.offer.provider]
    assert isinstance(cloud, SimCloud)
    del cloud._by_key[first.spec.runner_id, first.spec.offer.key]
    await cloud.create(first.spec)
    [second] = [machine for machine in cloud.machines() if machine is not first]
    return first, second


async def test_one_of_two_machines_works_and_the_other_goes_at_once(place: Place) -> None:
    await place.leading()
    place.push(1, seconds=240)
    both = await twin(place)
    await until(lambda: any(job.state == "in_progress" for job in place.around.github.jobs()))
    await until(lambda: len(place.around.existing()) == 1)
    assert [job.state for job in place.around.github.jobs()] == ["in_progress"]
    assert place.around.existing()[0] in both
    await until(place.at_rest)
    assert [job.conclusion for job in place.around.github.jobs()] == ["success"]


async def test_two_machines_that_never_boot_are_both_removed(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    await place.leading()
    place.push(1, seconds=5)
    for machine in await twin(place):
        assert machine.task
        machine.task.cancel()
    await until(place.at_rest)
    assert [job.conclusion for job in place.around.github.jobs()] == ["success"]
    assert "a second machine beside" in caplog.text


async def test_the_one_that_works_stays_however_long_ago_it_called(place: Place) -> None:
    await place.leading()
    place.push(1, seconds=600)
    first, _ = await twin(place)
    assert first.task
    first.task.cancel()  # the one that was told us; the other one will work
    await until(lambda: any(job.state == "in_progress" for job in place.around.github.jobs()))
    store = place.replicas[0].daemon.store
    await store._link.call("DEL", Keys("test").machine(first.spec.runner_id))  # as an hour after its last call
    await until(place.at_rest)
    assert [job.conclusion for job in place.around.github.jobs()] == ["success"]
