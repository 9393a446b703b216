"""boto3's clients of one service behind one bounded thread pool: one a region, made in the pool at first use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from providers.aws.errors import translate
from providers.base import Clock
from providers.retry import ask

THREADS = 16
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30


class Service:
    """Calls by operation name, as boto3 spells them (`run_instances`). Each answer is the service's, as a dict."""

    def __init__(self, service: str, name: str, profile: str | None, endpoint: str | None, clock: Clock) -> None:
        self._service = service
        self._name = name
        self._profile = profile
        self._endpoint = endpoint
        self._clock = clock
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=f"aws-{name}")
        self._making = threading.Lock()
        self._session: Any = None
        self._clients: dict[str, Any] = {}

    async def call(self, region: str, operation: str, /, *, launching: bool = False, **parameters: Any) -> Any:
        """One request, never repeated. A cancelled call goes on in its thread: its outcome is unknown."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, self._request, region, operation, parameters)
        except Exception as error:
            raise translate(error, f"{self._name} ({region}) {operation}", launching=launching) from error

    async def ask(self, region: str, operation: str, /, **parameters: Any) -> Any:
        """A request that may be repeated: tried again a few times while it is `Transient`."""
        return await ask(self._clock, lambda: self.call(region, operation, **parameters))

    async def ask_quota(self, region: str, code: str) -> Any:
        """A quota of EC2, from AWS's service for quotas."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, self._quota, region, code)
        except Exception as error:
            raise translate(error, f"{self._name} ({region}) get_service_quota") from error

    async def pages(self, region: str, operation: str, key: str, /, **parameters: Any) -> AsyncIterator[Any]:
        """Every element of `key` over all pages. A page that stays away raises: half a list is no list."""
        token: dict[str, str] = {}
        while True:
            page = await self.ask(region, operation, **parameters, **token)
            for element in page[key]:
                yield element
            if not page.get("NextToken"):
                return
            token = {"NextToken": page["NextToken"]}

    def close(self) -> None:
        """Release sockets and threads; a call under way ends by its own timeout."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for client in self._clients.values():
            client.close()

    def _request(self, region: str, operation: str, parameters: dict[str, Any]) -> Any:
        return getattr(self._client(region), operation)(**parameters)

    def _quota(self, region: str, code: str) -> Any:
        self._client(region)  # which makes the session
        client = self._session.client("service-quotas", region_name=region, endpoint_url=self._endpoint)
        return client.get_service_quota(ServiceCode="ec2", QuotaCode=code)

    def _client(self, region: str) -> Any:
        from boto3.session import Session
        from botocore.config import Config

        with self._making:  # making a client is not thread-safe; using one is
            if region not in self._clients:
                if self._session is None:
                    self._session = Session(profile_name=self._profile)
                config = Config(
                    connect_timeout=CONNECT_TIMEOUT_S,
                    read_timeout=READ_TIMEOUT_S,
                    retries={"total_max_attempts": 1},  # its own retries repeat capacity errors and throttling
                    max_pool_connections=THREADS,
                    user_agent_extra="runner-autoscaler",
                )
                self._clients[region] = self._session.client(
                    self._service, region_name=region, endpoint_url=self._endpoint, config=config
                )
            return self._clients[region]
