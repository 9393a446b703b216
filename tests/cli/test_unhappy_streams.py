"""Commands on terminals and disks that fail, and with arguments that are no text: one line, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

POLICY = "version: 1\nproviders: {}\nrunner_types: {}\n"


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return str(path)


def shell(command: str, *arguments: bytes | str, **env: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `autoscaler ARGUMENTS` with a redirection by the shell."""
    python = f'"{sys.executable}" -m autoscaler "$@" {command}'
    done = subprocess.run(["sh", "-c", python, "sh", *arguments], capture_output=True, env={**os.environ, **env})
    found = done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    assert "Traceback" not in found[2], found[2]
    assert "Exception ignored" not in found[2], found[2]
    return found


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the disk that is always full is Linux's")
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_full_disk_under_the_output_is_one_line(policy: str, more: tuple[str, ...]) -> None:
    code, _, err = shell("> /dev/full", "policy", "check", policy, *more)
    assert (code, err) == (1, "autoscaler: cannot write the output: No space left on device\n")


def test_closed_streams_do_not_matter(policy: str) -> None:
    assert shell(">&- 2>&-", "policy", "check", policy) == (0, "", "")


def test_a_terminal_without_the_characters_shows_question_marks(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.replace("providers: {}", "providers: {é: {kind: sim}}"), encoding="utf-8")
    code, out, _ = shell("", "policy", "check", str(path), PYTHONIOENCODING="ascii")
    assert code == 1
    assert "providers.?: expected a name" in out
    code, out, _ = shell("", "policy", "check", str(path), "--json", PYTHONIOENCODING="ascii")
    assert json.loads(out)["ok"] is False


def test_bytes_that_are_no_text_find_nothing() -> None:
    for arguments in ((b"why", b"\xff"), (b"why", b"fund:\xff"), (b"jobs", b"--repository", b"\xff")):
        code, out, err = shell("", *arguments, AUTOSCALER_API_URL="http://127.0.0.1:9")
        assert (code, out) == (1, "")
        assert err.startswith("autoscaler: no daemon answers at http://127.0.0.1:9")


def verified(tmp_path: Path, policy: str, **env: str) -> str:
    """What `verify --json` complains of in a world that it cannot look at."""
    (tmp_path / "fleet.key").write_text("k" * 40)
    (tmp_path / "app.pem").write_text("-----BEGIN RSA PRIVATE KEY-----\nZm9v\n-----END RSA PRIVATE KEY-----\n")
    (tmp_path / "apps.yaml").write_text("- {app_id: 7, private_key_file: app.pem}\n")
    settings = {
        "AUTOSCALER_POLICY": policy,
        "AUTOSCALER_REDIS_URL": f"embedded:{tmp_path / 'redis'}",
        "AUTOSCALER_FLEET_KEY_FILE": str(tmp_path / "fleet.key"),
        "AUTOSCALER_GITHUB_APPS_FILE": str(tmp_path / "apps.yaml"),
    }
    code, out, err = shell("", "verify", "--json", **{**settings, **env})
    assert (code, out) == (1, "")
    return err


def test_verify_says_what_it_cannot_ask(tmp_path: Path, policy: str) -> None:
    assert "autoscaler: the private key of GitHub App 7 is not an unencrypted RSA key" in verified(
        tmp_path, policy
    )
    away = verified(tmp_path, policy, AUTOSCALER_REDIS_URL="redis://:secret-word@127.0.0.1:9/0")
    assert away.startswith("autoscaler: the store does not answer: ")
    assert away.endswith("see AUTOSCALER_REDIS_URL\n")
    assert "secret-word" not in away
