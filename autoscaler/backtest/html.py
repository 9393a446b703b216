"""The report: one page with everything inside, for a browser without a network, light or dark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import escape
from importlib.resources import files
from math import log10

from autoscaler.backtest import charts, text
from autoscaler.backtest import tally as t
from autoscaler.backtest.charts import Axis, Series
from autoscaler.backtest.difference import Difference
from autoscaler.backtest.recording import Recording
from autoscaler.backtest.tally import Tally
from autoscaler.backtest.trial import NOT_MODELLED, FundStory, Trial
from autoscaler.cli.terminal import dollars, span
from scheduling.model import UnixMs

DAY_MS = 86_400_000
CAUSES_SHOWN = 14
MARKS_S = (1, 10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 12 * 3600, 24 * 3600)
LONGEST_FORECAST_MS = 366 * DAY_MS


def page(recorded: Recording, trials: Sequence[Trial], compared: Difference | None) -> str:
    style = files("autoscaler.backtest").joinpath("report.css").read_text(encoding="utf-8")
    titles = text.names(trials)
    parts = [_head(recorded, titles), _cards(trials), _figures(trials, titles), _waits(trials, titles)]
    if compared is not None:
        parts.append(_causes(compared))
    for title, each in zip(titles, trials, strict=True):
        parts += [_section(escape(title), _story(each), "story") if trials[1:] else _story(each)]
    parts.append(_notes(recorded, trials))
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Backtest</title>'
    head += f"<style>{style}</style>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body><main>{"".join(parts)}</main></body></html>\n'


def _head(recorded: Recording, titles: Sequence[str]) -> str:
    since, until = _day(recorded.first_ms), _day(recorded.last_ms)
    names = " against ".join(f"<b>{escape(title)}</b>" for title in titles)
    return (
        f"<header><h1>Backtest</h1><p>{names} on {len(recorded):,} recorded jobs, {since} to {until} UTC. "
        "The scheduler of the daemon decided; the machines, GitHub and the clock were simulated.</p></header>"
    )


def _section(title: str, body: str, kind: str = "") -> str:
    return f'<section class="{kind}"><h2>{title}</h2>{body}</section>'


# ---- figures -----------------------------------------------------------------------------------------------


def _cards(trials: Sequence[Trial]) -> str:
    """The four figures that decide, each with B's change."""
    chosen = ("half started within", "99% within", "cash", "credits")
    found = []
    for lines in zip(*(list(text.rows(each.document)) for each in trials), strict=True):
        words, first, kind = lines[0]
        if words not in chosen or (words == "99% within" and first != trials[0].document["queue_seconds"]["p99"]):
            continue
        values = [value for _, value, _ in lines]
        small = ""
        if trials[1:]:
            change = text.change_of(values[0], values[1], kind)
            better = Decimal(str(values[1] or 0)) < Decimal(str(values[0] or 0))
            shade = "" if not change else "good" if better else "bad"
            now = text.words_of(values[1], kind)
            small = f'<small class="{shade}">B: {now} ({change or "the same"})</small>'
        found.append(f"<div><span>{escape(words)}</span><b>{text.words_of(values[0], kind)}</b>{small}</div>")
    return f'<div class="cards">{"".join(found)}</div>'


def _figures(trials: Sequence[Trial], titles: Sequence[str]) -> str:
    both = bool(trials[1:])
    head = "".join(f"<th class=n>{escape(title)}</th>" for title in (*titles, *(["B less A"] if both else [])))
    body = []
    for lines in zip(*(text.rows(each.document) for each in trials), strict=True):
        words, _, kind = lines[0]
        values = [value for _, value, _ in lines]
        cells = [text.words_of(value, kind) for value in values]
        cells += [text.change_of(values[0], values[1], kind)] if both else []
        body.append(f"<tr><td>{escape(words)}</td>{''.join(f'<td class=n>{cell}</td>' for cell in cells)}</tr>")
    return _section(
        "All figures",
        f"<details><summary>Show the table</summary><table><tr><th></th>{head}</tr>"
        f"{''.join(body)}</table></details>",
    )


def _waits(trials: Sequence[Trial], titles: Sequence[str]) -> str:
    """The share of jobs that had started after so long, on a logarithmic axis."""
    series = []
    longest = 60.0
    for number, (title, each) in enumerate(zip(titles, trials, strict=True)):
        found = sorted(wait for wait in each.tally.wait if wait != t.NONE)
        if not found:
            continue
        longest = max(longest, found[-1] / 1000)
        picks = sorted({round(n * (len(found) - 1) / 300) for n in range(301)})
        points = [(log10(max(1.0, found[n] / 1000)), 100 * (n + 1) / len(found)) for n in picks]
        series.append(Series(title, [(0.0, 0.0), (points[0][0], 0.0), *points], number))
    x = Axis(0, log10(longest * 1.05), [log10(m) for m in MARKS_S if m <= longest * 1.05], lambda v: _mark(10**v))
    y = Axis(0, 100, [0, 25, 50, 75, 100], lambda v: f"{v:.0f}%")
    chart = charts.lines(series, x, y)
    stages = _stages(trials, titles)
    return _section(
        "How long jobs waited",
        f"<p>Share of jobs that had started after that long.</p>{chart}<p>{charts.legend(series)}</p>{stages}",
    )


def _mark(seconds: float) -> str:
    """A round time in one unit."""
    whole = round(seconds)
    return f"{whole // 3600} h" if whole >= 3600 else f"{whole // 60} min" if whole >= 60 else f"{whole} s"


def _stages(trials: Sequence[Trial], titles: Sequence[str]) -> str:
    names = {
        "launch": "a decision",
        "create": "the create call",
        "boot": "the boot",
        "register": "registration",
        "pick": "GitHub",
    }
    body = []
    for title, each in zip(titles, trials, strict=True):
        mean = each.document["queue_stage_seconds"]
        whole = sum(mean.values()) or 1
        pieces = "".join(
            f'<i class="s{n}" style="width:{100 * mean[key] / whole:.2f}%" title="{words}: {mean[key]:.1f} s"></i>'
            for n, (key, words) in enumerate(names.items())
        )
        body.append(
            f'<div class="split"><span>{escape(title)}: {span(whole)} on average</span><div>{pieces}</div></div>'
        )
    keys = "".join(
        f'<span class="key"><i class="s{n}"></i>{words}</span>' for n, words in enumerate(names.values())
    )
    return f"<h3>What the average job waited for</h3>{''.join(body)}<p>{keys}</p>"


# ---- the difference ----------------------------------------------------------------------------------------


def _causes(compared: Difference) -> str:
    document = compared.document()
    cost, waited = document["cost_usd"], document["waited_seconds"]
    money = [
        (
            f"{part['cause']} ({part['jobs']:,} jobs)" if part["jobs"] else part["cause"],
            float(part["usd"]),
            _signed(part["usd"]),
        )
        for part in cost["parts"]
    ]
    rest = money[CAUSES_SHOWN:]
    if rest:
        amount = sum((Decimal(part["usd"]) for part in cost["parts"][CAUSES_SHOWN:]), Decimal(0))
        money = [*money[:CAUSES_SHOWN], (f"{len(rest)} smaller causes", float(amount), _signed(str(amount)))]
    times = [
        (part["cause"], part["seconds"], text.change_of(0, part["seconds"], "seconds")) for part in waited["parts"]
    ]
    labels = [
        (part["labels"], part["seconds"], text.change_of(0, part["seconds"], "seconds"))
        for part in waited["by_labels"][:10]
    ]
    payers = "".join(
        f"<tr><td>{escape(each['a'])}</td><td>{escape(each['b'])}</td><td class=n>{each['jobs']:,}</td></tr>"
        for each in document["payers"][:10]
    )
    body = (
        f"<p>B less A. The parts of each list add up to its whole.</p><h3>Dollars: {_signed(cost['whole'])}</h3>"
        f"{charts.bars(money)}<h3>Waiting of all jobs together: "
        f"{text.change_of(0, waited['whole'], 'seconds') or 'the same'}</h3>{charts.bars(times)}"
    )
    if labels:
        body += f"<h3>The same waiting by the labels of the jobs</h3>{charts.bars(labels)}"
    if payers:
        head = "<tr><th>under A</th><th>under B</th><th class=n>jobs</th></tr>"
        body += f"<h3>Whose jobs changed their payer</h3><table>{head}{payers}</table>"
    return _section("Where the difference comes from", body)


def _signed(amount: str) -> str:
    return text.change_of("0", amount, "usd") or "$0.00"


# ---- over time ---------------------------------------------------------------------------------------------


def _story(trial: Trial) -> str:
    tally = trial.tally
    return (
        f"<h3>Cost by provider</h3>{_over_time(tally, tally.by_provider)}"
        f"<h3>Cost by fund</h3>{_over_time(tally, tally.by_fund)}"
        f"<h3>What is left of the funds</h3>{_burn_down(trial)}"
        f"<h3>Live machines by runner type</h3>{_live(tally)}"
    )


def _over_time(tally: Tally, amounts: Counter[tuple[int, str]]) -> str:
    """Dollars an hour, by when machines were paid."""
    totals = Counter[str]()
    for (_, name), cost in amounts.items():
        totals[name] += cost
    names = [name for name, cost in totals.most_common() if cost]
    if not names:
        return "<p>Nothing: all of it was free.</p>"
    per_hour = 3_600_000 / tally.bucket_ms / 1_000_000
    shown, buckets = names[: charts.COLOURS - 1], range(tally.bucket(tally.end_ms) + 1)
    series = []
    for number, name in enumerate([*shown, *(["others"] if names[len(shown) :] else [])]):
        members = [name] if name in shown else names[len(shown) :]
        points = [
            (float(tally.bucket_at(bucket)), sum(amounts[bucket, each] for each in members) * per_hour)
            for bucket in buckets
        ]
        whole = sum(totals[each] for each in members)
        series.append(Series(f"{name} {dollars(str(Decimal(whole) / 1_000_000))}", points, number))
    high = max(sum(each.points[n][1] for each in series) for n in range(len(buckets)))
    ticks = charts.steps(high)
    y = Axis(0, ticks[-1], ticks, lambda v: f"${v:,.6g}/h")
    return charts.stacked(series, _time_axis(tally), y) + f"<p>{charts.legend(series)}</p>"


def _live(tally: Tally) -> str:
    most = Counter[str]()
    for sample in tally.live:
        for name, count in sample.items():
            most[name] = max(most[name], count)
    if not most:
        return "<p>None.</p>"
    names = [name for name, _ in most.most_common()]
    shown, hidden = names[: charts.COLOURS - 1], names[charts.COLOURS - 1 :]
    series = []
    for number, name in enumerate([*shown, *(["others"] if hidden else [])]):
        members = [name] if name in shown else hidden
        points = [
            (float(tally.bucket_at(bucket)), float(sum(sample.get(each, 0) for each in members)))
            for bucket, sample in enumerate(tally.live)
        ]
        label = f"{name} (up to {most[name]:,})" if name in shown else f"{len(hidden)} other types"
        series.append(Series(label, points, number))
    high = max(sum(each.points[n][1] for each in series) for n in range(len(tally.live)))
    ticks = charts.steps(high)
    y = Axis(0, ticks[-1], ticks, lambda v: f"{v:,.0f}")
    return charts.stacked(series, _time_axis(tally), y) + f"<p>{charts.legend(series)}</p>"


def _burn_down(trial: Trial) -> str:
    """Each fund's share that is left, and on to its end at the rate of the recording."""
    tally, series, marks, words = trial.tally, [], [], []
    spent = {
        fund.name: [tally.by_fund[bucket, fund.name] for bucket in range(tally.bucket(tally.end_ms) + 1)]
        for fund in trial.funds
    }
    far_ms = max(
        [fund.until_ms for fund in trial.funds if fund.until_ms and fund.until_ms > tally.end_ms], default=0
    )
    end_ms = min(max(far_ms, tally.end_ms), tally.end_ms + LONGEST_FORECAST_MS)
    for number, fund in enumerate(trial.funds[: charts.COLOURS]):
        if fund.limit <= 0:
            continue
        left, points = fund.left, [(float(tally.first_ms), 100 * fund.left / fund.limit)]
        for bucket, amount in enumerate(spent[fund.name]):
            left -= amount
            points.append((float(tally.bucket_at(bucket + 1)), 100 * left / fund.limit))
        points = [point for point in points if point[0] <= tally.end_ms + tally.bucket_ms]
        series.append(Series(fund.name, points, number))
        words.append(_outlook(trial, fund, left))
        stop_ms = min(fund.until_ms or end_ms, end_ms)
        rate = sum(spent[fund.name]) / max(1, tally.last_ms - tally.first_ms)
        if not fund.cash and rate and stop_ms > tally.end_ms:
            empty_ms = tally.end_ms + left / rate
            until = min(float(stop_ms), empty_ms)
            after = 100 * (left - rate * (until - tally.end_ms)) / fund.limit
            series.append(Series(f"{fund.name}, at this rate", [points[-1], (until, after)], number, dashed=True))
        if fund.until_ms and tally.first_ms < fund.until_ms <= end_ms:
            marks.append((float(fund.until_ms), f"{fund.name} ends"))
    if not series:
        return "<p>The policy has no funds.</p>"
    x = Axis(
        tally.first_ms, end_ms, _days(tally.first_ms, end_ms), lambda v: _short(int(v), end_ms - tally.first_ms)
    )
    low = min(0.0, *(value for each in series for _, value in each.points))
    y = Axis(low, 100, [0, 25, 50, 75, 100], lambda v: f"{v:.0f}%")
    said = "".join(f"<li>{line}</li>" for line in words)
    return f"{charts.lines(series, x, y, marks)}<p>{charts.legend(series)}</p><ul>{said}</ul>"


def _outlook(trial: Trial, fund: FundStory, left: int) -> str:
    """What becomes of a fund at this rate, in a sentence."""
    tally, name = trial.tally, f"<b>{escape(fund.name)}</b>"
    spent = fund.left - left
    days = max(1.0, (tally.last_ms - tally.first_ms) / DAY_MS)
    rate = spent / days
    money = f"{_usd(spent)} spent here, {_usd(left)} left of {_usd(fund.limit)}"
    if fund.cash:
        return f"{name}: {money} a month."
    if not spent:
        return f"{name}: nothing was spent; {_usd(left)} left."
    empty_days = left / rate
    if fund.until_ms is None or tally.end_ms + empty_days * DAY_MS < fund.until_ms:
        return f"{name}: {money}; at this rate it lasts {empty_days:,.0f} more days."
    unused = left - rate * max(0.0, (fund.until_ms - tally.end_ms) / DAY_MS)
    return f"{name}: {money}; at this rate {_usd(int(unused))} expire unused on {_day(fund.until_ms)}."


def _time_axis(tally: Tally) -> Axis:
    low, high = tally.first_ms, max(tally.end_ms, tally.first_ms + tally.bucket_ms)
    return Axis(low, high, _days(low, high), lambda value: _short(int(value), high - low))


def _days(low: UnixMs, high: UnixMs) -> list[float]:
    """Five to eight round times."""
    hours = next(
        (
            h
            for h in (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 744, 1488, 4464)
            if (high - low) / (h * 3_600_000) <= 8
        ),
        8928,
    )
    step = hours * 3_600_000
    first = -(-low // step) * step
    return [float(at) for at in range(first, high + 1, step)]


def _short(at_ms: UnixMs, length_ms: int) -> str:
    then = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
    if length_ms < 4 * DAY_MS:
        return f"{then:%H:%M}" if then.hour else f"{then:%a %d %b}"
    return f"{then:%d %b}" if length_ms < 300 * DAY_MS else f"{then:%b %Y}"


def _day(at_ms: UnixMs) -> str:
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms):%d %b %Y}"


def _usd(amount: int) -> str:
    return dollars(str(Decimal(amount) / 1_000_000))


# ---- what to know ------------------------------------------------------------------------------------------


def _notes(recorded: Recording, trials: Sequence[Trial]) -> str:
    assumed = dict.fromkeys(line for each in trials for line in each.assumptions)
    warned = [*recorded.warnings[:20], *dict.fromkeys(line for each in trials for line in each.warnings)]
    lists = [("Assumed", assumed), ("Not modelled", NOT_MODELLED), ("Warnings", warned)]
    body = "".join(
        f"<h3>{title}</h3><ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
        for title, lines in lists
        if lines
    )
    return _section("What this rests on", body)
