"""What people see of a machine that boots, and of one that gave its boot up."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from autoscaler.cli import tables
from autoscaler.views import jobs_and_runners as views
from autoscaler.views import why, why_text
from scheduling import messages as m
from tests.api.worlds import SECOND, Fleet


def shown(*parts: Any) -> str:
    out = io.StringIO()
    console = Console(file=out, width=300)
    for part in parts:
        console.print(part)
    return out.getvalue()


def job(fleet: Fleet) -> dict[str, Any]:
    view = fleet.view()
    return why.job_document(view, views.find_job(view, "1"))


def booting(fleet: Fleet) -> str:
    """A job whose machine says what it does; the runner's id."""
    fleet.job(1)
    fleet.run(10 * SECOND)
    (runner_id,) = fleet.world.runners
    fleet.tell(m.StageReported(fleet.now_ms, runner_id, m.Stage.BOOTING, "downloads the runner"))
    fleet.now_ms += 20 * SECOND
    fleet.tell(m.StageReported(fleet.now_ms, runner_id, m.Stage.BOOTING, "downloads the runner"))
    fleet.now_ms += 5 * SECOND
    return runner_id


def give_up(fleet: Fleet) -> str:
    runner_id = booting(fleet)
    log = ("Reading package lists...", "\x1b[2Jno space left on device", "the post_install hook ended with 1")
    fleet.tell(m.StageReported(fleet.now_ms, runner_id, m.Stage.FAILED, log[-1], log))
    return runner_id


def test_why_says_what_the_machine_does_and_when_it_was_heard_of(fleet: Fleet) -> None:
    booting(fleet)
    sentence = job(fleet)["why"]["sentence"]
    assert "boots: downloads the runner for 25 s, heard of 5 s ago." in sentence


def test_the_list_of_runners_says_so_too(fleet: Fleet) -> None:
    booting(fleet)
    document = views.runners(fleet.view(), {})
    text = shown(*tables.runners(document))
    assert "starting: downloads the runner for 25 s, heard of 5 s ago" in " ".join(text.split())
    assert document["runners"][0]["boot"]["heard_seconds"] == 5


def test_why_shows_the_last_words_of_a_boot_that_was_given_up(fleet: Fleet) -> None:
    runner_id = give_up(fleet)
    found = job(fleet)
    assert found["why"]["failed_boot"]["runner"] == runner_id
    assert "gave its boot up (the post_install hook ended with 1)" in found["why"]["sentence"]
    text = shown(why_text.screen(found))
    assert "did not boot" in text
    assert "no space left on device" in text
    assert text.count("the post_install hook ended with 1") == 2  # in the sentence, and once below
    assert "\x1b" not in text


def test_a_runners_document_has_the_lines(fleet: Fleet) -> None:
    give_up(fleet)
    (row,) = views.runners(fleet.view(), {})["runners"]
    assert row["log"][0] == "Reading package lists..."
    assert row["detail"] == "the post_install hook ended with 1"


def test_a_job_whose_machines_boot_shows_nothing_of_it(fleet: Fleet) -> None:
    fleet.job(1)
    fleet.run(60 * SECOND)
    assert job(fleet)["why"]["failed_boot"] is None
