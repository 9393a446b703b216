"""The bundled EC2 table: complete for the fleets it was made for, and plausible."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import date

import pytest

from providers.aws.catalogue import ec2, micro_usd

# What PyTorch's scale-config.yml names, 2024-08 and 2026-05.
PYTORCH = """
c5.12xlarge c5.24xlarge c5.2xlarge c5.4xlarge c5.9xlarge c5.large c5d.12xlarge c5d.4xlarge c7i.12xlarge
c7i.16xlarge c7i.24xlarge c7i.2xlarge c7i.4xlarge c7i.8xlarge c7i.large c7i.metal-24xl g3.16xlarge g3.4xlarge
g3.8xlarge g4dn.12xlarge g4dn.4xlarge g4dn.metal g4dn.xlarge g5.12xlarge g5.48xlarge g5.4xlarge g6.12xlarge
g6.4xlarge m4.10xlarge m4.2xlarge m4.4xlarge m4.large m6a.12xlarge m7a.24xlarge m7a.8xlarge m7g.4xlarge
m7g.metal m7i-flex.2xlarge m7i-flex.4xlarge m7i-flex.8xlarge m8g.4xlarge m8g.metal-24xl p3.2xlarge p3.8xlarge
r5.12xlarge r5.16xlarge r5.24xlarge r5.2xlarge r5.4xlarge r5.8xlarge r7g.12xlarge r7i.12xlarge r7i.2xlarge
r7i.4xlarge r7i.8xlarge r7i.large r7i.xlarge t4g.2xlarge
"""

GPU_OF_FAMILY = {"g3": "m60", "g4dn": "t4", "g5": "a10g", "g6": "l4", "p3": "v100"}


def test_every_type_of_the_big_fleets_is_there():
    assert set(PYTORCH.split()) <= set(ec2())


@pytest.mark.parametrize("name", sorted(ec2()))
def test_a_row_is_plausible(name):
    kind = ec2()[name]
    hardware, price = kind.hardware, kind.prices["us-east-1"]
    assert kind.family == name.partition(".")[0]
    assert kind.source
    assert date.fromisoformat(kind.date) < date(2027, 1, 1)
    assert hardware.arch == ("arm64" if re.match(r"[a-z]+\d+g", kind.family) else "x64")
    assert 2 <= hardware.cpus <= 192
    assert 2048 <= hardware.memory_mib / hardware.cpus <= 8192
    assert 20_000 <= price / hardware.cpus <= 400_000  # 0.02 to 0.40 USD an hour and vCPU
    assert (hardware.gpu.model if hardware.gpu else None) == GPU_OF_FAMILY.get(kind.family)


def test_no_price_is_zero():
    assert all(price > 0 for kind in ec2().values() for price in kind.prices.values())


def test_a_family_without_gpus_costs_the_same_a_cpu():
    rates = defaultdict(set)
    for kind in ec2().values():
        if not kind.hardware.gpu:
            rates[kind.family].add(round(kind.prices["us-east-1"] / kind.hardware.cpus))
    assert {
        family: max(found) / min(found) for family, found in rates.items() if max(found) > 1.01 * min(found)
    } == {}


@pytest.mark.parametrize(
    ("text", "micro"), [("0.34", 340_000), ("0.00001", 10), ("0.0000001", 1), ("2", 2_000_000)]
)
def test_money_is_whole_micro_dollars_rounded_up(text, micro):
    assert micro_usd(text) == micro
