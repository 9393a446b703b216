"""`why` of a job that waits for nothing but GitHub's limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autoscaler.github.budget import Budget
from autoscaler.views import jobs_and_runners as views
from autoscaler.views import why
from scheduling import messages as m
from scheduling.lifecycle import RunnerState
from tests.api.worlds import MINUTE, SECOND, Fleet

RATE = 5


def ask(fleet: Fleet, name: str, next_ms: int, left: int = 0) -> dict[str, Any]:
    budget = Budget("1", "jit", RATE, left, fleet.now_ms + next_ms, "octo")
    view = replace(fleet.view(), budgets=(budget,))
    document: dict[str, Any] = why.job_document(view, views.find_job(view, name))["why"]
    return document


def test_a_runner_that_waits_for_its_registration_says_its_place_and_how_long(fleet: Fleet) -> None:
    for number in range(1, 13):
        fleet.job(number)
    while len(fleet.world.by_state[RunnerState.REGISTERING]) < 12:
        fleet.run(SECOND // 4)
    found = ask(fleet, "12", 20 * SECOND)
    assert found["github"] == {
        "owner": "octo",
        "apps": 1,
        "registrations_per_minute": RATE,
        "place": 12,
        "on_their_way": 12,
        "expected_seconds": 20 + 11 * 60 // RATE,
        "next_at": "2026-11-30T12:" + found["github"]["next_at"][14:],
    }
    expected = "waits for GitHub's limit: it is number 12 to be registered at octo, which takes 5 a minute"
    assert expected in found["sentence"]
    assert "through one App; expected in 3 min." in found["sentence"]
    assert ask(fleet, "1", 0, left=RATE)["github"] is None  # it is registered now


def test_no_machine_is_launched_that_could_not_be_registered_for_minutes(fleet: Fleet) -> None:
    fleet.tell(m.GitHubPaced(fleet.now_ms, "octo", RATE))
    for number in range(1, 31):
        fleet.job(number)
    fleet.run(SECOND)
    assert fleet.world.live_count("") == 12  # of two and a half minutes: a machine boots in one
    found = ask(fleet, "30", 0)
    assert found["sentence"] == (
        "Waits for GitHub's limit: it is number 30 to be registered at octo, which takes 5 a minute through one "
        "App; expected in 6 min. Another App would raise the limit."
    )
    fleet.run(10 * MINUTE)
    assert fleet.world.live_count("") == 30
