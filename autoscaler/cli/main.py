"""The command line: what `autoscaler --help` offers, and which room does each command.

Documents go to stdout, logs and complaints to stderr. Rooms are imported when their command runs, so that help and
client commands start at once.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from autoscaler.cli import arguments
from autoscaler.cli import help as text
from autoscaler.cli import hosts as cli_hosts
from autoscaler.cli import trials as cli_trials
from autoscaler.cli.usage import PROBLEMS, WRONG, Unusable
from scheduling.lifecycle import RunnerState

Run = Callable[[argparse.Namespace], int]
Commands: TypeAlias = "argparse._SubParsersAction[_Parser]"
READABLE = (
    "SettingsError",
    "ClientError",
    "PolicyError",
    "EmbeddedError",
    "StoreAway",
    "MissingSdk",
    "GitHubError",
)
"""Errors whose text was written for the person at the terminal; by name, so that nothing is imported for it."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS)
"""Of what takes our output, or files of ours: nothing that a program can mend."""
JOB_STATES = ("waiting", "queued", "blocked", "unroutable", "in_progress", "completed")
RUNNER_STATES = ("live", *(state.value for state in RunnerState))


def main(given: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Wrong usage ends in SystemExit(2), as argparse does it."""
    _use_any_terminal()
    parsed = parser().parse_args(given)
    run: Run = parsed.run
    try:
        code = run(parsed)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _say_no_more()
        return PROBLEMS
    except OSError as error:
        if error.errno not in FULL:
            raise
        _say_no_more()
        print(f"autoscaler: cannot write {error.filename or 'the output'}: {error.strerror}", file=sys.stderr)
        return PROBLEMS
    except Unusable as error:
        print(f"autoscaler: {error}", file=sys.stderr)
        return WRONG
    except Exception as error:
        if not any(base.__name__ in READABLE for base in type(error).__mro__):
            raise
        print(f"autoscaler: {error}", file=sys.stderr)
        return PROBLEMS


def _use_any_terminal() -> None:
    """Characters that the terminal does not have become `?`; closed streams swallow what is said."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  - for as long as the process lives
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _say_no_more() -> None:
    """What is still in stdout's buffer goes nowhere, so that nothing fails when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# ---- what there is -----------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """All commands with their help."""
    top = _Parser(prog="autoscaler", description=text.TOP, epilog=text.TOP_END)
    top.add_argument("--version", action="version", version=_Version("%(prog)s"))
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    _serve_commands(commands)
    _policy_commands(commands)
    _client_commands(commands)
    _switch_commands(commands)
    _host_commands(commands)
    _check_commands(commands)
    _trial_commands(commands)
    return top


class _Parser(argparse.ArgumentParser):
    """Shows texts as they were written, and does not take `--j` for `--json`."""

    def __init__(self, **more: Any) -> None:
        super().__init__(formatter_class=_wide, allow_abbrev=False, **more)


def _wide(prog: str) -> argparse.HelpFormatter:
    return argparse.RawTextHelpFormatter(prog, max_help_position=28)


class _Version(str):
    """Looked up only when it is asked for."""

    def __mod__(self, _: object) -> str:
        from importlib.metadata import version

        return f"autoscaler {version('runner-autoscaler')}"


def _add(commands: Commands, name: str, run: Run, *, json: bool = True) -> _Parser:
    summary, _, more = text.COMMANDS[name].partition("\n")
    command = commands.add_parser(name.rpartition(" ")[2], help=summary, description=f"{summary}\n{more}".strip())
    command.set_defaults(run=run)
    if json:
        command.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    return command


def _serve_commands(commands: Commands) -> None:
    serve = _add(commands, "serve", _serve, json=False)
    serve.add_argument("--policy", metavar="FILE", help="the policy file (default: AUTOSCALER_POLICY)")
    serve.add_argument("--role", choices=("all", "ingest", "scheduler"), default="all", help=text.ROLE)
    serve.add_argument("--observe", action="store_true", help="decide everything, launch nothing")
    serve.add_argument(
        "--poll", metavar="OWNER/REPO", action="append", default=[], type=arguments.repository, help=text.POLL
    )
    serve.add_argument("--record", metavar="DIR", help="record the deliveries, redacted, for backtests")
    demo = _add(commands, "demo", _demo)
    demo.add_argument(
        "--jobs", type=arguments.count, default=200, metavar="N", help="jobs with --exit (default: 200)"
    )
    demo.add_argument(
        "--seed", type=int, default=1, metavar="S", help="same seed, same jobs and faults (default: 1)"
    )
    demo.add_argument(
        "--speed", type=arguments.positive, default=60.0, metavar="X", help="times real time (default: 60)"
    )
    demo.add_argument(
        "--port", type=arguments.port, default=0, metavar="P", help="of dashboard and API (default: a free one)"
    )
    demo.add_argument("--exit", action="store_true", help="stop when all jobs are done, and print the summary")


def _policy_commands(commands: Commands) -> None:
    group = commands.add_parser("policy", help="check, explain and import policy files", description=text.POLICY)
    policy = group.add_subparsers(metavar="COMMAND", required=True)
    _add(policy, "policy check", _policy_check).add_argument("file", metavar="FILE")
    _add(policy, "policy schema", _policy_schema)
    explain = _add(policy, "policy explain", _policy_explain)
    explain.add_argument("file", metavar="FILE")
    explain.add_argument("--labels", required=True, metavar="A,B", help="the job's `runs-on`, comma-separated")
    explain.add_argument("--repository", required=True, type=arguments.repository, metavar="OWNER/REPO")
    explain.add_argument("--event", default="push", help="what started its run (default: push)")
    explain.add_argument(
        "--ref", default="", help="its ref, such as refs/heads/main (default: none that a rule names)"
    )
    explain.add_argument("--fork", action="store_true", help="its run comes from a fork")
    explain.add_argument("--at", metavar="TIME", help="such as 2026-12-31 or 2026-12-31T18:00:00Z (default: now)")
    scale = _add(policy, "policy import-scale-config", _policy_import)
    scale.add_argument("file", metavar="FILE")
    scale.add_argument(
        "--provider", default="aws", metavar="NAME", help="its provider in the policy (default: aws)"
    )
    scale.add_argument("--repositories", metavar="PATTERN", help="whom access lets in, such as 'pytorch/*'")


def _client_commands(commands: Commands) -> None:
    _add(commands, "status", _list("summary"))
    jobs = _add(commands, "jobs", _list("jobs", "state", "repository", "limit", "after"))
    jobs.add_argument("--state", default="", choices=JOB_STATES, metavar="STATE", help=" | ".join(JOB_STATES))
    jobs.add_argument("--repository", default="", metavar="OWNER/NAME")
    runners = _add(commands, "runners", _list("runners", "state", "provider", "runner_type", "limit", "after"))
    runners.add_argument(
        "--state",
        default="",
        choices=RUNNER_STATES,
        metavar="STATE",
        help=f"{' | '.join(RUNNER_STATES)}\n(default: live)",
    )
    runners.add_argument("--provider", default="", metavar="NAME")
    runners.add_argument("--type", default="", metavar="NAME", dest="runner_type", help="a runner type")
    for command in (jobs, runners):
        command.add_argument("--limit", type=arguments.limit, metavar="N", help="rows, 1 to 1000 (default: 100)")
        command.add_argument(
            "--after", default="", metavar="MARK", help="the page after the one that named this mark"
        )
    _add(commands, "providers", _list("providers"))
    funds = _add(commands, "funds", _list("funds")).add_subparsers(metavar="COMMAND", title="commands")
    spent = _add(funds, "funds set", _fund_spent)
    spent.add_argument("name", metavar="NAME", help="a fund of the policy")
    spent.add_argument("--spent", required=True, metavar="AMOUNT", help="such as '412000 USD'")
    statement = _add(funds, "funds statement", _fund_statement)
    statement.add_argument("name", metavar="NAME", help="a fund")
    statement.add_argument("--month", required=True, metavar="YYYY-MM", help="a month, UTC")
    _add(commands, "why", _why).add_argument(
        "subject", metavar="JOB_ID|fund:NAME", help="GitHub's job id or ID.ATTEMPT, or a fund"
    )


def _switch_commands(commands: Commands) -> None:
    for name in ("pause", "resume"):
        _add(commands, name, _switch(name)).set_defaults(target="")
    for name in ("drain", "undrain"):
        _add(commands, name, _switch(name)).add_argument(
            "target", type=arguments.target, metavar="TARGET", help=text.TARGET
        )


def _host_commands(commands: Commands) -> None:
    group = commands.add_parser("host", help="offer a machine of yours to a daemon", description=text.HOST)
    host = group.add_subparsers(metavar="COMMAND", required=True)
    cli_hosts.add_join(_add(host, "host join", cli_hosts.join, json=False))
    cli_hosts.add_run(_add(host, "host run", cli_hosts.run, json=False))
    for name in ("pause", "resume", "keep"):
        cli_hosts.add_switch(_add(host, f"host {name}", cli_hosts.switch(name)), name)


def _check_commands(commands: Commands) -> None:
    verify = _add(commands, "verify", _verify)
    verify.add_argument("--policy", metavar="FILE", help="the policy file (default: AUTOSCALER_POLICY)")
    group = commands.add_parser(
        "provider", help="see whether an account is fit for the fleet", description=text.PROVIDER
    )
    check = _add(group.add_subparsers(metavar="COMMAND", required=True), "provider check", _provider_check)
    check.add_argument("name", metavar="NAME", help="the provider's name in the policy")
    check.add_argument("--policy", metavar="FILE", help="the policy file (default: AUTOSCALER_POLICY)")
    check.add_argument(
        "--canary", action="store_true", help="launch one machine, time it, look around, destroy it"
    )
    check.add_argument("--listen", type=arguments.address, metavar="HOST:PORT", help=text.CANARY_LISTEN)
    check.add_argument("--url", default="", metavar="URL", help=text.CANARY_URL)
    replay = _add(commands, "replay", _replay)
    replay.add_argument("events", metavar="EVENTS", help="JSON Lines of recorded deliveries, plain or .gz")
    replay.add_argument("--to", required=True, metavar="URL", help="the receiver, with its path")
    replay.add_argument(
        "--secret-file", required=True, metavar="FILE", help="its webhook secret; the first line signs"
    )
    replay.add_argument("--speed", type=arguments.speed, default=1.0, metavar="X", help=text.SPEED)


def _trial_commands(commands: Commands) -> None:
    cli_trials.add_backtest(_add(commands, "backtest", cli_trials.backtest))
    record = commands.add_parser("record", help="record events for backtests", description=text.RECORD)
    sources = record.add_subparsers(metavar="COMMAND", required=True)
    cli_trials.add_record(_add(sources, "record from-github", cli_trials.record))
    cli_trials.add_record_csv(_add(sources, "record from-csv", cli_trials.record_csv))


# ---- what each does ----------------------------------------------------------------------------------------


def _serve(args: argparse.Namespace) -> int:
    from autoscaler.cli import commands

    return commands.serve(args.policy, args.role, args.observe, tuple(args.poll), args.record)


def _demo(args: argparse.Namespace) -> int:
    from autoscaler.cli import commands

    return commands.demo(args.jobs, args.seed, args.speed, args.port, args.exit, args.json)


def _policy_check(args: argparse.Namespace) -> int:
    from autoscaler.cli import policy as policy_commands
    from autoscaler.clock import Clock

    return policy_commands.check(args.file, Clock().now_ms(), sys.stdout, as_json=args.json)


def _policy_schema(args: argparse.Namespace) -> int:
    from autoscaler.cli import policy as policy_commands

    return policy_commands.schema(sys.stdout)


def _policy_explain(args: argparse.Namespace) -> int:
    from autoscaler.cli import commands
    from autoscaler.cli.explain import Question

    labels = tuple(label.strip() for label in args.labels.split(",") if label.strip())
    question = Question(labels, args.repository, args.event, args.fork, args.ref)
    return commands.explain(args.file, question, args.at, args.json)


def _policy_import(args: argparse.Namespace) -> int:
    from autoscaler.cli import policy as policy_commands

    return policy_commands.import_from(
        args.file, args.provider, args.repositories, sys.stdout, sys.stderr, as_json=args.json
    )


def _list(name: str, *query: str) -> Run:
    def run(args: argparse.Namespace) -> int:
        from autoscaler.cli import client

        return client.show_list(name, {key: getattr(args, key) for key in query}, as_json=args.json)

    return run


def _fund_spent(args: argparse.Namespace) -> int:
    from autoscaler.cli import client

    return client.fund_spent(args.name, args.spent, as_json=args.json)


def _fund_statement(args: argparse.Namespace) -> int:
    from autoscaler.cli import client

    return client.fund_statement(args.name, args.month, as_json=args.json)


def _why(args: argparse.Namespace) -> int:
    from autoscaler.cli import client

    return client.why(args.subject, as_json=args.json)


def _switch(name: str) -> Run:
    def run(args: argparse.Namespace) -> int:
        from autoscaler.cli import client

        return client.switch(name, args.target, as_json=args.json)

    return run


def _verify(args: argparse.Namespace) -> int:
    from autoscaler.cli import commands

    return commands.verify(args.policy, args.json)


def _provider_check(args: argparse.Namespace) -> int:
    from autoscaler.cli import provider

    return provider.provider_check(args.name, args.policy, args.canary, args.listen, args.url, args.json)


def _replay(args: argparse.Namespace) -> int:
    from autoscaler.cli import commands

    return commands.replay(args.events, args.to, args.secret_file, args.speed, args.json)
