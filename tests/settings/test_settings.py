"""The environment and the files it names: defaults, and errors that say where and what to do."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from autoscaler import settings
from autoscaler.secrets_file import SettingsError
from autoscaler.settings import ApiToken, ClientSettings, GithubApp, Settings, client_from_env, from_env

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n"
DIGEST = hashlib.sha256(b"token").hexdigest()


def test_nothing_set_gives_the_documented_defaults() -> None:
    assert from_env({}) == Settings()
    assert client_from_env({}) == ClientSettings()
    assert from_env({"AUTOSCALER_FLEET": " ", "AUTOSCALER_LISTEN": ""}) == Settings()


def test_everything_set(tmp_path: Path) -> None:
    (tmp_path / "app.pem").write_text(PEM)
    (tmp_path / "apps.yaml").write_text("- {app_id: 12, private_key_file: app.pem}\n")
    (tmp_path / "tokens.yaml").write_text(f"- name: me\n  sha256: {DIGEST.upper()}\n  scope: write\n")
    (tmp_path / "key").write_text("  " + "k" * 32 + "\n")
    (tmp_path / "secret").write_text("s\n")
    (tmp_path / "token").write_text("ghp_x\n")
    assert from_env(
        {
            "AUTOSCALER_POLICY": "policy.yaml",
            "AUTOSCALER_FLEET": "pytorch-prod-1",
            "AUTOSCALER_LISTEN": "0.0.0.0:9000",
            "AUTOSCALER_PUBLIC_URL": "https://ci.example/base/",
            "AUTOSCALER_REDIS_URL": "rediss://:pw@redis.example:6380/1",
            "AUTOSCALER_FLEET_KEY_FILE": str(tmp_path / "key"),
            "AUTOSCALER_GITHUB_URL": "https://ghes.example/api/v3",
            "AUTOSCALER_GITHUB_APPS_FILE": str(tmp_path / "apps.yaml"),
            "AUTOSCALER_WEBHOOK_SECRET_FILE": str(tmp_path / "secret"),
            "AUTOSCALER_API_TOKENS_FILE": str(tmp_path / "tokens.yaml"),
            "AUTOSCALER_GITHUB_TOKEN_FILE": str(tmp_path / "token"),
        }
    ) == Settings(
        policy=Path("policy.yaml"),
        fleet="pytorch-prod-1",
        host="0.0.0.0",
        port=9000,
        public_url="https://ci.example/base",
        redis_url="rediss://:pw@redis.example:6380/1",
        fleet_key=b"k" * 32,
        github_url="https://ghes.example/api/v3",
        github_apps=(GithubApp(12, PEM),),
        webhook_secret_file=tmp_path / "secret",
        api_tokens=(ApiToken("me", DIGEST, "write"),),
        github_token="ghp_x",
    )


def test_every_variable_of_the_code_is_documented_at_its_field() -> None:
    source = Path(settings.__file__).read_text()
    documented = set(re.findall(r'"""(AUTOSCALER_[A-Z_]+):', source))
    assert documented == set(re.findall(r'env\.get(?:_file)?\("(AUTOSCALER_[A-Z_]+)"', source))


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("0.0.0.0:8080", ("0.0.0.0", 8080, "http://0.0.0.0:8080")),
        ("[::1]:0", ("::1", 0, "http://[::1]:0")),
        ("localhost:65535", ("localhost", 65535, "http://localhost:65535")),
    ],
)
def test_listen(listen: str, expected: tuple[str, int, str]) -> None:
    found = from_env({"AUTOSCALER_LISTEN": listen})
    assert (found.host, found.port, found.public_url) == expected


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("AUTOSCALER_FLEET", "PyTorch", "1-20 characters"),
        ("AUTOSCALER_FLEET", "x" * 21, "1-20 characters"),
        ("AUTOSCALER_FLEET", "a_b", "1-20 characters"),
        ("AUTOSCALER_FLEET", "a{b}", "1-20 characters"),
        ("AUTOSCALER_FLEET", "-a", "1-20 characters"),
        ("AUTOSCALER_LISTEN", "8080", "HOST:PORT"),
        ("AUTOSCALER_LISTEN", ":8080", "HOST:PORT"),
        ("AUTOSCALER_LISTEN", "host", "HOST:PORT"),
        ("AUTOSCALER_LISTEN", "host:99999", "HOST:PORT"),
        ("AUTOSCALER_LISTEN", "http://host:80", "HOST:PORT"),
        ("AUTOSCALER_LISTEN", "host:80/x", "HOST:PORT"),
        ("AUTOSCALER_PUBLIC_URL", "ci.example", "http://HOST"),
        ("AUTOSCALER_PUBLIC_URL", "ftp://ci.example", "http://HOST"),
        ("AUTOSCALER_PUBLIC_URL", "https://ci.example?x=1", "http://HOST"),
        ("AUTOSCALER_GITHUB_URL", "https://", "http://HOST"),
        ("AUTOSCALER_REDIS_URL", "localhost:6379", "embedded:DIR"),
        ("AUTOSCALER_FLEET_KEY_FILE", "/nowhere/key", "/nowhere/key cannot be read"),
        ("AUTOSCALER_WEBHOOK_SECRET_FILE", "/nowhere/secret", "create it or name another file"),
        ("AUTOSCALER_GITHUB_APPS_FILE", "/nowhere/apps.yaml", "/nowhere/apps.yaml"),
        ("AUTOSCALER_API_TOKENS_FILE", "/", "cannot be read"),
        ("AUTOSCALER_GITHUB_TOKEN_FILE", "/nowhere/token", "/nowhere/token"),
    ],
)
def test_a_bad_value_names_its_variable_and_what_was_expected(variable: str, value: str, expected: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(expected)) as caught:
        from_env({variable: value})
    assert str(caught.value).startswith(f"{variable}: ")


@pytest.mark.parametrize(
    ("variable", "content", "expected"),
    [
        ("AUTOSCALER_FLEET_KEY_FILE", "short\n", "holds 5 bytes; expected at least 32"),
        ("AUTOSCALER_FLEET_KEY_FILE", " " * 64, "holds 0 bytes"),
        ("AUTOSCALER_WEBHOOK_SECRET_FILE", "\n \n", "holds no secret; expected one a line"),
        ("AUTOSCALER_GITHUB_TOKEN_FILE", "\n", "holds no token"),
        ("AUTOSCALER_GITHUB_TOKEN_FILE", "two words", "holds no token"),
        ("AUTOSCALER_GITHUB_APPS_FILE", "app_id: 1\n", "FILE: expected a YAML list of {app_id, private_key_file}"),
        ("AUTOSCALER_GITHUB_APPS_FILE", "", "FILE: expected a YAML list"),
        ("AUTOSCALER_GITHUB_APPS_FILE", "- {app_id: 1\n", "FILE:2: not YAML"),
        ("AUTOSCALER_GITHUB_APPS_FILE", "- a: !!python/object:os.system x\n", "FILE:1: "),
        ("AUTOSCALER_GITHUB_APPS_FILE", "- a: \x00\n", "FILE: not YAML"),
        ("AUTOSCALER_GITHUB_APPS_FILE", "- one\n", "FILE:1: expected a YAML list"),
        ("AUTOSCALER_GITHUB_APPS_FILE", "[" * 5000, "FILE: not YAML"),
        ("AUTOSCALER_GITHUB_APPS_FILE", "- 2026-13-45\n", "FILE: not YAML (month must be"),
        ("AUTOSCALER_GITHUB_APPS_FILE", '- {app_id: 1, private_key_file: "\\0"}\n', "FILE:1: private_key_file: "),
        ("AUTOSCALER_GITHUB_APPS_FILE", "\n- app_id: 1\n", "FILE:2: missing key 'private_key_file'"),
        (
            "AUTOSCALER_GITHUB_APPS_FILE",
            "- {app_id: x, private_key_file: y}\n",
            "FILE:1: app_id 'x' is not a number",
        ),
        (
            "AUTOSCALER_GITHUB_APPS_FILE",
            "- {app_id: 1, private_key_file: none.pem}\n",
            "FILE:1: private_key_file: DIR/none.pem cannot be read",
        ),
        ("AUTOSCALER_GITHUB_APPS_FILE", "- {app_id: 1, private_key_file: FILE}\n", "is not a PEM private key"),
        ("AUTOSCALER_API_TOKENS_FILE", "- {name: a, sha: b, scope: read}\n", "FILE:1: unknown key 'sha'"),
        ("AUTOSCALER_API_TOKENS_FILE", "- {name: a, sha256: b, scope: read}\n", "sha256 is not 64 hex digits"),
        (
            "AUTOSCALER_API_TOKENS_FILE",
            f"- {{name: a, sha256: {DIGEST}, scope: admin}}\n",
            "scope 'admin' is neither read nor write",
        ),
        ("AUTOSCALER_API_TOKENS_FILE", f"- {{name: 1, sha256: {DIGEST}, scope: read}}\n", "name 1 is not a text"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, variable: str, content: str, expected: str) -> None:
    path = tmp_path / "file"
    path.write_text(content.replace("FILE", str(path)))
    named = expected.replace("FILE", str(path)).replace("DIR", str(tmp_path))
    with pytest.raises(SettingsError, match=re.escape(named)) as caught:
        from_env({variable: str(path)})
    assert str(caught.value).startswith(f"{variable}: ")
    assert str(path) in str(caught.value)


def test_a_home_folder_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "secret").write_text("s")
    assert from_env({"AUTOSCALER_WEBHOOK_SECRET_FILE": "~/secret"}).webhook_secret_file == tmp_path / "secret"


@pytest.mark.parametrize("name", ["policy", "fleet_key", "github_apps", "webhook_secret_file"])
def test_what_is_needed_and_not_set_is_named(name: str) -> None:
    with pytest.raises(SettingsError, match=r"^AUTOSCALER_[A-Z_]+ is not set; name "):
        Settings().require(name)


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    shown = repr(
        Settings(
            redis_url="redis://:hunter2@host",
            fleet_key=b"hunter2" * 5,
            github_apps=(GithubApp(1, "hunter2"),),
            api_tokens=(ApiToken("me", "hunter2", "read"),),
            github_token="hunter2",
        )
    ) + repr(ClientSettings(token="hunter2"))
    assert "hunter2" not in shown


def test_the_clients_token_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    found = client_from_env(
        {"AUTOSCALER_API_URL": "http://host:1/", "AUTOSCALER_API_TOKEN_FILE": str(tmp_path / "token")}
    )
    assert found == ClientSettings("http://host:1", "abc")
