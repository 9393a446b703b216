"""What a booting machine tells: its steps, that it lives, its last lines; hooks; and the line in the job's log."""

from __future__ import annotations

import asyncio

import pytest

LIFE = ["booted", "registered", "started", "finished", "exited"]
PLACE = {"provider": "aws", "offer": "c5.large (us-east-1a, spot)", "fund": "grant"}


async def test_each_step_of_the_boot_is_told(machine, daemon):
    machine.plan["hooks"]["pre_install"] = "true"
    machine.plan["hooks"]["post_install"] = "true"
    assert await machine.run() == LIFE
    steps = daemon.doing()
    assert steps[0] == "starts"
    assert [step for step in steps if step != "installs what the runner needs"] == [
        "starts", "runs pre_install", "downloads the runner", "unpacks the runner", "runs post_install",
    ]  # fmt: skip


async def test_a_step_that_lasts_is_told_again_and_again(machine, daemon):
    machine.plan["beat_seconds"] = 0.05
    gate = machine.folder / "go"
    machine.plan["hooks"]["pre_install"] = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    async with machine.running() as process, asyncio.timeout(20):
        while sum(body["detail"] == "runs pre_install" for body in daemon.told) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        gate.touch()
        await process.wait()
    assert daemon.names() == LIFE


async def test_reports_say_how_old_they_are(machine, daemon):
    daemon.refuse_once.add("booted")
    assert await machine.run() == LIFE
    (refused,) = daemon.refused
    (taken,) = [body for body in daemon.told if body["stage"] == "booted"]
    assert taken["age_ms"] > refused["age_ms"]


# ---- hooks -------------------------------------------------------------------------------------------------


async def test_hooks_run_before_and_after_the_installation(machine):
    home = machine.home
    machine.plan["hooks"]["pre_install"] = f"test ! -e {home}/run.sh && echo before > {machine.folder}/pre.txt"
    machine.plan["hooks"]["post_install"] = f"test -e {home}/run.sh && echo after > {home}/post.txt"
    assert await machine.run() == LIFE
    assert (machine.folder / "pre.txt").read_text() == "before\n"
    assert (home / "post.txt").read_text() == "after\n"


async def test_an_image_brings_hooks_of_its_own(machine, daemon):
    folder = machine.folder / "hooks"
    folder.mkdir()
    (folder / "post_install").write_text(f"#!/bin/sh\necho image >> {machine.folder}/order.txt\n")
    (folder / "post_install").chmod(0o755)
    machine.plan["hooks"]["post_install"] = f"echo policy >> {machine.folder}/order.txt"
    assert await machine.run() == LIFE
    assert (machine.folder / "order.txt").read_text() == "image\npolicy\n"
    assert "runs the image's post_install" in daemon.doing()


async def test_a_hook_that_fails_ends_the_boot_and_its_words_are_told(machine, daemon):
    machine.plan["hooks"]["pre_install"] = "echo no driver for this GPU\nfalse\necho never"
    assert await machine.run() == ["failed"]
    assert daemon.detail("failed") == "the pre_install hook ended with 1"
    assert daemon.told[-1]["log"] == ["no driver for this GPU", "the pre_install hook ended with 1"]
    assert machine.stopped
    assert not machine.home.exists()


async def test_the_output_of_a_hook_is_bounded_and_without_the_token(machine, daemon):
    token = machine.boot["token"]
    machine.plan["hooks"]["pre_install"] = (
        f"for n in $(seq 100); do echo line $n {token}; done; head -c 100000 /dev/zero | tr '\\0' x; echo; false"
    )
    assert await machine.run() == ["failed"]
    log = daemon.told[-1]["log"]
    assert len(log) == 12
    assert max(map(len, log)) <= 200
    assert token not in "".join(log)


async def test_a_job_that_ran_leaves_no_log(machine, daemon):
    machine.boot.update(ready_seconds=1, lifetime_seconds=0.5)
    machine.job(steps="sleep 600")
    assert "failed" in await machine.run()
    assert daemon.told[-1]["log"] == []


# ---- the line in the job's log -----------------------------------------------------------------------------


async def test_the_job_reads_where_it_runs_who_pays_and_how_long_it_waited(machine, daemon):
    machine.boot["place"] = PLACE
    daemon.waited_ms = 125_000
    assert await machine.run() == LIFE
    line = (machine.home / "hook.log").read_text()
    head = "fleet: this job runs at aws on c5.large (us-east-1a, spot), paid by grant; it waited about 2 min "
    assert line.startswith(head)


async def test_what_is_free_says_so(machine):
    machine.boot["place"] = {**PLACE, "fund": ""}
    await machine.run()
    text = (machine.home / "hook.log").read_text()
    assert text == "fleet: this job runs at aws on c5.large (us-east-1a, spot), for free\n"


@pytest.mark.parametrize("evil", ["x\n::add-mask::y", "##[command]rm", ":::", "\x1b[31m", "$(id)`id`"])
async def test_no_name_can_be_a_command_to_the_runner(machine, evil):
    machine.boot["place"] = {"provider": evil, "offer": evil, "fund": evil}
    assert await machine.run() == LIFE
    (line,) = (machine.home / "hook.log").read_text().splitlines()
    assert "::" not in line
    assert "##[" not in line
    assert line.isprintable()


async def test_a_refused_job_reads_only_why(machine):
    machine.boot["place"] = PLACE
    machine.job("mallory/miner")
    await machine.run()
    assert "paid by" not in (machine.home / "hook.log").read_text()


# ---- bootstrap: userdata -----------------------------------------------------------------------------------


async def test_a_config_that_came_with_the_machine_is_used_and_nobody_is_asked(machine, daemon):
    machine.boot.update(jit="config-from-user-data", url="http://127.0.0.1:9", place=PLACE)
    await machine.run()
    assert daemon.told == []
    assert machine.steps == "step\n"
    assert "ACTIONS_RUNNER_INPUT_JITCONFIG=config-from-user-data\n" in (machine.home / "env.txt").read_text()
    assert "paid by grant" in (machine.home / "hook.log").read_text()
    assert machine.stopped
