"""The bundled tables of Compute Engine and Azure: plausible, and able to stand in for what large fleets name."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import date

import pytest

from providers.aws.catalogue import ec2
from providers.catalogue import table
from providers.gcp.request import split_type

GCE, AZURE = table("gce.csv"), table("azure.csv")
NAMES = {
    "gce": re.compile(r"[a-z]\d[a-z]*-(standard|highmem|highcpu)-\d+(\+\d+xnvidia-[a-z0-9-]+)?"),
    "azure": re.compile(r"Standard_[A-Z]+\d+[a-z]+(_[A-Z]\d+)?_v\d"),
}
ROWS = [("gce", name) for name in GCE] + [("azure", name) for name in AZURE]


@pytest.mark.parametrize(("vendor", "name"), ROWS)
def test_a_row_is_plausible(vendor, name):
    kind = {"gce": GCE, "azure": AZURE}[vendor][name]
    hardware = kind.hardware
    assert NAMES[vendor].fullmatch(name)
    assert kind.source
    assert date.fromisoformat(kind.date) < date(2027, 1, 1)
    assert hardware.arch == ("arm64" if kind.family in ("t2a", "Dpsv5") else "x64")
    assert 2 <= hardware.cpus <= 96
    assert 1024 <= hardware.memory_mib / hardware.cpus <= 13_000
    for price in kind.prices.values():
        assert 20_000 <= price / hardware.cpus <= 140_000  # 0.02 to 0.14 USD an hour and vCPU
    if vendor == "gce":
        assert split_type(name)[0].rpartition("-")[2] == str(hardware.cpus)
        assert split_type(name)[2] in (0, hardware.gpu.count if hardware.gpu else 0)
    else:
        assert re.match(r"Standard_[A-Z]+(\d+)", name)[1] == str(hardware.cpus)


@pytest.mark.parametrize("types", [GCE, AZURE], ids=["gce", "azure"])
def test_a_series_without_gpus_costs_the_same_a_cpu(types):
    rates = defaultdict(set)
    for kind in types.values():
        if not kind.hardware.gpu:
            for region, price in kind.prices.items():
                per_cpu = kind.hardware.memory_mib // kind.hardware.cpus
                rates[kind.family, per_cpu, region].add(round(price / kind.hardware.cpus))
    assert {key: found for key, found in rates.items() if max(found) > 1.03 * min(found)} == {}


@pytest.mark.parametrize("types", [GCE, AZURE], ids=["gce", "azure"])
def test_every_ec2_type_without_a_gpu_has_a_counterpart(types):
    """As many vCPUs (within two) and as much memory, for what fits into one machine there."""
    missing = []
    for wanted in (kind.hardware for kind in ec2().values() if not kind.hardware.gpu):
        if wanted.arch == "arm64" and wanted.cpus >= 48:  # neither sells so large an Arm machine with 8 GiB a vCPU
            continue
        if not any(
            has.hardware.arch == wanted.arch
            and has.hardware.cpus >= wanted.cpus - 2
            and has.hardware.memory_mib >= wanted.memory_mib * 0.85
            for has in types.values()
        ):
            missing.append(wanted)
    assert missing == []
