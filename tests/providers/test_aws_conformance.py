"""Kind aws under the suite that every kind passes."""

from __future__ import annotations

import pytest

from providers.conformance import Conformance
from tests.providers.aws_bench import AwsBench


class TestAws(Conformance):
    @pytest.fixture
    def bench(self, cloud, clock) -> AwsBench:
        return AwsBench(cloud, clock)
