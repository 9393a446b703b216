"""What `provider check` tries of one provider: what all kinds have in common, then the kind's own part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoscaler.clock import Clock
from autoscaler.policy.file import Loaded, provider_config
from autoscaler.views.prices import DAY_MS, price_as_of
from autoscaler.views.values import time
from providers import checking, registry
from providers.base import CheckLine, LaunchSpec, Provider, ProviderError
from scheduling.matching import access_json, selected
from scheduling.model import Offer, Purchase
from scheduling.placement import image_of, ineligible, price_of
from scheduling.policy import Policy, RunnerType

CHECK_ID = "rcheck" + "0" * 15
OLD_PRICES_DAYS = 730


@dataclass(frozen=True, slots=True)
class Sample:
    """A launch as the policy would make it: of that type, at that offer."""

    rtype: RunnerType
    spec: LaunchSpec


def build(loaded: Loaded, name: str, fleet: str, clock: Clock) -> Provider:
    """The provider of that name. KeyError: the policy has none; `MissingSdk` as it says."""
    config = provider_config(loaded.policy, name, loaded.settings[name], fleet)
    return registry.kind(loaded.policy.providers[name].kind).build(config, clock)


async def check(
    loaded: Loaded, name: str, provider: Provider, fleet: str, clock: Clock
) -> tuple[list[CheckLine], list[Sample]]:
    """Every line, and the samples that a canary may launch. Nothing is launched, nothing raises."""
    policy = loaded.policy
    lines: list[CheckLine] = []
    try:
        offers: Sequence[Offer] = await provider.offers()
        mend = "" if offers else "name regions, subnets or hosts in the policy"
        lines.append(CheckLine("offers", bool(offers), f"{len(offers)} on sale", mend))
    except ProviderError as error:
        lines.append(checking.failed("offers", error))
        offers = registry.kind(policy.providers[name].kind).catalogue(
            provider_config(policy, name, loaded.settings[name], fleet)
        )
    lines.append(await checking.tried("inventory", provider.instances(), lambda found: f"{len(found)} machines"))
    samples = sampled(policy, name, offers, fleet)
    lines += _fit(policy, name, offers, samples)
    lines += _prices(policy, name, samples, clock)
    if own := getattr(provider, "check", None):
        lines += await own([sample.spec for sample in samples])
    return lines, samples


def sampled(policy: Policy, name: str, offers: Sequence[Offer], fleet: str) -> list[Sample]:
    """The smallest offer that serves a runner type, for each zone, purchase and image; refused ones too."""
    provider = policy.providers[name]
    found: dict[tuple[str, Purchase, str], Sample] = {}
    for rtype in policy.runner_types.values():
        mine = [offer for offer in offers if offer.purchase is not Purchase.RESERVED]
        for offer in sorted(selected(rtype, mine), key=lambda offer: offer.hardware.cpus):
            price = price_of(provider, offer)
            image = image_of(policy, rtype, provider, offer)
            if (
                price is None
                or image is None
                or ineligible(policy, rtype, provider, replace(offer, refusal=""), price)
            ):
                continue
            spec = LaunchSpec(
                fleet=fleet,
                runner_id=CHECK_ID,
                runner_type=rtype.name,
                offer=offer,
                price=price,
                fund="",
                hold=0,
                image=image,
                disk_gib=rtype.hardware.disk_gib,
                boot='{"access": ' + access_json(rtype) + "}",
                lifetime_ms=60_000,
            )
            found.setdefault((offer.zone, offer.purchase, image), Sample(rtype, spec))
    return list(found.values())


def _fit(policy: Policy, name: str, offers: Sequence[Offer], samples: Sequence[Sample]) -> list[CheckLine]:
    """Whether any runner type can run here; where none can, the commonest reason."""
    types = sorted({sample.rtype.name for sample in samples})
    if types or not offers:
        return [CheckLine("runner types", True, ", ".join(types))] if types else []
    reasons: dict[str, int] = {}
    provider = policy.providers[name]
    for rtype in policy.runner_types.values():
        for offer in selected(rtype, offers):
            why = ineligible(policy, rtype, provider, offer, price_of(provider, offer))
            reasons[why] = reasons.get(why, 0) + 1
    why = max(reasons, key=lambda each: reasons[each], default="no runner type names it in `offers`")
    return [CheckLine("runner types", False, f"none can run here: {why}", "see `autoscaler policy explain`")]


def _prices(policy: Policy, name: str, samples: Sequence[Sample], clock: Clock) -> list[CheckLine]:
    """How old the list prices are that the samples have; a price of the policy has no age."""
    provider = policy.providers[name]
    ages = [as_of_ms for sample in samples if (as_of_ms := price_as_of(provider, sample.spec.offer))]
    if not ages:
        return []
    days = (clock.now_ms() - min(ages)) // DAY_MS
    mend = "" if days <= OLD_PRICES_DAYS else "install a newer autoscaler, or state `price` at the provider"
    since = str(time(min(ages)))[:10]
    return [CheckLine("price age", not mend, f"list prices of {since}, {days} days old", mend)]
