"""`autoscaler backtest`: plain values in, the report out, the exit code back. Two policies run side by side."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from autoscaler.backtest import calibration, examples, html, recording, text, trial
from autoscaler.backtest.difference import Difference, changes, difference
from autoscaler.backtest.recording import Recording
from autoscaler.backtest.trial import Trial
from autoscaler.backtest.world_model import WorldFileError
from autoscaler.cli import terminal
from autoscaler.cli.usage import OK, PROBLEMS, Unusable
from autoscaler.events import from_github as record_github
from autoscaler.events.from_github import GITHUB_URL
from autoscaler.policy import file as policy_file
from autoscaler.policy.tree import PolicyError
from scheduling.model import UnixMs

POLICIES_MAX = 2
LOOK_S = 0.2
WARNINGS_SHOWN = 20
EXPECTED = "expected deliveries as `serve --record` writes them; `autoscaler record from-csv` makes them of tables"


def run(
    events: Path,
    policies: Sequence[Path],
    *,
    world: Path | None = None,
    report: Path | None = None,
    seed: int = 0,
    compare_live: bool = False,
    as_json: bool = False,
) -> int:
    """`backtest EVENTS --policy A [--policy B]`: 0; 1 where a file cannot be used. Raises Unusable."""
    if not 1 <= len(policies) <= POLICIES_MAX:
        raise Unusable("--policy: name one policy, or two to compare them")
    if compare_live and len(policies) > 1:
        raise Unusable("--compare-live: name the one policy that ruled while the events were recorded")
    try:
        recorded = _read(events)
    except OSError as error:
        return _problem(f"{events} cannot be read ({error.strerror}); name a file of recorded deliveries")
    if not len(recorded):
        _warn(recorded.warnings)
        return _problem(f"{events} holds no queued job; {EXPECTED}")
    return on(
        recorded, policies, world=world, report=report, seed=seed, compare_live=compare_live, as_json=as_json
    )


def on(
    recorded: Recording,
    policies: Sequence[Path],
    *,
    world: Path | None = None,
    report: Path | None = None,
    seed: int = 0,
    compare_live: bool = False,
    as_json: bool = False,
) -> int:
    """The same for a recording that is at hand."""
    began = time.monotonic()
    try:
        for path in policies:
            policy_file.load(path, recorded.last_ms)  # both are known to be good before hours are spent on one
        trials = _tries(recorded, policies, world, seed)
    except (PolicyError, WorldFileError) as error:
        return _problem(str(error))
    _say(f"tried in {terminal.span(time.monotonic() - began)}")
    compared = difference(recorded, trials[0].tally, trials[1].tally) if len(trials) == 2 else None
    _warn([*recorded.warnings, *dict.fromkeys(line for each in trials for line in each.warnings)])
    if report is not None:
        try:
            report.write_text(html.page(recorded, trials, compared), encoding="utf-8")
        except OSError as error:
            return _problem(f"--report: {report} cannot be written: {error.strerror}")
        _say(f"report written to {report}")
    live = calibration.comparison(recorded, trials[0]) if compare_live else None
    if as_json:
        found = document(recorded, trials, compared)
        print(json.dumps({**found, "live": live} if live else found, indent=2))
    else:
        terminal.show([*text.calibration(live), *text.page(recorded, trials, compared)])
    return OK


def from_github(
    repository: str,
    since_ms: UnixMs,
    until_ms: UnixMs,
    policies: Sequence[Path],
    *,
    token: str = "",
    url: str = GITHUB_URL,
    world: Path | None = None,
    report: Path | None = None,
    seed: int = 0,
    as_json: bool = False,
) -> int:
    """`backtest --from-github OWNER/REPO --since 7d`: its history, through two examples where no policy is named.

    Events and examples are in a directory below the present one, so that a call that was stopped is taken up
    again, and what was tried can be changed and tried again.
    """
    directory = Path(f"backtest-{repository.replace('/', '-')}")
    events = directory / "events.jsonl.gz"
    try:
        directory.mkdir(exist_ok=True)
        if code := record_github.run(repository, since_ms, until_ms, events, token, url):
            return code
        recorded = _read(events)
        if not len(recorded):
            return _problem(f"{repository} had no jobs in that time; --since names a longer one")
        tried = list(policies) or examples.write(recorded, repository, directory)
    except OSError as error:
        return _problem(f"{directory} cannot be used ({error.strerror}); call it where you may write")
    if not policies:
        _say(examples.ASSUMED)
    code = on(recorded, tried, world=world, report=report, seed=seed, as_json=as_json)
    if not policies and not code:
        names = " ".join(f"--policy {path}" for path in tried)
        _say(f"the examples are files; change them, and try them again:\n  autoscaler backtest {events} {names}")
    return code


def document(recorded: Recording, trials: Sequence[Trial], compared: Difference | None) -> dict[str, Any]:
    """The JSON of `backtest --json`: of one policy the figures themselves, of two `{a, b, difference}`."""
    about = {
        "recording": {
            "deliveries": recorded.deliveries,
            "jobs": len(recorded),
            "began_before": recorded.began_before,
            "unfinished": recorded.unfinished,
            "warnings": recorded.warnings[:WARNINGS_SHOWN],
        },
        "not_modelled": list(trial.NOT_MODELLED),
    }
    each = [{**one.document, "assumptions": one.assumptions, "warnings": one.warnings} for one in trials]
    if compared is None:
        return {**each[0], **about}
    a, b = each
    change = changes(trials[0].document, trials[1].document)
    return {"a": a, "b": b, "difference": {**change, "causes": compared.document()}, **about}


# ---- reading and running -----------------------------------------------------------------------------------


def _read(events: Path) -> Recording:
    began = time.monotonic()
    with _bar() as bar:
        task = bar.add_task("reading", total=None, note="") if bar else None

        def told(deliveries: int) -> None:
            if bar and task is not None:
                bar.update(task, note=f"{deliveries:,} deliveries")

        found = recording.read(events, told)
    _say(f"read {found.deliveries:,} deliveries, {len(found):,} jobs in {terminal.span(time.monotonic() - began)}")
    return found


def _tries(recorded: Recording, policies: Sequence[Path], world: Path | None, seed: int) -> list[Trial]:
    with _bar() as bar:
        tasks = [bar.add_task(path.name, total=1.0, note="") for path in policies] if bar else []
        if len(policies) == 1:
            return [trial.run(recorded, policies[0], world, seed, _teller(bar, tasks))]
        context = multiprocessing.get_context("spawn")
        shares = context.Array("d", len(policies))
        with ProcessPoolExecutor(len(policies), context, _inherit, (recorded, shares)) as pool:
            futures = [pool.submit(_try, n, path, world, seed) for n, path in enumerate(policies)]
            _watch(futures, shares, bar, tasks)
            return [future.result() for future in futures]


def _teller(bar: Progress | None, tasks: list[TaskID]) -> Callable[[float], None]:
    def told(share: float) -> None:
        if bar:
            bar.update(tasks[0], completed=share)

    return told


def _watch(futures: list[Future[Trial]], shares: Any, bar: Progress | None, tasks: list[TaskID]) -> None:
    while not all(future.done() for future in futures):
        if any(future.done() and future.exception() for future in futures):
            return
        for task, share in zip(tasks, shares, strict=False):
            if bar:
                bar.update(task, completed=share)
        time.sleep(LOOK_S)


_given: tuple[Recording, Any] | None = None
"""In a process of the pool: what its parent gave it."""


def _inherit(recorded: Recording, shares: Any) -> None:
    global _given
    _given = (recorded, shares)


def _try(number: int, policy: Path, world: Path | None, seed: int) -> Trial:
    assert _given is not None
    recorded, shares = _given

    def told(share: float) -> None:
        shares[number] = share

    return trial.run(recorded, policy, world, seed, told)


# ---- what is said on the way -------------------------------------------------------------------------------


def _bar() -> AbstractContextManager[Progress | None]:
    """With the time left, on stderr, while a person watches."""
    if not sys.stderr.isatty():
        return nullcontext()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=terminal.console(stderr=True), transient=True)


def _warn(lines: Sequence[str]) -> None:
    for line in lines[:WARNINGS_SHOWN]:
        _say(f"warning: {line}")
    if len(lines) > WARNINGS_SHOWN:
        _say(f"warning: and {len(lines) - WARNINGS_SHOWN:,} more of this kind")


def _problem(why: str) -> int:
    _say(f"autoscaler: {why}")
    return PROBLEMS


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
