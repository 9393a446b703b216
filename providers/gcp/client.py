"""The SDK's REST clients behind one bounded thread pool: made in the pool at first use, importing takes seconds.

The SDK's own waiting for operations asks the public host whatever the endpoint is, and holds a thread: operations
are asked for by our own client, and waited for on the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from providers.base import Clock, OutcomeUnknown, ProviderError, Transient
from providers.gcp.errors import translate
from providers.retry import ask
from scheduling.model import DurationMs

THREADS = 16
TIMEOUT_S = 30.0
PAGE = 200
LARGE_PAGE = 500
OPERATION_LIMIT_MS: DurationMs = 90_000
POLL_MS = (500, 1_000, 1_500, 2_000, 3_000)
"""Between two looks at an operation; the last one goes on."""
LINKS = "https://www.googleapis.com/compute/v1/"
SCOPES = (
    "https://www.googleapis.com/auth/compute",
    "https://www.googleapis.com/auth/cloudplatformprojects.readonly",  # testIamPermissions, for `provider check`
)
PUBLIC = "https://compute.googleapis.com"


class Compute:
    """One project's Compute Engine. Requests are dicts in the SDK's spelling, answers the SDK's messages."""

    def __init__(
        self, name: str, project: str | None, credentials_file: str | None, endpoint: str | None, clock: Clock
    ) -> None:
        self._name = name
        self._project = project
        self._credentials_file = credentials_file
        self._endpoint = endpoint
        self._clock = clock
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=f"gcp-{name}")
        self._making = threading.Lock()
        self._credentials: Any = None
        self._clients: dict[str, Any] = {}
        self.date = ""  # of the last answer to `rest`, as HTTP has it

    async def project(self) -> str:
        """The project of the settings, or else the one that the credentials name."""
        if self._project is None:
            await self._in_pool(f"{self._name}: credentials", False, self._log_in)
        assert self._project
        return self._project

    async def call(self, client: str, method: str, /, *, launching: bool = False, **request: Any) -> Any:
        """One request, never repeated. A cancelled call goes on in its thread: its outcome is unknown."""
        where = f"{self._name} {request.get('zone', '')} {client}.{method}".replace("  ", " ")
        request = {"project": await self.project(), **request}
        return await self._in_pool(where, launching, self._request, client, method, request)

    async def ask(self, client: str, method: str, /, **request: Any) -> Any:
        """A request that may be repeated: tried again a few times while it is `Transient`."""
        return await ask(self._clock, lambda: self.call(client, method, **request))

    async def rest(self, method: str, path: str, body: Any = None) -> Any:
        """What the SDK's clients here have no method for: JSON of `compute/v1/PATH`, or of an absolute URL."""
        url = path if "://" in path else f"{self._endpoint or PUBLIC}/compute/v1/{path.lstrip('/')}"
        return await ask(
            self._clock,
            lambda: self._in_pool(f"{self._name} {method} {path}", False, self._send, method, url, body),
        )

    async def permissions(self, needed: Iterable[str]) -> Any:
        """Of those, the permissions that the credentials have in the project."""
        home = self._endpoint or "https://cloudresourcemanager.googleapis.com"
        url = f"{home}/v1/projects/{await self.project()}:testIamPermissions"
        return await self.rest("POST", url, {"permissions": list(needed)})

    async def aggregated(self, client: str, key: str, /, *, wanted: str) -> AsyncIterator[tuple[str, Any]]:
        """(zone, resource) over all zones and pages. A zone that did not answer raises: half a list is no list."""
        token = ""
        while True:
            page = await self.ask(client, "aggregated_list", filter=wanted, max_results=PAGE, page_token=token)
            _whole(page, f"{self._name} {client}.aggregated_list")
            for scope, found in page.items.items():
                for resource in getattr(found, key):
                    yield scope.rpartition("/")[2], resource
            token = page.next_page_token
            if not token:
                return

    async def in_zone(self, client: str, zone: str) -> AsyncIterator[Any]:
        """Every resource of a zone's own list, all pages."""
        token = ""
        while True:
            page = await self.ask(client, "list", zone=zone, max_results=LARGE_PAGE, page_token=token)
            for resource in page.items:
                yield resource
            token = page.next_page_token
            if not token:
                return

    async def operations(self, zone: str, kind: str, machine: str) -> list[Any]:
        """Operations of that kind on one machine, the first page. Source: sample "List preemption history"."""
        place = f"projects/{await self.project()}/zones/{zone}/instances/{machine}"
        wanted = f'operationType="{kind}" AND targetLink="{LINKS}{place}"'
        page = await self.ask("zone_operations", "list", zone=zone, filter=wanted, max_results=PAGE)
        return list(page.items)

    async def finished(self, zone: str, operation: Any) -> Any:
        """The same operation, done. `OutcomeUnknown` when it is not in time, or cannot be asked for."""
        deadline_ms = self._clock.now_ms() + OPERATION_LIMIT_MS
        waits = iter(POLL_MS)
        while operation.status != operation.Status.DONE:
            if self._clock.now_ms() >= deadline_ms:
                limit = f"{OPERATION_LIMIT_MS // 1000} s"
                raise OutcomeUnknown(f"{self._name} {zone}: operation {operation.name} is not done after {limit}")
            await self._clock.sleep(next(waits, POLL_MS[-1]))
            try:
                operation = await self.ask("zone_operations", "get", zone=zone, operation=operation.name)
            except ProviderError as error:
                raise OutcomeUnknown(str(error)) from error
        return operation

    def close(self) -> None:
        """Release sockets and threads; a call under way ends by its own timeout."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for client in self._clients.values():
            client.transport.close()

    async def _in_pool(self, where: str, launching: bool, work: Any, /, *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, work, *arguments)
        except Exception as error:
            raise translate(error, where, launching=launching) from error

    def _request(self, client: str, method: str, request: dict[str, Any]) -> Any:
        answer = getattr(self._client(client), method)(request=request, retry=None, timeout=TIMEOUT_S)
        return next(iter(answer.pages)) if method.endswith("list") else answer

    def _send(self, method: str, url: str, body: Any) -> Any:
        session = self._client("instances").transport._session
        answer = session.request(method, url, json=body, timeout=TIMEOUT_S)
        self.date = answer.headers.get("Date", "")
        if not answer.ok:
            from google.api_core.exceptions import from_http_response

            raise from_http_response(answer)  # type: ignore[no-untyped-call]
        return answer.json()

    def _log_in(self) -> None:
        """Find credentials, and with them a project. Over plain HTTP (an emulator) none are sent."""
        import google.auth
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import DefaultCredentialsError
        from google.oauth2 import service_account

        found: Any = None
        if (self._endpoint or "").startswith("http://"):
            self._credentials = AnonymousCredentials()  # type: ignore[no-untyped-call]
        elif self._credentials_file:
            try:
                self._credentials = service_account.Credentials.from_service_account_file(  # type: ignore[no-untyped-call]
                    self._credentials_file, scopes=SCOPES
                )
            except (OSError, ValueError) as error:
                raise DefaultCredentialsError(f"settings.credentials_file: {error}") from error  # type: ignore[no-untyped-call]
            found = self._credentials.project_id
        else:
            self._credentials, found = google.auth.default(scopes=SCOPES)
        self._project = self._project or found
        if not self._project:
            raise DefaultCredentialsError("no project: name one in settings.project")  # type: ignore[no-untyped-call]

    def _client(self, name: str) -> Any:
        with self._making:
            if name not in self._clients:
                from google.cloud import compute_v1

                if self._credentials is None:
                    self._log_in()
                kinds: dict[str, Any] = {
                    "accelerator_types": compute_v1.AcceleratorTypesClient,
                    "disks": compute_v1.DisksClient,
                    "instances": compute_v1.InstancesClient,
                    "machine_types": compute_v1.MachineTypesClient,
                    "zone_operations": compute_v1.ZoneOperationsClient,
                }
                made = kinds[name](
                    credentials=self._credentials,
                    client_options={"api_endpoint": self._endpoint} if self._endpoint else None,
                    transport="rest",
                )
                session = made.transport._session
                for scheme in ("https://", "http://"):  # its own pool keeps ten connections
                    session.mount(scheme, type(session.get_adapter(scheme))(pool_maxsize=THREADS))
                self._clients[name] = made
            return self._clients[name]


def _whole(page: Any, where: str) -> None:
    """Raise unless every zone answered. A zone without anything says so in a warning of its own."""
    missing = list(page.unreachables)
    missing += [
        scope.rpartition("/")[2]
        for scope, found in page.items.items()
        if found.warning.code and found.warning.code != "NO_RESULTS_ON_PAGE"
    ]
    if page.warning.code and page.warning.code != "NO_RESULTS_ON_PAGE":
        missing.append(page.warning.message or page.warning.code)
    if missing:
        raise Transient(f"{where}: no answer from {', '.join(missing)}")
