"""`--observe` beside another autoscaler: what its runners did, and what this fleet would have done instead."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, Group

from autoscaler.cli import tables
from autoscaler.observed import KEPT_JOBS, Observed
from autoscaler.views import fleet as fleet_views
from autoscaler.views import jobs_and_runners as views
from autoscaler.views import why, why_text
from scheduling import messages as m
from scheduling.lifecycle import JobState
from scheduling.plan import plan
from tests.core.fleet import MINUTE, SECOND, USD, Fleet, credit, offer, policy, runner_type
from tests.daemon.place import LABELS, Place, live, ready, until

OTHERS = "i-0abc"


class Watching:
    """A fleet that plans and launches nothing, and what it compares."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.observed = fleet, Observed()

    def say(self, number: int, state: JobState, **changes: object) -> None:
        event = self.fleet.job(number, state, runner_name=OTHERS, **changes)
        self.observed.hear(event, self.fleet.world, self.fleet.policy, self.fleet.now)

    def wait(self, ms: int) -> None:
        self.fleet.now += ms
        plan(self.fleet.world, self.fleet.policy, self.fleet.now)

    def ran(self, number: int, wait_ms: int, run_ms: int) -> None:
        """A job that another autoscaler's runner took after `wait_ms`."""
        self.fleet.job(number)
        self.wait(SECOND)
        self.wait(wait_ms - SECOND)
        self.say(number, JobState.IN_PROGRESS)
        self.fleet.now += run_ms
        self.say(number, JobState.COMPLETED, conclusion="success")

    def view(self) -> views.View:
        return views.View(
            self.fleet.world, self.fleet.policy, {}, True, "", self.fleet.now, observed=self.observed
        )

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = fleet_views.summary(self.view())
        return found

    def why(self, number: int) -> dict[str, Any]:
        view = self.view()
        return why.job_document(view, views.find_job(view, str(number)))


def text(*parts: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(Group(*parts))
    return out.getvalue()


def test_waits_and_costs_are_set_side_by_side() -> None:
    fleet = Watching(Fleet(policy()))
    fleet.ran(1, 4 * MINUTE, 59 * MINUTE - 1224)  # a boot of 61.224 s comes to it: an hour in all
    fleet.ran(2, 2 * MINUTE, 59 * MINUTE - 1224)
    found = fleet.summary()["observed"]
    assert (found["jobs"], found["refused"], found["cost_usd"]) == (2, 0, "1.000000")
    assert found["cost_by_provider"] == {"east": "1.000000"}
    assert found["cost_by_fund"] == {"grant": "1.000000"}
    (row,) = found["runner_types"]
    assert row["waited_seconds"] == {"p50": 120.0, "p90": 240.0}
    assert row["expected_seconds"] == {"p50": 61.224, "p90": 62.224}  # the first waited a second for its round
    shown = text(*tables.status(fleet.summary()))
    assert "cost here by fund  grant $1.00" in shown
    assert "4 min" in shown


def test_why_says_what_the_job_would_have_had_here() -> None:
    fleet = Watching(Fleet(policy()))
    fleet.ran(1, 4 * MINUTE, 59 * MINUTE - 1224)
    found = fleet.why(1)
    assert found["why"]["sentence"] == (
        "Ran on i-0abc, which is no runner of this fleet. Here it would have begun after about 62 s on "
        "east/r1-a/big/on_demand, paid by grant (it waited 240 s), for $0.50."
    )
    assert found["why"]["observed"]["cost_usd"] == "0.500000"
    assert "Here it would have begun" in text(why_text.screen(found)).replace("\n", " ")


def test_a_job_that_nothing_here_could_serve_says_why() -> None:
    fleet = Watching(Fleet(policy(funds=(credit("grant", 0),))))
    fleet.ran(1, 4 * MINUTE, MINUTE)
    found = fleet.summary()["observed"]
    assert (found["jobs"], found["refused"], found["cost_usd"]) == (1, 1, "0.000000")
    assert (
        "Here it would have gone on waiting: east/r1-a/big/on_demand: fund grant has $0.00 left"
        in (fleet.why(1)["why"]["sentence"])
    )


def test_a_job_that_began_before_it_was_planned_is_compared_too() -> None:
    fleet = Watching(Fleet(policy(), {"east": (offer("east", 2 * USD),), "west": (offer("west", USD),)}))
    fleet.wait(0)  # the fund opens
    fleet.fleet.job(1)
    fleet.say(1, JobState.IN_PROGRESS)
    assert fleet.why(1)["why"]["observed"]["offer"] == "west/r1-a/big/on_demand"
    assert fleet.why(1)["why"]["observed"]["cost_usd"] is None


def test_jobs_of_ours_and_jobs_of_nobody_s_type_are_left_out() -> None:
    fleet = Watching(Fleet(policy(runner_type())))
    fleet.fleet.job(1)
    (runner,) = fleet.fleet.idle()
    fleet.fleet.job(2, labels=("ubuntu-latest",))
    mine = fleet.fleet.job(1, JobState.IN_PROGRESS, runner_name=f"acme-{runner.id}")
    fleet.observed.hear(mine, fleet.fleet.world, fleet.fleet.policy, fleet.fleet.now)
    fleet.say(2, JobState.IN_PROGRESS, labels=("ubuntu-latest",))
    assert fleet.summary()["observed"]["jobs"] == 0


def test_a_repeated_delivery_counts_once_and_memory_is_bounded() -> None:
    fleet = Watching(Fleet(policy()))
    fleet.ran(1, MINUTE, MINUTE)
    fleet.say(1, JobState.COMPLETED, conclusion="success")
    fleet.say(1, JobState.IN_PROGRESS)
    assert fleet.summary()["observed"]["jobs"] == 1
    cost = fleet.summary()["observed"]["cost_usd"]
    fleet.observed.jobs |= {f"{n}.1": fleet.observed.jobs["1.1"] for n in range(10, KEPT_JOBS + 10)}
    fleet.ran(2, MINUTE, MINUTE)
    assert len(fleet.observed.jobs) == KEPT_JOBS
    assert fleet.summary()["observed"]["cost_usd"] > cost


def test_without_observe_nothing_is_said() -> None:
    fleet = Fleet(policy())
    view = views.View(fleet.world, fleet.policy, {}, True, "", fleet.now)
    assert fleet_views.summary(view)["observed"] is None
    fleet.tell(
        m.JobReported(fleet.now, JobState.IN_PROGRESS, 1, 10, 1, "acme/app", ("linux",), runner_name=OTHERS)
    )
    assert why.job_document(view, views.find_job(view, "1"))["why"]["observed"] is None


async def test_a_real_daemon_compares_what_another_s_runner_did(place: Place) -> None:
    replica = await place.replica(observe=True)
    await until(lambda: ready(replica))
    (job_id,) = place.push(1)
    await until(lambda: len(live(replica.daemon.world)) == 1)
    github, now_ms = place.around.github.state, place.clock.now_ms
    made = github.register("repo:octo/app", OTHERS, LABELS, now_ms())
    other = github.connect(made.config, now_ms())
    github.poll(other.session, now_ms())
    await until(lambda: github.fetch(other, now_ms()))
    await until(lambda: f"{job_id}.1" in replica.daemon.observed.jobs)
    github.finish(other.session, "success", now_ms())
    await until(lambda: replica.daemon.observed.jobs[f"{job_id}.1"].cost is not None)
    (row,) = fleet_views.summary(await replica.source.view())["observed"]["runner_types"]
    assert (row["jobs"], row["refused"]) == (1, 0)
    assert not place.around.existing()
