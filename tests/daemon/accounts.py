"""One account of every kind, at moto, the stand-ins and a real sshd, and a fleet that may use them.

Machines of the stand-ins run the sandbox's machine program (see `booter`), pods boot with the cluster's kubelet,
and a slot of the donated host runs the real program with a runner for GitHub's stand-in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tests.daemon.booter import Booter, on_arm, on_compute_engine, on_ec2
from tests.daemon.place import Place
from tests.providers import arm_cloud, gce_cloud
from tests.providers.arm_bench import ArmBench
from tests.providers.aws_bench import AwsBench, moto_account
from tests.providers.gce_bench import GceBench
from tests.providers.k8s_bench import KubernetesBench
from tests.providers.k8s_cluster import Cluster
from tests.providers.ssh_bench import SshBench
from tests.providers.ssh_runner import RUNNER, pack, tarball_server
from tests.providers.ssh_server import Sshd

POLICY: dict[str, Any] = {
    "version": 1,
    "funds": {
        "grant": {"credit": "1000 USD", "until": "2030-01-01", "spent": {"amount": "0 USD", "as_of": "TODAY"}}
    },
    "defaults": {
        "image": "runner",
        "boot_timeout": "4m",
        "idle_timeout": "2m",
        "access": {"repositories": ["octo/*"], "forks": "allow"},
    },
}
OFFERS: dict[str, dict[str, Any]] = {
    "aws": {"instance_types": ["c5.large"]},
    "gcp": {"instance_types": ["e2-standard-2"]},
    "azure": {"instance_types": ["Standard_D2s_v4"]},
    "kubernetes": {},
    "ssh": {},
}
PRICES = {"kubernetes": "0.02 USD/h", "ssh": "0 USD/h"}
KINDS = tuple(OFFERS)

Others = Callable[[str], Mapping[str, Any]]
"""Providers of other kinds, by the URL of the sandbox's clouds."""


def no_others(_: str) -> Mapping[str, Any]:
    return {}


@dataclass
class Accounts:
    """The benches of the kinds that are open, and the place around the replicas."""

    benches: dict[str, Any]
    place: Place

    def creates(self, kind: str) -> int:
        """How many create calls the account was asked for; a donated host counts none."""
        match self.benches[kind]:
            case AwsBench() as aws:
                return aws.cloud.count("RunInstances")
            case GceBench() as gcp:
                return gcp.cloud.count(gce_cloud.INSERT)
            case ArmBench() as azure:
                return azure.cloud.count(arm_cloud.CREATE)
            case KubernetesBench() as kubernetes:
                return kubernetes.cluster.count("POST")
        return 0

    def policy(self, caps: Mapping[str, int], more: Mapping[str, Any], runner: Mapping[str, Any]) -> str:
        """One runner type that may run at all of `caps` (kind, which is also the provider's name -> max_runners).

        `runner` is the package that donated hosts install.
        """
        providers: dict[str, Any] = {}
        for kind, most in caps.items():
            config = self.benches[kind].config
            settings = config.settings.model_dump(mode="json", exclude_defaults=True)
            if kind == "ssh":
                settings["runner"] = runner
            given = {"regions": list(config.regions), "endpoint": config.endpoint, "price": PRICES.get(kind)}
            given = {key: value for key, value in given.items() if value}
            providers[kind] = {"kind": kind, "settings": settings, "max_runners": most, **given}
        images = {kind: image for kind in caps if (image := self.benches[kind].spec(0).image)}
        offers = [*({"provider": kind, **OFFERS[kind]} for kind in caps), *({"provider": name} for name in more)]
        hardware = {"os": "linux", "cpus": 1}
        linux = {"labels": ["self-hosted", "linux"], "hardware": hardware, "offers": offers}
        whole = {
            **POLICY,
            "providers": {**providers, **more},
            "images": {"runner": images},
            "runner_types": {"linux": linux},
        }
        today = datetime.fromtimestamp(self.place.clock.now_ms() / 1000, UTC)
        return json.dumps(whole).replace("TODAY", f"{today:%Y-%m-%d}")


@asynccontextmanager
async def accounts(
    folder: Path, speed: float, caps: Mapping[str, int], more: Others = no_others
) -> AsyncIterator[Accounts]:
    """Open the accounts that `caps` names and the place around them; all of it is gone afterwards."""
    async with AsyncExitStack() as stack:
        place = Place(folder, speed=speed)
        found, boot = Accounts({}, place), Booter()
        for kind in caps:
            found.benches[kind] = await OPEN[kind](stack, folder, boot)
        server, url, tarball = await tarball_server()
        stack.push_async_callback(server.cleanup)
        clouds: list[str] = []

        def first(url: str) -> str:
            clouds.append(url)
            return found.policy(caps, more(url), {})

        place._policy = first  # type: ignore[method-assign]
        await place.open()
        stack.push_async_callback(place.close)
        github = place.around.machines.github_url  # known only now, and the runner's text names it
        tarball["content"] = pack(RUNNER.format(github=github, speed=round(speed)))
        digest = hashlib.sha256(tarball["content"]).hexdigest()
        runner = {"url": url, "sha256": {"x64": digest, "arm64": digest}}
        place.around.policy_path.write_text(found.policy(caps, more(clouds[0]), runner))
        stack.push_async_callback(boot.close)
        boot.begin(place.around.machines)
        yield found


async def _aws(stack: AsyncExitStack, folder: Path, boot: Booter) -> AwsBench:
    moto = stack.enter_context(moto_account())
    boot.records["aws"] = partial(on_ec2, moto)
    return AwsBench(moto, None)


async def _gcp(stack: AsyncExitStack, folder: Path, boot: Booter) -> GceBench:
    cloud = stack.enter_context(gce_cloud.GceCloud())
    boot.records["gcp"] = partial(on_compute_engine, cloud)
    return GceBench(cloud, None)


async def _azure(stack: AsyncExitStack, folder: Path, boot: Booter) -> ArmBench:
    cloud = stack.enter_context(arm_cloud.ArmCloud())
    boot.records["azure"] = partial(on_arm, cloud)
    return ArmBench(cloud, None)


async def _kubernetes(stack: AsyncExitStack, folder: Path, boot: Booter) -> KubernetesBench:
    cluster = await stack.enter_async_context(Cluster())
    cluster.on_start = boot.pod
    return KubernetesBench(cluster, None, folder, pending_seconds=2)


async def _ssh(stack: AsyncExitStack, folder: Path, boot: Booter) -> SshBench:
    bench = SshBench(stack.enter_context(Sshd(folder)), None, folder)
    stack.callback(bench.close)
    return bench


Open = Callable[[AsyncExitStack, Path, Booter], Awaitable[Any]]
OPEN: dict[str, Open] = {"aws": _aws, "gcp": _gcp, "azure": _azure, "kubernetes": _kubernetes, "ssh": _ssh}
