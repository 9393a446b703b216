"""The composition root: settings and a policy become one running replica."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from autoscaler import collector
from autoscaler.clock import Clock
from autoscaler.daemon import Daemon
from autoscaler.effects import Fleet, Parts
from autoscaler.events.recording import Recorder
from autoscaler.github.client import AppCredentials, GitHub
from autoscaler.http import api as http_api
from autoscaler.http import host_api, runner_api, webhook
from autoscaler.http.auth import ApiAuth
from autoscaler.http.head_guard import KEEPALIVE_SECONDS, guarded
from autoscaler.http.host_api import HostApi
from autoscaler.http.runner_api import RunnerApi
from autoscaler.http.webhook import Receiver
from autoscaler.metrics import Metrics
from autoscaler.policy import change as policy_change
from autoscaler.policy.file import Loaded, PolicyError, load, provider_config
from autoscaler.secrets_file import SecretsFile, SettingsError
from autoscaler.settings import Settings
from autoscaler.source import Source
from autoscaler.store.embedded import EmbeddedError
from autoscaler.store.store import Store
from providers import registry
from providers.base import MissingSdk, Provider
from scheduling.matching import matcher
from scheduling.policy import Policy

log = logging.getLogger(__name__)

ROLES = ("all", "ingest", "scheduler")


class Replica:
    """One process of a fleet: receiver, callbacks, pages and, unless it is `ingest` only, the daemon."""

    def __init__(
        self,
        settings: Settings,
        loaded: Loaded,
        clock: Clock,
        role: str = "all",
        observe: bool = False,
        poll: tuple[str, ...] = (),
        record: Path | None = None,
    ) -> None:
        """No I/O. `poll`: repositories to ask for jobs, without webhooks.

        Raises `SettingsError` for what this role needs and `MissingSdk` for a kind without its SDK.
        """
        self.settings, self.clock, self.role = settings, clock, role
        key = settings.require("fleet_key")
        self.metrics = Metrics()
        self.store = Store(settings.redis_url, settings.fleet, key)
        self.hosts = self.store.hosts(clock)
        self.github = GitHub(
            [AppCredentials(str(app.app_id), app.private_key) for app in settings.require("github_apps")],
            base_url=settings.github_url,
            clock=clock,
        )
        self._providers: dict[str, tuple[object, Provider]] = {}
        self._closing: list[asyncio.Task[None]] = []
        parts = Parts(loaded.policy, self._build(loaded))
        fleet = Fleet(settings.fleet, key, settings.public_url)
        self.daemon = Daemon(self.store, clock, self.github, parts, fleet, self.metrics, observe, poll)
        self.source = Source(self.daemon)
        self.recorder = Recorder(record, loaded.policy) if record else None
        if self.recorder:
            self.daemon.heard = self.recorder.hear
        self.runner_api = RunnerApi(self.store, key, clock)
        self.runner_api.explain = self.source.explain
        auth = ApiAuth(settings.api_tokens)
        self.host_api = HostApi(self.hosts, lambda: self.daemon.parts.providers, settings.fleet, key, auth)
        self.port = settings.port
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._leading: asyncio.Task[None] | None = None

    def _build(self, loaded: Loaded) -> Mapping[str, Provider]:
        """Providers of this policy; one whose part of it is unchanged stays as it is.

        A provider that a reload removed stays until its machines are gone.
        """
        built: dict[str, tuple[object, Provider]] = {}
        for name, provider in loaded.policy.providers.items():
            config = provider_config(loaded.policy, name, loaded.settings[name], self.settings.fleet)
            config = replace(config, board=self.hosts)
            mark = (provider.kind, config)
            known = self._providers.get(name)
            if known is not None and known[0] == mark:
                built[name] = known
            else:
                built[name] = (mark, registry.kind(provider.kind).build(config, self.clock))
        for name, known in self._providers.items():
            if name not in built and self._may_have_machines(name):
                built[name] = known
            elif built.get(name) is not known:
                self._closing.append(asyncio.create_task(known[1].close()))
        self._providers = built
        return {name: provider for name, (_, provider) in built.items()}

    def _may_have_machines(self, name: str) -> bool:
        """Only the leader knows."""
        world = self.daemon.world
        return world is None or world.live_count(f"provider:{name}") > 0

    def application(self) -> web.Application:
        """Everything this replica serves over HTTP."""
        app = web.Application(client_max_size=webhook.BODY_MAX)
        if self.role != "scheduler" and not self.daemon.poll:
            secrets = SecretsFile(self.settings.require("webhook_secret_file"))
            receiver = Receiver(self.store.append, secrets, self._is_ours, self.clock, self.metrics.webhook)
            if self.recorder:
                receiver.record = self.recorder.take
            app.add_routes(webhook.routes(receiver))
        app.add_routes(runner_api.routes(self.runner_api))
        app.add_routes(host_api.routes(self.host_api))
        http_api.add_to(app, self.source, self.metrics, self.settings.api_tokens)
        return app

    def _is_ours(self, labels: tuple[str, ...], repository: str) -> bool:
        return matcher(self.daemon.policy).is_ours(labels)

    async def start(self) -> None:
        """Open the store, listen, begin to lead. OSError: the port is taken; `EmbeddedError`: the data folder."""
        await self.store.open()
        await self.github.open()
        self._runner = web.AppRunner(
            self.application(),
            access_log=None,
            shutdown_timeout=5.0,
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_SECONDS,
        )
        await self._runner.setup()
        assert self._runner.server
        factory = guarded(self._runner.server)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(factory, self.settings.host, self.settings.port, backlog=1024)
        self.port = self._listener.sockets[0].getsockname()[1]
        if self.role != "ingest":
            self._leading = asyncio.create_task(self.daemon.run())

    async def stop(self) -> None:
        """Drain: no new requests, effects under way end, the lease goes to another replica."""
        self.runner_api.close()
        self.host_api.close()
        await self.daemon.stop()
        if self._leading:
            await asyncio.gather(self._leading, return_exceptions=True)
        if self._listener:
            self._listener.close()
        if self._runner:
            await self._runner.cleanup()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self.github.close()
        for _, provider in self._providers.values():
            await provider.close()
        await self.store.close()
        if self.recorder:
            await asyncio.to_thread(self.recorder.close)

    def reload(self, path: Path) -> None:
        """Take the policy file anew; a bad one changes nothing but what pages and metrics say."""
        try:
            loaded = load(path, self.clock.now_ms())
            parts = Parts(loaded.policy, self._build(loaded))
            self._tell_changes(loaded.policy)
            self.daemon.activate(parts)
            if self.recorder:
                self.recorder.redactor.use(loaded.policy)
        except (PolicyError, MissingSdk) as error:
            self.source.policy_error = str(error)
            self.metrics.reloaded(False)
            log.error("the old policy stays: %s", error)
            return
        self.source.policy_error = ""
        self.metrics.reloaded(True)
        log.info("policy %s is active", loaded.policy.hash)

    def _tell_changes(self, new: Policy) -> None:
        if self.daemon.world is not None:
            now_ms = self.clock.now_ms()
            for line in policy_change.changes(self.daemon.world, self.daemon.policy, new, now_ms):
                log.info("policy: %s", line)


async def serve(
    settings: Settings,
    policy: Path,
    role: str = "all",
    observe: bool = False,
    poll: tuple[str, ...] = (),
    record: Path | None = None,
) -> int:
    """Run one replica until SIGTERM or SIGINT; SIGHUP reloads the policy. 1 when it cannot start."""
    clock = Clock()
    collector.spare_the_old()
    try:
        loaded = load(policy, clock.now_ms())
        replica = Replica(settings, loaded, clock, role, observe, poll, record)
        replica.daemon.value_funds = True
        await replica.start()
    except (SettingsError, PolicyError, MissingSdk, EmbeddedError) as error:
        print(f"autoscaler: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        address = f"{settings.host}:{settings.port}"
        print(f"autoscaler: cannot listen on {address}: {error.strerror or error}", file=sys.stderr)
        print("Free the port, or name another in AUTOSCALER_LISTEN.", file=sys.stderr)
        await replica.stop()
        return 1
    for problem in loaded.warnings:
        log.warning("%s", problem)
    log.info("listening on %s:%d as %s", settings.host, replica.port, role)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    with contextlib.suppress(AttributeError):  # no SIGHUP on Windows
        loop.add_signal_handler(signal.SIGHUP, replica.reload, policy)
    await stopped.wait()
    log.info("draining")
    await replica.stop()
    return 0
