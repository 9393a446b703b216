"""What every kind of provider must do, as tests: the core relies on each of them. Needs pytest and pytest-asyncio.

A kind's own test module subclasses `Conformance` and gives it a fixture `bench`, in this repository or in another:

    pytest.register_assert_rewrite("providers.conformance")   # in conftest.py
    from providers.conformance import Bench, Conformance

    class TestMyKind(Conformance):
        @pytest.fixture
        def bench(self) -> Bench: ...

The bench stands for one account at the real thing, an emulator or a simulation; faults are injected there, never
into the adapter. A fault that a kind cannot have is skipped by its bench with `pytest.skip`, which says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from enum import StrEnum
from typing import Any, Protocol

import pytest

from providers.base import (
    TAG_FLEET,
    TAG_RUNNER,
    Clock,
    Instance,
    Kind,
    LaunchSpec,
    NoCapacity,
    OutcomeUnknown,
    Provider,
    ProviderConfig,
    ProviderError,
    QuotaExceeded,
    Refused,
    Transient,
    Unauthorized,
)

TOKEN = "callback-token-that-nobody-may-see"


class Fault(StrEnum):
    """What goes wrong at the account from `inject` until `clear`."""

    NO_CAPACITY = "no_capacity"  # launches
    QUOTA = "quota"
    REFUSED = "refused"  # a bad image or another bad part of the request
    UNAUTHORIZED = "unauthorized"
    THROTTLED = "throttled"
    ANSWER_LOST = "answer_lost"  # launches: applied, no answer
    REQUEST_LOST = "request_lost"  # launches: not applied, no answer
    APPLIED_LATE = "applied_late"  # launches: no answer, applied at `arrive`
    LIST_THROTTLED_ONCE = "list_throttled_once"
    LIST_UNAUTHORIZED = "list_unauthorized"
    LIST_BREAKS = "list_breaks"  # a page after the first one never comes
    LIST_STALE = "list_stale"  # the list shows what it showed when it was last asked


class Bench(Protocol):
    """One account under test, empty at first. `config.fleet` is `fleet`; `clock` need not really sleep."""

    kind: Kind
    config: ProviderConfig
    clock: Clock

    def spec(self, number: int, *, fleet: str = "fleet", runner_type: str = "linux") -> LaunchSpec:
        """A launch that would succeed, for runner id `r` + 20 digits, with `TOKEN` in its boot data."""

    async def machines(self) -> list[str]:
        """Runner ids of all machines that exist, whoever's they are, as the account itself knows."""

    async def inject(self, fault: Fault) -> None: ...

    async def clear(self) -> None:
        """No fault from now on."""

    async def arrive(self) -> None:
        """Launches that were on their way all the time are applied now."""

    async def fill(self, count: int) -> None:
        """Make that many machines of ours, however the account likes it best."""

    async def strangers(self) -> None:
        """Make one machine that carries no tag of ours."""

    async def end_leaving_a_disk(self, instance: Instance) -> None:
        """The machine ends and its disk stays, as long as an inventory needs to notice."""


class Conformance:
    """Inherit and add the fixture `bench`."""

    @pytest.fixture
    async def provider(self, bench: Bench) -> Any:
        provider = bench.kind.build(bench.config, bench.clock)
        yield provider
        await provider.close()

    # ---- construction and offers -----------------------------------------------------------------------------

    async def test_building_does_no_io_and_closing_twice_is_fine(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise AssertionError("a constructor went to the network")

        with monkeypatch.context() as patch:
            patch.setattr(socket.socket, "connect", refuse)
            provider = bench.kind.build(bench.config, bench.clock)
            assert bench.kind.catalogue(bench.config)
        await provider.close()
        await provider.close()

    async def test_offers_are_unique_and_plausible(self, bench: Bench, provider: Provider) -> None:
        offers = await provider.offers()
        assert offers
        assert len({offer.key for offer in offers}) == len(offers)
        for offer in offers:
            assert offer.provider == bench.config.name
            assert offer.region
            assert offer.zone
            assert offer.instance_type
            assert offer.list_price is None or offer.list_price >= 0
            assert 1 <= offer.hardware.cpus <= 1024
            assert 256 <= offer.hardware.memory_mib / offer.hardware.cpus <= 64 * 1024
            assert offer.hardware.gpu is None or 1 <= offer.hardware.gpu.count <= 16

    async def test_the_catalogue_knows_every_offer_without_io(self, bench: Bench, provider: Provider) -> None:
        known = {offer.key: offer.hardware for offer in bench.kind.catalogue(bench.config)}
        for offer in await provider.offers():
            assert known[offer.key] == offer.hardware

    async def test_balance_is_known_or_none(self, provider: Provider) -> None:
        balance = await provider.balance()
        assert balance is None or balance.spent >= 0

    # ---- launch ----------------------------------------------------------------------------------------------

    async def test_a_launched_machine_is_listed_with_its_tags(self, bench: Bench, provider: Provider) -> None:
        spec = bench.spec(1)
        made = await provider.launch(spec)
        (seen,) = await provider.instances()
        assert (made.runner_id, made.ref) == (seen.runner_id, seen.ref) == (spec.runner_id, made.ref)
        assert (seen.region, seen.zone) == (spec.offer.region, spec.offer.zone)
        assert seen.instance_type == spec.offer.instance_type
        assert dict(seen.tags).items() >= spec.tags.items()
        assert seen.launched_ms > 0
        assert seen.orphans == ()

    async def test_a_repeated_launch_finds_the_first_machine(self, bench: Bench, provider: Provider) -> None:
        first = await provider.launch(bench.spec(1))
        again = await provider.launch(bench.spec(1))
        assert again.ref == first.ref
        assert len(await bench.machines()) == 1

    async def test_launches_at_the_same_time_make_one_machine(self, bench: Bench, provider: Provider) -> None:
        made = await asyncio.gather(*(provider.launch(bench.spec(1)) for _ in range(4)))
        assert len({instance.ref for instance in made}) == 1
        assert len(await bench.machines()) == 1

    async def test_another_process_may_repeat_the_launch(self, bench: Bench, provider: Provider) -> None:
        first = await provider.launch(bench.spec(1))
        other = bench.kind.build(bench.config, bench.clock)
        assert (await other.launch(bench.spec(1))).ref == first.ref
        await other.close()
        assert len(await bench.machines()) == 1

    @pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.REQUEST_LOST])
    async def test_unknown_outcome_then_replay_makes_one_machine(
        self, bench: Bench, provider: Provider, fault: Fault
    ) -> None:
        await bench.inject(fault)
        with pytest.raises(OutcomeUnknown):
            await provider.launch(bench.spec(1))
        await bench.clear()
        assert len(await bench.machines()) == (1 if fault is Fault.ANSWER_LOST else 0)
        made = await provider.launch(bench.spec(1))
        assert await bench.machines() == [made.runner_id]

    @pytest.mark.parametrize("arrives", ["before the replay", "after the replay"])
    async def test_a_launch_applied_late_makes_one_machine(
        self, bench: Bench, provider: Provider, arrives: str
    ) -> None:
        await bench.inject(Fault.APPLIED_LATE)
        with pytest.raises(OutcomeUnknown):
            await provider.launch(bench.spec(1))
        await bench.clear()
        if arrives == "before the replay":
            await bench.arrive()
        made = await provider.launch(bench.spec(1))
        await bench.arrive()
        assert await bench.machines() == [made.runner_id]

    async def test_a_cancelled_launch_counts_as_unknown(self, bench: Bench, provider: Provider) -> None:
        """Whoever cancels `launch` learns nothing: the machine may come. The replay still makes one."""
        launch = asyncio.ensure_future(provider.launch(bench.spec(1)))
        await asyncio.sleep(0)
        launch.cancel()
        await asyncio.gather(launch, return_exceptions=True)
        made = await provider.launch(bench.spec(1))
        assert await bench.machines() == [made.runner_id]

    @pytest.mark.parametrize(
        ("fault", "error"),
        [
            (Fault.NO_CAPACITY, NoCapacity),
            (Fault.QUOTA, QuotaExceeded),
            (Fault.REFUSED, Refused),
            (Fault.UNAUTHORIZED, Unauthorized),
            (Fault.THROTTLED, Transient),
        ],
    )
    async def test_k6_k7_a_definite_refusal_is_named_and_makes_nothing(
        self, bench: Bench, provider: Provider, fault: Fault, error: type[ProviderError]
    ) -> None:
        await bench.inject(fault)
        with pytest.raises(error, match=bench.config.name) as refused:
            await provider.launch(bench.spec(1))
        assert TOKEN not in str(refused.value)
        assert await bench.machines() == []
        await bench.clear()
        await provider.launch(bench.spec(1))
        assert len(await bench.machines()) == 1

    async def test_names_at_their_limits(self, bench: Bench, provider: Provider) -> None:
        """A fleet of 20 characters and a long runner type: name and tags arrive whole."""
        spec = bench.spec(10**20 - 1, runner_type="linux.g5.4xlarge.nvidia.gpu-" + "x" * 72)
        made = await provider.launch(spec)
        longest = bench.spec(2, fleet="f" * 20)
        await provider.launch(longest)
        assert dict(made.tags).items() >= spec.tags.items()
        assert sorted(await bench.machines()) == [longest.runner_id, spec.runner_id]

    async def test_the_callback_token_is_shown_nowhere(self, bench: Bench, provider: Provider) -> None:
        spec = bench.spec(1)
        made = await provider.launch(spec)
        assert TOKEN not in repr(spec)
        assert TOKEN not in repr(made)
        assert TOKEN not in repr(await provider.instances())

    # ---- terminate -------------------------------------------------------------------------------------------

    async def test_terminate_ends_the_machine_and_may_be_repeated(self, bench: Bench, provider: Provider) -> None:
        made, kept = await provider.launch(bench.spec(1)), await provider.launch(bench.spec(2))
        await provider.terminate(made.ref)
        await provider.terminate(made.ref)
        assert [instance.ref for instance in await provider.instances()] == [kept.ref]
        assert await bench.machines() == [kept.runner_id]

    async def test_an_absent_machine_is_success(self, bench: Bench, provider: Provider) -> None:
        made = await provider.launch(bench.spec(1))
        digit = "1" if made.ref[-1] != "1" else "2"
        await provider.terminate(made.ref[:-1] + digit)
        assert len(await bench.machines()) == 1

    async def test_a_replay_after_the_end_makes_no_second_machine(self, bench: Bench, provider: Provider) -> None:
        made = await provider.launch(bench.spec(1))
        await provider.terminate(made.ref)
        with contextlib.suppress(OutcomeUnknown):
            assert (await provider.launch(bench.spec(1))).ref == made.ref
        assert await bench.machines() == []

    async def test_k28_what_a_machine_leaves_behind_is_listed_and_removed(
        self, bench: Bench, provider: Provider
    ) -> None:
        made = await provider.launch(bench.spec(1))
        await bench.end_leaving_a_disk(made)
        (left,) = await provider.instances()
        assert left.runner_id == made.runner_id
        assert left.ref == ""
        assert left.orphans
        for ref in left.orphans:
            await provider.terminate(ref)
            await provider.terminate(ref)
        assert await provider.instances() == []

    # ---- instances -------------------------------------------------------------------------------------------

    async def test_only_ours_are_listed(self, bench: Bench, provider: Provider) -> None:
        await bench.strangers()
        await provider.launch(bench.spec(1, fleet="fleet-2"))
        made = await provider.launch(bench.spec(2))
        seen = await provider.instances()
        assert [(one.runner_id, one.tags[TAG_RUNNER], one.tags[TAG_FLEET]) for one in seen] == [
            (made.runner_id, made.runner_id, "fleet")
        ]

    async def test_more_than_a_thousand_machines_are_listed(self, bench: Bench, provider: Provider) -> None:
        await bench.fill(1050)
        seen = await provider.instances()
        assert len({instance.ref for instance in seen}) == len({instance.runner_id for instance in seen}) == 1050

    async def test_half_a_list_raises(self, bench: Bench, provider: Provider) -> None:
        await bench.fill(250)
        await bench.inject(Fault.LIST_BREAKS)
        with pytest.raises(ProviderError):
            await provider.instances()

    async def test_a_stale_list_is_a_list(self, bench: Bench, provider: Provider) -> None:
        first = await provider.launch(bench.spec(1))
        await provider.instances()
        await provider.launch(bench.spec(2))
        await bench.inject(Fault.LIST_STALE)
        assert first.ref in {instance.ref for instance in await provider.instances()}

    async def test_a_throttled_list_is_asked_again(self, bench: Bench, provider: Provider) -> None:
        await provider.launch(bench.spec(1))
        await bench.inject(Fault.LIST_THROTTLED_ONCE)
        assert len(await provider.instances()) == 1

    async def test_a_forbidden_list_raises(self, bench: Bench, provider: Provider) -> None:
        await bench.inject(Fault.LIST_UNAUTHORIZED)
        with pytest.raises(Unauthorized):
            await provider.instances()
