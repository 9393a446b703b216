"""What EC2 sells and at which list price, as far as it is bundled."""

from __future__ import annotations

from collections.abc import Mapping

from providers.catalogue import InstanceType, micro_usd, table

__all__ = ["ec2", "micro_usd"]


def ec2() -> Mapping[str, InstanceType]:
    """EC2 instance types by name."""
    return table("ec2.csv")
