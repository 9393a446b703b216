"""The part of the command line that is about recorded events: `backtest` and `record`."""

from __future__ import annotations

import argparse
from pathlib import Path
from zoneinfo import ZoneInfo

from autoscaler.cli.arguments import repository
from autoscaler.cli.usage import Unusable


def add_backtest(command: argparse.ArgumentParser) -> None:
    command.add_argument("events", nargs="?", metavar="EVENTS", help="recorded events, JSON Lines, plain or .gz")
    command.add_argument(
        "--from-github", type=repository, metavar="OWNER/REPO", help="instead: the history of this repository"
    )
    command.add_argument(
        "--since", default="7d", metavar="AGE", help="how far back that history goes (default: 7d)"
    )
    command.add_argument(
        "--policy", action="append", default=[], metavar="FILE", help="the policy; give it twice to compare two"
    )
    command.add_argument(
        "--world", metavar="FILE", help="what is known of boots, capacity and interruptions (deploy/README.md)"
    )
    command.add_argument(
        "--compare-live", action="store_true", help="set waits and cost beside those of the recorded window"
    )
    command.add_argument("--report", metavar="out.html", help="write one self-contained page")
    command.add_argument("--seed", type=int, default=0, metavar="S", help="of what the world draws (default: 0)")


def add_record(command: argparse.ArgumentParser) -> None:
    command.add_argument("--repository", required=True, type=repository, metavar="OWNER/REPO")
    command.add_argument("--since", default="7d", metavar="AGE", help="how far back (default: 7d)")
    command.add_argument("--out", metavar="FILE", help="where to (default: OWNER-REPO.jsonl.gz)")


def add_record_csv(command: argparse.ArgumentParser) -> None:
    command.add_argument("tables", nargs="+", metavar="FILE", help="a table with one row a job, plain or .gz")
    command.add_argument("--repository", type=repository, metavar="OWNER/REPO", help="where no column names it")
    command.add_argument(
        "--time-zone", default="UTC", metavar="ZONE", help="of times that have no offset (default: UTC)"
    )
    command.add_argument("--out", metavar="FILE", help="where to (default: as the first table, .jsonl.gz)")


def backtest(args: argparse.Namespace) -> int:
    from autoscaler.backtest import command

    policies = [Path(name) for name in args.policy]
    report, world = _path(args.report), _path(args.world)
    if (args.events is None) == (args.from_github is None):
        raise Unusable("name either a file of EVENTS or --from-github OWNER/REPO")
    if args.events is not None:
        more = {"world": world, "report": report, "seed": args.seed, "as_json": args.json}
        more["compare_live"] = args.compare_live
        return command.run(Path(args.events), policies, **more)
    since_ms, until_ms, token, url = _history(args.since)
    return command.from_github(
        args.from_github,
        since_ms,
        until_ms,
        policies,
        token=token,
        url=url,
        world=world,
        report=report,
        seed=args.seed,
        as_json=args.json,
    )


def record(args: argparse.Namespace) -> int:
    from autoscaler.events import from_github as record_github

    since_ms, until_ms, token, url = _history(args.since)
    out = _out(args.out or f"{args.repository.replace('/', '-')}.jsonl.gz")
    return record_github.run(args.repository, since_ms, until_ms, out, token, url, args.json)


def record_csv(args: argparse.Namespace) -> int:
    from autoscaler.events import from_csv

    tables = [Path(name) for name in args.tables]
    try:
        zone = ZoneInfo(args.time_zone)
    except (ValueError, OSError, KeyError):
        raise Unusable(f"--time-zone: {args.time_zone!r} is no zone such as UTC or Europe/Berlin") from None
    out = _out(args.out or str(tables[0].parent / f"{tables[0].name.partition('.')[0]}.jsonl.gz"))
    if out.exists() and any(table.exists() and out.samefile(table) for table in tables):
        raise Unusable(f"--out: {str(out)!r} is one of the tables; name another file")
    return from_csv.run(tables, out, args.repository or "", zone, args.json)


def _history(since: str) -> tuple[int, int, str, str]:
    """From when, until when, and with which token at which GitHub."""
    import os

    from autoscaler import logs
    from autoscaler.clock import Clock
    from autoscaler.settings import from_env
    from autoscaler.units import duration

    try:
        age_ms = duration(since)
    except ValueError as error:
        raise Unusable(f"--since: {error}") from None
    settings = from_env(os.environ)
    token = settings.github_token or ""
    logs.REDACTOR.hide([token] if token else [])
    now_ms = Clock().now_ms()
    return now_ms - age_ms, now_ms, token, settings.github_url


def _out(name: str) -> Path:
    if Path(name).is_dir():
        raise Unusable(f"--out: {name!r} is a folder; name a file")
    return Path(name)


def _path(name: str | None) -> Path | None:
    return Path(name) if name else None
