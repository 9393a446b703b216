"""`why`: the first sentence answers, for every reason why a job can wait and every way it can have run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from autoscaler.views import jobs_and_runners as views
from autoscaler.views import why, why_text
from autoscaler.views.values import time
from scheduling import messages as m
from scheduling.lifecycle import JobState, RerunState, RunnerState
from scheduling.model import Bid
from scheduling.world import PAUSED
from tests.api.worlds import GPU, LARGE, MINUTE, POLICY, SECOND, SMALL, Fleet, no_capacity


def ask(fleet: Fleet, name: str, *, leading: bool = True) -> dict[str, Any]:
    view = fleet.view(leading=leading)
    return why.job_document(view, views.find_job(view, name))


def sentence(fleet: Fleet, name: str, *, leading: bool = True) -> str:
    return str(ask(fleet, name, leading=leading)["why"]["sentence"])


def screen(document: dict[str, Any]) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=100).print(why_text.screen(document))
    return out.getvalue().splitlines()


# ---- waiting -----------------------------------------------------------------------------------------------


def test_a_job_with_a_runner_on_its_way(fleet: Fleet) -> None:
    fleet.job(1)
    fleet.run(10 * SECOND)
    text = sentence(fleet, "1")
    assert text.startswith("A runner is on its way: r")
    assert "e2-standard-2 at gcp (us-central1a), boots" in text
    fleet.run(40 * SECOND)
    assert sentence(fleet, "1") == "Runs on e2-standard-2 at gcp (us-central1a, on-demand), paid by gcp-gift."


def test_a_runner_that_began_a_job_of_which_github_has_not_told_yet(fleet: Fleet) -> None:
    fleet.job(1)
    fleet.run(10 * SECOND)
    [runner] = fleet.world.runners
    fleet.tell(m.StageReported(fleet.now_ms, runner, m.Stage.STARTED))
    assert "has begun a job, and GitHub has not said yet which one" in sentence(fleet, "1")


def test_its_place_in_the_queue_and_whose_turn_it_is(fleet: Fleet) -> None:
    for number in range(1, 5):
        fleet.job(number, GPU)
    fleet.run(5 * SECOND)
    third = ask(fleet, "3")["why"]
    assert third["pool"]["place"] == 3
    assert third["pool"]["queued"] == 4
    assert third["pool"]["supply"] == 2
    assert third["sentence"].startswith(
        "No offer can serve it now. The best, rocm-lab/sim-1a/mi300-slot/on_demand: "
    )
    assert third["sentence"].endswith("rocm-lab runs its max_runners 2.")
    assert "The job is number 2 of 4 in its pool, and 2 runners are on their way." in sentence(fleet, "2")


def test_sold_out_everywhere_names_the_best_offer_and_until_when(fleet: Fleet) -> None:
    fleet.create = no_capacity("aws/")
    fleet.job(1, LARGE)
    fleet.run(20 * SECOND)
    found = ask(fleet, "1")["why"]
    assert found["sentence"].startswith("No offer can serve it now. The best, aws/us-east-1")
    assert "cooling: no capacity for c5.4xlarge" in found["sentence"]
    assert "(until 2026-11-30 12:03 UTC)" in found["sentence"]
    assert "more are refused too." in found["sentence"]
    assert {row["until"][:16] for row in found["offers"] if "cooling" in row["refusal"]} == {"2026-11-30T12:03"}


def test_a_closed_window_says_when_it_opens(busy: Fleet) -> None:
    found = ask(busy, "2500")["why"]
    assert "outside Mon-Fri 22:00-06:00 Europe/Berlin (until 2026-11-30 21:00 UTC)" in found["sentence"]


def test_no_money(tmp_path: Path) -> None:
    policy = POLICY.replace("spent: {amount: 120 USD", "spent: {amount: 1999.99 USD")
    fleet = Fleet(tmp_path, policy)
    fleet.job(1, ("linux.arm64",))
    fleet.run(5 * SECOND)
    assert "fund arm-cash has $0.01 left, a hold needs $0.10" in sentence(fleet, "1")


def test_caps_of_type_and_fleet(tmp_path: Path) -> None:
    labels = "labels: [self-hosted, linux, linux.gpu]"
    fleet = Fleet(
        tmp_path, POLICY.replace("runners: 60", "runners: 2").replace(labels, f"{labels}\n    max_runners: 1")
    )
    fleet.job(1, GPU)
    fleet.job(2, GPU)
    fleet.run(5 * SECOND)
    found = ask(fleet, "2")["why"]
    assert found["sentence"] == "Waits for a free place: linux.gpu runs its limit of 1 runners."
    assert {"scope": "linux.gpu", "live": 1, "limit": 1, "full": True} in found["pool"]["limits"]
    fleet.job(3)
    fleet.job(4)
    fleet.run(5 * SECOND)
    assert sentence(fleet, "4") == "Waits for a free place: the fleet runs its limit of 2 runners."


def test_paused_and_drained(fleet: Fleet) -> None:
    fleet.tell(m.SwitchSet(fleet.now_ms, PAUSED, True, "maria"))
    fleet.job(1)
    fleet.run(2 * SECOND)
    assert sentence(fleet, "1") == "Launches are paused by maria; `autoscaler resume` lets them go on."
    fleet.tell(m.SwitchSet(fleet.now_ms, PAUSED, False, "maria"))
    fleet.tell(m.SwitchSet(fleet.now_ms, "all", True, "maria"))
    fleet.run(2 * SECOND)
    assert "drained by an operator" in sentence(fleet, "1")


def test_before_the_next_round(fleet: Fleet) -> None:
    fleet.job(1)
    assert sentence(fleet, "1") == "It has just come in; the next round of planning gives it a pool."


def test_waiting_for_github(busy: Fleet) -> None:
    assert "Waits for GitHub to say where its run comes from" in sentence(busy, "2700")
    assert sentence(busy, "2900").startswith("GitHub holds it back")


def test_access_keeps_it_out(busy: Fleet) -> None:
    assert "linux.small: its access does not name stranger/repo" in sentence(busy, "2950")


def test_trouble_at_github_shows_with_the_next_attempt(fleet: Fleet) -> None:
    fleet.job(1)
    fleet.run(41 * SECOND)
    (runner_id,) = fleet.world.runners
    text = "GitHub's budget for JIT configs is used up"
    fleet.tell(m.EffectFailed(fleet.now_ms, runner_id, m.Trouble.TRANSIENT, text, 30_000))
    again_ms = fleet.world.runners[runner_id].retry_ms
    assert fleet.now_ms + 30_000 <= again_ms < fleet.now_ms + 45_000
    assert f"Its last attempt failed: {text}; the next one is at {time(again_ms)}." in sentence(fleet, "1")


def test_a_replica_that_does_not_lead_says_so(fleet: Fleet) -> None:
    fleet.create = no_capacity("")
    fleet.job(1)
    fleet.run(30 * SECOND)
    assert "cooling: no capacity" in sentence(fleet, "1", leading=False)
    fleet.world.offers.clear()
    fleet.world.cache.clear()
    assert "only the leading replica knows" in sentence(fleet, "1", leading=False)


@pytest.mark.parametrize("name", ["2600", "2600.1"])
def test_k15_a_label_that_nobody_offers(busy: Fleet, name: str) -> None:
    found = ask(busy, name)
    assert found["state"] == "unroutable"
    assert found["why"]["sentence"] == (
        "Nothing will start it: no runner type has all of its labels (linux, linux.smal, self-hosted). "
        "The nearest, linux.fork, lacks linux.smal: correct `runs-on`, or add the label."
    )
    assert found["why"]["nearest"][0]["lacks"] == ["linux.smal"]


def test_a_job_without_labels(fleet: Fleet) -> None:
    fleet.job(1, ())
    fleet.plan()
    assert "it has no labels" in sentence(fleet, "1")


def test_k16_a_job_that_matches_two_runner_types(fleet: Fleet) -> None:
    fleet.job(1, SMALL)
    fleet.run(5 * SECOND)
    found = ask(fleet, "1")
    types = {row["runner_type"]: row for row in found["why"]["types"]}
    assert types.keys() == {"linux.small", "linux.any"}
    assert types["linux.small"]["chosen"]
    assert types["linux.small"]["best"]["offer"] == "gcp/us-central1a/e2-standard-2/on_demand"
    assert not types["linux.any"]["chosen"]
    assert types["linux.any"]["best"]["price_usd_per_hour"] == "0.700000"
    assert len(fleet.world.runners) == 1
    assert any("2 runner types; the one with the best placement serves it" in line for line in screen(found))


def test_k29_one_screen_for_every_job(busy: Fleet) -> None:
    for key in busy.world.jobs:
        lines = screen(ask(busy, key))
        assert len(lines) <= 40, (key, len(lines))
        assert max(len(line) for line in lines) <= 100
        assert lines[0].startswith(f"job {key}")
        assert lines[2].strip()


# ---- ran ---------------------------------------------------------------------------------------------------


def test_where_it_ran_at_which_price_and_why(busy: Fleet) -> None:
    found = ask(busy, "1000")["why"]
    runner = found["runner"]
    assert found["sentence"].startswith("Ended (success) after 598 s on e2-standard-2 at gcp")
    assert runner["fund"] == "gcp-gift"
    assert runner["price_usd_per_hour"] == "0.067006"
    assert runner["cost_usd"] == "0.012006"
    assert "the credit of gcp-gift ends first, on 2026-12-31" in runner["won"]
    stages = [stage["stage"] for stage in found["timeline"]]
    assert stages == [
        "queued", "planned", "created", "booted", "jit", "registered", "started", "ended", "stopped", "gone",
    ]  # fmt: skip
    assert found["timeline"][3]["seconds"] == 40


def test_what_was_refused_before_it(fleet: Fleet) -> None:
    fleet.create = no_capacity("c5.4xlarge/spot")
    fleet.job(1, LARGE)
    fleet.run(MINUTE)
    won = ask(fleet, "1")["why"]["runner"]["won"]
    assert won.startswith(
        "aws/us-east-1a/c5.4xlarge/spot and 1 more came first and was refused (cooling: no capacity"
    )


def test_free_machines_and_running_costs(busy: Fleet) -> None:
    running = next(job for job in busy.world.jobs.values() if job.runner and "linux.gpu" in job.labels)
    found = ask(busy, running.key)["why"]
    assert "for free" in found["sentence"]
    assert found["runner"]["cost_usd"] == "0.000000"


def test_a_runner_of_another_fleet_and_none_at_all(fleet: Fleet) -> None:
    fleet.job(1, state=JobState.IN_PROGRESS, runner_name="donated-7")
    fleet.job(2, state=JobState.COMPLETED, conclusion="cancelled")
    assert sentence(fleet, "1") == "Runs on donated-7, which is no runner of this fleet."
    assert sentence(fleet, "2") == "It ended (cancelled) without ever having had a runner."


def test_github_gave_the_runner_to_another_job(fleet: Fleet) -> None:
    fleet.job(1)
    fleet.run(30 * SECOND)
    (runner,) = fleet.world.runners.values()
    fleet.job(2)
    fleet.job(2, state=JobState.IN_PROGRESS, runner_name=f"ci-{runner.id}")
    assert "GitHub gave it that runner, which was launched for job 1.1 of the same pool." in sentence(fleet, "2")


def test_what_a_job_had_waited_for_and_how_long(fleet: Fleet) -> None:
    fleet.create = no_capacity("")
    fleet.job(1, GPU)
    fleet.run(9 * MINUTE)
    fleet.create = lambda runner: None
    fleet.run(6 * MINUTE)
    found = ask(fleet, "1")
    capacity, boot, github = found["why"]["waited"]
    assert (capacity["for"], boot["for"], github["for"]) == (
        "capacity",
        "the boot of its machine",
        "its registration at GitHub",
    )
    assert "cooling: no capacity for mi300-slot" in capacity["detail"]
    assert boot["seconds"] == 40
    total = sum(part["seconds"] for part in found["why"]["waited"])
    assert total == found["queue_seconds"]
    assert any("waited" in line and "for capacity (rocm-lab" in line for line in screen(found))


def test_money_and_policy_are_told_from_capacity(tmp_path: Path) -> None:
    policy = POLICY.replace("spent: {amount: 120 USD", "spent: {amount: 1999.99 USD")
    fleet = Fleet(tmp_path, policy)
    fleet.job(1, ("linux.arm64",))
    fleet.run(2 * MINUTE)
    month = "2026-11"
    fleet.tell(m.FundSpentStated(fleet.now_ms, "arm-cash", month, 0, fleet.now_ms, "maria"))
    fleet.run(3 * MINUTE)
    waited = ask(fleet, "1")["why"]["waited"]
    assert waited[0]["for"] == "money"
    assert "fund arm-cash has $0.01 left" in waited[0]["detail"]


def test_a_scarce_offer_says_whose_need_makes_it_dear(fleet: Fleet) -> None:
    until_ms = fleet.now_ms + 60 * MINUTE
    words = "its machines count $0.20 an hour more, because others need them"
    worth = "a gcp-gift dollar counts as $0.61 now, because it would last until 12 December 2026"
    fund, cap = Bid("gcp-gift", 610_000, until_ms, worth), Bid("provider:gcp", 0, until_ms, words, premium=200_000)
    fleet.tell(m.FundsValued(fleet.now_ms, (fund, cap)))
    fleet.tell(m.SwitchSet(fleet.now_ms, PAUSED, True, "maria"))
    fleet.job(1)
    fleet.run(2 * SECOND)
    rows = [row for row in ask(fleet, "1")["why"]["offers"] if row["provider"] == "gcp"]
    assert rows[0]["scarce"] == words
    assert rows[0]["tier"] == worth


def test_both_attempts_of_a_job_whose_spot_machine_was_taken_name_it(fleet: Fleet) -> None:
    fleet.create = no_capacity("on_demand")
    fleet.job(1, LARGE, name="build")
    fleet.run(2 * MINUTE)
    (runner,) = [each for each in fleet.world.runners.values() if each.state is RunnerState.BUSY]
    fleet.tell(m.StageReported(fleet.now_ms, runner.id, m.Stage.INTERRUPTED, "EC2 will terminate it at 12:02"))
    assert sentence(fleet, "1").endswith(
        "The machine says that it is about to be taken back: EC2 will terminate it at 12:02."
    )
    fleet.tell(m.MachineTaken(fleet.now_ms, runner.id))
    assert sentence(fleet, "1").endswith("aws took the machine back: GitHub will fail the job once it notices.")
    fleet.job(
        1, LARGE, state=JobState.COMPLETED, conclusion="failure", name="build", runner_name=f"ci-{runner.id}"
    )
    fleet.tell(m.RerunDecided(fleet.now_ms, "1.1"))
    assert sentence(fleet, "1").endswith("Its spot machine was taken; GitHub is asked to run it again.")
    fleet.tell(m.RerunAnswered(fleet.now_ms, "1.1", RerunState.DUE, "its run has not ended yet"))
    assert sentence(fleet, "1").endswith("GitHub is asked to run it again: its run has not ended yet.")
    fleet.tell(m.RerunAnswered(fleet.now_ms, "1.1", RerunState.ASKED))
    fleet.tell(m.JobReported(fleet.now_ms, JobState.QUEUED, 7, 10, 2, "octo/engine", LARGE, "build"))
    assert sentence(fleet, "1").endswith("Its spot machine was taken, so it is run again as job 7.2.")
    assert sentence(fleet, "7.2").endswith("It is the re-run of job 1.1, whose spot machine was taken.")


def test_the_terms_add_up_to_the_planners_score(busy: Fleet) -> None:
    rows = [row for key in ("2800", "2108", "2500") for row in ask(busy, key)["why"]["offers"]]
    assert rows
    for row in rows:
        total = sum(int(amount.replace(".", "")) for amount in row["terms"].values())
        assert total == int(row["score_usd"].replace(".", ""))


@pytest.mark.parametrize("name", ["", "abc", "1.", "1.x", "9" * 40, "<script>", "2600.2", "777"])
def test_a_job_that_is_not_known(busy: Fleet, name: str) -> None:
    with pytest.raises(views.NoSuchThing):
        ask(busy, name)


def test_a_forgotten_job_is_told_from_an_unknown_one(fleet: Fleet) -> None:
    fleet.job(1, state=JobState.COMPLETED, conclusion="success", runner_name="x")
    fleet.now_ms += 25 * 60 * MINUTE
    fleet.plan()
    with pytest.raises(views.NoSuchThing, match=r"job 1 ended at 2026-11-30T12:00:00.000Z"):
        ask(fleet, "1")
