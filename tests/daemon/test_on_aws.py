"""A whole replica over the real SDK against moto: what an operator of an AWS account relies on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from autoscaler.clock import Clock
from scheduling.lifecycle import GoneReason, RunnerState
from tests.daemon.place import Place, live, until
from tests.providers.aws_bench import ALWAYS, AwsBench, moto_account
from tests.providers.moto_cloud import MotoCloud, Rule

POLICY = """\
version: 1
funds:
  grant: {{{{credit: 1000 USD, until: 2030-01-01, spent: {{{{amount: 0 USD, as_of: {{today}}}}}}}}}}
providers:
  gift:
    kind: aws
    regions: [us-east-1]
    endpoint: {endpoint}
    settings: {{{{subnets: {{{{us-east-1: {{{{{subnets}}}}}}}}}}}}}
images: {{{{al2023: {{{{gift: {image}}}}}}}}}
defaults: {{{{image: al2023, access: {{{{repositories: ["octo/*"], forks: allow}}}}}}}}
runner_types:
  linux:
    labels: [self-hosted, linux]
    hardware: {{{{os: linux, cpus: 2}}}}
    offers: [{{{{provider: gift, instance_types: [c5.large]}}}}]
"""


@pytest.fixture
def moto() -> Iterator[MotoCloud]:
    with moto_account() as cloud:
        yield cloud


@pytest_asyncio.fixture
async def account(moto: MotoCloud) -> AsyncIterator[tuple[Place, MotoCloud, AwsBench]]:
    bench = AwsBench(moto, Clock())
    subnets = ", ".join(f"{zone}: {bench.subnets[zone]}" for zone in bench.zones)
    text = POLICY.format(endpoint=moto.url, subnets=subnets, image=bench.image)
    with tempfile.TemporaryDirectory(prefix="place-") as name:
        place = Place(Path(name), speed=1.0, policy=text)
        await place.open()
        yield place, moto, bench
        await place.close()


def machines(moto: MotoCloud) -> list[object]:
    return [m for r in moto.backend().reservations.values() for m in r.instances]


def launches(moto: MotoCloud) -> list[dict[str, str]]:
    return [request for request in moto.requests if request.get("Action") == "RunInstances"]


async def test_launches_carry_our_tags_and_the_token(account: tuple[Place, MotoCloud, AwsBench]) -> None:
    place, moto, _ = account
    replica = await place.leading()
    place.push(3)
    await until(lambda: len(machines(moto)) == 3)
    await until(lambda: len(replica.daemon.world.by_state[RunnerState.STARTING]) == 3)
    tags = [{tag["key"]: tag["value"] for tag in machine.get_tags()} for machine in machines(moto)]  # type: ignore[attr-defined]
    assert {tag["autoscaler-fleet"] for tag in tags} == {"test"}
    assert {tag["autoscaler-runner"] for tag in tags} == {runner.id for runner in live(replica.daemon.world)}
    assert {tag["autoscaler-fund"] for tag in tags} == {"grant"}
    assert {request["ClientToken"] for request in launches(moto)} == {tag["autoscaler-runner"] for tag in tags}


async def test_k6_no_capacity_on_the_first_offer_leads_to_the_next_within_a_second(
    account: tuple[Place, MotoCloud, AwsBench],
) -> None:
    place, moto, bench = account
    replica = await place.leading()
    first = bench.zones[0]
    rule = Rule(
        "RunInstances", ALWAYS, code="InsufficientInstanceCapacity", status=500, where=bench.subnets[first]
    )
    moto.add(rule)
    pushed = time.monotonic()
    place.push(1)
    await until(lambda: machines(moto))
    print(f"next offer after {time.monotonic() - pushed:.2f} s")
    (failed,) = replica.daemon.world.by_state[RunnerState.GONE]
    assert replica.daemon.world.runners[failed].reason is GoneReason.LAUNCH_FAILED
    assert [machine.placement.zone for machine in machines(moto)] == [bench.zones[1]]  # type: ignore[attr-defined]


async def test_an_unknown_outcome_launches_nothing_twice(account: tuple[Place, MotoCloud, AwsBench]) -> None:
    place, moto, _ = account
    replica = await place.leading()
    moto.add(Rule("RunInstances", 1, cut=True, apply=True))
    place.push(1)
    await until(lambda: replica.daemon.world.by_state[RunnerState.STARTING])
    assert len(machines(moto)) == 1
    assert len({request["ClientToken"] for request in launches(moto)}) == 1
    assert len(launches(moto)) == 2  # the answer was lost, the replay found the machine


async def test_a_machine_of_ours_that_the_store_does_not_know_is_adopted(
    account: tuple[Place, MotoCloud, AwsBench],
) -> None:
    place, moto, bench = account
    tags = {**bench.spec(1, fleet="test").tags}
    moto.fill("us-east-1", bench.image, bench.subnets[bench.zones[0]], [tags])
    replica = await place.replica()
    await until(lambda: live(replica.daemon.world))
    (runner,) = live(replica.daemon.world)
    assert runner.adopted
    assert runner.id == tags["autoscaler-runner"]
    assert runner.state is RunnerState.STARTING
    assert sum(part.amount for part in runner.hold) == int(tags["autoscaler-hold"])
