"""Kind azure under the suite that every kind passes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from providers.conformance import Conformance
from tests.providers.arm_bench import ArmBench
from tests.providers.arm_cloud import ArmCloud


class TestAzure(Conformance):
    @pytest.fixture
    def bench(self, clock) -> Iterator[ArmBench]:
        with ArmCloud() as cloud:
            yield ArmBench(cloud, clock)
