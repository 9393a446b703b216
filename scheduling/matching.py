"""From labels to runner types, from a job to its pools, from a type to what could serve it; each with refusals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from functools import lru_cache

from scheduling.frozen import frozen
from scheduling.model import DurationMs, Hardware, Job, Offer, Pool, Purchase, RunFacts, UnixMs
from scheduling.policy import Forks, Policy, Rule, RunnerType, Selector, matches
from scheduling.world import NEEDS_FACTS


@frozen
class Taste:
    """What the rules say of one repository, ref and event. `only` None: no restriction."""

    prefer: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    only: frozenset[str] | None = None
    deny: frozenset[str] = frozenset()
    waiting_hour: int | None = None  # micro-dollars


@frozen
class Route:
    """The pools that may serve a job, or why none can now (`again_ms`: when to try again, 0: on news)."""

    pools: tuple[Pool, ...] = ()
    blocked: str = ""
    again_ms: UnixMs = 0


KEPT = 8_192
"""Answers kept of each kind: other people's labels and refs may be without number."""
TASTE_PATIENCE_MS: DurationMs = 20_000
"""How long a job waits for facts that only its preferences need."""


class Matcher:
    """Everything about labels that one policy version decides, with answers kept."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._labels = {
            name: frozenset(label.casefold() for label in rtype.labels)
            for name, rtype in policy.runner_types.items()
        }
        self.types = lru_cache(KEPT)(self._types)
        self._taste_of = lru_cache(KEPT)(self._taste)
        self._asks = lru_cache(KEPT)(self._rules_ask)

    def _types(self, labels: tuple[str, ...]) -> tuple[RunnerType, ...]:
        """Runner types that carry all these (case-folded) labels, in the policy's order."""
        wanted = frozenset(labels)
        names = [name for name, has in self._labels.items() if wanted <= has] if wanted else []
        return tuple(self.policy.runner_types[name] for name in names)

    def is_ours(self, labels: tuple[str, ...]) -> bool:
        """False when no type matches and some label is one that the policy leaves to others."""
        folded = tuple(sorted({label.casefold() for label in labels}))
        if self.types(folded):
            return True
        return not any(matches(self.policy.ignore_labels, label) for label in folded)

    def taste(self, job: Job) -> Taste:
        """What the rules say of this job; until its run is known, it counts as a fork's."""
        facts = job.facts
        if facts is None or not self._asks(job.repository)[0]:
            return self._taste_of(job.repository, "", "", True)
        return self._taste_of(job.repository, facts.event, facts.ref, facts.fork)

    def _taste(self, repository: str, event: str, ref: str, fork: bool) -> Taste:
        return _combine([rule for rule in self.policy.rules if _applies(rule, repository, event, ref, fork)])

    def pool(self, rtype: RunnerType, job: Job) -> Pool:
        """Where this job would be counted with that type, whether its access lets it in or not."""
        return _pool(rtype, job, self.taste(job), self.policy)

    def reruns(self, job: Job) -> bool:
        """Whether a rule says that this job is run again when its spot machine was taken."""
        facts = job.facts or RunFacts(event="", fork=True)
        matching = (job.repository, facts.event, facts.ref, facts.fork)
        return any(rule.rerun and _applies(rule, *matching) for rule in self.policy.rules)

    def _rules_ask(self, repository: str) -> tuple[bool, bool]:
        """Whether rules for this repository look at the run, and whether one of them restricts providers."""
        asking = [
            rule
            for rule in self.policy.rules
            if (rule.ref or rule.event) and (not rule.repository or matches(rule.repository, repository))
        ]
        return bool(asking), any(rule.only or rule.deny for rule in asking)

    def route(self, job: Job, now_ms: UnixMs) -> Route:
        """The pools for a queued job: one for each runner type that has its labels and lets it in."""
        types = self.types(job.labels)
        if not types:
            return Route(blocked=self._unroutable(job))
        if job.facts is None:
            asked, restricts = self._asks(job.repository)
            if restricts or any(_needs_facts(rtype) for rtype in types):
                return Route(blocked=NEEDS_FACTS)
            patience_ms = job.seen_ms + TASTE_PATIENCE_MS
            if asked and now_ms < patience_ms:  # a preference is worth a moment, not a standstill
                return Route(blocked=NEEDS_FACTS, again_ms=patience_ms)
        taste, pools, refusals, again_ms = self.taste(job), [], [], 0
        for rtype in types:
            refusal, later_ms = _refused(rtype, job, now_ms)
            if refusal:
                refusals.append(f"{rtype.name}: {refusal}")
                again_ms = min(again_ms or later_ms, later_ms) if later_ms else again_ms
            else:
                pools.append(_pool(rtype, job, taste, self.policy))
        if pools:
            return Route(tuple(pools))
        return Route(blocked="; ".join(refusals), again_ms=again_ms)

    def _unroutable(self, job: Job) -> str:
        if not job.labels:
            return "unroutable: it has no labels"
        wanted, near = (
            frozenset(job.labels),
            sorted(
                self._labels.items(),
                key=lambda item: (len(frozenset(job.labels) - item[1]), len(item[1]), item[0]),
            ),
        )
        text = f"unroutable: no runner type has all of {', '.join(job.labels)}"
        if near and (lacks := wanted - near[0][1]) and lacks != wanted:
            text += f"; the nearest, {near[0][0]}, lacks {', '.join(sorted(lacks))}"
        return text


def matcher(policy: Policy) -> Matcher:
    """The policy's own matcher, made once."""
    found = policy.memo.get("matcher")
    if not isinstance(found, Matcher):
        found = policy.memo["matcher"] = Matcher(policy)
    return found


def _applies(rule: Rule, repository: str, event: str, ref: str, fork: bool) -> bool:
    if rule.repository and not matches(rule.repository, repository):
        return False
    if rule.event and not matches(rule.event, event):
        return False
    # a fork may name its branch as it likes, so a ref rule never matches its runs
    return not rule.ref or (not fork and matches(rule.ref, ref))


def _combine(rules: list[Rule]) -> Taste:
    only: frozenset[str] | None = None
    for rule in rules:
        if rule.only:
            only = frozenset(rule.only) if only is None else only & frozenset(rule.only)
    return Taste(
        prefer=next((rule.prefer for rule in rules if rule.prefer), ()),
        avoid=next((rule.avoid for rule in rules if rule.avoid), ()),
        only=only,
        deny=frozenset(name for rule in rules for name in rule.deny),
        waiting_hour=next((rule.waiting_hour for rule in rules if rule.waiting_hour is not None), None),
    )


def _needs_facts(rtype: RunnerType) -> bool:
    return rtype.access.forks is not Forks.ALLOW or bool(rtype.access.events)


def _refused(rtype: RunnerType, job: Job, now_ms: UnixMs) -> tuple[str, UnixMs]:
    """Why the type does not take this job, and when that may change by itself."""
    access, facts = rtype.access, job.facts
    if not matches(access.repositories, job.repository):
        return f"its access does not name {job.repository}", 0
    fork = facts is None or facts.fork
    if access.forks is Forks.DENY and fork:
        return "its access denies runs from forks", 0
    if access.forks is Forks.ONLY and not fork:
        return "its access is for runs from forks only", 0
    if access.events and not (facts and matches(access.events, facts.event)):
        return f"its access does not name the event {facts.event if facts else '?'}", 0
    share = rtype.share
    if job.job_id % 100 >= share.percent:
        if share.all_after_ms is None:
            return f"its share takes {share.percent} % of the jobs and this is not one of them", 0
        later_ms = job.queued_ms + share.all_after_ms
        if now_ms < later_ms:
            minutes = share.all_after_ms // 60_000
            return (
                f"its share takes {share.percent} % of the jobs at once and the rest after {minutes} min",
                later_ms,
            )
    return "", 0


def target_of(rtype: RunnerType, repository: str) -> str:
    """Where the type's runners register for a job of this repository: `repo:o/r`, `org:o`, `group:o/NAME`."""
    owner = repository.split("/", 1)[0]
    if rtype.register == "organization":
        return f"org:{owner}"
    if rtype.register.startswith("group:"):
        return f"group:{owner}/{rtype.register.removeprefix('group:')}"
    return f"repo:{repository}"


def owner_of(target: str) -> str:
    """The owner in a target, case-folded: whose Apps are asked, and whose limits count."""
    return target.partition(":")[2].partition("/")[0].casefold()


def _pool(rtype: RunnerType, job: Job, taste: Taste, policy: Policy) -> Pool:
    allowed: frozenset[str] | None = None
    if taste.only is not None or taste.deny:
        allowed = (taste.only if taste.only is not None else frozenset(policy.providers)) - taste.deny
    target = target_of(rtype, job.repository)
    key = f"{rtype.name}@{target}" + ("" if allowed is None else "#" + ",".join(sorted(allowed)))
    return Pool(key, rtype.name, target, job.repository, allowed)


def fits(need: Hardware, has: Hardware, elastic_disk: bool) -> str:
    """Why this hardware is not enough; empty when it is."""
    if has.os and need.os != has.os:
        return f"runs {has.os}, not {need.os}"
    if need.arch != has.arch:
        return f"is {has.arch}, not {need.arch}"
    if has.cpus < need.cpus:
        return f"has {has.cpus} CPUs, {need.cpus} are needed"
    if has.memory_mib < need.memory_mib:
        return f"has {has.memory_mib / 1024:g} GiB of memory, {need.memory_mib / 1024:g} are needed"
    if not elastic_disk and has.disk_gib < need.disk_gib:
        return f"has {has.disk_gib} GiB of disk, {need.disk_gib} are needed"
    if need.gpu is None:
        return ""
    gpu = has.gpu
    if gpu is None or gpu.vendor != need.gpu.vendor or (need.gpu.model and gpu.model != need.gpu.model):
        return f"has no {need.gpu.vendor} {need.gpu.model} GPU"
    return "" if gpu.count >= need.gpu.count else f"has {gpu.count} GPUs, {need.gpu.count} are needed"


def selected(rtype: RunnerType, offers: Iterable[Offer]) -> Iterator[Offer]:
    """Those that one of the type's `offers` entries names; no entries name everything but spot.

    What is reserved is sold on demand and paid for already: such an offer follows beside the one on demand.
    """
    for offer in offers:
        if rtype.selectors is None:
            if offer.purchase is not Purchase.SPOT:
                yield offer
            continue
        if any(offer.purchase in selector.purchase and _names(selector, offer) for selector in rtype.selectors):
            yield offer
        if offer.purchase is Purchase.ON_DEMAND and _reservation(rtype, offer):
            yield replace(offer, purchase=Purchase.RESERVED, list_price=0)


def reservation(rtype: RunnerType, offer: Offer, sold: Iterable[Offer]) -> tuple[int, tuple[str, ...]]:
    """How many machines the entry behind a reserved offer may run, and the keys of all offers that share them."""
    entry = _reservation(rtype, offer)
    if entry is None:
        return 0, ()
    shared = (each for each in sold if each.purchase is Purchase.ON_DEMAND and _names(entry, each))
    return entry.count, tuple(replace(each, purchase=Purchase.RESERVED).key for each in shared)


def _reservation(rtype: RunnerType, offer: Offer) -> Selector | None:
    """The first entry that has a machine like this one reserved."""
    entries = rtype.selectors or ()
    return next((each for each in entries if Purchase.RESERVED in each.purchase and _names(each, offer)), None)


def _names(selector: Selector, offer: Offer) -> bool:
    return (
        selector.provider == offer.provider
        and (not selector.instance_types or offer.instance_type in selector.instance_types)
        and (not selector.regions or offer.region in selector.regions)
    )


def access_json(rtype: RunnerType) -> str:
    """The type's access as it travels to the machine for admission at job start."""
    return json.dumps(asdict(rtype.access), sort_keys=True, separators=(",", ":"))
