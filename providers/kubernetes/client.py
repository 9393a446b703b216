"""REST calls to one namespace: the SDK brings configuration, credentials and TLS, bodies stay plain JSON."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

import aiohttp

from providers.base import Clock, ProviderError, Unauthorized
from providers.kubernetes.errors import ApiError, Expired, translate
from providers.kubernetes.settings import KubernetesSettings
from providers.retry import ATTEMPTS, ask

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient, Configuration

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
PAGE = 200
JSON = {"Accept": "application/json", "Content-Type": "application/json"}


class Api:
    """Calls by resource (`pods`, `secrets`) in the namespace of the settings, or of the whole cluster where its
    path begins with `/` (`/nodes`), or of another API group (`/apis/...`). Connects at the first call."""

    def __init__(self, name: str, settings: KubernetesSettings, endpoint: str | None, clock: Clock) -> None:
        self._name = f"{name} ({settings.namespace})"
        self._settings = settings
        self._endpoint = endpoint
        self._clock = clock
        self._client: ApiClient | None = None
        self._connecting = asyncio.Lock()

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        launching: bool = False,
    ) -> dict[str, Any]:
        """One request, never repeated except after a 401, when credentials are read anew."""
        where = f"{self._name} {method} {path}"
        try:
            try:
                return await self._request(method, path, query, body)
            except ApiError as error:
                if error.status != 401 or self._client is None:
                    raise
                self._client.configuration.api_key = (await self._configuration()).api_key
            return await self._request(method, path, query, body)
        except ProviderError:
            raise
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise translate(error, where, launching=launching) from error

    async def ask(
        self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """A request that may be repeated: tried again a few times while it is `Transient`."""
        return await ask(self._clock, lambda: self.call(method, path, query, body))

    async def list_all(self, resource: str, selector: str = "") -> list[dict[str, Any]]:
        """All of it, in chunks of one consistent snapshot. A snapshot that expires on the way is begun anew.

        https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
        """
        for _ in range(ATTEMPTS):
            try:
                return await self._list(resource, selector)
            except Expired as error:
                expired = error
        raise expired

    async def watch(self, resource: str, name: str, version: str) -> AsyncGenerator[dict[str, Any]]:
        """Events of one object after that resource version, until the server ends the stream.

        https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": version,
        }
        where = f"{self._name} WATCH {resource}"
        try:
            answer = await self._send("GET", resource, query, None, read_timeout_s=None)
            try:
                while line := await answer.content.readline():
                    yield json.loads(line)
            finally:
                answer.close()
        except (ApiError, aiohttp.ClientError, OSError, ValueError) as error:
            raise translate(error, where) from error

    async def date(self) -> str:
        """The server's time, as its answers' Date header has it; empty where they have none."""
        try:
            answer = await self._send("GET", "pods", {"limit": 1}, None, READ_TIMEOUT_S)
            async with answer:
                return str(answer.headers.get("Date", ""))
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError) as error:
            raise translate(error, f"{self._name} GET pods") from error

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _list(self, resource: str, selector: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        query = {"labelSelector": selector, "limit": PAGE}
        while True:
            page = await self.ask("GET", resource, query)
            found += page["items"]
            if not (more := page["metadata"].get("continue")):
                return found
            query = {**query, "continue": more}

    async def _request(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        answer = await self._send(method, path, query, body, READ_TIMEOUT_S)
        async with answer:
            found: dict[str, Any] = json.loads(await answer.read())
            return found

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
        read_timeout_s: float | None,
    ) -> aiohttp.ClientResponse:
        """The answer's head; a failure is raised with its `Status`. Nothing of bodies is ever logged."""
        client = self._client or await self._connect()
        where = path if path.startswith("/") else f"/namespaces/{self._settings.namespace}/{path}"
        answer: aiohttp.ClientResponse = await client.call_api(
            where if where.startswith("/apis/") else f"/api/v1{where}",
            method,
            query_params=list((query or {}).items()),
            header_params=dict(JSON),
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT_S, sock_read=read_timeout_s),
        )
        if answer.status < 300:
            return answer
        async with answer:
            raise _failure(answer, await answer.read())

    async def _connect(self) -> ApiClient:
        from kubernetes_asyncio.client import ApiClient

        async with self._connecting:
            if self._client is None:
                client = ApiClient(await self._configuration())
                client.user_agent = "runner-autoscaler"
                self._client = client
            return self._client

    async def _configuration(self) -> Configuration:
        """Address, authority and credentials, read from where they lie."""
        from kubernetes_asyncio import client, config

        configuration, settings = client.Configuration(), self._settings
        try:
            if settings.kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                await config.load_kube_config(
                    config_file=settings.kubeconfig and str(settings.kubeconfig),
                    context=settings.context,
                    client_configuration=configuration,
                    persist_config=False,
                )
        except (config.ConfigException, OSError, ValueError) as error:
            raise Unauthorized(f"{self._name}: no credentials for the cluster: {error}") from error
        if self._endpoint:
            configuration.host = self._endpoint.rstrip("/")
        return configuration


def status_of(error: BaseException) -> int:
    """HTTP status behind a translated error; 0 when there was no answer."""
    return error.__cause__.status if isinstance(error.__cause__, ApiError) else 0


def reason_of(error: BaseException) -> str:
    """`reason` of the Status behind a translated error; empty when there was none."""
    return error.__cause__.reason if isinstance(error.__cause__, ApiError) else ""


def _failure(answer: aiohttp.ClientResponse, body: bytes) -> ApiError:
    wait = answer.headers.get("Retry-After", "")
    retry_after_ms = int(wait) * 1000 if wait.isdigit() else 0
    try:
        said = json.loads(body)
        reason, message = str(said.get("reason", "")), str(said.get("message", ""))
    except (ValueError, AttributeError):
        reason, message = "", body[:300].decode(errors="replace")
    return ApiError(answer.status, reason, message, retry_after_ms)
