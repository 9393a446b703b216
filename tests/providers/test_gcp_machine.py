"""What a machine on Compute Engine gets: tags that survive as labels, and a start without cloud-init."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.bootstrap import PROGRAMS, linux_user_data
from providers.gcp import startup
from providers.gcp.labels import LONGEST, labels_of, tags_of
from tests.providers.gce_cloud import LABEL


@given(
    st.dictionaries(
        st.sampled_from(["autoscaler-type", "autoscaler-fund", "autoscaler-price"]), st.text(max_size=300)
    )
)
def test_tags_come_back_from_labels(tags):
    labels = labels_of(tags)
    assert tags_of({**labels, "team": "ci"}) == {**tags, "team": "ci"}
    assert all(LABEL[0].fullmatch(key) and LABEL[1].fullmatch(value) for key, value in labels.items())


def test_plain_values_stay_readable():
    assert labels_of({"autoscaler-fund": "gcp-gift-2026"}) == {"autoscaler-fund": "gcp-gift-2026"}


@pytest.mark.parametrize("length", [LONGEST - 1, LONGEST, LONGEST + 1, 2 * LONGEST, 2 * LONGEST + 1])
def test_values_at_the_limit_of_a_label(length):
    tags = {"autoscaler-type": "x" * length}
    assert tags_of(labels_of(tags)) == tags


@pytest.fixture
def metadata():
    """The metadata service: the URL of the user data, which it gives only to those who ask in Google's way."""
    package = {"url": "https://example.org/runner.tar.gz", "sha256": "a" * 64}
    head, _, body = linux_user_data('{"token": "t"}', package, 60_000).partition("\n")
    plan = json.loads(body)
    plan["runcmd"] = [["true"]]
    text = f"{head}\n{json.dumps(plan)}".encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.headers.get("Metadata-Flavor") == "Google" else 403)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/user-data"
    server.shutdown()
    server.server_close()


def test_the_startup_script_does_the_part_of_cloud_init(metadata, tmp_path):
    program = Path(startup.__file__)
    for _ in range(2):  # Google runs it at every boot
        subprocess.run([sys.executable, program, str(tmp_path), metadata], check=True, env={"PATH": "/usr/bin"})
    boot = tmp_path / "etc/autoscaler/boot.json"
    assert (boot.read_text(), boot.stat().st_mode & 0o777) == ('{"token": "t"}', 0o600)
    for path in PROGRAMS.values():
        assert (tmp_path / path.lstrip("/")).stat().st_size > 0


def test_the_startup_script_leaves_it_to_cloud_init_where_there_is_one(metadata, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cloud-init").write_text("#!/bin/sh\n")
    (tmp_path / "bin/cloud-init").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    startup.main(str(tmp_path), metadata)
    assert not (tmp_path / "etc").exists()
