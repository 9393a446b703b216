"""The REST endpoints of webhook deliveries: docs.github.com/en/rest/apps/webhooks."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from autoscaler.sandbox.github_access import Access, Denied
from autoscaler.sandbox.github_hooks import Delivery, HookSender
from autoscaler.sandbox.github_payloads import instant

DEFAULT_PAGE = 30


class HookRest:
    """Handlers for an App that asks after its own deliveries."""

    def __init__(self, hooks: HookSender, access: Access) -> None:
        self.hooks, self.access = hooks, access

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/app/hook/deliveries", self.deliveries),
            web.post("/app/hook/deliveries/{id:\\d+}/attempts", self.attempt),
        ]

    async def deliveries(self, request: web.Request) -> web.Response:
        """/rest/apps/webhooks "List deliveries for an app webhook": newest first, by cursor, 3 days."""
        app = self.access.app(request)
        wanted, below = request.query.get("status"), int(request.query.get("cursor", "0"))
        size = int(request.query.get("per_page", str(DEFAULT_PAGE)))
        found = [
            each
            for each in sorted(self.hooks.deliveries, key=lambda each: -each.id)
            if each.hook.app_id == app.id
            and (not below or each.id < below)
            and (wanted is None or each.failed == (wanted == "failure"))
        ]
        headers = {}
        if len(found) > size:
            url = request.url.update_query(cursor=str(found[size - 1].id))
            headers["Link"] = f'<{url}>; rel="next"'
        return web.json_response([shown(each) for each in found[:size]], headers=headers)

    async def attempt(self, request: web.Request) -> web.Response:
        """/rest/apps/webhooks "Redeliver a delivery for an app webhook": the GUID stays the same."""
        if not self.hooks.redeliver(int(request.match_info["id"]), self.access.app(request).id):
            raise Denied(404, "Not Found")
        return web.json_response({}, status=202)


def shown(found: Delivery) -> dict[str, Any]:
    return {
        "id": found.id,
        "guid": found.guid,
        "delivered_at": instant(found.at_ms),
        "redelivery": found.redelivery,
        "duration": 0.1,
        "status": f"Invalid HTTP Response: {found.status_code}" if found.failed else "OK",
        "status_code": found.status_code,
        "event": "workflow_job",
        "action": found.action,
        "installation_id": found.installation_id,
        "repository_id": found.repository_id,
        "throttled_at": None,
    }
