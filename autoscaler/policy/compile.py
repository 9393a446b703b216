"""From the validated document to `scheduling.policy.Policy`: defaults filled in. Nothing is checked here."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Any

from autoscaler.policy import model as written
from providers import registry
from scheduling import policy as compiled
from scheduling.model import Gpu, Hardware, Purchase

TIMES = ("boot_timeout", "register_timeout", "idle_timeout", "max_lifetime", "ready_max_age")


def compile_policy(document: written.Document, policy_hash: str, kinds: Collection[str]) -> compiled.Policy:
    """`kinds` are those that can run: providers of any other kind are left out, so nothing is asked of them."""
    providers = {name: provider for name, provider in document.providers.items() if provider.kind in kinds}
    deadline = document.on_deadline
    return compiled.Policy(
        hash=policy_hash,
        providers={name: _provider(name, provider) for name, provider in providers.items()},
        runner_types={
            name: _runner_type(name, rtype, document.defaults) for name, rtype in document.runner_types.items()
        },
        funds={name: _fund(name, fund) for name, fund in document.funds.items()},
        images={name: _image(name, image) for name, image in document.images.items()},
        rules=tuple(map(_rule, document.rules)),
        ignore_labels=tuple(document.ignore_labels),
        max_runners=document.limits.runners,
        placement=compiled.Placement(**_stated(document.placement, "waiting_hour", "restart_cost")),
        fair_share=_fair_share(document.fair_share),
        on_deadline=compiled.OnDeadline(deadline.after, deadline.action) if deadline else None,
    )


def _image(name: str, image: written.Image) -> compiled.Image:
    trial = image.trial
    return compiled.Image(name, image.by, trial.image if trial else "", trial.percent if trial else 0)


def _stated(part: written.Part, *names: str) -> dict[str, Any]:
    """The keys that the file states, so that all others keep the default of the compiled class."""
    return {name: value for name in names if (value := getattr(part, name)) is not None}


def _purchases(names: Iterable[str] | None) -> tuple[Purchase, ...]:
    return tuple(Purchase(name) for name in names or ())


def _fund(name: str, fund: written.Fund) -> compiled.Fund:
    limit = fund.cash if fund.credit is None else fund.credit
    return compiled.Fund(
        name=name,
        cash=fund.credit is None,
        limit=limit or 0,
        from_ms=fund.from_,
        until_ms=fund.until,
        pays=None if fund.pays is None else frozenset(fund.pays),
        purchase=frozenset(_purchases(fund.purchase)),
        repositories=tuple(fund.repositories or ()),
        regions=tuple(fund.regions or ()),
        families=tuple(fund.families or ()),
        daily=fund.daily,
        spent=fund.spent.amount if fund.spent else None,
        spent_as_of_ms=fund.spent.as_of if fund.spent else 0,
        balance=fund.balance or "",
    )


def _price(price: int | written.PriceTerms | None) -> compiled.Price:
    if price is None:
        return compiled.Price()
    if isinstance(price, int):
        return compiled.Price(fixed=price)
    return compiled.Price(times_ppm=round(Decimal(str(price.times)) * 1_000_000), plus=price.plus)


def _provider(name: str, provider: written.Provider) -> compiled.ProviderPolicy:
    return compiled.ProviderPolicy(
        name=name,
        kind=provider.kind,
        regions=tuple(provider.regions or ()),
        max_runners=provider.max_runners if isinstance(provider.max_runners, int) else None,
        from_cluster=provider.max_runners == "from_cluster",
        launch_rate=None if provider.launch_rate is None else provider.launch_rate / 3600,
        price=_price(provider.price),
        available=provider.available,
        endpoint=provider.endpoint,
        takes_image=registry.kind(provider.kind).takes_image,
        settings=provider.settings,
    )


def _runner_type(name: str, rtype: written.RunnerType, defaults: written.Life) -> compiled.RunnerType:
    need = rtype.hardware
    life: dict[str, Any] = {}
    for part in (defaults, rtype):
        life |= _stated(part, "image", "bootstrap")
        life |= {f"{time}_ms": value for time, value in _stated(part, *TIMES).items()}
        if part.register_ is not None:
            life["register"] = (
                part.register_ if isinstance(part.register_, str) else f"group:{part.register_.group}"
            )
    return compiled.RunnerType(
        name=name,
        labels=tuple(rtype.labels),
        hardware=Hardware(
            os=need.os,
            arch=need.arch,
            cpus=need.cpus,
            memory_mib=need.memory,
            disk_gib=need.disk,
            gpu=Gpu(need.gpu.vendor, need.gpu.model, need.gpu.count) if need.gpu else None,
        ),
        selectors=None if rtype.offers is None else tuple(map(_selector, rtype.offers)),
        max_price=rtype.max_price,
        max_runners=rtype.max_runners,
        ready=tuple(compiled.ReadyFloor(floor.count, floor.when) for floor in rtype.ready),
        share=compiled.Share(rtype.share.percent, rtype.share.all_after) if rtype.share else compiled.Share(),
        access=_access(defaults.access, rtype.access),
        **life,
    )


def _access(*layers: written.Access) -> compiled.Access:
    """Key by key: what the type does not say for itself, `defaults` says."""
    stated: dict[str, Any] = {}
    for layer in layers:
        stated |= _stated(layer, "repositories", "forks", "events")
    return compiled.Access(
        repositories=tuple(stated.get("repositories", ())),
        forks=compiled.Forks(stated.get("forks", "deny")),
        events=tuple(stated.get("events", ())),
    )


def _selector(selector: written.Selector) -> compiled.Selector:
    return compiled.Selector(
        provider=selector.provider,
        instance_types=tuple(selector.instance_types or ()),
        purchase=_purchases(selector.purchase) or (Purchase.ON_DEMAND,),
        regions=tuple(selector.regions or ()),
        count=selector.count or 0,
    )


def _rule(rule: written.Rule) -> compiled.Rule:
    return compiled.Rule(
        repository=tuple(rule.match.repository or ()),
        ref=tuple(rule.match.ref or ()),
        event=tuple(rule.match.event or ()),
        prefer=tuple(rule.prefer or ()),
        avoid=tuple(rule.avoid or ()),
        only=tuple(rule.only or ()),
        deny=tuple(rule.deny or ()),
        waiting_hour=rule.waiting_hour,
        rerun=rule.rerun,
    )


def _fair_share(fair: written.FairShare | None) -> compiled.FairShare:
    if fair is None:
        return compiled.FairShare()
    times = {f"{name}_ms": value for name, value in _stated(fair, "half_life", "fifo_after").items()}
    return compiled.FairShare(by=fair.by, weights=fair.weights, max_runners=fair.max_runners, **times)
