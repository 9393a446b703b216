"""A vendor's REST API for tests: HTTP on 127.0.0.1, with rules that refuse, cut, delay and repeat answers.

A stand-in subclasses `RestStandIn` and answers `perform`; what a rule does is the same for all of them.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"


@dataclass
class Answer:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Rule:
    """What happens to the next `times` requests whose `METHOD /path` matches, after `skip` of them went through.

    `answer` is given instead of the vendor's; `apply` says whether the request takes effect before `cut` drops the
    connection; `late` keeps it until `release`; `until` holds it first.
    """

    line: str
    answer: Answer | None = None
    times: int = 10**6
    skip: int = 0
    cut: bool = False
    apply: bool = False
    late: bool = False
    until: threading.Event | None = None
    where: str = ""  # only requests whose path, query or body names this (a zone, a runner's name)


class RestStandIn:
    """Use as a context manager; `url` is the endpoint. `requests` are all that came."""

    lists = r"GET .*"
    """Lines of the requests whose answers `stale` repeats."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.requests: list[Request] = []
        self.stale = False
        self._rules: list[Rule] = []
        self._late: list[Request] = []
        self._seen: dict[str, Answer] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Any:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def perform(self, request: Request) -> Answer:
        """What the vendor would do and answer. Called under the lock."""
        raise NotImplementedError

    def add(self, rule: Rule) -> None:
        self._rules.append(rule)

    def clear(self) -> None:
        """No rule and no stale list from now on; what is on its way stays on its way."""
        self._rules, self.stale = [], False

    def reset(self) -> None:
        self.clear()
        self._late, self._seen, self.requests = [], {}, []

    def release(self) -> None:
        """Requests that were on their way all the time arrive now."""
        late, self._late = self._late, []
        for request in late:
            with self.lock:
                self.perform(request)

    def count(self, line: str) -> int:
        return sum(re.match(line, request.line) is not None for request in self.requests)

    def handle(self, request: Request) -> Answer | None:
        """The answer; None where the connection breaks instead."""
        with self.lock:
            self.requests.append(request)
            rule = self._rule_for(request)
        if rule and rule.until:
            rule.until.wait(10)
        if rule and rule.late:
            self._late.append(request)
        if rule and (rule.late or (rule.cut and not rule.apply)):
            return None
        if rule and rule.answer:
            return rule.answer
        with self.lock:
            answer = self._list(request) if re.match(self.lists, request.line) else self.perform(request)
        return None if rule and rule.cut else answer

    def _list(self, request: Request) -> Answer:
        key = f"{request.line} {sorted(request.query.items())}"
        if not (self.stale and key in self._seen):
            self._seen[key] = self.perform(request)
        return self._seen[key]

    def _rule_for(self, request: Request) -> Rule | None:
        for rule in self._rules:
            names = f"{request.line} {request.query} {request.body}"
            if rule.times > 0 and re.match(rule.line, request.line) and rule.where in names:
                if rule.skip > 0:
                    rule.skip -= 1
                    return None
                rule.times -= 1
                return rule
        return None


def _handler(stand_in: RestStandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def answer(self) -> None:
            url = urlsplit(self.path)
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.casefold(): value for name, value in self.headers.items()}
            body = json.loads(text) if text else None
            answer = stand_in.handle(Request(self.command, url.path, dict(parse_qsl(url.query)), headers, body))
            if answer is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            content = b"" if answer.body is None else json.dumps(answer.body).encode()
            head = [f"HTTP/1.1 {answer.status} Said", "Content-Type: application/json"]
            head += [f"{name}: {value}" for name, value in answer.headers.items()]
            head += [f"Content-Length: {len(content)}", "", ""]
            self.wfile.write("\r\n".join(head).encode() + content)

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler
