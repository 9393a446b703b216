"""A headless Chromium driven over its debugging protocol: enough to look at a page as a person does."""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0")


class Browser:
    """One page. `said` collects console messages and uncaught errors."""

    def __init__(self, profile: Path) -> None:
        self._profile = profile
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.said: list[str] = []

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            "chromium", *FLAGS, f"--user-data-dir={self._profile}", "about:blank",
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stderr
        async with asyncio.timeout(30):
            while not (found := re.search(rb"ws://[\d.:]+", await self._process.stderr.readline())):
                pass
        self._errors = asyncio.create_task(self._process.stderr.read())
        self._session = aiohttp.ClientSession()
        address = found[0].decode().replace("ws://", "http://")
        async with self._session.get(f"{address}/json") as answer:
            target = next(each for each in await answer.json() if each["type"] == "page")
        self._socket = await self._session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0)
        self._reader = asyncio.create_task(self._read())
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._socket.close()
        await self._session.close()
        self._process.terminate()
        await self._process.wait()
        await asyncio.gather(self._reader, self._errors, return_exceptions=True)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(20):
            return await answer

    async def open(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        phone = width < 600
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until the page says that this is so."""
        tried = f"(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()"
        async with asyncio.timeout(15):
            while not await self.value(tried):  # noqa: ASYNC110 - the page cannot call
                await asyncio.sleep(0.05)

    async def picture(self, path: Path, whole: bool = True) -> None:
        found = await self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(found["data"]))

    async def _read(self) -> None:
        async for message in self._socket:
            found = message.json()
            if "id" in found:
                self._answers.pop(found["id"]).set_result(found.get("result", found))
            elif found["method"] in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                self.said.append(str(found["params"]))
            elif found["method"] == "Page.javascriptDialogOpening":
                self.said.append(f"dialog: {found['params']['message']}")
