"""What stands behind the commands that run here rather than ask a daemon: settings in, exit code out."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from autoscaler import logs
from autoscaler.cli.client import print_json
from autoscaler.cli.usage import OK, PROBLEMS, Unusable
from autoscaler.clock import Clock
from autoscaler.secrets_file import secret_lines
from autoscaler.settings import Settings, from_env

if TYPE_CHECKING:
    from autoscaler.cli.explain import Question

T = TypeVar("T")


def serve(policy: str | None, role: str, observe: bool, poll: tuple[str, ...], record: str | None) -> int:
    """`serve`: run one replica until it is told to stop."""
    from autoscaler import serve as room

    logs.set_up()
    settings, path = settings_and_policy(policy)
    return run_loop(room.serve(settings, path, role, observe, poll, Path(record) if record else None))


def demo(jobs: int, seed: int, speed: float, port: int, stop: bool, as_json: bool) -> int:
    """`demo`: everything on this machine."""
    from autoscaler.sandbox.demo import DemoOptions, run_demo

    logs.set_up()
    return run_loop(run_demo(DemoOptions(jobs, seed, speed, port, stop, as_json)))


def explain(file: str, question: Question, at: str | None, as_json: bool) -> int:
    """`policy explain`: 0 also where the job would not be served; 1 where the file is bad."""
    from autoscaler.cli import explain_text, terminal
    from autoscaler.cli.explain import explain
    from autoscaler.policy.file import load

    now_ms = Clock().now_ms() if at is None else _instant(at)
    found = explain(load(file, now_ms), question, now_ms)
    if as_json:
        return print_json(found)
    terminal.show(explain_text.parts(found))
    return OK


def verify(policy: str | None, as_json: bool) -> int:
    """`verify`: 1 when store, clouds and GitHub disagree."""
    logs.set_up(level=logs.WARNING)
    settings, path = settings_and_policy(policy)
    found = [dataclasses.asdict(each) for each in run_loop(_verify(settings, path))]
    if as_json:
        print_json({"disagreements": found})
    else:
        for each in found:
            print(f"{each['where']}: {each['what']}")
        print(f"{len(found)} disagreements" if found else "store, clouds and GitHub agree")
    return PROBLEMS if found else OK


async def _verify(settings: Settings, path: Path) -> list[Any]:
    from autoscaler import verify as room
    from autoscaler.policy.file import load
    from autoscaler.serve import Replica
    from autoscaler.store.link import StoreAway

    clock = Clock()
    replica = Replica(_beside_a_daemon(settings), load(path, clock.now_ms()), clock)
    try:
        try:
            await replica.store.open()
            await replica.store.ping()
        except StoreAway as error:
            raise StoreAway(f"the store does not answer: {error}; see AUTOSCALER_REDIS_URL") from None
        await replica.github.open()
        return await room.verify(replica.store, settings.fleet, replica.daemon.parts.providers, replica.github)
    finally:
        await replica.stop()


def _beside_a_daemon(settings: Settings) -> Settings:
    """Where a daemon runs the embedded server, share it through its socket; else it is started here."""
    directory = settings.redis_url.removeprefix("embedded:")
    socket = Path(directory).absolute() / "valkey.sock"
    if directory != settings.redis_url and socket.is_socket() and _answers(socket):
        return dataclasses.replace(settings, redis_url=f"unix://{socket}")
    return settings


def _answers(socket: Path) -> bool:
    import socket as sockets

    with sockets.socket(sockets.AF_UNIX) as probe:
        try:
            probe.connect(str(socket))
        except OSError:
            return False
    return True


def replay(file: str, url: str, secret_file: str, speed: float, as_json: bool) -> int:
    """`replay`: 1 when any delivery failed."""
    from autoscaler.cli import terminal
    from autoscaler.events import replay as room
    from autoscaler.events.file import EventFile

    if not url.startswith(("http://", "https://")):
        raise Unusable(f"--to: {url!r} is no address; an example is http://127.0.0.1:8080/webhooks/github")
    secret = secret_lines(Path(secret_file))[0]
    try:
        events = EventFile(Path(file))
    except OSError as error:
        print(f"autoscaler: {file} cannot be read ({error.strerror}); name a file of deliveries", file=sys.stderr)
        return PROBLEMS
    with events:
        for warning in events.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        with room.Progress(len(events)) as progress:
            tally = run_loop(room.replay(events, url, secret, speed, progress.told))
        found = room.document(tally, events)
    if as_json:
        print_json(found)
    else:
        terminal.show(room.page(found, tally.seconds))
    return PROBLEMS if tally.failed else OK


# ---- shared ------------------------------------------------------------------------------------------------


def settings_and_policy(policy: str | None) -> tuple[Settings, Path]:
    """Of the environment, secrets hidden from logs; the policy file of `--policy` or of AUTOSCALER_POLICY."""
    settings = from_env(os.environ)
    keys = [app.private_key for app in settings.github_apps]
    logs.REDACTOR.hide([key for key in (settings.fleet_key, settings.github_token, *keys) if key])
    if settings.webhook_secret_file:
        logs.REDACTOR.hide(secret_lines(settings.webhook_secret_file))
    return settings, Path(policy) if policy else settings.require("policy")


def _instant(text: str) -> int:
    from autoscaler.units import instant

    try:
        return instant(text)
    except ValueError as error:
        raise Unusable(f"--at: {error}") from None


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """On uvloop where it is installed: it is not on every platform."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
