"""`/api/v1`, health, metrics and the dashboard page: what people and their tools look at.

Answers are made by pure functions from one `View`; nothing here decides anything. Errors are `{"error": text}`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from importlib.resources import files
from typing import Any, Protocol

from aiohttp import web

from autoscaler import metrics, units
from autoscaler.http.auth import ApiAuth
from autoscaler.http.body import BodyReader, Refused
from autoscaler.http.stream import Stream
from autoscaler.metrics import Metrics
from autoscaler.settings import ApiToken
from autoscaler.store.store import StoreAway
from autoscaler.views import fleet as fleet_views
from autoscaler.views import funds as fund_views
from autoscaler.views import jobs_and_runners as views
from autoscaler.views import why, why_fund
from autoscaler.views.jobs_and_runners import BadQuery, NoSuchThing, View
from autoscaler.views.values import usd
from scheduling.model import MicroUSD
from scheduling.world import PAUSED

BODY_MAX = 4096
BODY_SECONDS = 10.0
MONTH = re.compile(r"2[0-9]{3}-(0[1-9]|1[0-2])")
PAGE = {"": "index.html"} | {
    name: name
    for name in ("dashboard.css", "dashboard.js", "sections.js", "why.js", "dom.js", "api.js", "icon.svg")
}
"""Path under `/` -> file of `autoscaler/dashboard`."""
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
API_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Answer = Callable[[View, Mapping[str, str]], dict[str, Any]]
audit = logging.getLogger("autoscaler.audit")


class Source(Protocol):
    """What a replica knows. Each method may raise `StoreAway`."""

    async def view(self) -> View:
        """The live world on the leader; elsewhere one loaded from the store, at most 2 s old."""

    async def switch(self, target: str, on: bool, by: str) -> None:
        """Store an operator's switch; it takes effect with the leader's next round."""

    async def state_spent(self, fund: str, amount: MicroUSD, by: str) -> None:
        """Store what was spent of a fund by now, all in all."""

    async def ready(self) -> bool:
        """Whether the store answers."""


class HttpApi:
    """The handlers, for one replica."""

    def __init__(self, source: Source, metrics_: Metrics, tokens: tuple[ApiToken, ...] | None) -> None:
        self._source = source
        self._metrics = metrics_
        self._auth = ApiAuth(tokens)
        self._bodies = BodyReader(BODY_MAX, BODY_SECONDS, 64 * BODY_MAX)
        self._stream = Stream(self._summary)
        folder = files("autoscaler.http") / "dashboard"
        self._files = {path: (folder / name).read_bytes() for path, name in PAGE.items()}

    async def close(self) -> None:
        """End the open streams, so that a stopping daemon need not wait for dashboards."""
        await self._stream.close()

    def routes(self) -> list[web.RouteDef]:
        lists: dict[str, Answer] = {
            "summary": _plain(fleet_views.summary),
            "jobs": views.jobs,
            "runners": views.runners,
            "providers": _plain(fleet_views.providers),
            "funds": _plain(fund_views.funds),
            "cooldowns": _plain(fleet_views.cooldowns),
            "placements": fleet_views.placements,
        }
        found = [_get(f"/api/v1/{name}", self._list(answer)) for name, answer in lists.items()]
        found += [_get("/api/v1/jobs/{id}", self._job), _get("/api/v1/stream", self._listen)]
        found.append(_get("/api/v1/funds/{name}", self._fund))
        found.append(_get("/api/v1/funds/{name}/statement", self._statement))
        found.append(web.post("/api/v1/funds/{name}/spent", _answered(self._state_spent)))
        for name in ("pause", "resume", "drain", "undrain"):
            found.append(web.post(f"/api/v1/{name}", _answered(self._switch(name))))
        found += [_get("/healthz", self._healthy), _get("/readyz", self._ready), _get("/metrics", self._scrape)]
        return found + [_get(f"/{path}", self._page(path)) for path in PAGE]

    # ---- reading -------------------------------------------------------------------------------------------

    def _list(self, answer: Answer) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            self._auth.reader(request)
            return _json(answer(await self._source.view(), request.query))

        return handle

    async def _job(self, request: web.Request) -> web.StreamResponse:
        self._auth.reader(request)
        views.check(request.query)
        view = await self._source.view()
        return _json(why.job_document(view, views.find_job(view, request.match_info["id"])))

    async def _listen(self, request: web.Request) -> web.StreamResponse:
        self._auth.reader(request)
        return await self._stream.serve(request)

    async def _summary(self) -> dict[str, Any]:
        return fleet_views.summary(await self._source.view())

    async def _scrape(self, _: web.Request) -> web.StreamResponse:
        view = await self._source.view() if self._metrics.leads else None
        return web.Response(
            body=self._metrics.text(view if view and view.leading else None),
            headers={"Content-Type": metrics.CONTENT_TYPE},
        )

    async def _healthy(self, _: web.Request) -> web.StreamResponse:
        return _json({"ok": True})

    async def _ready(self, _: web.Request) -> web.StreamResponse:
        if await self._source.ready():
            return _json({"ready": True})
        raise Refused(503, "the store is away")

    def _page(self, path: str) -> Handler:
        body, kind = self._files[path], TYPES[PAGE[path].rpartition(".")[2]]

        async def handle(_: web.Request) -> web.StreamResponse:
            return web.Response(body=body, content_type=kind, charset="utf-8", headers=PAGE_HEADERS)

        return handle

    # ---- funds ---------------------------------------------------------------------------------------------

    async def _fund(self, request: web.Request) -> web.StreamResponse:
        self._auth.reader(request)
        views.check(request.query)
        return _json(why_fund.of_fund(await self._source.view(), request.match_info["name"]))

    async def _statement(self, request: web.Request) -> web.StreamResponse:
        self._auth.reader(request)
        views.check(request.query, "month")
        month = request.query.get("month", "")
        if not MONTH.fullmatch(month):
            raise BadQuery(f"month: expected YYYY-MM, got {month[:20]!r}")
        return _json(fund_views.statement(await self._source.view(), request.match_info["name"], month))

    async def _state_spent(self, request: web.Request) -> web.StreamResponse:
        by, name = self._auth.writer(request), request.match_info["name"]
        try:
            amount = units.money(json.loads(await self._bodies.read(request))["spent"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Refused(400, f'expected the JSON body {{"spent": "412000 USD"}}: {error}') from None
        if name not in (await self._source.view()).policy.funds:
            raise NoSuchThing(f"no fund {name[:100]!r} in the policy; `autoscaler funds` lists them")
        await self._source.state_spent(name, amount, by)
        audit.warning(
            "fund %s: %s spent, by %s", name, usd(amount), by, extra={"token": by, "peer": request.remote}
        )
        return _json({"fund": name, "spent_usd": usd(amount), "by": by}, status=202)

    # ---- switches ------------------------------------------------------------------------------------------

    def _switch(self, name: str) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                by = self._auth.writer(request)
            except Refused as refused:
                audit.warning("%s refused: %s", name, refused, extra={"peer": request.remote})
                raise
            on = name in ("pause", "drain")
            target = PAUSED if name in ("pause", "resume") else await self._target(request, on)
            await self._source.switch(target, on, by)
            audit.warning("%s %s by %s", name, target, by, extra={"token": by, "peer": request.remote})
            return _json({"target": target, "on": on, "by": by}, status=202)

        return handle

    async def _target(self, request: web.Request, on: bool) -> str:
        """What `drain` and `undrain` name in their body. Only what exists can be drained."""
        try:
            target = json.loads(await self._bodies.read(request))["target"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Refused(400, 'expected the JSON body {"target": "provider:NAME|type:NAME|all"}') from None
        view = await self._source.view()
        known = ["all", *(f"provider:{name}" for name in view.policy.providers)]
        known += [f"type:{name}" for name in view.policy.runner_types]
        if not on:
            known += [name for name in view.world.switches if name != PAUSED]
        if target not in known:
            near = get_close_matches(str(target)[:100], known, 1)
            hint = f"; did you mean {near[0]}?" if near else ", or all"
            raise Refused(400, f"{str(target)[:100]!r} is no provider:NAME or type:NAME of the policy{hint}")
        return str(target)


def add_to(app: web.Application, source: Source, metrics_: Metrics, tokens: tuple[ApiToken, ...] | None) -> None:
    """Serve all this in the application, and end open streams when it shuts down."""
    api = HttpApi(source, metrics_, tokens)
    app.add_routes(api.routes())

    async def close(_: web.Application) -> None:
        await api.close()

    app.on_shutdown.append(close)


def _plain(answer: Callable[[View], dict[str, Any]]) -> Answer:
    def handle(view: View, query: Mapping[str, str]) -> dict[str, Any]:
        views.check(query)
        return answer(view)

    return handle


def _get(path: str, handler: Handler) -> web.RouteDef:
    return web.get(path, _answered(handler))


def _answered(handler: Handler) -> Handler:
    """Turns what rooms raise into `{"error": text}` and a status."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refused as refused:
            response = refused.response()
            if refused.status == 401:
                response.headers["WWW-Authenticate"] = "Bearer"
            return response
        except BadQuery as error:
            return _json({"error": str(error)}, status=400)
        except NoSuchThing as error:
            return _json({"error": str(error)}, status=404)
        except StoreAway:
            return Refused(503, "the store is away; try again").response()

    return handle


def _json(document: dict[str, Any], status: int = 200) -> web.Response:
    body = json.dumps(document, ensure_ascii=False).encode(errors="replace")
    return web.Response(body=body, status=status, content_type="application/json", headers=API_HEADERS)
