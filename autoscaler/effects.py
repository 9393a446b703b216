"""`perform(command) -> Event`: the only code that acts on clouds and GitHub. Each command may be performed twice.

What may have been applied without an answer is reported as unknown, never as failed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from autoscaler.github.client import GitHub, GitHubError, NameTaken, RunnerBusy
from autoscaler.http.runner_api import callback_token
from autoscaler.limits import Rate
from autoscaler.store.sealing import Seal
from autoscaler.store.store import StaleFence, StoreAway
from providers.base import Clock, LaunchSpec, OutcomeUnknown, Provider, ProviderError, Refused
from scheduling import messages as m
from scheduling.lifecycle import JobState, RerunState, RunnerState
from scheduling.matching import owner_of
from scheduling.model import Offer, Runner, UnixMs
from scheduling.policy import Policy
from scheduling.world import World

log = logging.getLogger(__name__)

CALL_LIMIT_S = 120.0
"""Longest that one call may take in real time; past it the outcome counts as unknown."""

CONCURRENCY = 64
"""Launches and stops under way at one provider."""

GITHUB_CONCURRENCY = 16
"""Effects of one kind under way at GitHub. Few, so that the first are done and stored before the last begin: a
leader that does not live long gets some of them done, instead of beginning all and ending none."""


_TO_CREATE = (RunnerState.PLANNED, RunnerState.UNKNOWN)

PutJit = Callable[[str, str], Awaitable[None]]
"""Lays a JIT config out for a runner id, encrypted, while this replica leads."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a reload of the policy replaces, as a whole."""

    policy: Policy
    providers: Mapping[str, Provider]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Who we are towards machines."""

    name: str
    key: bytes
    public_url: str

    def __repr__(self) -> str:
        return f"Fleet({self.name!r}, {self.public_url!r})"


def launch_data(
    fleet: Fleet, runner_id: str, offer: Offer, fund: str, access: str, ready_seconds: int, lifetime_seconds: int
) -> dict[str, object]:
    """What a machine is told of itself: who it is, where to call and with which token, how long it may live."""
    return {
        "fleet": fleet.name,
        "runner_id": runner_id,
        "name": f"{fleet.name}-{runner_id}",
        "url": fleet.public_url,
        "token": callback_token(fleet.key, runner_id),
        "ready_seconds": ready_seconds,
        "lifetime_seconds": lifetime_seconds,
        "access": json.loads(access),
        "place": {
            "provider": offer.provider,
            "offer": f"{offer.instance_type} ({offer.zone}, {offer.purchase.value})",
            "fund": fund,
        },
    }


class Effects:
    """Performs commands for one leader. The world is read, never written."""

    def __init__(
        self,
        world: World,
        parts: Parts,
        github: GitHub,
        put_jit: PutJit,
        fleet: Fleet,
        clock: Clock,
        observe: bool = False,
    ) -> None:
        self.world, self.github, self.put_jit = world, github, put_jit
        self.fleet, self.clock, self.observe = fleet, clock, observe
        self._seal = Seal(fleet.key)
        self._early: dict[str, m.JitStored] = {}  # configs made before their machines, until the record has them
        self.registrations_listed = asyncio.Event()
        """Set once GitHub was asked what is registered: a store that lost its tail does not know."""
        self.providers: Mapping[str, Provider] = {}
        self._launches: dict[str, asyncio.Semaphore] = {}
        self._stops: dict[str, asyncio.Semaphore] = {}
        self._rates: dict[str, Rate] = {}
        kinds = (m.DeleteRegistration, m.FetchRun, m.RerunJob)
        self._github_slots = {kind: asyncio.Semaphore(GITHUB_CONCURRENCY) for kind in kinds}
        self._jit_slots: dict[str, asyncio.Semaphore] = {}  # an owner whose limit is used up holds up no other
        self.use(parts)

    def use(self, parts: Parts) -> None:
        """Act through these providers from now on, at their policy's launch rates."""
        self.providers = parts.providers
        for name in parts.providers:
            self._launches.setdefault(name, asyncio.Semaphore(CONCURRENCY))
            self._stops.setdefault(name, asyncio.Semaphore(CONCURRENCY))
        rates = {name: provider.launch_rate for name, provider in parts.policy.providers.items()}
        self._rates = {name: Rate(self.clock, rate) for name, rate in rates.items() if rate}

    def provider_of(self, command: m.Command) -> str:
        """Whom the command goes to: a provider's name, or `github`."""
        if isinstance(command, m.CreateMachine | m.StopMachine):
            return self.world.runners[command.runner_id].offer.provider
        return "github"

    def version(self, command: m.Command) -> object:
        """Differs once the record that the command is about has taken in a result."""
        if isinstance(command, m.FetchRun):
            return None
        if isinstance(command, m.RerunJob):
            rerun = self.world.reruns.get(command.job_key)
            return None if rerun is None else (rerun.state, rerun.failures)
        runner = self.world.runners.get(command.runner_id)
        return None if runner is None else (runner.state, runner.failures, runner.retry_ms, runner.registration_id)

    async def perform(self, command: m.Command) -> m.Event | None:
        """Do it and say what is known now. None: nothing to report (the record moved on, or not yet)."""
        if isinstance(command, m.FetchRun):
            async with self._github_slots[m.FetchRun]:
                return await self._fetch_run(command)
        if isinstance(command, m.RerunJob):
            async with self._github_slots[m.RerunJob]:
                return await self._rerun(command)
        runner = self.world.runners.get(command.runner_id)
        if runner is None:
            return None
        if self.observe:
            return self._observed(runner) if isinstance(command, m.CreateMachine) else None
        match command:
            case m.CreateMachine():
                return await self._create(runner)
            case m.CreateJit():
                slots = self._jit_slots.setdefault(owner_of(runner.target), asyncio.Semaphore(GITHUB_CONCURRENCY))
                async with slots:
                    return await self._on_github(runner, self._create_jit)
            case m.DeleteRegistration():
                async with self._github_slots[m.DeleteRegistration]:
                    return await self._on_github(runner, self._delete_registration)
            case m.StopMachine():
                return await self._stop(runner)

    # ---- machines ------------------------------------------------------------------------------------------

    async def _create(self, runner: Runner) -> m.Event | None:
        provider = self.providers.get(runner.offer.provider)
        if provider is None:
            why = f"provider {runner.offer.provider} is not in the policy any more"
            return m.CreateFailed(self._now(), runner.id, m.Trouble.REFUSED, why)
        if rate := self._rates.get(runner.offer.provider):
            await rate.acquire(lambda: runner.state in _TO_CREATE)
        async with self._launches[runner.offer.provider]:
            if runner.state not in _TO_CREATE:
                return None
            try:
                async with asyncio.timeout(CALL_LIMIT_S):
                    instance = await provider.launch(self.spec(runner))
            except (OutcomeUnknown, TimeoutError) as error:
                return m.CreateUnknown(self._now(), runner.id, _words(error))
            except ProviderError as error:
                return m.CreateFailed(self._now(), runner.id, error.trouble, _words(error), error.retry_after_ms)
            except Exception as error:  # nobody knows what happened: the machine may exist
                log.exception("launch failed in an unforeseen way", extra={"runner": runner.id})
                return m.CreateUnknown(self._now(), runner.id, _words(error))
        return m.MachineCreated(self._now(), runner.id, instance.ref)

    def _observed(self, runner: Runner) -> m.Event | None:
        """`--observe`: an intent stands while its job waits (a ready floor always does) and gets no machine."""
        job = self.world.jobs.get(runner.launched_for)
        if not runner.launched_for or (job is not None and job.state is JobState.QUEUED):
            return None
        return m.CreateFailed(self._now(), runner.id, m.Trouble.OBSERVED, "--observe launches nothing")

    async def _stop(self, runner: Runner) -> m.Event | None:
        provider = self.providers.get(runner.offer.provider)
        if provider is None:
            why = f"{runner.offer.provider} is not in the policy any more: its machine {runner.ref} still runs"
            return m.EffectFailed(self._now(), runner.id, m.Trouble.REFUSED, why, 60_000)
        async with self._stops[runner.offer.provider]:
            if runner.state is not RunnerState.STOPPING:
                return None
            try:
                async with asyncio.timeout(CALL_LIMIT_S):
                    await provider.terminate(runner.ref)
            except (ProviderError, TimeoutError) as error:
                trouble = error.trouble if isinstance(error, ProviderError) else m.Trouble.TRANSIENT
                return m.EffectFailed(self._now(), runner.id, trouble, _words(error))
        return m.StopAccepted(self._now(), runner.id)

    def spec(self, runner: Runner) -> LaunchSpec:
        """The launch as frozen in the record: byte-identical on every replay."""
        terms = runner.terms
        boot = launch_data(
            self.fleet,
            runner.id,
            runner.offer,
            runner.fund,
            terms.access,
            terms.ready_max_age_ms // 1000,
            terms.max_lifetime_ms // 1000,
        )
        if terms.notice:
            boot["notice"] = True
        if terms.userdata:
            boot["jit"] = self._seal.unseal(runner.id, base64.b64decode(runner.sealed))
            if not boot["jit"]:
                raise Refused("its JIT config cannot be opened: was AUTOSCALER_FLEET_KEY_FILE changed?")
        return LaunchSpec(
            fleet=self.fleet.name,
            runner_id=runner.id,
            runner_type=runner.runner_type,
            offer=runner.offer,
            price=runner.price,
            fund=runner.fund,
            hold=sum(part.amount for part in runner.hold),
            image=terms.image,
            disk_gib=terms.disk_gib,
            boot=json.dumps(boot, sort_keys=True, separators=(",", ":")),
            lifetime_ms=terms.boot_timeout_ms + terms.ready_max_age_ms + terms.max_lifetime_ms,
        )

    # ---- GitHub --------------------------------------------------------------------------------------------

    async def _on_github(
        self, runner: Runner, act: Callable[[Runner], Awaitable[m.Event | None]]
    ) -> m.Event | None:
        try:
            return await act(runner)
        except GitHubError as error:
            return m.EffectFailed(self._now(), runner.id, error.trouble, _words(error), error.retry_after_ms)
        except StoreAway as error:  # the registration is made, its config lost: made anew with the next try
            return m.EffectFailed(self._now(), runner.id, m.Trouble.TRANSIENT, _words(error))
        except StaleFence:
            return None  # what is still to be done is the new leader's to know

    async def _create_jit(self, runner: Runner) -> m.Event | None:
        """A registration whose answer was lost is deleted before another is made; one that is online is kept.

        It waits here for GitHub's limits, in its place in the queue: a failure would send it to the queue's end.
        """
        await self.registrations_listed.wait()
        await self.github.jit_turn(runner.target)
        early = runner.terms.userdata and runner.state is RunnerState.PLANNED
        if runner.registration_id or not (early or runner.state is RunnerState.REGISTERING):
            self._early.pop(runner.id, None)
            return None
        if early and runner.id in self._early:
            return self._early[runner.id]  # the record has not taken it in yet: another one would void it
        name = self.runner_name(runner)
        try:
            jit = await self.github.create_jit(runner.target, name, runner.terms.labels)
        except NameTaken:
            found = await self.github.find_runner(runner.target, name)
            if found is not None and (found.online or found.busy):
                return m.RegistrationSeen(self._now(), runner.id, found.id, found.online, found.busy)
            if found is not None:
                await self.github.delete_runner(runner.target, found.id)
            jit = await self.github.create_jit(runner.target, name, runner.terms.labels)
        await self.put_jit(runner.id, jit.config)
        sealed = base64.b64encode(self._seal.seal(runner.id, jit.config)).decode() if early else ""
        stored = m.JitStored(self._now(), runner.id, jit.registration_id, sealed)
        if early:
            self._early[runner.id] = stored
        return stored

    async def _delete_registration(self, runner: Runner) -> m.Event | None:
        if runner.state not in (RunnerState.LEAVING, RunnerState.STOPPING):
            return None
        registration_id = runner.registration_id
        if not registration_id and runner.target:
            found = await self.github.find_runner(runner.target, self.runner_name(runner))
            registration_id = found.id if found else 0
        if registration_id and runner.target:
            try:
                await self.github.delete_runner(runner.target, registration_id)
            except RunnerBusy:
                return m.RegistrationBusy(self._now(), runner.id)
        return m.RegistrationDeleted(self._now(), runner.id)

    async def _fetch_run(self, command: m.FetchRun) -> m.Event | None:
        try:
            facts = await self.github.run_facts(command.repository, command.run_id)
        except GitHubError as error:
            log.warning("cannot learn about run %s of %s: %s", command.run_id, command.repository, error)
            return None
        return m.RunFactsLearned(self._now(), command.repository, command.run_id, facts)

    async def _rerun(self, command: m.RerunJob) -> m.Event | None:
        """The client looks whether there is a new attempt before it asks for one: an answer may have been lost."""
        rerun = self.world.reruns.get(command.job_key)
        if rerun is None or rerun.state is not RerunState.DUE:
            return None
        if self.observe:
            return m.RerunAnswered(self._now(), rerun.job_key, RerunState.REFUSED, "--observe asks for nothing")
        attempt = int(rerun.job_key.rpartition(".")[2])
        wanted = (rerun.run_id, attempt, rerun.job_id, rerun.name, rerun.ended_ms)
        try:
            made = await self.github.rerun_job(rerun.repository, *wanted)
        except GitHubError as error:
            state = RerunState.REFUSED if error.trouble is m.Trouble.REFUSED else RerunState.DUE
            return m.RerunAnswered(self._now(), rerun.job_key, state, _words(error), error.retry_after_ms)
        state = RerunState.ASKED if made else RerunState.DUE
        return m.RerunAnswered(self._now(), rerun.job_key, state, "" if made else "its run has not ended yet")

    def runner_name(self, runner: Runner) -> str:
        return f"{self.fleet.name}-{runner.id}"

    def _now(self) -> UnixMs:
        return self.clock.now_ms()


def _words(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:500]
