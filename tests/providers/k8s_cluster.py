"""A cluster for tests: the part of the Kubernetes API that the adapter uses, over HTTP, in memory.

It stands for kube-apiserver with its scheduler, kubelet and garbage collector, after the API reference v1.31 and
https://kubernetes.io/docs/reference/using-api/api-concepts/ (resource versions, chunked lists and 410 Expired,
watches with bookmarks, preconditions), .../scheduling-eviction/ (conditions of an unplaced pod) and
.../workloads/pods/pod-lifecycle/#pod-termination (graceful deletion; at once while a pod has no machine).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import copy
import json
import re
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

TOKEN = "service-account-token"
DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
FORBIDDEN = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
}

Object = dict[str, Any]


@dataclass
class Rule:
    """What happens to the next `times` requests that match, after `skip` of them went through.

    `status` answers with that failure; `cut` drops the connection, after the request took effect if `apply`;
    `late` keeps the request until `release`.
    """

    method: str
    resource: str = "pods"
    times: int = 10**6
    skip: int = 0
    status: int = 0
    reason: str = ""
    message: str = "injected"
    cut: bool = False
    apply: bool = False
    late: bool = False
    where: str = ""  # only requests whose query or path names this


class Failure(Exception):
    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.reason = reason or FORBIDDEN.get(status, "")


@dataclass
class Cluster:
    """One namespace. Use as an async context manager; `url` is its address."""

    namespace: str = "ci"
    full: bool = False  # the scheduler finds no place
    stale: bool = False  # lists show what they showed when they were last asked
    bookmarks: bool = False  # a watch begins with one
    events_kept: int = 1000  # a watch from an older version is Expired
    pods: dict[str, Object] = field(default_factory=dict)
    secrets: dict[str, Object] = field(default_factory=dict)
    machines: list[Object] = field(default_factory=list)  # the cluster's own, `GET /api/v1/nodes`
    others: list[Object] = field(default_factory=list)  # pods of other namespaces
    rules: list[Rule] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)
    version: int = 100
    token: str = TOKEN
    forbidden: set[str] = field(default_factory=set)  # `verb resource` that access reviews deny
    quotas: list[Object] = field(default_factory=list)  # ResourceQuota objects
    url: str = ""
    on_start: Callable[[str], Awaitable[None]] | None = None  # runs a container, given its boot data; then it ends

    def __post_init__(self) -> None:
        self._events: list[tuple[int, str, Object]] = []
        self._changed = asyncio.Condition()
        self._asked = asyncio.Condition()
        self._snapshots: dict[str, list[Object]] = {}
        self._last_list: list[Object] = []
        self._late: list[tuple[str, Object]] = []
        self._containers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Cluster:
        app = web.Application(client_max_size=2**22)
        base = f"/api/v1/namespaces/{self.namespace}"
        app.router.add_get("/api/v1/{resource:nodes|pods}", self._serve_cluster)
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._review)
        app.router.add_route("*", base + "/{resource}", self._serve)
        app.router.add_route("*", base + "/{resource}/{name}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for container in self._containers:
            container.cancel()
        await asyncio.gather(*self._containers, return_exceptions=True)
        await self._runner.cleanup()

    # ---- what tests do to it -------------------------------------------------------------------------------

    def count(self, method: str, resource: str = "pods") -> int:
        return sum((method, resource) == (seen[0], seen[1].partition("/")[0]) for seen in self.requests)

    async def watched(self, times: int = 1) -> None:
        """Wait until so many watches were asked for."""
        async with asyncio.timeout(10), self._asked:
            await self._asked.wait_for(
                lambda: sum(bool(query.get("watch")) for _, _, query, _ in self.requests) >= times
            )

    async def release(self) -> None:
        """What was on its way all the time arrives."""
        late, self._late = self._late, []
        for resource, body in late:
            with contextlib.suppress(Failure):
                await self.create(resource, body)

    async def place(self, name: str) -> None:
        """The scheduler finds a place, and the kubelet starts the container."""
        found = self.pods[name]
        found["spec"]["nodeName"] = "host-1"
        found["status"] = {"phase": "Running", "startTime": _now(), "conditions": [_condition("True")]}
        await self._touch("MODIFIED", found)
        self._boot(name)

    async def end(self, name: str, phase: str = "Succeeded") -> None:
        self.pods[name]["status"]["phase"] = phase
        await self._touch("MODIFIED", self.pods[name])

    async def remove(self, name: str) -> None:
        """The kubelet confirms a deletion, or somebody forces one; the garbage collector follows."""
        found = self.pods.pop(name)
        uid = found["metadata"]["uid"]
        for key, secret in list(self.secrets.items()):
            if any(owner["uid"] == uid for owner in secret["metadata"].get("ownerReferences", ())):
                del self.secrets[key]
        await self._touch("DELETED", found)

    async def create(self, resource: str, body: Object) -> Object:
        made = copy.deepcopy(body)
        store: dict[str, Object] = getattr(self, resource)
        name = _validate(made, resource)
        if name in store:
            raise Failure(409, f'{resource} "{name}" already exists', "AlreadyExists")
        metadata = {"namespace": self.namespace, "uid": str(uuid.uuid4()), "creationTimestamp": _now()}
        made["metadata"].update(metadata)
        store[name] = made
        if resource == "secrets":
            for key, text in made.pop("stringData", {}).items():
                made.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
            self._boot(name)
            return made
        made["status"] = {"phase": "Pending"}
        await self._touch("ADDED", made)
        answer = copy.deepcopy(made)
        if self.full:
            made["status"]["conditions"] = [_condition("False")]
            await self._touch("MODIFIED", made)
        else:
            await self.place(name)
        return answer

    def _boot(self, name: str) -> None:
        """The kubelet: a container starts once it has its place and what it mounts."""
        if self.on_start and name in self.secrets and self.pods[name]["spec"].get("nodeName"):
            boot = base64.b64decode(self.secrets[name]["data"]["boot.json"]).decode()
            self._start(self._run(name, self.on_start(boot)))

    async def _run(self, name: str, container: Awaitable[None]) -> None:
        await container
        if name in self.pods:
            await self.end(name)

    async def _leave(self, name: str) -> None:
        """The kubelet: it was told that the pod shall go."""
        await asyncio.sleep(0.2)
        if name in self.pods:
            await self.remove(name)

    def _start(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(doing)
        self._containers.add(task)
        task.add_done_callback(self._containers.discard)

    # ---- the API -------------------------------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        resource, name = request.match_info["resource"], request.match_info.get("name", "")
        query = dict(request.query)
        body = json.loads(await request.read() or b"null")
        path = f"{resource}/{name}" if name else resource
        async with self._asked:
            self.requests.append((request.method, path, query, body))
            self._asked.notify_all()
        rule = self._rule(request.method, resource, f"{path}?{request.query_string}")
        try:
            if request.headers.get("Authorization") != f"Bearer {self.token}":
                raise Failure(401, "Unauthorized")
            if rule and rule.late:
                self._late.append((resource, body))
            if rule and rule.status:
                raise Failure(rule.status, rule.message, rule.reason)
            if rule and rule.cut and not rule.apply:
                return _cut(request)
            if request.method == "GET" and query.get("watch"):
                return await self._watch(request, query)
            answer, status = await self._answer(request.method, resource, name, query, body)
        except Failure as failure:
            answer, status = _status(failure), failure.status
        if rule and rule.cut:
            return _cut(request)
        return web.json_response(answer, status=status)

    async def _serve_cluster(self, request: web.Request) -> web.Response:
        """Lists of the whole cluster, which need a ClusterRole."""
        resource = request.match_info["resource"]
        self.requests.append(("GET", f"/{resource}", dict(request.query), None))
        if rule := self._rule("GET", f"/{resource}", ""):
            return web.json_response(_status(Failure(rule.status, rule.message, rule.reason)), status=rule.status)
        items = self.machines if resource == "nodes" else [*self.pods.values(), *self.others]
        return web.json_response({"metadata": {}, "items": items})

    async def _review(self, request: web.Request) -> web.Response:
        body = await request.json()
        asked = body["spec"]["resourceAttributes"]
        allowed = f"{asked['verb']} {asked['resource']}" not in self.forbidden
        return web.json_response({"status": {"allowed": allowed}}, status=201)

    async def _answer(
        self, method: str, resource: str, name: str, query: dict[str, str], body: Any
    ) -> tuple[Object, int]:
        if resource == "resourcequotas":
            return {"kind": "ResourceQuotaList", "apiVersion": "v1", "metadata": {}, "items": self.quotas}, 200
        if method == "POST" and query.get("dryRun") == "All":
            return {"name": _validate(copy.deepcopy(body), resource)}, 201
        if method == "POST":
            return await self.create(resource, body), 201
        if not name:
            return self._list(query), 200
        found = getattr(self, resource).get(name)
        if found is None:
            raise Failure(404, f'{resource} "{name}" not found')
        if method == "GET":
            return found, 200
        return await self._delete(found, (body or {}).get("preconditions", {})), 200

    async def _delete(self, found: Object, preconditions: dict[str, str]) -> Object:
        metadata = found["metadata"]
        for key, wanted in preconditions.items():
            if metadata[key] != wanted:
                raise Failure(
                    409, f"Precondition failed: {key} in precondition: {wanted}, in object: {metadata[key]}"
                )
        if not found["spec"].get("nodeName") or found["status"]["phase"] in ("Succeeded", "Failed"):
            await self.remove(metadata["name"])
        elif "deletionTimestamp" not in metadata:
            grace = found["spec"]["terminationGracePeriodSeconds"]
            metadata["deletionTimestamp"] = _now(grace)
            metadata["deletionGracePeriodSeconds"] = grace
            await self._touch("MODIFIED", found)
            if self.on_start:
                self._start(self._leave(metadata["name"]))
        return found

    def _list(self, query: dict[str, str]) -> Object:
        if token := query.get("continue"):
            key, _, start = token.partition(":")
            if key not in self._snapshots:
                raise Failure(410, "The provided continue parameter is too old", "Expired")
            items, at = self._snapshots[key], int(start)
        else:
            items, at = self._selected(query.get("labelSelector", "")), 0
            key = str(self.version)
            self._snapshots[key] = items
        limit = int(query.get("limit", 0)) or len(items)
        metadata = {"resourceVersion": key}
        if at + limit < len(items):
            metadata["continue"] = f"{key}:{at + limit}"
        return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items[at : at + limit]}

    def expire_lists(self) -> None:
        """The snapshots of all lists under way are compacted away."""
        self._snapshots.clear()

    def _selected(self, selector: str) -> list[Object]:
        if self.stale:
            return self._last_list
        wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
        self._last_list = [
            copy.deepcopy(found)
            for _, found in sorted(self.pods.items())
            if wanted.items() <= found["metadata"].get("labels", {}).items()
        ]
        return self._last_list

    async def _watch(self, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
        name = query["fieldSelector"].removeprefix("metadata.name=")
        seen = int(query["resourceVersion"])
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)

        async def send(kind: str, found: Object) -> None:
            await response.write(json.dumps({"type": kind, "object": found}).encode() + b"\n")

        if self._events and seen < self._events[-1][0] - self.events_kept:
            await send("ERROR", _status(Failure(410, "too old resource version", "Expired")))
            return response
        if self.bookmarks:
            await send("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(self.version)}})
        while request.transport:
            for version, kind, found in list(self._events):
                if version > seen and found["metadata"]["name"] == name:
                    await send(kind, found)
            seen = max(seen, self.version)
            async with self._changed:
                await self._changed.wait_for(lambda seen=seen: self.version > seen)
        return response

    async def _touch(self, kind: str, found: Object) -> None:
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        async with self._changed:
            self._events.append((self.version, kind, copy.deepcopy(found)))
            self._changed.notify_all()

    def _rule(self, method: str, resource: str, where: str) -> Rule | None:
        for rule in self.rules:
            if (rule.method, rule.resource) == (method, resource) and rule.where in where and rule.times:
                if rule.skip:
                    rule.skip -= 1
                    continue
                rule.times -= 1
                return rule
        return None


def _validate(made: Object, resource: str) -> str:
    """The validation that tells a bad name, label or pod (422 Invalid)."""
    name = str(made["metadata"]["name"])
    problems = [] if DNS_1123.fullmatch(name) else [f'metadata.name: Invalid value: "{name}"']
    for key, value in made["metadata"].get("labels", {}).items():
        if not LABEL_VALUE.fullmatch(value):
            problems.append(
                f'metadata.labels: Invalid value: "{value}" of {key}: must be no more than 63 characters'
            )
    if resource == "pods":
        for container in made["spec"]["containers"]:
            if not container.get("image"):
                problems.append(f"spec.containers[{container['name']}].image: Required value")
    if problems:
        raise Failure(422, f'{made["kind"]} "{name}" is invalid: ' + "; ".join(problems))
    return name


def _condition(status: str) -> Object:
    if status == "True":
        return {"type": "PodScheduled", "status": status}
    message = "0/3 nodes are available: 3 Insufficient cpu."
    return {"type": "PodScheduled", "status": status, "reason": "Unschedulable", "message": message}


def _status(failure: Failure) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": failure.message,
        "reason": failure.reason,
        "code": failure.status,
    }


def _cut(request: web.Request) -> web.Response:
    assert request.transport
    request.transport.abort()
    return web.Response()


def _now(later_s: int = 0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=later_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
