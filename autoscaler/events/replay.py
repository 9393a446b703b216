"""`replay`: recorded deliveries sent to a webhook receiver, signed, with the recorded spacing.

Works against any receiver of GitHub's webhooks. Payloads are sent byte for byte as they were recorded.
"""

from __future__ import annotations

import asyncio
import hmac
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Self

import aiohttp
from rich import progress
from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.text import Text

from autoscaler.cli.terminal import console, span, table
from autoscaler.events.file import Delivery, EventFile

CONCURRENCY = 64
"""Deliveries under way at once; when the receiver is slower than the recording, the rest waits its turn."""
ANSWER_SECONDS = 10.0
"""GitHub itself gives a delivery up after that."""
QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99, "max": 1.0}


@dataclass(slots=True)
class Tally:
    """What came of the deliveries. `seconds`: from the start of a request to its whole answer."""

    statuses: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    late_seconds: float = 0.0
    wall_seconds: float = 0.0

    @property
    def failed(self) -> int:
        return sum(count for status, count in self.statuses.items() if not status.startswith("2"))


class Progress:
    """A bar on stderr while a person watches."""

    def __init__(self, total: int) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._bar = progress.Progress(*columns, console=console(stderr=True), disable=not sys.stderr.isatty())
        self._task = self._bar.add_task("deliveries", total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def told(self, tally: Tally) -> None:
        failed = f"[red]{tally.failed} failed" if tally.failed else "deliveries"
        self._bar.update(self._task, completed=sum(tally.statuses.values()), description=failed)


async def replay(
    events: EventFile, url: str, secret: bytes, speed: float, told: Callable[[Tally], None] = lambda tally: None
) -> Tally:
    """Send everything, `speed` times as fast as it was recorded (0: as fast as the receiver answers)."""
    tally, loop = Tally(), asyncio.get_running_loop()
    places = asyncio.Semaphore(CONCURRENCY)
    timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    began = loop.time()
    first_ms: int | None = None

    def done(_: asyncio.Task[None]) -> None:
        places.release()
        told(tally)

    async with (
        aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=CONCURRENCY)) as session,
        asyncio.TaskGroup() as group,
    ):
        for delivery in events:
            first_ms = delivery.at_ms if first_ms is None else first_ms
            if speed:
                due = began + (delivery.at_ms - first_ms) / 1000 / speed
                await asyncio.sleep(max(0.0, due - loop.time()))
            await places.acquire()
            if speed:
                tally.late_seconds = max(tally.late_seconds, loop.time() - due)
            task = group.create_task(_send(session, url, secret, delivery, tally))
            task.add_done_callback(done)
    tally.wall_seconds = loop.time() - began
    return tally


async def _send(session: aiohttp.ClientSession, url: str, secret: bytes, delivery: Delivery, tally: Tally) -> None:
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "GitHub-Hookshot/autoscaler-replay",
        "X-GitHub-Event": delivery.event,
        "X-GitHub-Delivery": delivery.delivery or str(uuid.uuid4()),
        "X-Hub-Signature-256": f"sha256={hmac.digest(secret, delivery.payload, 'sha256').hex()}",
    }
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with session.post(url, data=delivery.payload, headers=headers, allow_redirects=False) as answer:
            text = (await answer.read())[:300].decode(errors="replace")
        status = str(answer.status)
        tally.seconds.append(loop.time() - began)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        status = "no answer" if isinstance(error, TimeoutError) else "no connection"
        text = str(error) or type(error).__name__
    tally.statuses[status] += 1
    tally.examples.setdefault(status, text)


def document(tally: Tally, events: EventFile) -> dict[str, Any]:
    """The JSON of `replay --json`."""
    return {
        "deliveries": sum(tally.statuses.values()),
        "failed": tally.failed,
        "by_status": dict(sorted(tally.statuses.items())),
        "examples": {name: text for name, text in tally.examples.items() if not name.startswith("2")},
        "latency_seconds": quantiles(tally.seconds),
        "late_seconds": round(tally.late_seconds, 3),
        "wall_seconds": round(tally.wall_seconds, 3),
        "warnings": events.warnings,
    }


def quantiles(seconds: list[float]) -> dict[str, float | None]:
    """By nearest rank; None without any answer."""
    found = sorted(seconds)
    return {
        name: round(found[ceil(share * len(found)) - 1], 6) if found else None for name, share in QUANTILES.items()
    }


BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def page(found: dict[str, Any], seconds: list[float]) -> list[RenderableType]:
    """The document as a terminal shows it, with the latencies as bars."""
    good = not found["failed"]
    text = Text("✔ " if good else "✘ ", style="bold green" if good else "bold red")
    rate = found["deliveries"] / found["wall_seconds"] if found["wall_seconds"] else 0
    text.append(f"{found['deliveries']} deliveries in {span(found['wall_seconds'])}, {rate:.0f}/s", style="bold")
    if found["late_seconds"] > 1:
        text.append(f"; up to {span(found['late_seconds'])} behind the recording", style="not bold yellow")
    statuses = table("Answers", "status", ">deliveries", "for example")
    for status, count in found["by_status"].items():
        statuses.add_row(status, str(count), found["examples"].get(status, "")[:160])
    return [text, statuses, *([_bars(seconds)] if seconds else [])]


def _bars(seconds: list[float]) -> RenderableType:
    more = BOUNDS_MS[-1] + 1
    counts = Counter(next((bound for bound in BOUNDS_MS if each * 1000 <= bound), more) for each in seconds)
    bars, most = table("Latency", ">up to", ">answers", ""), max(counts.values())
    for bound in sorted(counts):
        label = "more" if bound == more else f"{bound} ms"
        bars.add_row(label, str(counts[bound]), Text("█" * ceil(40 * counts[bound] / most), style="cyan"))
    return bars
