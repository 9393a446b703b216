"""Kind ssh by `reach: outbound` under the suite that every kind passes: the real program calls the real API."""

from __future__ import annotations

import pytest

from providers.conformance import Bench, Conformance
from tests.providers.outbound_bench import outbound_bench  # noqa: F401 - a fixture

pytestmark = pytest.mark.needs("bwrap")


class TestOutbound(Conformance):
    @pytest.fixture
    def bench(self, outbound_bench) -> Bench:  # noqa: F811
        return outbound_bench
