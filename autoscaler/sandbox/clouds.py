"""Simulated accounts over HTTP, as `providers.sim.remote` calls them: one path a cloud, `/NAME/machines`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from aiohttp import web

from providers.base import LaunchSpec, OutcomeUnknown, ProviderError
from providers.sim import SimCloud
from scheduling.messages import Trouble

STATUS = {
    Trouble.NO_CAPACITY: 503,
    Trouble.QUOTA: 403,
    Trouble.REFUSED: 400,
    Trouble.UNAUTHORIZED: 401,
    Trouble.TRANSIENT: 500,
}


def application(clouds: Mapping[str, SimCloud]) -> web.Application:
    """The accounts' front door. An unknown cloud is 404; a lost answer closes the connection."""

    def cloud(request: web.Request) -> SimCloud:
        if found := clouds.get(request.match_info["cloud"]):
            return found
        raise web.HTTPNotFound

    async def create(request: web.Request) -> web.StreamResponse:
        spec = msgspec.json.decode(await request.read(), type=LaunchSpec)
        try:
            # a caller that leaves does not undo what it asked for
            instance = await asyncio.shield(asyncio.ensure_future(cloud(request).create(spec)))
        except OutcomeUnknown:
            if request.transport:
                request.transport.close()
            return web.Response()
        except ProviderError as error:
            return web.json_response(
                {"trouble": error.trouble.value, "detail": str(error)}, status=STATUS[error.trouble]
            )
        return web.Response(body=msgspec.json.encode(instance), content_type="application/json")

    async def instances(request: web.Request) -> web.StreamResponse:
        found = await cloud(request).instances(request.query.get("fleet", ""))
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    async def taken(request: web.Request) -> web.StreamResponse:
        found = await cloud(request).taken(request.query.get("refs", "").split(","))
        return web.json_response(list(found))

    async def terminate(request: web.Request) -> web.StreamResponse:
        await asyncio.shield(asyncio.ensure_future(cloud(request).terminate(request.match_info["ref"])))
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/{cloud}/machines", create)
    app.router.add_get("/{cloud}/machines", instances)
    app.router.add_get("/{cloud}/machines/taken", taken)
    app.router.add_delete("/{cloud}/machines/{ref}", terminate)
    return app
