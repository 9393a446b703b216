"""The SDK's asynchronous client: made at first use, its own retries off, operations waited for with a deadline.

What the SDK of virtual machines does not know (network resources, the list of a resource group) goes as plain REST
through the same pipeline.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from providers.azure.errors import of_operation, translate
from providers.azure.settings import AzureSettings
from providers.base import Clock, OutcomeUnknown, ProviderError
from providers.retry import ask
from scheduling.model import DurationMs

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
OPERATION_LIMIT_MS: DurationMs = 100_000
POLL_MS = (1_000, 1_000, 2_000)
"""First looks at an operation: no room is said within seconds. Then as often as Azure asks for."""
LATER_POLL_MS: DurationMs = 5_000
LONGEST_POLL_MS: DurationMs = 15_000
NO_TOKEN_UNTIL = 2**40

T = TypeVar("T")


class Arm:
    """One resource group. Answers are the SDK's models, or JSON as dicts where the SDK has none."""

    def __init__(self, name: str, settings: AzureSettings, endpoint: str | None, clock: Clock) -> None:
        self._name = name
        self._settings = settings
        self._endpoint = endpoint
        self._clock = clock
        self._making: asyncio.Task[None] | None = None
        self._client: Any = None
        self._credential: Any = None
        self._key = ""
        self.date = ""  # of the last answer to plain REST, as HTTP has it

    async def public_key(self) -> str:
        """An SSH key that Azure demands and nobody holds: made once a process, its private half forgotten."""
        if not self._key:
            self._key = await asyncio.to_thread(_forgotten_key)
        return self._key

    async def create(self, vm: str, body: Mapping[str, Any]) -> Any:
        """PUT under a fixed name where there is none, never repeated: the first answer. `NameExists` otherwise."""

        async def put(client: Any, options: dict[str, Any]) -> Any:
            poller = await client.virtual_machines.begin_create_or_update(
                self._settings.resource_group,
                vm,
                io.BytesIO(json.dumps(body).encode()),
                headers={"If-None-Match": "*"},
                polling=False,
                cls=lambda response, *_: response.http_response,
                **options,
            )
            return await poller.result()

        return await self._call(f"create {vm}", put, launching=True)

    async def get(self, vm: str) -> Any:
        """A machine, with what became of its creation. `Absent` where there is none."""

        async def get(client: Any, options: dict[str, Any]) -> Any:
            return await client.virtual_machines.get(
                self._settings.resource_group, vm, expand="instanceView", **options
            )

        return await self._ask(f"get {vm}", get)

    async def delete(self, vm: str) -> None:
        """Ask for the machine's end, without a wait for its shutdown. An absent one is success."""

        async def delete(client: Any, options: dict[str, Any]) -> None:
            await client.virtual_machines.begin_delete(
                self._settings.resource_group, vm, force_deletion=True, polling=False, **options
            )

        await self._ask(f"delete {vm}", delete)

    async def machines(self) -> AsyncIterator[Any]:
        """Every machine of the resource group, all pages. A page that stays away raises."""
        link: str | None = None
        while True:

            async def page(client: Any, options: dict[str, Any], link: str | None = link) -> tuple[list[Any], Any]:
                pages = client.virtual_machines.list(self._settings.resource_group, **options).by_page(link)
                found = [machine async for machine in await anext(pages)]
                return found, pages.continuation_token

            found, link = await self._ask("list machines", page)
            for machine in found:
                yield machine
            if not link:
                return

    async def whole(self, path: str, **query: str) -> Any:
        """GET of any path of the API (`/subscriptions/...`): the body as JSON."""
        return await self._json("GET", path, query)

    async def whole_pages(self, path: str, **query: str) -> AsyncIterator[Any]:
        """Every element of `value` over all pages."""
        page = await self.whole(path, **query)
        while True:
            for element in page["value"]:
                yield element
            if not page.get("nextLink"):
                return
            page = await self._json("GET", page["nextLink"], {})

    async def rest(self, method: str, path: str, **query: str) -> Any:
        """Plain REST below the resource group, may be repeated: the body as JSON, None where there is none."""
        group = f"/subscriptions/{self._settings.subscription}/resourceGroups/{self._settings.resource_group}"
        return await self._json(method, f"{group}/{path}", query)

    async def rest_pages(self, path: str, **query: str) -> AsyncIterator[Any]:
        """Every element of `value` over all pages."""
        group = f"/subscriptions/{self._settings.subscription}/resourceGroups/{self._settings.resource_group}"
        async for element in self.whole_pages(f"{group}/{path}", **query):
            yield element

    async def finished(self, vm: str, answer: Any) -> None:
        """Wait for the operation that a create began. Raises why it failed, or `OutcomeUnknown` when late."""
        deadline_ms = self._clock.now_ms() + OPERATION_LIMIT_MS
        link = answer.headers.get("Azure-AsyncOperation")
        said = {"status": "InProgress"} if link else {"status": "Succeeded"}
        waits, later_ms = iter(POLL_MS), _later_ms(answer)
        where = f"{self._name} create {vm}"
        while said["status"] not in ("Succeeded", "Failed", "Canceled"):
            if self._clock.now_ms() >= deadline_ms:
                raise OutcomeUnknown(f"{where} is not done after {OPERATION_LIMIT_MS // 1000} s")
            await self._clock.sleep(next(waits, later_ms))
            try:
                said = await self._json("GET", link, {})
            except ProviderError as error:
                raise OutcomeUnknown(str(error)) from error
        if said["status"] != "Succeeded":
            failure: Mapping[str, str] = said.get("error") or {}  # type: ignore[assignment]
            raise of_operation(str(failure.get("code") or ""), str(failure.get("message") or ""), where)

    async def close(self) -> None:
        """Release sockets."""
        client, self._client = self._client, None
        credential, self._credential = self._credential, None
        self._making = None
        for each in (client, credential):
            if each is not None:
                await each.close()

    async def _json(self, method: str, url: str, query: Mapping[str, str]) -> Any:
        async def send(client: Any, options: dict[str, Any]) -> Any:
            from azure.core.rest import HttpRequest

            response = await client.send_request(HttpRequest(method, url, params=dict(query)), **options)
            response.raise_for_status()
            self.date = response.headers.get("Date", "")
            return response.json() if response.content else None

        return await self._ask(f"{method} {url.partition('?')[0].rpartition('/resourceGroups/')[2]}", send)

    async def _ask(self, what: str, send: Callable[[Any, dict[str, Any]], Awaitable[T]]) -> T:
        return await ask(self._clock, lambda: self._call(what, send))

    async def _call(
        self, what: str, send: Callable[[Any, dict[str, Any]], Awaitable[T]], *, launching: bool = False
    ) -> T:
        try:
            if self._client is None:
                await self._made()
            return await send(self._client, {"enforce_https": False} if self._plain else {})
        except Exception as error:
            raise translate(error, f"{self._name} {what}", launching=launching) from error

    @property
    def _plain(self) -> bool:
        """Whether the endpoint is an emulator's: no token ever goes over plain HTTP."""
        return (self._endpoint or "").startswith("http://")

    async def _made(self) -> None:
        """Have the client, however many ask for it at once. What fails is tried again by the next call."""
        if self._making is None:
            self._making = asyncio.ensure_future(self._make())
        try:
            await asyncio.shield(self._making)
        except Exception:
            self._making = None
            raise

    async def _make(self) -> None:
        sdk = await asyncio.to_thread(import_module, "azure.mgmt.compute.aio")
        identity = await asyncio.to_thread(import_module, "azure.identity.aio")
        self._credential = _Nobody() if self._plain else await asyncio.to_thread(self._log_in, identity)
        where: dict[str, Any] = {}
        if self._endpoint:
            where = {
                "base_url": self._endpoint,
                "credential_scopes": [f"{self._endpoint.rstrip('/')}/.default"],
            }
        self._client = sdk.ComputeManagementClient(
            self._credential,
            self._settings.subscription,
            retry_total=0,  # its own retries repeat launches too
            connection_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            user_agent="runner-autoscaler",
            **where,
        )

    def _log_in(self, identity: Any) -> Any:
        from azure.core.exceptions import ClientAuthenticationError

        settings = self._settings
        if not settings.client_secret_file:
            return identity.DefaultAzureCredential(managed_identity_client_id=settings.client)
        try:
            secret = Path(settings.client_secret_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ClientAuthenticationError(f"settings.client_secret_file: {error}") from error
        return identity.ClientSecretCredential(settings.tenant, settings.client, secret)


class _Nobody:
    """Credentials for an emulator."""

    async def get_token(self, *_: str, **__: Any) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken("nobody", NO_TOKEN_UNTIL)

    async def close(self) -> None:
        pass


def _later_ms(answer: Any) -> DurationMs:
    value = str(answer.headers.get("Retry-After") or "")
    return min(int(value) * 1000, LONGEST_POLL_MS) if value.isdigit() else LATER_POLL_MS


@cache
def _forgotten_key() -> str:
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = generate_private_key(65537, 2048).public_key()
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
