"""Kind ssh by `reach: outbound` under the suite that every kind passes: the real program calls the real API."""

from __future__ import annotations

import pytest

from providers.conformance import Bench, Conformance
from tests.providers.outbound_bench import joined

pytestmark = pytest.mark.needs("bwrap")


class TestOutbound(Conformance):
    @pytest.fixture
    async def bench(self, clock, tmp_path) -> Bench:
        async with joined(clock, tmp_path) as bench:
            yield bench
