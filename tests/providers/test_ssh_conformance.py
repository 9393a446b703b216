"""Kind ssh under the suite that every kind passes, against a real OpenSSH server."""

from __future__ import annotations

import pytest

from providers.conformance import Bench, Conformance
from tests.providers.ssh_bench import SshBench
from tests.providers.ssh_server import Sshd

pytest.importorskip("asyncssh", reason="asyncssh is not installed")
pytestmark = pytest.mark.needs("sshd", "bwrap")


@pytest.fixture(scope="module")
def sshd(tmp_path_factory):
    with Sshd(tmp_path_factory.mktemp("sshd")) as sshd:
        yield sshd


class TestSsh(Conformance):
    @pytest.fixture
    def bench(self, sshd, clock, tmp_path) -> Bench:
        bench = SshBench(sshd, clock, tmp_path)
        yield bench
        bench.close()
