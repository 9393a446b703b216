"""EC2 for tests: moto's WSGI application over HTTP, with what moto leaves out wrapped around it.

Added: idempotency by ClientToken as EC2 has it (zonal, parameters compared, ended machines named), fault rules,
latency, answers that are lost, requests that are applied late, lists that are stale; and GetCredits of AWS Billing
(API reference, GetCredits), which moto does not have.
"""

from __future__ import annotations

import io
import json
import os
import re
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIEnvironment

os.environ["MOTO_ENABLE_AMI_VALIDATION"] = "true"  # moto reads its switches when it is imported
os.environ["MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION"] = "true"
os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"

from moto.ec2 import ec2_backends
from moto.ec2.models import EC2Backend
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.instances import Reservation
from moto.ec2.utils import random_reservation_id
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

ACCOUNT = "123456789012"
Answer = tuple[str, list[tuple[str, str]], bytes]


@dataclass
class Rule:
    """What happens to the next `times` requests that match, after `skip` of them went through.

    `code` answers with that EC2 error, `body` with that content; `apply` says whether the request takes effect
    before `cut` drops the connection; `late` keeps it until `release`; `until` holds it first.
    """

    action: str
    times: int = 1
    skip: int = 0
    code: str = ""
    status: int = 400
    message: str = "injected"
    cut: bool = False
    apply: bool = False
    late: bool = False
    until: threading.Event | None = None
    body: str = ""  # answer 200 with this inside the response element
    where: str = ""  # only requests whose body names this (a zone, a type, a runner id)


class MotoCloud:
    """One EC2 account on 127.0.0.1. Use as a context manager; `url` is its endpoint."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.RLock()
        self._rules: list[Rule] = []
        self._launches: dict[tuple[str, str, str], tuple[bytes, Answer]] = {}
        self._late: list[tuple[WSGIEnvironment, bytes]] = []
        self._seen: dict[bytes, Answer] = {}
        self.stale = False
        self.credits = [credit("grant", "1000.00", "1000.00")]
        self.requests: list[dict[str, str]] = []
        self._server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> MotoCloud:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def backend(self, region: str = "us-east-1") -> EC2Backend:
        """moto's own state, for what no API of EC2 would tell or do."""
        return ec2_backends[ACCOUNT][region]

    def reset(self) -> None:
        """An empty account without rules."""
        for backend in ec2_backends[ACCOUNT].values():
            backend.reset()
        self._rules, self._launches, self._late, self._seen = [], {}, [], {}
        self.stale, self.requests, self.credits = False, [], [credit("grant", "1000.00", "1000.00")]

    def add(self, rule: Rule) -> None:
        self._rules.append(rule)

    def clear(self) -> None:
        """No rule and no stale list from now on; what is on its way stays on its way."""
        self._rules, self.stale = [], False

    def fill(self, region: str, image: str, subnet: str, tags: list[dict[str, str]]) -> None:
        """One running machine for each of `tags`, without the price of as many requests."""
        backend = self.backend(region)
        with self._lock:
            made = backend.run_instances(
                image,
                len(tags),
                None,
                [],
                instance_type="c5.large",
                is_instance_type_default=False,
                subnet_id=subnet,
            )
            del backend.reservations[made.id]
            for machine, own in zip(made.instances, tags, strict=True):
                machine.add_tags(own)
                alone = Reservation(random_reservation_id(), ACCOUNT)
                alone.instances = [machine]
                backend.reservations[alone.id] = alone

    def release(self) -> None:
        """Requests that were on their way all the time arrive now."""
        late, self._late = self._late, []
        for environ, body in late:
            self._perform(environ, body)

    def count(self, action: str) -> int:
        return sum(request.get("Action") == action for request in self.requests)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        target = str(environ.get("HTTP_X_AMZ_TARGET", ""))
        query = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        if target:  # a JSON service
            query = {"Action": target.partition(".")[2], "body": body.decode()}
        self.requests.append(query)
        rule = self._rule_for(query.get("Action", ""), body.decode())
        if rule is None:
            answer = self._perform(environ, body)
        else:
            if rule.until:
                rule.until.wait(10)
            if rule.late:
                self._late.append((environ, body))
            if rule.body:
                answer = _answer(200, f"<{rule.action}Response>{rule.body}</{rule.action}Response>")
            elif rule.code:
                answer = _error(rule.code, rule.message, rule.status)
            elif rule.apply or not rule.cut:
                answer = self._perform(environ, body)
            if rule.cut:
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                return []
        start_response(answer[0], answer[1])
        return [answer[2]]

    def _rule_for(self, action: str, body: str) -> Rule | None:
        with self._lock:
            for rule in self._rules:
                if rule.action == action and rule.where in body and rule.times > 0:
                    if rule.skip > 0:
                        rule.skip -= 1
                        return None
                    rule.times -= 1
                    return rule
        return None

    def _perform(self, environ: WSGIEnvironment, body: bytes) -> Answer:
        query = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        action = query.get("Action", "")
        if environ.get("HTTP_X_AMZ_TARGET") == "AWSBilling.GetCredits":
            assert json.loads(body)["accountId"] == ACCOUNT
            said = json.dumps({"credits": self.credits}).encode()
            return "200 OK", [("Content-Type", "application/x-amz-json-1.0")], said
        if action == "RunInstances" and "ClientToken" in query and "DryRun" not in query:
            return self._launch(environ, body, query)
        if action == "DescribeInstances":
            if self.stale and body in self._seen:
                return self._seen[body]
            self._seen[body] = self._ask_moto(environ, body)
            return self._seen[body]
        return self._ask_moto(environ, body)

    def _launch(self, environ: WSGIEnvironment, body: bytes, query: dict[str, str]) -> Answer:
        region = _region(environ)
        key = (region, query["SubnetId"], query["ClientToken"])
        with self._lock:
            if key not in self._launches:
                answer = self._ask_moto(environ, body)
                if answer[0].startswith("200"):
                    self._launches[key] = (body, answer)
                return answer
            first, answer = self._launches[key]
        if first != body:
            return _error("IdempotentParameterMismatch", "the token was used with other parameters", 400)
        instance_id = re.search(rb"<instanceId>(i-\w+)<", answer[2])
        assert instance_id
        if self.backend(region).get_instance(instance_id[1].decode()).state in ("shutting-down", "terminated"):
            return _error("IdempotentInstanceTerminated", "the token's instance has been terminated", 400)
        return answer

    def _ask_moto(self, environ: WSGIEnvironment, body: bytes) -> Answer:
        said: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Any:
            said[:] = [status, headers]

        chunks = self._moto({**environ, "wsgi.input": io.BytesIO(body)}, start)
        return said[0], said[1], b"".join(chunks)


def credit(name: str, initial: str, left: str, currency: str = "USD", status: str = "ENABLED") -> dict[str, Any]:
    """One credit as GetCredits tells it; what is left counts open bills."""
    amounts = {"initialAmount": initial, "remainingAmount": initial, "estimatedAmount": left}
    return {
        "creditId": name,
        "accountId": ACCOUNT,
        "creditType": "Promotion",
        "creditStatus": status,
        **{key: {"currencyCode": currency, "currencyAmount": amount} for key, amount in amounts.items()},
    }


def _own_tags(resource: Any) -> list[dict[str, str]]:
    """moto scans the tags of every resource for those of one; a list of 1,000 machines then takes 13 s."""
    return [{"key": key, "value": value} for key, value in resource.ec2_backend.tags[resource.id].items()]


TaggedEC2Resource.get_tags = _own_tags  # type: ignore[method-assign]


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002
        pass


def _region(environ: WSGIEnvironment) -> str:
    """The region that the request was signed for."""
    scope = re.search(r"Credential=[^/]+/\d+/([\w-]+)/", environ.get("HTTP_AUTHORIZATION", ""))
    assert scope, "unsigned request"
    return scope[1]


def _error(code: str, message: str, status: int) -> Answer:
    text = (
        f"<Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>1</RequestID>"
    )
    return _answer(status, f"<Response>{text}</Response>")


def _answer(status: int, text: str) -> Answer:
    return f"{status} Injected", [("Content-Type", "text/xml")], text.encode()
