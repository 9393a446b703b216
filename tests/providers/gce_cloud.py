"""Compute Engine for tests: the part of its REST API v1 that the adapter uses, over HTTP.

Stands for (cloud.google.com/compute/docs/reference/rest/v1): instances.insert, .get, .delete, .aggregatedList;
disks.aggregatedList, .delete; zoneOperations.get; machineTypes.list, acceleratorTypes.list. As there: ids are
decimal strings; an insert answers with an operation at once, which is done later and says only then that a zone is
sold out; the same requestId is the same operation unless that one failed ("ignored if it has already been
completed"); a taken name is 409 alreadyExists; a list over all zones names zones without results in a warning of
their own; label and name rules ("Naming resources", "Label requirements").
"""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime
from typing import Any

from providers.catalogue import table
from providers.gcp.request import parts_of
from tests.providers.rest_stand_in import Answer, Request, RestStandIn

PROJECT = "gift-project"
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")
BASE = f"/compute/v1/projects/{PROJECT}"
INSERT = rf"POST {BASE}/zones/[^/]+/instances$"
LIST = rf"GET {BASE}/aggregated/instances"
ALL_ZONES = [f"us-central1-{letter}" for letter in "abcf"] + ["us-east4-a"]


class GceCloud(RestStandIn):
    """One project. `fails` are codes with which the operations of inserts end from now on."""

    lists = LIST

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.machines: dict[tuple[str, str], dict[str, Any]] = {}
        self.disks: dict[tuple[str, str], dict[str, Any]] = {}
        self.operations: dict[str, dict[str, Any]] = {}
        self.by_request: dict[str, str] = {}
        self.fails: list[str] = []
        self.never_done = False
        self.unreachable: list[str] = []
        self.forbidden: set[str] = set()
        self.cpus_used = 0.0
        self.images, self.subnetworks = {"runner"}, {"runners"}
        self.not_sold: dict[str, set[str]] = {}
        self._ids = itertools.count(7_000_000_000_000_000_000)

    def clear(self) -> None:
        super().clear()
        self.fails, self.never_done, self.unreachable = [], False, []

    def perform(self, request: Request) -> Answer:
        routes = (
            (rf"POST {BASE}/zones/([^/]+)/instances$", self._insert),
            (rf"GET {BASE}/zones/([^/]+)/instances/([^/]+)$", self._get),
            (rf"DELETE {BASE}/zones/([^/]+)/instances/([^/]+)$", self._delete),
            (rf"DELETE {BASE}/zones/([^/]+)/disks/([^/]+)$", self._delete_disk),
            (rf"GET {BASE}/zones/([^/]+)/operations/([^/]+)$", self._operation),
            (rf"GET {BASE}/zones/([^/]+)/operations$", self._operations),
            (rf"GET {BASE}/aggregated/(instances|disks)$", self._list_all),
            (rf"POST /v1/projects/{PROJECT}:testIamPermissions$", self._permissions),
            (rf"GET {BASE}/regions/([^/]+)$", self._region),
            (rf"GET {BASE}/regions/[^/]+/subnetworks/([^/]+)$", self._subnetwork),
            (rf"GET {BASE}/global/images/(?:family/)?([^/]+)$", self._image),
            (rf"GET {BASE}/zones/([^/]+)/(machineTypes|acceleratorTypes)$", self._types),
        )
        for line, answer in routes:
            if found := re.match(line, request.line):
                return answer(request, *found.groups())
        return error(404, "notFound", f"no such path: {request.line}")

    def put(self, zone: str, name: str, labels: dict[str, str], more: dict[str, Any] | None = None) -> None:
        """A machine with its disk."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        link = f"https://www.googleapis.com{BASE}/zones/{zone}"
        common = {"name": name, "zone": link, "labels": labels, "creationTimestamp": now}
        self.machines[zone, name] = {
            "kind": "compute#instance",
            "id": str(next(self._ids)),
            "status": "RUNNING",
            "machineType": f"{link}/machineTypes/n2-standard-2",
            **(more or {}),
            **common,
        }
        self.disks[zone, name] = {
            "kind": "compute#disk",
            "id": str(next(self._ids)),
            "status": "READY",
            "users": [f"{link}/instances/{name}"],
            **common,
        }

    def _insert(self, request: Request, zone: str) -> Answer:
        body, asked = request.body, request.query.get("requestId", "")
        if asked in self.by_request:
            return Answer(200, self.operations[self.by_request[asked]])
        if (problem := problem_of(body)) is not None:
            return error(400, "invalid", problem)
        if (zone, body["name"]) in self.machines:
            return error(409, "alreadyExists", f"The resource '{body['name']}' already exists")
        target = f"https://www.googleapis.com{BASE}/zones/{zone}/instances/{body['name']}"
        operation = self._new_operation("insert", zone, target)
        if self.fails:
            operation["_errors"] = [{"code": code, "message": f"said Google: {code}"} for code in self.fails]
        else:
            self.by_request[asked] = operation["name"]
            link = f"https://www.googleapis.com{BASE}/"
            accelerators = [
                {**each, "acceleratorType": link + each["acceleratorType"].partition(f"{PROJECT}/")[2]}
                for each in body.get("guestAccelerators", ())
            ]
            more = {**body, "machineType": link + body["machineType"], "guestAccelerators": accelerators}
            self.put(zone, body["name"], body["labels"], more)
        return Answer(200, public(operation))

    def _new_operation(self, kind: str, zone: str, target: str) -> dict[str, Any]:
        name = f"operation-{next(self._ids)}"
        self.operations[name] = {
            "kind": "compute#operation",
            "id": str(next(self._ids)),
            "name": name,
            "operationType": kind,
            "status": "RUNNING",
            "insertTime": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "targetLink": target,
            "zone": f"https://www.googleapis.com{BASE}/zones/{zone}",
        }
        return self.operations[name]

    def _operation(self, request: Request, zone: str, name: str) -> Answer:
        operation = self.operations.get(name)
        if operation is None:
            return error(404, "notFound", f"The resource '{name}' was not found")
        if not self.never_done:
            operation["status"] = "DONE"
            if "_errors" in operation:
                operation.update(error={"errors": operation["_errors"]}, httpErrorStatusCode=503)
        return Answer(200, public(operation))

    def preempt(self, zone: str, name: str) -> None:
        """Compute Engine takes a spot machine back."""
        del self.machines[zone, name], self.disks[zone, name]
        target = f"https://www.googleapis.com{BASE}/zones/{zone}/instances/{name}"
        self._new_operation("compute.instances.preempted", zone, target)

    def _operations(self, request: Request, zone: str) -> Answer:
        wanted = re.fullmatch(r'operationType="(\S+)" AND targetLink="(\S+)"', request.query["filter"])
        assert wanted, request.query
        found = [
            public(each)
            for each in self.operations.values()
            if (each["operationType"], each["targetLink"]) == (wanted[1], wanted[2])
        ]
        return Answer(200, {"items": found} if found else {})

    def _get(self, request: Request, zone: str, name: str) -> Answer:
        machine = self.machines.get((zone, name))
        return Answer(200, machine) if machine else error(404, "notFound", f"'{name}' was not found")

    def _delete(self, request: Request, zone: str, name: str) -> Answer:
        machine = self.machines.pop((zone, name), None)
        if machine is None:
            return error(404, "notFound", f"The resource '{name}' was not found")
        if machine.get("disks", [{"autoDelete": True}])[0]["autoDelete"]:
            self.disks.pop((zone, name), None)
        elif disk := self.disks.get((zone, name)):
            disk.pop("users", None)
        return Answer(200, public(self._new_operation("delete", zone, "")))

    def _delete_disk(self, request: Request, zone: str, name: str) -> Answer:
        if self.disks.pop((zone, name), None) is None:
            return error(404, "notFound", f"The resource '{name}' was not found")
        return Answer(200, public(self._new_operation("delete", zone, "")))

    def _permissions(self, request: Request) -> Answer:
        asked = request.body["permissions"]
        return Answer(200, {"permissions": [each for each in asked if each not in self.forbidden]})

    def _region(self, request: Request, region: str) -> Answer:
        quotas = [
            {"metric": "CPUS", "limit": 24.0, "usage": self.cpus_used},
            {"metric": "PREEMPTIBLE_CPUS", "limit": 0.0, "usage": 0.0},
            {"metric": "IN_USE_ADDRESSES", "limit": 8.0, "usage": 1.0},
        ]
        return Answer(200, {"kind": "compute#region", "name": region, "quotas": quotas})

    def _subnetwork(self, request: Request, name: str) -> Answer:
        return Answer(200, {"name": name}) if name in self.subnetworks else error(404, "notFound", f"no {name}")

    def _image(self, request: Request, name: str) -> Answer:
        found = {"name": name, "creationTimestamp": "2026-05-01T00:00:00.000-07:00"}
        return (
            Answer(200, found)
            if name in self.images
            else error(404, "notFound", f"The resource '{name}' was not found")
        )

    def _types(self, request: Request, zone: str, kind: str) -> Answer:
        if zone not in ALL_ZONES:
            return error(404, "notFound", f"The resource 'projects/{PROJECT}/zones/{zone}' was not found")
        missing = self.not_sold.get(zone, set())
        names = sorted({part for name in table("gce.csv") for part in parts_of(name)} - missing)
        names = [name for name in names if name.startswith("nvidia-") == (kind == "acceleratorTypes")]
        start, size = int(request.query.get("pageToken") or 0), 50  # smaller than asked for, as the API may
        body: dict[str, Any] = {"items": [{"name": name} for name in names[start : start + size]]}
        if start + size < len(names):
            body["nextPageToken"] = str(start + size)
        return Answer(200, body)

    def _list_all(self, request: Request, key: str) -> Answer:
        wanted = re.fullmatch(r"labels\.([a-z-]+)=([a-z0-9_-]+)", request.query["filter"])
        assert wanted, request.query
        held = self.machines if key == "instances" else self.disks
        found = [
            (zone, resource)
            for (zone, _), resource in sorted(held.items())
            if resource["labels"].get(wanted[1]) == wanted[2]
        ]
        start, size = int(request.query.get("pageToken") or 0), int(request.query["maxResults"])
        items: dict[str, Any] = {
            f"zones/{zone}": {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "nothing here"}}
            for zone in ALL_ZONES
        }
        for zone, resource in found[start : start + size]:
            held_there = items.setdefault(f"zones/{zone}", {})
            held_there.pop("warning", None)
            held_there.setdefault(key, []).append(resource)
        for zone in self.unreachable:
            items[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE", "message": f"{zone} is down"}}
        body = {"kind": f"compute#{key}AggregatedList", "items": items}
        if start + size < len(found):
            body["nextPageToken"] = str(start + size)
        return Answer(200, body)


def error(status: int, reason: str, message: str) -> Answer:
    """An error body as Google's JSON APIs have it."""
    each = {"message": message, "domain": "global", "reason": reason}
    return Answer(status, {"error": {"code": status, "message": message, "errors": [each]}})


def public(operation: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in operation.items() if not key.startswith("_")}


def problem_of(body: dict[str, Any]) -> str | None:
    """What Compute Engine would say against an instance."""
    if not NAME.fullmatch(body["name"]):
        return f"Invalid value for field 'resource.name': '{body['name']}'"
    for labels in (body["labels"], body["disks"][0]["initializeParams"]["labels"]):
        if len(labels) > 64:
            return "more than 64 labels"
        for key, value in labels.items():
            if not LABEL[0].fullmatch(key) or not LABEL[1].fullmatch(value):
                return f"Invalid label: {key}={value}"
    scheduling = body["scheduling"]
    if scheduling["provisioningModel"] == "SPOT" and scheduling["onHostMaintenance"] != "TERMINATE":
        return "Spot VMs cannot live-migrate"
    return None
