"""Which App asks: the one with most left, and the next one when GitHub refuses it, inside one call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from githubkit.response import Response

from autoscaler.github.apps import App, AppCredentials, Installation
from autoscaler.github.budget import Budget, Need
from autoscaler.github.call import Call
from autoscaler.github.connection import Connection, Lost
from autoscaler.github.errors import GitHubError, JitUnknown, NotFound, transient
from scheduling.messages import Trouble
from scheduling.model import DurationMs, UnixMs

log = logging.getLogger(__name__)

FOREVER_MS: UnixMs = 2**53
LOOK_AGAIN_MS: DurationMs = 15_000
_SEVERITY = {Trouble.TRANSIENT: 0, Trouble.UNAUTHORIZED: 1, Trouble.REFUSED: 2}


class Router:
    """Sends each call through an installation of one of our Apps, or with a personal token where there is one."""

    def __init__(self, apps: Sequence[AppCredentials], connection: Connection, token: str | None) -> None:
        self.apps = [App(each, connection) for each in apps]
        self.clock = connection.clock
        self._person = None if token is None else _person(token, connection)

    async def warm(self) -> None:
        """Finds the installations and mints their tokens, before the first burst. Raises for a bad private key."""
        for app in self.apps:
            await app.key()
        await asyncio.gather(*(self._warm(app) for app in self.apps))

    async def call(self, owner: str, call: Call) -> Response[Any]:
        """A 2xx answer. Raises `GitHubError`.

        Limits, 5xx, lost answers and missing permissions lead on to the owner's next App; what GitHub says of the
        request itself (409, 422) is final. With `collection`, `NotFound` is proof: the App may look into the
        collection and the entry is not there. A POST that got no answer is `JitUnknown` and goes no further.
        """
        failures: list[GitHubError] = []
        for installation in await self._candidates(owner, call.need, failures):
            try:
                return await self.through(installation, call)
            except GitHubError as error:
                if error.final or (call.collection and isinstance(error, NotFound)):
                    raise
                failures.append(error)
                log.info("App %s failed, the next one is asked: %s", installation.app, error)
        if not failures:
            apps = ", ".join(app.id for app in self.apps)
            text = f"no GitHub App of ours ({apps}) is installed at {owner}: install one in the App's settings"
            missing = text if apps else "no GitHub App is configured: set AUTOSCALER_GITHUB_APPS_FILE"
            raise GitHubError(Trouble.UNAUTHORIZED, missing)
        raise min(failures, key=lambda each: (_SEVERITY[each.trouble], each.retry_after_ms))

    async def turn(self, owner: str, need: Need) -> None:
        """Waits while GitHub refuses such calls of all of an owner's Apps: for a limit's end or the next reset."""
        while held_ms := min((each.held_ms(need) for each in await self._candidates(owner, need, [])), default=0):
            await self.clock.sleep(min(held_ms, LOOK_AGAIN_MS))

    async def through(self, installation: Installation, call: Call) -> Response[Any]:
        """One App's answer; every failure as a `GitHubError`."""
        await installation.admit(call.need)
        try:
            return await self._proven(installation, call)
        except Lost as lost:
            sent, detail = lost.sent, str(lost)
        raise JitUnknown(Trouble.TRANSIENT, detail) if sent and call.method == "POST" else transient(detail)

    async def _proven(self, installation: Installation, call: Call) -> Response[Any]:
        try:
            return await installation.send(call)
        except NotFound:
            if call.collection:
                await installation.sees(call.collection)
            raise

    async def listed(self) -> list[Installation]:
        """All installations of all Apps, asked anew. Raises `GitHubError` if any App cannot tell."""
        return [each for app in self.apps for each in await app.refresh()]

    def budgets(self) -> list[Budget]:
        known = [each for app in self.apps for each in app.installations.values()]
        known += [self._person] if self._person else []
        stated = [budget for each in known for budget in each.budgets.all()]
        return stated + [each.jit_budget() for each in known if each.app != PERSON]

    async def _candidates(self, owner: str, need: Need, failures: list[GitHubError]) -> list[Installation]:
        """The installations at an owner, best first; an App that could not be asked adds to `failures`."""
        if self._person:
            return [self._person]
        answers = await asyncio.gather(*(app.installation(owner) for app in self.apps), return_exceptions=True)
        found: list[Installation] = []
        for answer in answers:
            if isinstance(answer, Installation):
                found.append(answer)
            elif isinstance(answer, GitHubError):
                failures.append(answer)
            elif isinstance(answer, BaseException):
                raise answer
        return sorted(found, key=lambda each: each.rank(need))

    async def _warm(self, app: App) -> None:
        try:
            await asyncio.gather(*(each.token() for each in await app.refresh()))
        except GitHubError as error:
            log.warning("GitHub is not ready for App %s: %s", app.id, error)


PERSON = "token"


def _person(token: str, connection: Connection) -> Installation:
    """A personal access token in the place of an installation everywhere."""

    async def mint() -> tuple[str, UnixMs]:
        return token, FOREVER_MS

    return Installation(PERSON, "", connection, mint)
