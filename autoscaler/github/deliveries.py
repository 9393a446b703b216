"""Webhooks that failed: GitHub lists them for three days and sends one again only when asked.

Source: docs.github.com/en/rest/apps/webhooks, /webhooks/using-webhooks/handling-failed-webhook-deliveries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import httpx

from autoscaler.github.apps import PAGE_SIZE, App
from autoscaler.github.call import Params
from autoscaler.github.errors import NotFound
from autoscaler.github.wire import DeliveryShape, decode, unix_ms
from scheduling.model import UnixMs

REMEMBERED = 10_000
PAGES = 10


class Redelivery:
    """Asks for each failed attempt once; an attempt that fails again is a new one, with the same GUID."""

    def __init__(self) -> None:
        self._asked: OrderedDict[int, None] = OrderedDict()

    async def ask(self, apps: Iterable[App], since_ms: UnixMs) -> int:
        """How many failed `workflow_job` deliveries since then GitHub will send again. Raises `GitHubError`."""
        count = 0
        for app in apps:
            for delivery in await self._failed(app, since_ms):
                if delivery.event == "workflow_job" and delivery.id not in self._asked:
                    count += await self._attempt(app, delivery.id)
        return count

    async def _failed(self, app: App, since_ms: UnixMs) -> Sequence[DeliveryShape]:
        """Newest first; a server that does not know the filter lists the others too."""
        found: list[DeliveryShape] = []
        params: Params = {"status": "failure", "per_page": PAGE_SIZE}
        for _ in range(PAGES):
            response = await app.send("GET", "/app/hook/deliveries", params)
            listed = decode(response, list[DeliveryShape])
            recent = [each for each in listed if unix_ms(each.delivered_at) >= since_ms]
            found += [each for each in recent if not 200 <= each.status_code < 300]
            following = response.raw_response.links.get("next")
            if following is None or len(recent) < len(listed):
                break
            params["cursor"] = httpx.URL(following["url"]).params["cursor"]
        return found

    async def _attempt(self, app: App, delivery_id: int) -> int:
        try:
            await app.send("POST", f"/app/hook/deliveries/{delivery_id}/attempts")
            done = 1
        except NotFound:  # too old by now
            done = 0
        self._asked[delivery_id] = None
        if len(self._asked) > REMEMBERED:
            self._asked.popitem(last=False)
        return done
