"""The canary: one real machine, launched through the adapter, timed, asked what it sees, and destroyed.

It carries the fleet's tags, as any machine must, and a runner id that begins with `rcanary`; it gets no JIT config
and no job. Should this process die, a daemon that lists it adopts and later ends it, and so does its own timer.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from aiohttp import web

from autoscaler.clock import Clock
from autoscaler.effects import Fleet, launch_data
from autoscaler.onboarding.check import Sample
from providers import checking
from providers.base import CheckLine, Instance, LaunchSpec, OutcomeUnknown, Provider, ProviderError
from scheduling.matching import access_json
from scheduling.model import DurationMs

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
WAIT_S = 600
"""How long the machine may wait for us, and how long it may live after that."""
SETTLING_MS: DurationMs = 120_000
GONE_MS: DurationMs = 300_000
LOOK_MS: DurationMs = 2_000
LOOK_AROUND_MS: DurationMs = 120_000
ENDED = frozenset({"exited", "failed", "refused"})


@dataclass
class Heard:
    """What the machine reported: stage -> (when, detail)."""

    stages: dict[str, tuple[int, str]] = field(default_factory=dict)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)


class Callbacks:
    """What a canary needs of the daemon's machine API, on a port of its own. OSError: the port is taken."""

    def __init__(self, token: str, clock: Clock, heard: Heard) -> None:
        self._token, self._clock, self._heard = token, clock, heard
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> None:
        app = web.Application()
        app.router.add_post("/runner/v1/{id}/stages", self._stage)
        app.router.add_get("/runner/v1/{id}/jit", self._jit)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()

    async def close(self) -> None:
        if self._runner:
            await self._runner.cleanup()

    async def _stage(self, request: web.Request) -> web.Response:
        self._admit(request)
        said: dict[str, Any] = await request.json()
        async with self._heard.news:
            at_ms = self._clock.now_ms()
            self._heard.stages.setdefault(str(said.get("stage")), (at_ms, str(said.get("detail", ""))[:500]))
            self._heard.news.notify_all()
        return web.Response(status=202)

    async def _jit(self, request: web.Request) -> web.Response:
        self._admit(request)
        raise web.HTTPGone

    def _admit(self, request: web.Request) -> None:
        if not hmac.compare_digest(request.headers.get("Authorization", ""), f"Bearer {self._token}"):
            raise web.HTTPUnauthorized


class Canary:
    """One launch. `told` gets each line as soon as it is known."""

    def __init__(
        self, provider: Provider, sample: Sample, fleet: Fleet, clock: Clock, told: Callable[[CheckLine], None]
    ) -> None:
        self.provider, self.clock, self.told = provider, clock, told
        self.heard = Heard()
        self.runner_id = "rcanary" + "".join(secrets.choice(ALPHABET) for _ in range(14))
        self.boot_ms = sample.rtype.boot_timeout_ms
        access = access_json(sample.rtype)
        data = launch_data(fleet, self.runner_id, sample.spec.offer, "", access, WAIT_S, WAIT_S)
        data["inspect"] = files("providers.bootstrap").joinpath("inside.py").read_text(encoding="utf-8")
        self.token = str(data["token"])
        lifetime_ms = self.boot_ms + 2 * WAIT_S * 1000
        boot = json.dumps(data, sort_keys=True)
        self.spec: LaunchSpec = replace(
            sample.spec, runner_id=self.runner_id, runner_type="canary", boot=boot, lifetime_ms=lifetime_ms
        )

    async def run(self, host: str, port: int) -> None:
        """Launch, listen, destroy: the last also when this is cancelled. OSError: cannot listen there."""
        callbacks = Callbacks(self.token, self.clock, self.heard)
        await callbacks.start(host, port)
        try:
            await self._live()
        finally:
            await callbacks.close()

    async def _live(self) -> None:
        began_ms = self.clock.now_ms()
        made: Instance | None = None
        refused = False
        try:
            made = await self.provider.launch(self.spec)
            self._timed("launch", began_ms, made.ref)
            if await self._await_stage({"booted"} | ENDED, self.boot_ms):
                await self._look_around(began_ms)
            else:
                limit = f"nothing heard in {self.boot_ms // 1000} s"
                self.told(
                    CheckLine(
                        "boot",
                        False,
                        limit,
                        "read its console: does it reach the --url and the runner's download?",
                    )
                )
        except OutcomeUnknown as error:
            self.told(checking.failed("launch", error))
        except ProviderError as error:
            refused = True
            self.told(checking.failed("launch", error))
        finally:
            if not refused:
                await self._destroy(made)

    async def _look_around(self, began_ms: int) -> None:
        if "booted" not in self.heard.stages:
            _, detail = next(self.heard.stages[stage] for stage in ENDED if stage in self.heard.stages)
            self.told(CheckLine("boot", False, detail, "correct what it names, then check again"))
            return
        self._timed("boot", began_ms, "", self.heard.stages["booted"][0])
        await self._await_stage(ENDED, LOOK_AROUND_MS)
        _, detail = self.heard.stages.get("exited", (0, ""))
        try:
            found = json.loads(detail)
            lines = [*inside(found)]
        except (ValueError, KeyError, TypeError):
            why = detail or "it said nothing"
            lines = [CheckLine("inside", False, f"it could not look around: {why}", "see the machine's log")]
        for line in lines:
            self.told(line)

    async def _await_stage(self, stages: frozenset[str] | set[str], limit_ms: DurationMs) -> bool:
        heard = self.heard
        try:
            async with asyncio.timeout(self.clock.real_seconds(limit_ms)), heard.news:
                await heard.news.wait_for(lambda: not stages.isdisjoint(heard.stages))
        except TimeoutError:
            return False
        return True

    def _timed(self, what: str, began_ms: int, detail: str, at_ms: int = 0) -> None:
        seconds = ((at_ms or self.clock.now_ms()) - began_ms) / 1000
        self.told(CheckLine(what, True, f"after {seconds:.1f} s" + (f": {detail}" if detail else "")))

    async def _destroy(self, made: Instance | None) -> None:
        """Until it is absent twice; where nobody knows whether it exists, for the time it may take to show up."""
        began_ms = self.clock.now_ms()
        refs = {made.ref} if made else set()
        absences, why, known = 0, "", made is not None
        while self.clock.now_ms() < began_ms + GONE_MS:
            try:
                for ref in sorted(refs):
                    await self.provider.terminate(ref)
                mine = [each for each in await self.provider.instances() if each.runner_id == self.runner_id]
                refs = {ref for each in mine for ref in (each.ref, *each.orphans) if ref}
                known = known or bool(refs)
                absences = 0 if refs else absences + 1
            except ProviderError as error:
                why = f": {error}"
            if absences > 1 and (known or self.clock.now_ms() >= began_ms + SETTLING_MS):
                self._timed("destroyed", began_ms, "")
                return
            await self.clock.sleep(LOOK_MS)
        left = ", ".join(sorted(refs)) or f"whatever is tagged autoscaler-runner={self.runner_id}"
        self.told(
            CheckLine("destroyed", False, f"still there after {GONE_MS // 1000} s{why}", f"remove {left} by hand")
        )


def inside(found: dict[str, Any]) -> list[CheckLine]:
    """What the machine saw, as lines."""
    metadata, identity, github = found["metadata"], found["identity"], found["github"]
    closed = "close the way to 169.254.169.254 for jobs: it repeats the launch data, with the callback token"
    none = "launch machines without role, service account or identity: jobs would act with it"
    egress = "let machines out to github.com and api.github.com on port 443"
    answered = isinstance(github, int)
    return [
        CheckLine(
            "inside: metadata service",
            not metadata,
            ", ".join(metadata) or "not reachable",
            closed if metadata else "",
        ),
        CheckLine("inside: cloud identity", not identity, ", ".join(identity) or "none", none if identity else ""),
        CheckLine(
            "inside: GitHub",
            answered,
            f"answers {github}" if answered else str(github),
            "" if answered else egress,
        ),
    ]
