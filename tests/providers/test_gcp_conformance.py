"""Kind gcp under the suite that every kind passes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from providers.conformance import Conformance
from tests.providers.gce_bench import GceBench
from tests.providers.gce_cloud import GceCloud


class TestGcp(Conformance):
    @pytest.fixture
    def bench(self, clock) -> Iterator[GceBench]:
        with GceCloud() as cloud:
            yield GceBench(cloud, clock)
