"""What surrounds one daemon on this machine: GitHub, the accounts of a policy's `sim` providers, their machines.

surroundings = Surroundings(clock, directory, seed=1)
await surroundings.start(lambda clouds_url: "version: 1 ...", owners=["octo"])
settings = from_env(surroundings.environment(port=8080))    # or the environment of a `serve` of its own
surroundings.announce_to("http://127.0.0.1:8080")           # GitHub's webhooks go there
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from aiohttp import web

from autoscaler.clock import Clock
from autoscaler.policy import file as policy_file
from autoscaler.sandbox import clouds
from autoscaler.sandbox.github import GitHubStandIn
from autoscaler.sandbox.machines import Machines
from providers.sim import Machine, Settings, SimCloud
from scheduling.policy import Policy

APP_ID = "1"
HOST = "127.0.0.1"


class Surroundings:
    """`directory` takes the policy file and the secrets; it is the caller's to remove."""

    def __init__(self, clock: Clock, directory: Path, *, seed: int = 0, fleet: str = "demo") -> None:
        self.clock = clock
        self.directory = directory
        self.fleet = fleet
        self.github = GitHubStandIn(clock, seed=seed)
        self.clouds: dict[str, SimCloud] = {}
        self.machines = Machines(clock)
        self.policy_path = directory / "policy.yaml"
        self.policy: Policy
        self._secret = secrets.token_hex(32).encode()
        self._server: web.AppRunner | None = None

    async def start(self, policy_text: Callable[[str], str], owners: Iterable[str]) -> None:
        """Listens, then writes the policy that names where the accounts listen, and opens those accounts."""
        self.directory.mkdir(exist_ok=True)
        self._server = web.AppRunner(clouds.application(self.clouds), access_log=None, shutdown_timeout=1)
        await self._server.setup()
        site = web.TCPSite(self._server, HOST, 0)
        await site.start()
        self.policy_path.write_text(policy_text(f"http://{HOST}:{self._server.addresses[0][1]}"), encoding="utf-8")
        self.machines.github_url = await self.github.start(HOST)
        self._write_secrets(self.github.new_app(APP_ID, list(owners)))
        loaded = policy_file.load(self.policy_path, self.clock.now_ms())
        self.policy = loaded.policy
        for name, settings in loaded.settings.items():
            if isinstance(settings, Settings):
                self.clouds[name] = SimCloud(name, settings, self.clock, on_boot=self.machines.run)

    def environment(self, port: int = 0) -> dict[str, str]:
        """What `serve` needs to run in here. Port 0: one that is free now."""
        here = self.directory
        port = port or free_port()
        return {
            "AUTOSCALER_POLICY": str(self.policy_path),
            "AUTOSCALER_FLEET": self.fleet,
            "AUTOSCALER_LISTEN": f"{HOST}:{port}",
            "AUTOSCALER_REDIS_URL": f"embedded:{here / 'redis'}",
            "AUTOSCALER_FLEET_KEY_FILE": str(here / "fleet.key"),
            "AUTOSCALER_GITHUB_URL": self.github.url,
            "AUTOSCALER_GITHUB_APPS_FILE": str(here / "apps.yaml"),
            "AUTOSCALER_WEBHOOK_SECRET_FILE": str(here / "webhook.secret"),
        }

    def announce_to(self, daemon_url: str) -> None:
        """From now on GitHub announces jobs to the daemon at that address."""
        self.github.webhook(f"{daemon_url}/webhooks/github", self._secret, APP_ID)

    def existing(self) -> list[Machine]:
        """Every machine of every account that exists now."""
        return [machine for cloud in self.clouds.values() for machine in cloud.machines()]

    def left_behind(self) -> int:
        """How many machines and disks somebody still pays for."""
        return sum(len(cloud.machines()) + len(cloud.disks()) for cloud in self.clouds.values())

    async def close(self) -> None:
        for cloud in self.clouds.values():
            await cloud.close()
        await self.machines.close()
        await self.github.close()
        if self._server:
            await self._server.cleanup()

    def _write_secrets(self, private_key: str) -> None:
        for name, text in (
            ("fleet.key", secrets.token_hex(32)),
            ("webhook.secret", self._secret.decode()),
            ("app.pem", private_key),
            ("apps.yaml", f"- {{app_id: {APP_ID}, private_key_file: app.pem}}\n"),
        ):
            path = self.directory / name
            path.touch(mode=0o600)
            path.write_text(text, encoding="utf-8")


def free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])
