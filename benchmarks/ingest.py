"""Ingest: what a webhook costs with the store, beside the same application with a no-op in its place.

    python benchmarks/ingest.py [--rounds N] [--requests N] [--concurrency N] [--json]

Three servers, each a process of its own with uvloop: no store, embedded Valkey with fsync each second, and with
fsync before each answer. This process sends pre-signed 8 kB `workflow_job` deliveries over keep-alive connections,
in rounds that take the servers in turn, so that all meet the same disturbances. In the end every 202 must be in
the inbox stream (exit 1 if not). Figures are medians over the rounds; CPU is the application's, without Valkey's.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import uvloop
from aiohttp import ClientSession, web
from redis.asyncio import Redis

from autoscaler.clock import Clock
from autoscaler.http import webhook
from autoscaler.secrets_file import SecretsFile
from autoscaler.store.keys import Keys
from autoscaler.store.store import Store
from scheduling.messages import Event

PAYLOAD = Path(__file__).parent.parent / "tests/data/payloads/workflow_job.queued.json"
SECRET = b"ingest benchmark"
FLEET = "ingest"
OURS = ("self-hosted", "linux", "linux.2xlarge")
SERVERS = ("noop", "everysec", "always")
ANSWERS = {"matched": 202, "unmatched": 202, "forged": 401}
ROUND_SECONDS = 60.0
"""One round of one kind must be over by then."""


# ---- the servers -------------------------------------------------------------------------------------------


async def serve(mode: str, folder: Path) -> None:
    """Serve the receiver until standard input ends; prints the port."""
    (folder / "secret").write_bytes(SECRET)
    store = Store(f"embedded:{folder / 'redis'}", FLEET, bytes(32))
    redis = Redis(unix_socket_path=str(folder / "redis" / "valkey.sock"))
    if mode != "noop":
        await store.open()
        await redis.config_set("appendfsync", mode)

    async def nothing(events: Sequence[Event], *, bulk: bool = False) -> None:
        """What is left of an append without a store."""

    async def figures(request: web.Request) -> web.Response:
        stored = 0 if mode == "noop" else await redis.xlen(Keys(FLEET).inbox)
        return web.json_response({"cpu_s": time.process_time(), "stored": stored})

    receiver = webhook.Receiver(
        nothing if mode == "noop" else store.append,
        SecretsFile(folder / "secret"),
        lambda labels, repository: labels == OURS,
        Clock(),
    )
    application = web.Application()
    application.add_routes([*webhook.routes(receiver), web.get("/figures", figures)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()
    await redis.aclose()
    await store.close()


@contextmanager
def server(mode: str) -> Iterator[int]:
    """A server in a process of its own; gives its port."""
    with tempfile.TemporaryDirectory(prefix="ingest-") as folder:
        command = [sys.executable, __file__, "--serve", mode, "--folder", folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin
            assert process.stdout
            try:
                yield int(process.stdout.readline())
            finally:
                process.stdin.close()


# ---- the load ----------------------------------------------------------------------------------------------


def deliveries(kind: str, count: int) -> list[bytes]:
    """Whole HTTP requests, signed (or, forged, signed with another secret), each for a job of its own."""
    payload = json.loads(PAYLOAD.read_text())
    payload["workflow_job"]["labels"] = ["ubuntu-latest"] if kind == "unmatched" else list(OURS)
    requests = []
    for number in range(count):
        payload["workflow_job"]["id"] = 10_000_000_000 + number
        body = json.dumps(payload).encode()
        signature = hmac.digest(b"forged" if kind == "forged" else SECRET, body, "sha256").hex()
        head = (
            f"POST {webhook.PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"X-GitHub-Event: workflow_job\r\nX-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-{number:012x}\r\n"
            f"X-Hub-Signature-256: sha256={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        requests.append(head.encode() + body)
    return requests


@dataclass(slots=True)
class Round:
    """What one round of one kind on one server gave."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)


class Connection(asyncio.Protocol):
    """Sends the next request of a shared iterator as soon as the last is answered."""

    def __init__(self, requests: Iterator[bytes], results: Round) -> None:
        self._requests = requests
        self._results = results
        self._answer = b""
        self._sent_s = 0.0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, separator, body = self._answer.partition(b"\r\n\r\n")
        if separator and len(body) >= int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            self._results.latencies_s.append(time.perf_counter() - self._sent_s)
            self._results.statuses[int(head[9:12])] += 1
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed the connection"))

    def _next(self) -> None:
        self._answer = b""
        request = next(self._requests, None)
        if request is None:
            self.done.set_result(None)
            self._transport.close()
            return
        self._sent_s = time.perf_counter()
        self._transport.write(request)


async def fire(port: int, requests: list[bytes], concurrency: int) -> Round:
    """Send all requests over `concurrency` connections."""
    results, source = Round(), iter(requests)
    cpu_s = (await figures(port))["cpu_s"]
    begin_s = time.perf_counter()
    loop = asyncio.get_running_loop()
    connections = [
        await loop.create_connection(lambda: Connection(source, results), "127.0.0.1", port)
        for _ in range(concurrency)
    ]
    async with asyncio.timeout(ROUND_SECONDS):
        await asyncio.gather(*(connection.done for _, connection in connections))
    results.seconds = time.perf_counter() - begin_s
    results.cpu_s = (await figures(port))["cpu_s"] - cpu_s
    return results


async def figures(port: int) -> dict[str, Any]:
    async with ClientSession() as session, session.get(f"http://127.0.0.1:{port}/figures") as response:
        answer: dict[str, Any] = await response.json()
        return answer


# ---- the report --------------------------------------------------------------------------------------------


async def measure(rounds: int, count: int, concurrency: int) -> dict[str, Any]:
    """Run all rounds; the document that `--json` prints."""
    requests = {kind: deliveries(kind, count) for kind in ANSWERS}
    taken: dict[tuple[str, str], list[Round]] = {(mode, kind): [] for mode in SERVERS for kind in ANSWERS}
    with ExitStack() as stack:
        ports = {mode: stack.enter_context(server(mode)) for mode in SERVERS}
        warm_up = requests["matched"][:200]
        for mode in SERVERS:
            await fire(ports[mode], warm_up, concurrency)
        for number in range(rounds):
            for kind in ANSWERS:
                for mode in SERVERS[number % 3 :] + SERVERS[: number % 3]:
                    taken[mode, kind].append(await fire(ports[mode], requests[kind], concurrency))
        stored = {mode: (await figures(ports[mode]))["stored"] for mode in SERVERS if mode != "noop"}
    results = {mode: {kind: summary(taken[mode, kind]) for kind in ANSWERS} for mode in SERVERS}
    wrong = [
        f"{mode} {kind}: status {status} x{n}"
        for (mode, kind), each in taken.items()
        for status, n in sum((r.statuses for r in each), Counter[int]()).items()
        if status != ANSWERS[kind]
    ]
    sent = len(warm_up) + rounds * count
    wrong += [f"{mode}: {n} of {sent} in the stream" for mode, n in stored.items() if n != sent]
    return {
        "client": f"asyncio protocols on uvloop, one process, {concurrency} keep-alive connections",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "body_bytes": len(requests["matched"][0].partition(b"\r\n\r\n")[2]),
        "rounds": rounds,
        "requests_a_round": count,
        "results": results,
        "ratio_to_noop": {mode: ratio(taken[mode, "matched"], taken["noop", "matched"]) for mode in stored},
        "stored": stored,
        "wrong": wrong,
    }


def summary(rounds: list[Round]) -> dict[str, float]:
    """Medians over the rounds."""
    percentiles = [statistics.quantiles(each.latencies_s, n=100) for each in rounds]
    return {
        "requests_per_s": round(statistics.median(len(r.latencies_s) / r.seconds for r in rounds)),
        "p50_ms": round(statistics.median(p[49] for p in percentiles) * 1000, 2),
        "p99_ms": round(statistics.median(p[98] for p in percentiles) * 1000, 2),
        "cpu_ms": round(statistics.median(r.cpu_s / len(r.latencies_s) for r in rounds) * 1000, 3),
    }


def ratio(rounds: list[Round], to: list[Round]) -> float:
    """Throughput against that of the same round of another server: median over the rounds."""
    return round(
        statistics.median(other.seconds / each.seconds for each, other in zip(rounds, to, strict=True)), 2
    )


def show(document: dict[str, Any]) -> None:
    print(f"{document['client']}; {document['cores']} cores; bodies of {document['body_bytes']} bytes")
    print(f"{'append':<10}{'delivery':<11}{'requests/s':>11}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}")
    for mode, kinds in document["results"].items():
        for kind, each in kinds.items():
            print(
                f"{mode:<10}{kind:<11}{each['requests_per_s']:>11,}{each['p50_ms']:>9.2f}{each['p99_ms']:>9.2f}"
                f"{each['cpu_ms']:>9.3f}"
            )
    for mode, ratio in document["ratio_to_noop"].items():
        print(
            f"matched with {mode}: {ratio:.2f} of the no-op; {document['stored'][mode]} stored, one for each 202"
        )
    for line in document["wrong"]:
        print(f"WRONG: {line}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=2000, help="of each kind, a round and server")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        uvloop.run(serve(arguments.serve, arguments.folder))
        return 0
    document = uvloop.run(measure(arguments.rounds, arguments.requests, arguments.concurrency))
    if arguments.json:
        print(json.dumps(document, indent=2))
    else:
        show(document)
    return 1 if document["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
