"""Kind kubernetes under the suite that every kind passes."""

from __future__ import annotations

import pytest

from providers.conformance import Bench, Conformance
from tests.providers.k8s_bench import KubernetesBench
from tests.providers.k8s_cluster import Cluster

pytest.importorskip("kubernetes_asyncio", reason="kubernetes-asyncio is not installed")


class TestKubernetes(Conformance):
    @pytest.fixture
    async def bench(self, clock, tmp_path) -> Bench:
        async with Cluster() as cluster:
            yield KubernetesBench(cluster, clock, tmp_path)
