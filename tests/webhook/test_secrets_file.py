"""The webhook's secrets follow their file."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from autoscaler import secrets_file
from autoscaler.secrets_file import SecretsFile, SettingsError


@pytest.fixture(autouse=True)
def checked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets_file, "CHECK_SECONDS", 0.0)


async def test_blank_lines_and_white_space_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"\n\n  one \r\n\t\ntwo")
    assert SecretsFile(tmp_path / "s").active() == (b"one", b"two")


async def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_bytes(b"one")
    secrets = SecretsFile(path)
    stat = path.stat()
    (tmp_path / "new").write_bytes(b"two")
    os.utime(tmp_path / "new", ns=(stat.st_atime_ns, stat.st_mtime_ns))  # same size and time: another inode
    os.replace(tmp_path / "new", path)
    assert secrets.active() == (b"two",)


@pytest.mark.parametrize("trouble", ["gone", "empty"])
async def test_the_last_secrets_stay_when_the_file_is_no_good(
    tmp_path: Path, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s"
    path.write_bytes(b"hunter2")
    secrets = SecretsFile(path)
    path.unlink()
    if trouble == "empty":
        path.write_bytes(b"\n")
    with caplog.at_level(logging.INFO):
        assert secrets.active() == (b"hunter2",)
        assert secrets.active() == (b"hunter2",)
    assert len(caplog.records) == 1
    path.write_bytes(b"three")
    assert secrets.active() == (b"three",)
    assert "hunter2" not in caplog.text
    assert "hunter2" not in repr(secrets)


async def test_it_is_looked_at_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets_file, "CHECK_SECONDS", 3600.0)
    path = tmp_path / "s"
    path.write_bytes(b"one")
    secrets = SecretsFile(path)
    secrets.active()
    path.write_bytes(b"two")
    assert secrets.active() == (b"one",)


@pytest.mark.parametrize("content", [None, b"", b" \n \n"])
def test_a_file_without_a_secret_is_an_error_that_names_it(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=str(path)):
        SecretsFile(path)
