"""Two policies for a repository that has none yet: its own labels on EC2, on demand and spot, at list prices.

GitHub's hosted labels are taken as machines of the size that public repositories get (4 CPUs, 16 GiB); labels of
self-hosted runners say nothing about hardware, so they get 8 CPUs and 16 GiB. macOS and Windows stay at GitHub.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import yaml

from autoscaler.backtest.recording import Recording
from autoscaler.backtest.world_model import SPOT_PERCENT
from providers.aws.catalogue import ec2
from providers.catalogue import InstanceType
from scheduling.matching import fits
from scheduling.model import Hardware, MicroUSD
from scheduling.policy import matches

NO_LINUX = ("windows-*", "macos-*")
HOSTED = ("ubuntu-*",)
BUDGET = "1000000 USD/month"
HEAD = """\
# The labels of a repository on EC2, an example for backtests: prices and sizes are assumed, nothing is launched.
# Machines are simulated (`kind: sim`); deploy/examples shows policies for real accounts.
"""
ASSUMED = (
    "no policy was named, so two examples are tried: EC2 on demand and EC2 spot. A label ubuntu-* is taken as\n"
    "4 CPUs and 16 GiB, any other as 8 CPUs and 16 GiB; jobs on Windows and macOS stay where they are"
)


def write(recorded: Recording, repository: str, directory: Path) -> list[Path]:
    """`on-demand.yaml` and `spot.yaml` for the labels of the recording; one that is there stays as it is."""
    paths = []
    for name in ("on_demand", "spot"):
        path = directory / f"{name.replace('_', '-')}.yaml"
        if not path.exists():
            words = yaml.safe_dump(_policy(recorded, repository, name), sort_keys=False, default_flow_style=None)
            path.write_text(f"{HEAD}{words}", encoding="utf-8")
        paths.append(path)
    return paths


def _policy(recorded: Recording, repository: str, purchase: str) -> dict[str, object]:
    types: dict[str, object] = {}
    sold: dict[str, object] = {}
    for labels in recorded.tables["labels"][1:]:
        need = _need(labels)
        if need is None:
            continue
        found = _cheapest(need)
        price = _price(found)
        size = {"cpus": found.hardware.cpus, "memory_gib": found.hardware.memory_mib // 1024}
        sold[found.name] = {
            **size,
            "arch": found.hardware.arch,
            "on_demand": f"{price / 1e6:.6f} USD/h",
            "spot": f"{price * SPOT_PERCENT // 100 / 1e6:.6f} USD/h",
        }
        types[_name(labels, types)] = {
            "labels": list(labels),
            "hardware": {"os": "linux", "arch": need.arch, "cpus": need.cpus, "memory": f"{need.memory_mib} MiB"},
            "offers": [{"provider": "ec2", "instance_types": [found.name], "purchase": [purchase]}],
        }
    return {
        "version": 1,
        "ignore_labels": list(NO_LINUX),
        "funds": {"cash": {"cash": BUDGET, "pays": ["ec2"]}},
        "providers": {
            "ec2": {"kind": "sim", "settings": {"boot_seconds": 45, "latency_ms": 2000, "instance_types": sold}}
        },
        "defaults": {"access": {"repositories": [repository], "forks": "allow"}},
        "runner_types": types,
    }


def _name(labels: tuple[str, ...], taken: Collection[str]) -> str:
    """Of a runner type: its labels without what a name may not have, and a number where that is not unique."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", "_".join(labels))[:90].strip("._-") or "type"
    return name if name not in taken else f"{name}-{len(taken)}"


def _need(labels: tuple[str, ...]) -> Hardware | None:
    """What the labels ask for; None where EC2 sells nothing of it, or there are none."""
    if not labels or any(matches(NO_LINUX, label) for label in labels):
        return None
    arch = "arm64" if any("arm" in label.casefold() for label in labels) else "x64"
    hosted = any(matches(HOSTED, label) for label in labels)
    return Hardware(arch=arch, cpus=4 if hosted else 8, memory_mib=16 * 1024)


def _cheapest(need: Hardware) -> InstanceType:
    fitting = [each for each in ec2().values() if each.prices and not fits(need, each.hardware, elastic_disk=True)]
    return min(fitting, key=lambda each: (_price(each), each.name))


def _price(sold: InstanceType) -> MicroUSD:
    return min(sold.prices.values())
