"""Which offer, and whose money. Ranks are kept a minute; what changes with each launch is checked at the choice.

Order: preferred by a rule, then free (price 0), then credit that would expire unused (soonest first), then other
credit, then cash; inside each by score in micro-dollars a job; avoided by a rule last.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from scheduling import learning, ledger
from scheduling.cooling import closed, image_scope, probing
from scheduling.frozen import frozen
from scheduling.matching import Taste, fits, reservation, selected
from scheduling.model import HOUR_MS, DurationMs, HoldPart, MicroUSD, Offer, Purchase, UnixMs, Verdict
from scheduling.policy import Fund, Policy, ProviderPolicy, RunnerType, matches
from scheduling.windows import is_open
from scheduling.world import PAUSED, World
from scheduling.worth import FREE, Worth, worth

RANK_LIFE_MS = 60_000
"""A rank is kept this long and up to twice as long by its type, so that not all are made anew in one tick."""

IDLE_MS = 30_000
"""A machine's time before and after its job, on average."""

NOTHING_SOLD = "no provider sells anything that its `offers` select (left out: on_demand only)"

SHOWN = 24
"""Verdicts kept with a placement: enough for one screen of `why`."""


@frozen
class Candidate:
    """One offer with one payer, in rank order. `fund` None: it costs nothing."""

    offer: Offer
    price: MicroUSD
    fund: Fund | None
    payers: tuple[Fund, ...]  # every eligible fund of this offer, in order: who may inherit a hold of `fund`
    score: MicroUSD
    order: tuple[object, ...]
    verdict: Verdict  # its terms, as every placement that passed it over shows them


@frozen
class Ranking:
    """All offers for one kind of demand: the eligible in order, and the rest with the reason why not."""

    candidates: tuple[Candidate, ...]
    refused: tuple[Verdict, ...]


@frozen
class Choice:
    """The offer and fund for one launch; `verdicts` say why the others lost."""

    candidate: Candidate
    hold: tuple[HoldPart, ...]
    probes: tuple[str, ...]
    image: str
    verdicts: tuple[Verdict, ...]


@frozen
class Wish:
    """What a launch is for. `repository` empty: the ready floor, which no cash pays for."""

    rtype: RunnerType
    repository: str
    providers: frozenset[str] | None
    taste: Taste
    job_ms: DurationMs = learning.JOB_PRIOR_MS


@frozen
class Sold:
    """An offer that can serve a runner type, at our price, and the funds that may pay for it, dates aside."""

    offer: Offer
    price: MicroUSD
    funds: tuple[Fund, ...]


def rank(world: World, policy: Policy, wish: Wish, now_ms: UnixMs) -> Ranking:
    """Every offer for this wish. Kept for `RANK_LIFE_MS` and until offers, bids or policy change."""
    payers = _payers(policy, wish)
    key = (policy.hash, wish.rtype.name, payers, wish.providers, wish.taste, wish.job_ms)
    kept = world.cache.get(key)
    if kept is not None and now_ms < kept[0] and kept[1] is world.bids:
        found: Ranking = kept[2]
        return found
    candidates: list[Candidate] = []
    refused: list[Verdict] = []
    rated = sorted((worth(world, policy.funds[name], now_ms), name) for name in payers)
    places = {name: (place, each) for place, (each, name) in enumerate(rated)}
    for sold in _on_sale(world, policy, wish, payers):
        if isinstance(sold, Verdict):
            refused.append(sold)
        elif found_here := _candidates(world, policy, wish, sold, places, now_ms):
            candidates += found_here
        else:
            dates = f"outside the dates of {', '.join(fund.name for fund in sold.funds)}"
            refused.append(Verdict(sold.offer.key, price=sold.price, refusal=dates))
    if not candidates and not refused:
        refused.append(Verdict(wish.rtype.name, refusal=NOTHING_SOLD))
    candidates.sort(key=lambda candidate: candidate.order)
    ranking = Ranking(tuple(candidates), tuple(refused))
    until_ms = now_ms + RANK_LIFE_MS + crc32(wish.rtype.name.encode()) % RANK_LIFE_MS
    world.cache[key] = (until_ms, world.bids, ranking)
    return ranking


def _payers(policy: Policy, wish: Wish) -> tuple[str, ...]:
    """Names of the funds that pay for this repository and type, whatever the offer."""
    key = f"payers:{wish.rtype.name}:{wish.repository}"
    if key not in policy.memo:
        policy.memo[key] = tuple(fund.name for fund in policy.funds.values() if _welcomes(fund, wish))
    found: tuple[str, ...] = policy.memo[key]
    return found


def _on_sale(world: World, policy: Policy, wish: Wish, payers: tuple[str, ...]) -> tuple[Sold | Verdict, ...]:
    """Every offer, or why it can never serve this wish. Kept until offers or policy change."""
    key = ("on sale", policy.hash, wish.rtype.name, payers, wish.providers)
    kept: tuple[Sold | Verdict, ...] | None = world.cache.get(key)
    if kept is not None:
        return kept
    found: list[Sold | Verdict] = []
    for name, provider in policy.providers.items():
        if wish.providers is not None and name not in wish.providers:
            found.append(Verdict(name, refusal="a rule excludes it"))
            continue
        offers = selected(wish.rtype, world.offers.get(name, ()))
        found += [_sold(policy, wish, provider, offer) for offer in offers]
    world.cache[key] = kept = tuple(found)
    return kept


def _sold(policy: Policy, wish: Wish, provider: ProviderPolicy, offer: Offer) -> Sold | Verdict:
    price = price_of(provider, offer)
    refusal = ineligible(policy, wish.rtype, provider, offer, price)
    if refusal or price is None:
        return Verdict(offer.key, price=price, refusal=refusal)
    if price == 0:
        return Sold(offer, price, ())
    funds = tuple(fund for fund in policy.funds.values() if pays(fund, wish, offer))
    return Sold(offer, price, funds) if funds else Verdict(offer.key, price=price, refusal="no fund pays for it")


def _candidates(
    world: World, policy: Policy, wish: Wish, sold: Sold, places: dict[str, tuple[int, Worth]], now_ms: UnixMs
) -> list[Candidate]:
    """The offer with each of its payers that is open now; without a payer where it is free.

    `places`: which fund pays first, second, ...
    """

    offer, price, scores = sold.offer, sold.price, dict[int, MicroUSD]()

    def candidate(fund: Fund | None, worth: Worth) -> Candidate:
        name, value = fund.name if fund else "", worth.value_ppm
        if value not in scores:
            scores[value] = sum(score_terms(world, policy, wish, offer, price, value, now_ms).values())
        score = scores[value]
        order = _order(wish, offer, worth, score, name)
        return Candidate(offer, price, fund, payers, score, order, Verdict(offer.key, name, price, score))

    payers = tuple(sorted(sold.funds, key=lambda fund: places[fund.name]))
    if not payers:
        return [candidate(None, FREE)]
    return [candidate(fund, places[fund.name][1]) for fund in payers if ledger.open_at(fund, now_ms)]


def price_of(provider: ProviderPolicy, offer: Offer) -> MicroUSD | None:
    """What an hour of it costs us; nothing where it is reserved, and so paid for whether it runs or not."""
    return 0 if offer.purchase is Purchase.RESERVED else provider.price.of(offer.list_price)


def ineligible(
    policy: Policy, rtype: RunnerType, provider: ProviderPolicy, offer: Offer, price: MicroUSD | None
) -> str:
    """Why this offer can never serve the type as the policy stands; empty when it can."""
    if provider.regions and offer.region not in provider.regions:
        return f"region {offer.region} is not in the policy"
    if offer.refusal:
        return offer.refusal
    if misfit := fits(rtype.hardware, offer.hardware, offer.elastic_disk):
        return misfit
    if price is None:
        return "its price is unknown: state `price` at the provider"
    if rtype.max_price is not None and price > rtype.max_price:
        return f"costs {ledger.usd(price)}/h, over max_price {ledger.usd(rtype.max_price)}/h"
    if image_of(policy, rtype, provider, offer) is None:
        return f"image {rtype.image} is not in {offer.region}"
    return ""


def image_of(
    policy: Policy, rtype: RunnerType, provider: ProviderPolicy, offer: Offer, trial: bool = False
) -> str | None:
    """The provider's image reference; empty when none is named or needed, None when it has none here."""
    if not rtype.image or not provider.takes_image:
        return None if trial else ""
    image = policy.images[rtype.image]
    if trial:
        if not image.trial:
            return None
        image = policy.images[image.trial]
    return image.reference(provider.name, provider.kind, offer.region)


def open_image(world: World, policy: Policy, rtype: RunnerType, offer: Offer, now_ms: UnixMs) -> tuple[str, str]:
    """The image that the next launch there gets, and why it gets none now (empty when it gets one).

    A trial image takes its percent of the launches while it boots; while it cools the main image takes all.
    """
    provider = policy.providers[offer.provider]
    if rtype.image and (percent := policy.images[rtype.image].trial_percent):
        trial = image_of(policy, rtype, provider, offer, trial=True)
        its_turn = world.totals.launched * percent % 100 < percent
        if trial and its_turn and not closed(world, image_scope(trial, offer), now_ms):
            return trial, ""
    image = image_of(policy, rtype, provider, offer) or ""
    return image, closed(world, image_scope(image, offer), now_ms)


def pays(fund: Fund, wish: Wish, offer: Offer) -> bool:
    """Whether the fund may pay for this offer and repository, dates and money aside."""
    if fund.pays is not None and offer.provider not in fund.pays:
        return False
    if fund.purchase and offer.purchase not in fund.purchase:
        return False
    if fund.regions and not matches(fund.regions, offer.region):
        return False
    if fund.families and not matches(fund.families, offer.family):
        return False
    return _welcomes(fund, wish)


def _welcomes(fund: Fund, wish: Wish) -> bool:
    """Whether the fund pays for this repository; for the ready floor, which is nobody's, no cash does."""
    if not fund.repositories:
        return bool(wish.repository) or not fund.cash
    if wish.repository:
        return matches(fund.repositories, wish.repository)
    return not fund.cash and set(wish.rtype.access.repositories) <= set(fund.repositories)


def premium(world: World, offer: Offer, now_ms: UnixMs) -> MicroUSD:
    """What an hour of its machines counts more, because they are scarce and others need them more."""
    if not world.bids:
        return 0
    bids = (world.bids.get(f"provider:{offer.provider}"), world.bids.get(f"offer:{offer.key}"))
    return sum(bid.premium for bid in bids if bid is not None and now_ms < bid.until_ms)


def score_terms(
    world: World, policy: Policy, wish: Wish, offer: Offer, price: MicroUSD, value_ppm: int, now_ms: UnixMs
) -> dict[str, MicroUSD]:
    """Expected micro-dollars a job: machine time, waiting for the boot, the risk of losing a spot machine."""
    effective = price * value_ppm // 1_000_000 + premium(world, offer, now_ms)
    waiting_hour = policy.placement.waiting_hour if wish.taste.waiting_hour is None else wish.taste.waiting_hour
    boot_ms = learning.boot_ms(world, offer.key)
    terms = {
        "machine": effective * (wish.job_ms + boot_ms + IDLE_MS) // HOUR_MS,
        "waiting": waiting_hour * boot_ms // HOUR_MS,
    }
    if offer.purchase is Purchase.SPOT:
        lost = policy.placement.restart_cost + effective * wish.job_ms // HOUR_MS
        terms["interruption"] = int(lost * learning.taken_per_hour(world, offer.key) * wish.job_ms / HOUR_MS)
    return terms


def _order(wish: Wish, offer: Offer, worth: Worth, score: MicroUSD, fund: str) -> tuple[object, ...]:
    avoided, preferred = offer.provider in wish.taste.avoid, offer.provider in wish.taste.prefer
    return (avoided, not preferred, worth.tier, worth.until_ms, score, offer.key, fund)


def choose(world: World, policy: Policy, wish: Wish, now_ms: UnixMs) -> Choice | tuple[Verdict, ...]:
    """The first candidate that is open, under its caps and covered by a fund; or all refusals."""
    ranking = rank(world, policy, wish, now_ms)
    verdicts: list[Verdict] = []
    shut: dict[str, str] = {}
    for index, candidate in enumerate(ranking.candidates):
        offer, fund = candidate.offer, candidate.fund
        if offer.key not in shut:
            shut[offer.key] = shut_reason(world, policy, wish.rtype, offer, now_ms)
        name = fund.name if fund else ""
        refusal = shut[offer.key]
        hold: tuple[HoldPart, ...] | str = refusal or cover(world, wish.rtype, candidate, now_ms)
        if isinstance(hold, str):
            verdicts.append(Verdict(offer.key, name, candidate.price, candidate.score, hold))
            continue
        verdicts.append(candidate.verdict)
        rest = ranking.candidates[index + 1 : index + 1 + max(0, SHOWN - len(verdicts))]
        verdicts += [each.verdict for each in rest]
        image, _ = open_image(world, policy, wish.rtype, offer, now_ms)
        probes = probing(world, (*offer.scopes, image_scope(image, offer)), now_ms)
        return Choice(candidate, hold, probes, image, tuple(verdicts[-SHOWN:]))
    return (*verdicts, *ranking.refused)


def shut_reason(world: World, policy: Policy, rtype: RunnerType, offer: Offer, now_ms: UnixMs) -> str:
    """Why no launch goes to this offer at the moment; empty when one may."""
    provider = policy.providers[offer.provider]
    switches = world.switches
    if PAUSED in switches:
        return "paused by an operator"
    if "all" in switches or f"provider:{offer.provider}" in switches or f"type:{rtype.name}" in switches:
        return "drained by an operator"
    if gate := world.gates.get(offer.provider):
        return gate
    if not is_open(provider.available, now_ms):
        return f"outside {provider.available.text if provider.available else ''}"
    if provider.max_runners is not None and world.live_count(f"provider:{offer.provider}") >= provider.max_runners:
        return f"{offer.provider} runs its max_runners {provider.max_runners}"
    if offer.count is not None and world.live_count(f"offer:{offer.key}") >= offer.count:
        return f"all {offer.count} of it are in use"
    if full := _reserved_out(world, policy, rtype, offer):
        return full
    for scope in offer.scopes:
        if why := closed(world, scope, now_ms):
            return why
    return open_image(world, policy, rtype, offer, now_ms)[1]


def _reserved_out(world: World, policy: Policy, rtype: RunnerType, offer: Offer) -> str:
    """Whether all machines that are reserved with this one run; of whatever runner type they are."""
    if offer.purchase is not Purchase.RESERVED:
        return ""
    key = ("reserved", policy.hash, rtype.name, offer.key)
    if key not in world.cache:
        world.cache[key] = reservation(rtype, offer, world.offers.get(offer.provider, ()))
    count, shared = world.cache[key]
    live = sum(world.live_count(f"offer:{each}") for each in shared)
    return f"all {count} that are reserved are in use" if live >= count else ""


def cover(world: World, rtype: RunnerType, candidate: Candidate, now_ms: UnixMs) -> tuple[HoldPart, ...] | str:
    """The parts of a hold over the longest life of the runner, or why the money does not reach.

    What falls after a fund's end is held in the next eligible fund, what falls after a month's end in the next
    month of a cash fund.
    """
    fund = candidate.fund
    if fund is None:
        return ()
    start, end = now_ms, now_ms + ledger.longest_life_ms(rtype)
    parts: list[HoldPart] = []
    while start < end:
        stop = min(end, fund.until_ms or end, ledger.next_month_ms(start) if fund.cash else end)
        amount = ledger.price_of(candidate.price, stop - start)
        left = ledger.available(fund, world.funds.get(fund.name), start)
        if left < amount:
            return _short(world, fund, left, amount)
        parts.append(HoldPart(fund.name, ledger.period(fund, start), start, stop, amount))
        start = stop
        if start < end and fund.until_ms is not None and start >= fund.until_ms:
            heir = _heir(world, candidate, fund, start)
            if heir is None:
                return f"outlives fund {fund.name}, and no other fund could pay the rest"
            fund = heir
    return tuple(parts)


def _heir(world: World, candidate: Candidate, ended: Fund, at_ms: UnixMs) -> Fund | None:
    """The next payer that is open when `ended` ends and has money."""
    for fund in candidate.payers:
        if fund is ended or not ledger.open_at(fund, at_ms):
            continue
        if ledger.available(fund, world.funds.get(fund.name), at_ms) > 0:
            return fund
    return None


def _short(world: World, fund: Fund, left: MicroUSD, amount: MicroUSD) -> str:
    account = world.funds.get(fund.name)
    if account is None or not account.known:
        return (
            f"fund {fund.name} is closed until its spend is known: `autoscaler funds set {fund.name} --spent ...`"
        )
    return f"fund {fund.name} has {ledger.usd(max(0, left))} left, a hold needs {ledger.usd(amount)}"


def explain(world: World, policy: Policy, wish: Wish, now_ms: UnixMs) -> Sequence[Verdict]:
    """Every offer in rank order with its terms or its refusal as things stand, for `why` and `policy explain`."""
    ranking = rank(world, policy, wish, now_ms)
    verdicts = []
    for candidate in ranking.candidates:
        refusal = shut_reason(world, policy, wish.rtype, candidate.offer, now_ms)
        if not refusal:
            hold = cover(world, wish.rtype, candidate, now_ms)
            refusal = hold if isinstance(hold, str) else ""
        name = candidate.fund.name if candidate.fund else ""
        verdicts.append(Verdict(candidate.offer.key, name, candidate.price, candidate.score, refusal))
    return (*verdicts, *ranking.refused)
