"""`autoscaler host`: a machine joins a daemon, serves it, and is paused by whoever gave it."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def add_join(command: argparse.ArgumentParser) -> None:
    command.add_argument("url", metavar="URL", help="the daemon's public address")
    command.add_argument("token", metavar="TOKEN", help="your join token")
    command.add_argument("--name", default="", help="this host in the policy (default: its host name)")
    add_run(command)


def add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--folder", default="", metavar="DIR", help="where machines live (default: /var/lib/autoscaler)"
    )


def add_switch(command: argparse.ArgumentParser, name: str) -> None:
    command.add_argument("host", metavar="PROVIDER/HOST", type=_host)
    command.set_defaults(minutes=None)
    if name == "keep":
        command.add_argument("minutes", metavar="MINUTES", type=int, help="0 ends it")


def join(args: argparse.Namespace) -> int:
    """What a host without this package does by the program that the daemon serves."""
    from providers.ssh import caller

    return caller.join(args.url, args.token, args.name, args.folder)


def run(args: argparse.Namespace) -> int:
    from providers.ssh import caller

    return caller.run(args.folder)


def switch(name: str) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        from autoscaler.cli import client

        return client.host_switch(name, args.host, args.minutes, as_json=args.json)

    return run


def _host(value: str) -> str:
    if value.count("/") != 1 or not all(value.split("/")):
        raise argparse.ArgumentTypeError(f"{value!r} is not PROVIDER/HOST")
    return value
