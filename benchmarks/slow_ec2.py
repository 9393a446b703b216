"""An EC2 that only takes time: the calls that the aws adapter makes, each answered `latency_s` later.

Machines boot at once: `on_boot` gets the launch data of each. Answers are as small as boto3 accepts
(docs.aws.amazon.com/AWSEC2/latest/APIReference), so that the time is the latency and the caller's own work.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from aiohttp import web

ZONE, TYPE, IMAGE, SUBNET = "us-east-1a", "c5.large", "ami-0123456789abcdef0", "subnet-0123456789abcdef0"
LAUNCHED = "2026-01-01T00:00:00.000Z"


class SlowEc2:
    """One account at `url`: `machines` that live, by id; `busy_most`, how many calls were open at once."""

    def __init__(self, latency_s: float, on_boot: Callable[[str], Awaitable[None]]) -> None:
        self.latency_s, self.on_boot = latency_s, on_boot
        self.machines: dict[str, str] = {}
        self.launches: list[float] = []
        self.busy_most = self._busy = 0
        self.url = ""
        self._programs: set[asyncio.Task[None]] = set()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        for program in self._programs:
            program.cancel()
        await asyncio.gather(*self._programs, return_exceptions=True)
        if self._runner:
            await self._runner.cleanup()

    async def _serve(self, request: web.Request) -> web.Response:
        asked = {key: values[0] for key, values in parse_qs((await request.read()).decode()).items()}
        self._busy += 1
        self.busy_most = max(self.busy_most, self._busy)
        await asyncio.sleep(self.latency_s)
        self._busy -= 1
        action = asked["Action"]
        content = self._launch(asked) if action == "RunInstances" else self._answer(action, asked)
        return web.Response(text=f"<{action}Response>{content}</{action}Response>", content_type="text/xml")

    def _answer(self, action: str, asked: dict[str, str]) -> str:
        if action == "TerminateInstances":
            self.machines.pop(asked["InstanceId.1"], None)
        reservations = "".join(
            f"<item><instancesSet>{text}</instancesSet></item>" for text in self.machines.values()
        )
        image = f"<imageId>{IMAGE}</imageId><architecture>x86_64</architecture>"
        image += "<rootDeviceName>/dev/xvda</rootDeviceName>"
        return {
            "DescribeImages": f"<imagesSet><item>{image}</item></imagesSet>",
            "DescribeInstanceTypeOfferings": f"<instanceTypeOfferingSet><item><instanceType>{TYPE}</instanceType>"
            f"<location>{ZONE}</location></item></instanceTypeOfferingSet>",
            "DescribeSpotPriceHistory": "<spotPriceHistorySet/>",
            "DescribeVolumes": "<volumeSet/>",
            "DescribeInstances": f"<reservationSet>{reservations}</reservationSet>",
            "TerminateInstances": "<instancesSet/>",
        }[action]

    def _launch(self, asked: dict[str, str]) -> str:
        """One machine. A client token is used once here: nothing fails, so nothing is asked again."""
        self.launches.append(asyncio.get_running_loop().time())
        number = f"i-{len(self.launches):017x}"
        tags = "".join(
            f"<item><key>{escape(value)}</key>"
            f"<value>{escape(asked.get(key.replace('.Key', '.Value'), ''))}</value></item>"
            for key, value in asked.items()
            if key.startswith("TagSpecification.1.Tag.") and key.endswith(".Key")
        )
        self.machines[number] = (
            f"<item><instanceId>{number}</instanceId>"
            "<instanceState><code>16</code><name>running</name></instanceState>"
            f"<instanceType>{TYPE}</instanceType><launchTime>{LAUNCHED}</launchTime>"
            f"<placement><availabilityZone>{ZONE}</availabilityZone></placement><tagSet>{tags}</tagSet></item>"
        )
        program = asyncio.ensure_future(self.on_boot(_boot_data(asked["UserData"])))
        self._programs.add(program)
        return f"<instancesSet>{self.machines[number]}</instancesSet>"


def _boot_data(user_data: str) -> str:
    """The launch data that cloud-init would write."""
    plan = json.loads(gzip.decompress(base64.b64decode(user_data)).partition(b"\n")[2])
    (boot,) = [file["content"] for file in plan["write_files"] if file["path"].endswith("/boot.json")]
    return str(boot)
