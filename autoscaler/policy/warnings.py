"""What `policy check` says about a policy that is valid: what it will not do, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from autoscaler.policy.tree import Tree
from autoscaler.policy.values import did_you_mean
from autoscaler.units import show
from scheduling import ledger
from scheduling.ledger import usd
from scheduling.matching import fits, selected
from scheduling.model import Offer, Purchase, UnixMs
from scheduling.placement import image_of, price_of
from scheduling.policy import Fund, Policy, ProviderPolicy, RunnerType

NEED_REGIONS: Mapping[str, str] = {"aws": "subnets", "azure": "subnets", "gcp": ""}
"""Kinds that run nothing without `regions` and, where a key is named, an entry of it in `settings` for each."""

FEW = 5
"""Up to so many runner types are named one by one."""


def add_warnings(tree: Tree, policy: Policy, catalogues: Mapping[str, Sequence[Offer]], now_ms: UnixMs) -> None:
    """`catalogues`: what each provider is known to sell without I/O; empty where that says nothing."""
    _providers(tree, policy)
    for fund in policy.funds.values():
        if fund.purchase == {Purchase.RESERVED}:
            tree.warn(("funds", fund.name, "purchase"), "reserved machines cost a fund nothing: it pays for none")
        if reason := _closed(fund, now_ms):
            tree.warn(("funds", fund.name), f"this fund is closed: {reason}")
    types = policy.runner_types.values()
    _types(
        tree,
        {rtype.name: "" for rtype in types if not rtype.access.repositories},
        'no repository is allowed: write `access: {repositories: ["OWNER/*"]}` here or under `defaults`',
    )
    bare = [rtype.name for rtype in types if not rtype.image and _takes_image(rtype, policy)]
    _types(tree, dict.fromkeys(bare, ""), "no `image` is named, here or under `defaults`: nothing can be launched")
    hopeless = {rtype.name: reason for rtype in types if (reason := _hopeless(rtype, policy, catalogues))}
    _types(tree, hopeless, "no offer can ever match")


def _providers(tree: Tree, policy: Policy) -> None:
    for name, provider in policy.providers.items():
        for missing in _missing(provider):
            tree.warn(("providers", name), f"{missing}: nothing can be launched there")
        paid = any(fund.pays is None or name in fund.pays for fund in policy.funds.values())
        if not paid and provider.price.fixed != 0:
            tree.warn(("providers", name), f"no fund pays {show(name)}: only offers at 0 USD/h can run there")


def _missing(provider: ProviderPolicy) -> Iterator[str]:
    key = NEED_REGIONS.get(provider.kind)
    if key is None:
        return
    if not provider.regions:
        yield "`regions` is missing"
    if not key:
        return
    places = provider.settings.get(key, {})
    if not places:
        yield f"`settings.{key}` is missing"
    elif bare := [region for region in provider.regions if not places.get(region)]:
        yield f"`settings.{key}` has none in {', '.join(bare)}"


def _closed(fund: Fund, now_ms: UnixMs) -> str:
    if fund.until_ms is not None and fund.until_ms <= now_ms:
        return f"its `until` passed on {_date(fund.until_ms)}"
    if fund.from_ms is not None and fund.from_ms > now_ms:
        return f"it begins on {_date(fund.from_ms)}"
    if ledger.opening(fund, now_ms):
        return ""
    if fund.spent is not None:
        unknown = f"`spent` is of {_date(fund.spent_as_of_ms)}, older than yesterday"
    else:
        unknown = "what was spent before is unknown"
    today = _date(now_ms)
    return (
        f"{unknown}. It opens if the fleet has a record of it, by `from: {today}` where it is new, by "
        f"`spent: {{amount: ... USD, as_of: {today}}}`, or by `autoscaler funds set {fund.name} --spent AMOUNT`"
    )


def _date(at_ms: UnixMs) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def _takes_image(rtype: RunnerType, policy: Policy) -> bool:
    """Whether some provider that may run it starts machines from an image."""
    named = policy.providers if rtype.selectors is None else {entry.provider for entry in rtype.selectors}
    return any(provider.takes_image for name, provider in policy.providers.items() if name in named)


def _types(tree: Tree, reasons: Mapping[str, str], text: str) -> None:
    """One warning a runner type, or one for all where they are many."""
    names = list(reasons)
    if len(names) <= FEW:
        for name, reason in reasons.items():
            tree.warn(("runner_types", name), text + (f": {reason}" if reason else ""))
        return
    example = reasons[names[0]]
    which = f"{', '.join(names[:3])} and {len(names) - 3} more"
    tree.warn(("runner_types",), f"{which}: {text}" + (f", for example: {example}" if example else ""))


def _hopeless(rtype: RunnerType, policy: Policy, catalogues: Mapping[str, Sequence[Offer]]) -> str:
    """Why nothing that is known of the providers can serve the type; empty where something may."""
    reasons = []
    for name, provider in policy.providers.items():
        entries = [entry for entry in rtype.selectors or () if entry.provider == name]
        if rtype.selectors is not None and not entries:
            continue
        offers = catalogues.get(name, ())
        if not offers:
            return ""
        for offer in selected(rtype, offers):
            reason = _refusal(policy, rtype, provider, offer)
            if not reason:
                return ""
            reasons.append(f"{offer.instance_type} of {name} {reason}")
        sold = {offer.instance_type for offer in offers}
        unsold = {each for entry in entries for each in entry.instance_types} - sold
        reasons += [
            f"{name} is not known to sell {show(each)}{did_you_mean(each, sold)}" for each in sorted(unsold)
        ]
    return reasons[0] if reasons else "no provider sells what `offers` says"


def _refusal(policy: Policy, rtype: RunnerType, provider: ProviderPolicy, offer: Offer) -> str:
    """What can be said against an offer now; a price that is only known at run time says nothing."""
    if misfit := fits(rtype.hardware, offer.hardware, offer.elastic_disk):
        return misfit
    if image_of(policy, rtype, provider, offer) is None:
        return f"has no image {rtype.image} in {offer.region}"
    price = price_of(provider, offer)
    if price is not None and rtype.max_price is not None and price > rtype.max_price:
        return f"costs {usd(price)}/h, more than its `max_price`"
    return ""
