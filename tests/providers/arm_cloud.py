"""Azure Resource Manager for tests: the part of its REST API that the adapter uses, over HTTP.

Stands for (learn.microsoft.com/rest/api): compute "Virtual Machines - Create Or Update", "Get", "Delete", "List";
resources "Resources - List By Resource Group"; compute "Disks - Delete"; virtualnetwork "Network Interfaces -
Delete", "Public IP Addresses - Delete"; "Track asynchronous Azure operations". As there: a PUT answers 201 at once
and the machine is there, `Creating`, until its operation ends; sold out is a Failed operation that answers 200 and
leaves a Failed machine behind; a SKU that is not sold and a quota answer 409 at once; `If-None-Match: *` on a name
that is taken answers 412; a DELETE of nothing answers 204; resource groups come back in upper case; the implicit
disk of a machine carries no tags here, because no document promises them.
"""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.providers.rest_stand_in import Answer, Request, RestStandIn

SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"
GROUP = "ci-runners"
BASE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
MACHINES = f"{BASE}/providers/Microsoft.Compute/virtualMachines"
CREATE = rf"PUT {MACHINES}/[^/]+$"
LIST = rf"GET {MACHINES}$"
STATUS = r"GET /subscriptions/.*/operations/"
PARTS = {
    "networkInterfaces": "Microsoft.Network",
    "publicIPAddresses": "Microsoft.Network",
    "disks": "Microsoft.Compute",
}
PAGE = 100


class ArmCloud(RestStandIn):
    """One resource group. `fails` is the code with which creations end from now on."""

    lists = LIST

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.machines: dict[str, dict[str, Any]] = {}
        self.parts: dict[tuple[str, str], dict[str, Any]] = {}
        self.operations: dict[str, dict[str, Any]] = {}
        self.fails = ""
        self.never_done = False
        self.actions, self.not_actions = ["*"], ["Microsoft.Authorization/*/write"]
        self.cores_used = 0
        self.restricted: dict[str, dict[str, Any]] = {}  # size -> its restriction
        self.subnets = {"runners"}
        self._ids = itertools.count(1)

    def clear(self) -> None:
        super().clear()
        self.fails, self.never_done = "", False

    def perform(self, request: Request) -> Answer:
        assert request.query.get("api-version"), request
        routes = (
            (rf"PUT {MACHINES}/([^/]+)$", self._create),
            (rf"GET {MACHINES}/([^/]+)$", self._get),
            (rf"DELETE {MACHINES}/([^/]+)$", self._delete),
            (rf"{LIST}()", self._list_machines),
            (rf"GET {BASE}/resources$()", self._resources),
            (rf"DELETE {BASE}/providers/[^/]+/(\w+/[^/]+)$", self._delete_part),
            (r"GET /subscriptions/.*/operations/([^/]+)$", self._status),
            (rf"GET {BASE}/providers/Microsoft.Authorization/permissions$()", self._permissions),
            (r"GET /subscriptions/[^/]+/providers/Microsoft.Compute/locations/([^/]+)/usages$", self._usages),
            (r"GET /subscriptions/[^/]+/providers/Microsoft.Compute/skus$()", self._skus),
            (r"GET /subscriptions/.*/subnets/([^/]+)$", self._subnet),
        )
        for line, answer in routes:
            if found := re.match(line, request.line):
                return answer(request, found[1])
        return error(404, "InvalidResourceType", f"no such path: {request.line}")

    def put(self, name: str, tags: dict[str, str], body: dict[str, Any], state: str = "Succeeded") -> None:
        """A machine with what belongs to it."""
        now = datetime.now(UTC).isoformat()
        properties = {**body.get("properties", {"hardwareProfile": {"vmSize": "Standard_D2s_v4"}})}
        self.machines[name] = {
            "name": name,
            "id": f"{MACHINES.replace(GROUP, GROUP.upper())}/{name}",
            "type": "Microsoft.Compute/virtualMachines",
            "location": body.get("location", "eastus"),
            "zones": body.get("zones", []),
            "tags": tags,
            "properties": {
                **properties,
                "provisioningState": state,
                "timeCreated": now,
                "vmId": str(next(self._ids)),
            },
        }
        self.part("disks", f"{name}-disk", {})
        self.part("networkInterfaces", f"{name}-nic", tags)
        self.part("publicIPAddresses", f"{name}-ip", tags)

    def part(self, kind: str, name: str, tags: dict[str, str], age: timedelta = timedelta(0)) -> None:
        """A disk, network interface or address."""
        self.parts[kind, name] = {
            "name": name,
            "id": f"{BASE.replace(GROUP, GROUP.upper())}/providers/{PARTS[kind]}/{kind}/{name}",
            "type": f"{PARTS[kind]}/{kind}",
            "location": "eastus",
            "tags": tags,
            "createdTime": (datetime.now(UTC) - age).isoformat(),
        }

    def _create(self, request: Request, name: str) -> Answer:
        if name in self.machines and request.headers.get("if-none-match") == "*":
            return error(412, "PreconditionFailed", f"The condition '*' set for If-None-Match failed: {name}")
        body = request.body
        assert len(body["tags"]) <= 50
        assert all(len(value) <= 256 for value in body["tags"].values())
        assert len(name) <= 64
        assert body["properties"]["networkProfile"]["networkApiVersion"] in ("2020-11-01", "2022-11-01")
        self.put(name, body["tags"], body, "Creating")
        operation = f"op-{next(self._ids)}"
        self.operations[operation] = {"status": "InProgress", "_machine": name, "_code": self.fails}
        link = f"{self.url}/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/eastus/operations"
        headers = {"Azure-AsyncOperation": f"{link}/{operation}?api-version=2024-07-01", "Retry-After": "10"}
        return Answer(201, self.machines[name], headers)

    def _status(self, request: Request, name: str) -> Answer:
        operation = self.operations[name]
        if operation["status"] == "InProgress" and not self.never_done:
            self._end(operation)
        return Answer(200, {key: value for key, value in operation.items() if not key.startswith("_")})

    def _end(self, operation: dict[str, Any]) -> None:
        code, machine = operation["_code"], self.machines.get(operation["_machine"])
        operation["status"] = "Failed" if code else "Succeeded"
        if code:
            operation["error"] = {"code": code, "message": f"said Azure: {code}"}
        if machine:
            machine["properties"]["provisioningState"] = operation["status"]
            if code:
                status = {"code": f"ProvisioningState/failed/{code}", "message": f"said Azure: {code}"}
                machine["properties"]["instanceView"] = {"statuses": [status]}

    def end_all(self) -> None:
        """Every creation that is under way ends now, whoever asks."""
        for operation in self.operations.values():
            if operation["status"] == "InProgress":
                self._end(operation)

    def _permissions(self, request: Request, _: str) -> Answer:
        return Answer(200, {"value": [{"actions": self.actions, "notActions": self.not_actions}]})

    def _usages(self, request: Request, region: str) -> Answer:
        limits = {"cores": 20, "lowPriorityCores": 3}
        used = {"cores": self.cores_used, "lowPriorityCores": 0}
        rows = [
            {"name": {"value": name}, "unit": "Count", "currentValue": used[name], "limit": limit}
            for name, limit in limits.items()
        ]
        return Answer(200, {"value": rows})

    def _skus(self, request: Request, _: str) -> Answer:
        assert re.fullmatch(r"location eq '\w+'", request.query["$filter"])
        rows = [
            {"resourceType": "virtualMachines", "name": size, "restrictions": [restriction]}
            for size, restriction in self.restricted.items()
        ]
        return Answer(200, {"value": rows})

    def _subnet(self, request: Request, name: str) -> Answer:
        if name not in self.subnets:
            return error(404, "NotFound", f"Subnet {name} was not found")
        return Answer(200, {"name": name, "properties": {"addressPrefix": "10.0.0.0/24", "ipConfigurations": []}})

    def _get(self, request: Request, name: str) -> Answer:
        machine = self.machines.get(name)
        if machine is None:
            return error(404, "ResourceNotFound", f"The Resource 'virtualMachines/{name}' was not found.")
        if not self.never_done:
            self.end_all()
        return Answer(200, machine)

    def _delete(self, request: Request, name: str) -> Answer:
        if self.machines.pop(name, None) is None:
            return Answer(204)
        for kind, end in (("disks", "disk"), ("networkInterfaces", "nic"), ("publicIPAddresses", "ip")):
            self.parts.pop((kind, f"{name}-{end}"), None)
        return Answer(202, None, {"Location": f"{self.url}/subscriptions/{SUBSCRIPTION}/operations/none"})

    def _delete_part(self, request: Request, path: str) -> Answer:
        kind, name = path.split("/")
        machine = name.rpartition("-")[0]
        if (kind, name) not in self.parts:
            return Answer(204)
        if machine in self.machines:
            return error(400, "NicInUse", f"{name} is used by {machine}")
        if kind == "publicIPAddresses" and ("networkInterfaces", f"{machine}-nic") in self.parts:
            return error(400, "PublicIPAddressCannotBeDeleted", f"{name} is allocated to {machine}-nic")
        del self.parts[kind, name]
        return Answer(202)

    def _list_machines(self, request: Request, _: str) -> Answer:
        return self._page(request, [self.machines[name] for name in sorted(self.machines)])

    def _resources(self, request: Request, _: str) -> Answer:
        assert request.query["$expand"] == "createdTime"
        wanted = set(re.findall(r"resourceType eq '([^']+)'", request.query["$filter"]))
        return self._page(request, [part for part in self.parts.values() if part["type"] in wanted])

    def _page(self, request: Request, found: list[dict[str, Any]]) -> Answer:
        start = int(request.query.get("$skiptoken") or 0)
        body: dict[str, Any] = {"value": found[start : start + PAGE]}
        if start + PAGE < len(found):
            query = "&".join(f"{key}={value}" for key, value in request.query.items() if key != "$skiptoken")
            body["nextLink"] = f"{self.url}{request.path}?{query}&$skiptoken={start + PAGE}".replace(" ", "%20")
        return Answer(200, body)


def error(status: int, code: str, message: str, **headers: str) -> Answer:
    """An error body as Resource Manager has it."""
    body = {"error": {"code": code, "message": message}}
    return Answer(status, body, {key.replace("_", "-"): value for key, value in headers.items()})
