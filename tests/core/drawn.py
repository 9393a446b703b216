"""Policies, funds and offers as Hypothesis draws them: small enough that caps and limits are met all the time."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from scheduling.model import Hardware, Offer, Purchase
from scheduling.policy import FairShare, Fund, Policy, Price, ProviderPolicy, ReadyFloor, RunnerType, Share
from tests.core.fleet import HOUR, MINUTE, NOON, SECOND, USD, credit, offer, policy, runner_type

PROVIDERS = ("east", "west", "lab")
TYPES = ("small", "large")
REPOSITORIES = ("acme/app", "acme/lib")

caps = st.sampled_from((None, None, 1, 2, 4))
moments = st.sampled_from((0, SECOND, 20 * SECOND, 3 * MINUTE, HOUR))


@st.composite
def funds(draw: st.DrawFn) -> tuple[Fund, ...]:
    """Up to three credits and perhaps some cash, for any providers, purchases, repositories and dates."""
    found = []
    for number in range(draw(st.integers(1, 3))):
        found.append(
            credit(
                f"credit-{number}",
                draw(st.integers(1, 20)),
                *draw(st.sampled_from(((), (), ("east",), ("west", "lab")))),
                days=draw(st.sampled_from((1, 2, 300))),
                repositories=draw(st.sampled_from(((), (), ("acme/app",)))),
                purchase=draw(st.sampled_from((frozenset(), frozenset(), frozenset({Purchase.SPOT})))),
            )
        )
    if draw(st.booleans()):
        daily = draw(st.none() | st.integers(2, 20))
        cash = Fund("cash", cash=True, limit=draw(st.integers(1, 50)) * USD, spent=0, spent_as_of_ms=NOON)
        found.append(replace(cash, daily=daily * USD if daily else None))
    return tuple(found)


@st.composite
def types(draw: st.DrawFn) -> tuple[RunnerType, ...]:
    return tuple(
        runner_type(
            name,
            labels=("self-hosted", "linux", name),
            max_runners=draw(caps),
            max_price=draw(st.sampled_from((None, None, USD * 3 // 4))),
            hardware=Hardware(cpus=draw(st.sampled_from((4, 4, 4, 16)))),
            ready=draw(st.sampled_from(((), (ReadyFloor(1),)))),
            share=draw(st.sampled_from((Share(), Share(50, 10 * MINUTE)))),
            max_lifetime_ms=HOUR,
        )
        for name in TYPES
    )


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    providers = {
        name: ProviderPolicy(
            name, "sim", max_runners=draw(caps), price=draw(st.sampled_from((Price(), Price(plus=1))))
        )
        for name in PROVIDERS
    }
    fair = FairShare(
        fifo_after_ms=draw(st.none() | st.just(HOUR)),
        max_runners=draw(st.sampled_from(({}, {"acme/lib": 1}))),
        weights=draw(st.sampled_from(({}, {"acme/app": 3.0}))),
    )
    return policy(
        *draw(types()),
        funds=draw(funds()),
        providers=providers,
        fair_share=fair,
        max_runners=draw(st.none() | st.just(6)),
    )


@st.composite
def sold(draw: st.DrawFn, name: str) -> tuple[Offer, ...]:
    prices = st.sampled_from((USD // 5, USD // 2, USD // 3, USD, 0, None))
    return tuple(
        offer(
            name,
            draw(prices),
            zone=f"r1-{zone}",
            purchase=draw(st.sampled_from((Purchase.ON_DEMAND, Purchase.ON_DEMAND, Purchase.SPOT))),
            count=draw(st.none() | st.integers(1, 2)),
            hardware=Hardware(cpus=draw(st.sampled_from((8, 32))), memory_mib=16 * 1024),
        )
        for zone in "ab"[: draw(st.integers(1, 2))]
    )
