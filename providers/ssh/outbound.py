"""Calls to one host that calls us: the same four as over SSH, by way of the board that every replica shares.

Level, not edge: what is wanted stands on the board until the host's own report shows it, however often the host,
its program or this process starts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from providers.base import TAG_FLEET, Clock, HostBoard, HostState, OutcomeUnknown, Refused, Transient
from providers.ssh.client import Away, Ended, Full
from providers.ssh.settings import HostSettings
from scheduling.model import DurationMs, UnixMs

ANSWER_S = 20.0
LOOK_S = 0.1
UNHEARD_MS: DurationMs = 120_000
"""So long a host that the store does not know holds up the list: it may be one that the store has lost."""
LAG_MS: DurationMs = 120_000
_HERE = ("call", "folder", "launcher", "slots")
"""Parts of a request that the host itself knows."""


class Outbound:
    """One host. `call` is that of `client.Client`."""

    def __init__(self, provider: str, host: HostSettings, board: HostBoard | None, clock: Clock) -> None:
        self._where = f"{provider}: host {host.name}"
        self._name = f"{provider}/{host.name}"
        self._given = board
        self._clock = clock

    async def call(self, request: Mapping[str, Any], *, launching: bool = False) -> dict[str, Any]:
        """What the host reports. A launch that no report tells of within `ANSWER_S` is `OutcomeUnknown`."""
        if launching:
            return await self._launch(request)
        if request["call"] == "terminate":
            return await self._terminate(str(request["runner_id"]))
        state = await self._board.read(self._name)
        return self._probe(state) if request["call"] == "probe" else await self._list(state, str(request["fleet"]))

    async def close(self) -> None:
        """Nothing is held."""

    @property
    def _board(self) -> HostBoard:
        if self._given is None:
            raise Transient(f"{self._where} calls a running daemon, which this is not")
        return self._given

    # ---- machines ------------------------------------------------------------------------------------------

    async def _launch(self, request: Mapping[str, Any]) -> dict[str, Any]:
        runner_id = str(request["runner_id"])
        state = await self._board.read(self._name)
        asked = runner_id in state.wanted
        if not asked and runner_id not in _leases(state):
            if not state.present:
                raise Away(f"{self._where} is away: {self._silence(state)}")
            if state.paused:
                raise Full(f"{self._where} is paused by {state.paused}")
        launch = {key: value for key, value in request.items() if key not in _HERE}
        try:
            return await self._launched(runner_id, {**launch, "asked_ms": self._clock.now_ms()})
        except Transient as error:
            raise OutcomeUnknown(f"{self._where}: {error}") from error

    async def _launched(self, runner_id: str, launch: Mapping[str, Any]) -> dict[str, Any]:
        asked = 0
        async for state in self._looks():
            if (lease := _leases(state).get(runner_id)) and lease["started"]:
                if not lease["running"]:
                    raise Ended(f"{self._where}: {runner_id} has ended")
                return {"lease": lease}
            said = state.report.get("answers", {}).get(runner_id, {})
            if asked and state.acted >= asked and "error" in said:
                await self._board.withdraw(self._name, runner_id)
                error = {"ended": Ended, "no_capacity": Full}.get(said["error"], Refused)
                raise error(f"{self._where}: {said['text']}")
            if runner_id not in state.wanted:
                asked = await self._board.want(self._name, runner_id, launch)
            elif state.wanted[runner_id] is None:
                raise Ended(f"{self._where}: {runner_id} shall end")
            asked = asked or state.acted + 1
        raise OutcomeUnknown(f"{self._where} was told to launch {runner_id} and has not answered")

    async def _terminate(self, runner_id: str) -> dict[str, Any]:
        """Success once the host has said so, or where it never joined and nothing is on its way to it."""
        state = await self._board.read(self._name)
        if not state.joined and not state.wanted:
            return {"cooled": ""}
        asked = await self._board.want(self._name, runner_id, None)
        if not state.present:
            raise Away(f"{self._where} is away; {runner_id} ends when it is back")
        async for state in self._looks():
            if runner_id not in state.wanted:
                said = state.report.get("answers", {}).get(runner_id, {})
                return {"cooled": said.get("cooled", "") if state.acted >= asked else ""}
        raise Transient(f"{self._where} was told to end {runner_id} and has not answered")

    async def _looks(self) -> AsyncIterator[HostState]:
        """The board, again and again for `ANSWER_S` of real time."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + ANSWER_S
        while True:
            yield await self._board.read(self._name)
            if loop.time() > end_s:
                return
            await asyncio.sleep(LOOK_S)

    # ---- what is there -------------------------------------------------------------------------------------

    async def _list(self, state: HostState, fleet: str) -> dict[str, Any]:
        """The last report, and what was asked for since.

        A host that is away is taken at its word until the timers of its machines have ended them. One that the
        store never knew runs nothing, unless the store has just lost everything: then it has two minutes to call.
        """
        now_ms = self._clock.now_ms()
        if not state.joined and not state.report:
            since_ms = state.since_ms or await self._board.look_for(self._name)
            if now_ms < since_ms + UNHEARD_MS:
                raise Away(f"{self._where} is away: {self._silence(state)}")
        leases = [
            lease
            for lease in _leases(state).values()
            if state.present or now_ms < _over_ms(state.reported_ms, lease)
        ]
        known = _leases(state)
        for runner_id, launch in state.wanted.items():
            if launch is None or runner_id in known:
                continue
            if now_ms < _over_ms(launch["asked_ms"], launch):
                leases.append({**launch, "launched_ms": launch["asked_ms"], "started": False, "running": False})
            else:
                await self._board.withdraw(self._name, runner_id)
        return {"leases": [lease for lease in leases if lease["tags"].get(TAG_FLEET) == fleet]}

    def _probe(self, state: HostState) -> dict[str, Any]:
        if not state.present:
            raise Away(f"{self._where} is away: {self._silence(state)}")
        if state.paused:
            raise Away(f"{self._where} is paused by {state.paused}")
        return dict(state.report["has"])

    def _silence(self, state: HostState) -> str:
        if not state.joined:
            return "it has not joined; `autoscaler host join` on it does that"
        if not state.reported_ms:
            return "it has joined and not called yet"
        minutes = (self._clock.now_ms() - state.reported_ms) // 60_000
        return f"it has not called for {minutes} min; look at `systemctl status autoscaler-host` there"


def _leases(state: HostState) -> dict[str, dict[str, Any]]:
    return {lease["runner_id"]: lease for lease in state.report.get("leases", ())}


def _over_ms(from_ms: UnixMs, lease: Mapping[str, Any]) -> UnixMs:
    """From when on the timer of a machine has surely ended it."""
    return int(from_ms + lease["lifetime_s"] * 1000 + LAG_MS)
