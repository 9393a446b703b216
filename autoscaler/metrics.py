"""Every metric of the daemon in one table, and the counters that its rooms call.

Counters and histograms belong to one process. What is `fleet` is computed from the world when somebody scrapes,
and only on the replica that leads, so that sums over replicas count each job, runner and dollar once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from autoscaler import fleet_metrics
from autoscaler.views.jobs_and_runners import View

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SERIES_LIMIT = 500
"""Label sets a process metric may have; what comes after is counted under `other`."""
OTHER = "other"

FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
CALLS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
WAITS = (1, 5, 10, 20, 30, 60, 90, 120, 180, 300, 600, 1800, 3600, 14400)
COUNTS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)

disable_created_metrics()  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class Metric:
    """One row. `fleet`: computed from the world at scrape time, on the leader. The unit is the end of the name."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    fleet: bool = False


def _fleet(name: str, kind: str, text: str, *labels: str) -> Metric:
    return Metric(name, kind, text, labels, fleet=True)


TABLE: tuple[Metric, ...] = (
    # the webhook
    Metric("autoscaler_webhooks_total", "counter", "Deliveries by how they were answered.", ("outcome",)),
    Metric("autoscaler_webhook_seconds", "histogram", "From a delivery's arrival to its answer.", (), FAST),
    # the loop
    Metric("autoscaler_leading", "gauge", "1 while this replica leads."),
    Metric("autoscaler_takeovers_total", "counter", "Times that this replica began to lead."),
    Metric("autoscaler_events_total", "counter", "Events evolved, by kind.", ("kind",)),
    Metric("autoscaler_rejected_events_total", "counter", "Inbox entries set aside, by why.", ("why",)),
    Metric("autoscaler_tick_seconds", "histogram", "One round: evolve, plan and commit.", (), FAST),
    Metric("autoscaler_tick_events", "histogram", "Inbox entries read in one round.", (), COUNTS),
    Metric("autoscaler_decisions_total", "counter", "Decisions that plan made."),
    Metric("autoscaler_commits_total", "counter", "Commits to the store, by outcome.", ("outcome",)),
    Metric("autoscaler_reaps_capped_total", "counter", "Rounds in which more runners were due to go than may."),
    Metric(
        "autoscaler_effects_total", "counter", "Calls of clouds and GitHub.", ("command", "provider", "outcome")
    ),
    Metric("autoscaler_effect_seconds", "histogram", "Time of such a call.", ("command", "provider"), CALLS),
    Metric(
        "autoscaler_duplicate_machines_total", "counter", "Machines beyond the first of one runner.", ("provider",)
    ),
    Metric("autoscaler_sweep_age_seconds", "gauge", "Since GitHub was last asked for all queued jobs."),
    Metric("autoscaler_queue_wait_seconds", "histogram", "From queued to in progress.", ("runner_type",), WAITS),
    # the policy
    Metric("autoscaler_policy_reloads_total", "counter", "Reads of the policy file, by outcome.", ("outcome",)),
    Metric("autoscaler_policy_error", "gauge", "1 while the policy file is bad and an older version rules."),
    # the fleet
    _fleet("autoscaler_policy_info", "gauge", "1 for the policy version that rules.", "hash"),
    _fleet("autoscaler_jobs", "gauge", "Unfinished jobs.", "state", "runner_type"),
    _fleet("autoscaler_unroutable_jobs", "gauge", "Queued jobs that no runner type has all labels of."),
    _fleet("autoscaler_blocked_jobs", "gauge", "Queued jobs that access, a share or missing facts hold back."),
    _fleet("autoscaler_oldest_queued_seconds", "gauge", "Age of the oldest queued job that has a pool."),
    _fleet(
        "autoscaler_jobs_past_deadline", "gauge", "Queued jobs that have waited longer than `on_deadline.after`."
    ),
    _fleet("autoscaler_jobs_ended_total", "counter", "Jobs that ended since the fleet began.", "conclusion"),
    _fleet("autoscaler_runners", "gauge", "Runners not proven gone.", "state", "provider", "runner_type"),
    _fleet("autoscaler_runners_live", "gauge", "Runners that count against a cap.", "scope"),
    _fleet("autoscaler_runners_limit", "gauge", "That cap: `fleet`, `provider:NAME`, `type:NAME`.", "scope"),
    _fleet("autoscaler_runners_launched_total", "counter", "Launches since the fleet began."),
    _fleet("autoscaler_launches_failed_total", "counter", "Launches that made no machine."),
    _fleet("autoscaler_runners_reaped_unused_total", "counter", "Runners removed before they had a job."),
    _fleet("autoscaler_fund_limit_usd", "gauge", "Size of the fund; of a month for cash.", "fund"),
    _fleet("autoscaler_fund_left_usd", "gauge", "What may still be held. 0 while its spend is unknown.", "fund"),
    _fleet("autoscaler_fund_held_usd", "gauge", "Set aside for live runners.", "fund"),
    _fleet("autoscaler_fund_settled_usd", "gauge", "Spent and booked in the fund's present period.", "fund"),
    _fleet("autoscaler_fund_overrun_usd", "gauge", "Spent beyond the fund by facts, never by a decision.", "fund"),
    _fleet("autoscaler_fund_open", "gauge", "1 while the fund may pay for a launch.", "fund"),
    _fleet("autoscaler_cost_usd_total", "counter", "Booked cost since the fleet began.", "provider"),
    _fleet("autoscaler_cooldowns", "gauge", "Scopes not asked for now: offer, region, provider, image.", "scope"),
    _fleet("autoscaler_switches", "gauge", "1 for everything paused or drained by an operator.", "target"),
    _fleet("autoscaler_github_budget", "gauge", "Requests left at GitHub.", "app", "owner", "resource"),
    _fleet("autoscaler_github_budget_limit", "gauge", "Requests an hour there.", "app", "owner", "resource"),
)
_KINDS: dict[str, Any] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
_FAMILIES: dict[str, Any] = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


class Metrics:
    """One process's metrics. Every method is cheap and never fails."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._fleet = _FleetCollector()
        self._registry.register(self._fleet)
        self._metrics = {row.name: self._make(row) for row in TABLE if not row.fleet}
        self._series: dict[str, set[tuple[str, ...]]] = {}
        self.leads = False
        self._set("autoscaler_policy_error", 0)

    def _make(self, row: Metric) -> Any:
        more = {"buckets": row.buckets} if row.buckets else {}
        return _KINDS[row.kind](row.name, row.help, row.labels, registry=self._registry, **more)

    def text(self, view: View | None) -> bytes:
        """The exposition format; `view` is the leader's, None elsewhere: then without the fleet's metrics."""
        self._fleet.view = view
        try:
            return generate_latest(self._registry)
        finally:
            self._fleet.view = None

    # ---- what the rooms call -------------------------------------------------------------------------------

    def webhook(self, outcome: str, seconds: float) -> None:
        self._count("autoscaler_webhooks_total", outcome)
        self._observe("autoscaler_webhook_seconds", seconds)

    def leading(self, now: bool) -> None:
        if now and not self.leads:
            self._count("autoscaler_takeovers_total")
        self.leads = now
        self._set("autoscaler_leading", int(now))

    def event(self, kind: str) -> None:
        self._count("autoscaler_events_total", kind)

    def rejected(self, why: str) -> None:
        self._count("autoscaler_rejected_events_total", why)

    def tick(self, seconds: float, events: int, decisions: int) -> None:
        self._observe("autoscaler_tick_seconds", seconds)
        self._observe("autoscaler_tick_events", events)
        self._count("autoscaler_decisions_total", by=decisions)

    def commit(self, outcome: str) -> None:
        self._count("autoscaler_commits_total", outcome)

    def reaps_capped(self) -> None:
        self._count("autoscaler_reaps_capped_total")

    def effect(self, command: str, provider: str, outcome: str, seconds: float) -> None:
        self._count("autoscaler_effects_total", command, provider, outcome)
        self._observe("autoscaler_effect_seconds", seconds, command, provider)

    def duplicate_machine(self, provider: str) -> None:
        self._count("autoscaler_duplicate_machines_total", provider)

    def sweep_age(self, seconds: float) -> None:
        """The last sweep is that old now; the gauge grows by itself until the next call."""
        loop = asyncio.get_running_loop()
        swept = loop.time() - seconds
        self._metrics["autoscaler_sweep_age_seconds"].set_function(lambda: loop.time() - swept)

    def started(self, wait_seconds: float, runner_type: str) -> None:
        """A job began to run that long after it was queued."""
        self._observe("autoscaler_queue_wait_seconds", wait_seconds, runner_type)

    def reloaded(self, ok: bool) -> None:
        self._count("autoscaler_policy_reloads_total", "loaded" if ok else "refused")
        self._set("autoscaler_policy_error", int(not ok))

    # ---- series --------------------------------------------------------------------------------------------

    def _count(self, name: str, *labels: str, by: int = 1) -> None:
        self._child(name, labels).inc(by)

    def _observe(self, name: str, value: float, *labels: str) -> None:
        self._child(name, labels).observe(value)

    def _set(self, name: str, value: float) -> None:
        self._metrics[name].set(value)

    def _child(self, name: str, labels: tuple[str, ...]) -> Any:
        if not labels:
            return self._metrics[name]
        seen = self._series.setdefault(name, set())
        if labels not in seen:
            if len(seen) >= SERIES_LIMIT:
                labels = (OTHER,) * len(labels)
            else:
                seen.add(labels)
        return self._metrics[name].labels(*labels)


class _FleetCollector(Collector):
    """Turns the samples of one view into metric families; without a view there are none."""

    def __init__(self) -> None:
        self.view: View | None = None

    def collect(self) -> Iterator[Any]:
        if self.view is None:
            return
        families = {
            row.name: _FAMILIES[row.kind](row.name, row.help, labels=row.labels) for row in TABLE if row.fleet
        }
        for name, labels, value in fleet_metrics.samples(self.view):
            families[name].add_metric(labels, value)
        yield from families.values()

    def describe(self) -> Iterable[Any]:
        return ()
