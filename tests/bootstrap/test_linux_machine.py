"""The machine's real program, run as an ordinary user against a daemon and a runner made of shell."""

from __future__ import annotations

import os
import pwd
import subprocess

import pytest

FORK = {"pull_request": {"head": {"repo": {"full_name": "mallory/pytorch"}}}}
OWN = {"pull_request": {"head": {"repo": {"full_name": "PyTorch/pytorch"}}}}
LIFE = ["booted", "registered", "started", "finished", "exited"]


async def test_one_job_from_boot_to_shutdown(machine, daemon):
    assert await machine.run() == LIFE
    assert machine.stopped
    assert machine.steps == "step\n"
    assert daemon.detail("started") == "pytorch/pytorch run 77 (push)"
    assert daemon.detail("exited") == "run.sh ended with 0"
    assert daemon.strangers == 0


async def test_every_call_carries_the_nonce_of_this_boot(machine, daemon):
    await machine.run()
    assert len(daemon.nonces) == 1 + len(daemon.told)
    assert set(map(len, daemon.nonces)) == {32}
    assert len(set(daemon.nonces)) == 1


async def test_jit_travels_by_environment_only_and_the_token_not_at_all(machine):
    await machine.run()
    environment, argv = (machine.home / "env.txt").read_text(), (machine.home / "argv.txt").read_text()
    assert "ACTIONS_RUNNER_INPUT_JITCONFIG=encoded-jit-config\n" in environment
    assert "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE=1\n" in environment
    assert "encoded-jit-config" not in argv
    assert machine.boot["token"] not in environment


async def test_waits_until_a_pool_wants_it(machine, daemon):
    daemon.jit = [204, 500, 204, 200]
    assert await machine.run() == LIFE


async def test_goes_when_told_to(machine, daemon):
    daemon.jit = [204, 410]
    assert await machine.run() == ["booted", "exited"]
    assert machine.stopped
    assert machine.steps == ""


async def test_reports_arrive_once_and_in_order_when_the_daemon_was_away(machine, daemon):
    daemon.fail_stages = 2
    assert await machine.run() == LIFE


async def test_a_tarball_with_another_checksum_is_never_run(machine, daemon):
    machine.plan["runner"]["sha256"] = "0" * 64
    assert await machine.run() == ["failed"]
    assert "SHA-256" in daemon.detail("failed")
    assert machine.stopped
    assert not machine.home.exists()


async def test_a_missing_tarball_is_named(machine, daemon):
    machine.plan["runner"]["url"] = f"{daemon.url}/gone.tar.gz"
    assert await machine.run() == ["failed"]
    assert "/gone.tar.gz: HTTP Error 404" in daemon.detail("failed")


async def test_an_image_may_bring_the_tarball(machine, daemon):
    machine.bring(daemon.tarball)
    assert await machine.run() == LIFE
    assert daemon.downloads == 0


async def test_a_cached_tarball_is_verified_too(machine, daemon):
    machine.bring(b"stale")
    assert await machine.run() == LIFE
    assert daemon.downloads == 1


async def test_dead_man_timer_ends_a_job_that_never_ends(machine, daemon):
    machine.boot.update(ready_seconds=1, lifetime_seconds=0.5)
    machine.job(steps="sleep 600")
    assert "failed" in await machine.run()
    assert "life time" in daemon.detail("failed")
    assert machine.stopped


async def test_dead_man_timer_ends_a_machine_that_nobody_wants(machine, daemon):
    machine.boot.update(ready_seconds=1, lifetime_seconds=0.5)
    daemon.jit = [204]
    assert await machine.run() == ["booted", "failed"]
    assert machine.stopped


async def test_a_runner_too_old_says_what_to_do(machine, daemon):
    machine.install_runner("#!/bin/sh\nexit 7\n")
    machine.boot["place"] = {"provider": "aws", "offer": "c5.large (us-east-1a, spot)", "fund": "grant"}
    assert await machine.run() == ["booted", "too_old", "exited"]
    assert daemon.detail("too_old") == (
        "GitHub refuses runner 2.1.0 as too old: raise providers.aws.settings.runner.version and its sha256"
    )


async def test_a_runner_that_never_registers_shows_its_last_words(machine, daemon):
    machine.install_runner("#!/bin/sh\necho 'Http response code: Unauthorized'\nexit 1\n")
    assert await machine.run() == ["booted", "failed", "exited"]
    assert "Unauthorized" in daemon.detail("failed")


async def test_what_a_job_leaves_behind_ends_with_it(machine, is_alive):
    machine.job(steps="setsid sleep 600 & echo $! > left.txt")
    await machine.run()
    assert not is_alive(int((machine.home / "left.txt").read_text()))


# ---- admission ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("repository", "event", "payload", "why"),
    [
        ("mallory/miner", "push", {}, "repository mallory/miner may not use this runner"),
        ("", "push", {}, "repository (unknown) may not use this runner"),
        ("pytorch/pytorch", "pull_request", FORK, "runs from forks may not use this runner"),
        ("pytorch/pytorch", "pull_request_target", {}, "cannot tell whether this run comes from a fork"),
    ],
)
async def test_refused_job_runs_no_step_even_with_always(machine, daemon, repository, event, payload, why):
    machine.job(repository, event, payload)  # its only step runs whatever the hook does
    assert await machine.run() == ["booted", "registered", "refused", "exited"]
    assert machine.steps == ""
    assert why in daemon.detail("refused")
    assert (machine.home / "hook.log").read_text() == f"autoscaler refused this job: {why}\n"
    assert machine.stopped


async def test_own_branches_pass_where_forks_are_denied(machine):
    machine.job("PyTorch/PyTorch", "pull_request", OWN)
    assert await machine.run() == LIFE


async def test_only_forks(machine, daemon):
    machine.boot["access"]["forks"] = "only"
    machine.job("pytorch/pytorch", "pull_request", OWN)
    assert "refused" in await machine.run()
    assert "only runs from forks" in daemon.detail("refused")


async def test_events_can_be_limited(machine, daemon):
    machine.boot["access"]["events"] = ["push"]
    machine.job("pytorch/pytorch", "workflow_dispatch")
    assert "refused" in await machine.run()
    assert machine.steps == ""


async def test_launch_data_without_access_refuses_every_job(machine, daemon):
    del machine.boot["access"]
    assert "refused" in await machine.run()
    assert machine.steps == ""


async def test_cancelling_a_refused_job_does_not_free_its_always_steps(machine, daemon):
    machine.plan["grace_seconds"] = 2
    machine.job(
        "mallory/miner", during="sleep 0.05; kill -INT $hook; sleep 0.3; kill -TERM $hook; pkill -TERM -P $hook"
    )
    assert "refused" in await machine.run()
    assert machine.steps == ""


async def test_a_hook_that_is_killed_ends_the_runner(machine):
    machine.job("mallory/miner", during="sleep 0.5; pkill -KILL -P $hook")
    machine.plan["grace_seconds"] = 5
    assert "refused" in await machine.run()
    assert machine.steps == ""


def test_a_hook_without_the_machine_program_kills_the_runner(machine):
    job = f"bash -e {machine.folder}/started.sh; echo step > {machine.folder}/steps.txt"
    environment = {
        "PATH": os.environ["PATH"],
        "AUTOSCALER_SOCKET": "/nowhere",
        "GITHUB_REPOSITORY": "pytorch/pytorch",
    }
    ended = subprocess.run(
        ["bash", "-c", job], env=environment, start_new_session=True, check=False, capture_output=True
    )
    assert ended.returncode == -9
    assert not (machine.folder / "steps.txt").exists()


def test_a_failing_finished_hook_fails_no_job(machine):
    environment = {"PATH": os.environ["PATH"], "AUTOSCALER_SOCKET": "/nowhere"}
    subprocess.run(
        ["bash", "-e", machine.folder / "finished.sh"], env=environment, check=True, capture_output=True
    )


@pytest.mark.needs("root")
async def test_the_job_is_an_unprivileged_user_and_cannot_read_the_launch_data(machine):
    machine.plan["user"] = "nobody"
    machine.job(steps=f"id -u > steps.txt; cat {machine.folder}/boot.json >> steps.txt 2>/dev/null")
    assert await machine.run() == LIFE
    assert machine.steps == f"{pwd.getpwnam('nobody').pw_uid}\n"
