"""The environment (`AUTOSCALER_*`) and the files it names, checked once at the start.

A relative path counts from the working directory, and inside a file from that file. Every mistake is a
`SettingsError` that names the variable, the file and line, what was expected and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml

from autoscaler.secrets_file import SettingsError, read_bytes, secret_lines
from autoscaler.store import url as redis_url

FLEET_KEY_MIN_BYTES = 32


@dataclass(frozen=True, slots=True)
class GithubApp:
    """One GitHub App: its id and its private key (PEM)."""

    app_id: int
    private_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ApiToken:
    """One bearer token of `/api/v1`. `sha256` is the lower-case hex digest of the token without a newline."""

    name: str
    sha256: str = field(repr=False)
    scope: Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What `serve` runs with. Fields that were left out and have no default are None; `require` asks for them."""

    policy: Path | None = None
    """AUTOSCALER_POLICY: the policy file, where `--policy` does not name it."""
    fleet: str = "autoscaler"
    """AUTOSCALER_FLEET: 1-20 characters of [a-z0-9-]; begins every Redis key, machine and runner name."""
    host: str = "127.0.0.1"
    port: int = 8080
    """AUTOSCALER_LISTEN: HOST:PORT of webhooks, callbacks, dashboard and API. Port 0 picks a free one."""
    public_url: str = "http://127.0.0.1:8080"
    """AUTOSCALER_PUBLIC_URL: where machines reach us; without it, http:// and AUTOSCALER_LISTEN."""
    redis_url: str = field(default="embedded:.autoscaler/redis", repr=False)
    """AUTOSCALER_REDIS_URL: see `autoscaler.store.url`; the default is a server of our own in this folder."""
    fleet_key: bytes | None = field(default=None, repr=False)
    """AUTOSCALER_FLEET_KEY_FILE: at least 32 bytes once trimmed; behind callback tokens and JIT encryption."""
    github_url: str = "https://api.github.com"
    """AUTOSCALER_GITHUB_URL: base of the REST API; `https://HOST/api/v3` for GitHub Enterprise Server."""
    github_apps: tuple[GithubApp, ...] = ()
    """AUTOSCALER_GITHUB_APPS_FILE: YAML list of `{app_id, private_key_file}`."""
    webhook_secret_file: Path | None = None
    """AUTOSCALER_WEBHOOK_SECRET_FILE: one secret a line, two while rotating; re-read on change."""
    api_tokens: tuple[ApiToken, ...] | None = None
    """AUTOSCALER_API_TOKENS_FILE: YAML list of `{name, sha256, scope}`. None: reads are open, writes refused."""
    github_token: str | None = field(default=None, repr=False)
    """AUTOSCALER_GITHUB_TOKEN_FILE: for `record` and `backtest --from-github` only."""

    def require(self, name: str) -> Any:
        """The field, or a `SettingsError` that names the variable to set."""
        value = getattr(self, name)
        if value is None or value == ():
            variable, purpose = _REQUIRED[name]
            raise SettingsError(f"{variable} is not set; {purpose}")
        return value


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What the commands that ask a running daemon need."""

    api_url: str = "http://127.0.0.1:8080"
    """AUTOSCALER_API_URL: where the daemon listens."""
    token: str | None = field(default=None, repr=False)
    """AUTOSCALER_API_TOKEN_FILE: file with the bearer token."""


_REQUIRED = {
    "policy": ("AUTOSCALER_POLICY", "name the policy file there or with --policy FILE"),
    "fleet_key": (
        "AUTOSCALER_FLEET_KEY_FILE",
        f"name a file with at least {FLEET_KEY_MIN_BYTES} random bytes (`openssl rand -hex 32 > fleet.key`)",
    ),
    "github_apps": (
        "AUTOSCALER_GITHUB_APPS_FILE",
        "name a YAML file with a list of {app_id: NUMBER, private_key_file: PATH}",
    ),
    "webhook_secret_file": (
        "AUTOSCALER_WEBHOOK_SECRET_FILE",
        "name a file with the webhook's secret, one a line",
    ),
}


def from_env(environ: Mapping[str, str]) -> Settings:
    """The daemon's settings. Reads the files that the variables name; an empty variable counts as not set."""
    env = _Environment(environ)
    host, port = env.get("AUTOSCALER_LISTEN", _listen, ("127.0.0.1", 8080))
    shown_host = f"[{host}]" if ":" in host else host
    return Settings(
        policy=env.get_file("AUTOSCALER_POLICY", Path, None),
        fleet=env.get("AUTOSCALER_FLEET", _fleet, "autoscaler"),
        host=host,
        port=port,
        public_url=env.get("AUTOSCALER_PUBLIC_URL", _http_url, f"http://{shown_host}:{port}"),
        redis_url=env.get("AUTOSCALER_REDIS_URL", _redis_url, "embedded:.autoscaler/redis"),
        fleet_key=env.get_file("AUTOSCALER_FLEET_KEY_FILE", _fleet_key, None),
        github_url=env.get("AUTOSCALER_GITHUB_URL", _http_url, "https://api.github.com"),
        github_apps=env.get_file("AUTOSCALER_GITHUB_APPS_FILE", _github_apps, ()),
        webhook_secret_file=env.get_file("AUTOSCALER_WEBHOOK_SECRET_FILE", _secret_file, None),
        api_tokens=env.get_file("AUTOSCALER_API_TOKENS_FILE", _api_tokens, None),
        github_token=env.get_file("AUTOSCALER_GITHUB_TOKEN_FILE", _token, None),
    )


def client_from_env(environ: Mapping[str, str]) -> ClientSettings:
    """The settings of a client command."""
    env = _Environment(environ)
    return ClientSettings(
        api_url=env.get("AUTOSCALER_API_URL", _http_url, "http://127.0.0.1:8080"),
        token=env.get_file("AUTOSCALER_API_TOKEN_FILE", _token, None),
    )


class _Environment:
    """Looks a variable up and puts its name before whatever is wrong with it."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def get(self, variable: str, parse: Callable[[str], Any], default: Any) -> Any:
        text = self._environ.get(variable, "").strip()
        if not text:
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise SettingsError(f"{variable}: {error}") from None

    def get_file(self, variable: str, parse: Callable[[Path], Any], default: Any) -> Any:
        return self.get(variable, lambda text: parse(Path(text).expanduser()), default)


def _fleet(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,18}[a-z0-9])?", text):
        raise ValueError(f"{text!r} is not a fleet name; expected 1-20 characters of a-z, 0-9 and inner hyphens")
    return text


def _listen(text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or port is None or parts.netloc != text:
        raise ValueError(f"{text!r} is not HOST:PORT; write for example 0.0.0.0:8080 or [::]:8080")
    return host, port


def _http_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        good = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query and not parts.fragment
        )
        _ = parts.port
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"{text!r} is not an address; expected http://HOST[:PORT][/PATH] or https://...")
    return text.rstrip("/")


def _redis_url(text: str) -> str:
    redis_url.parse(text)
    return text


def _fleet_key(path: Path) -> bytes:
    key = read_bytes(path).strip()
    if len(key) < FLEET_KEY_MIN_BYTES:
        raise ValueError(
            f"{path} holds {len(key)} bytes; expected at least {FLEET_KEY_MIN_BYTES} random ones "
            "(`openssl rand -hex 32`)"
        )
    return key


def _secret_file(path: Path) -> Path:
    secret_lines(path)
    return path


def _token(path: Path) -> str:
    token = read_bytes(path).decode(errors="replace").strip()
    if not token or len(token.split()) != 1:
        raise ValueError(f"{path} holds no token; expected one line")
    return token


def _github_apps(path: Path) -> tuple[GithubApp, ...]:
    apps = []
    for where, entry in _entries(path, {"app_id", "private_key_file"}):
        app_id = entry["app_id"]
        if not isinstance(app_id, int | str) or not str(app_id).isdecimal():
            raise ValueError(f"{where}: app_id {app_id!r} is not a number")
        key_file = path.parent / Path(str(entry["private_key_file"])).expanduser()
        try:
            key = read_bytes(key_file).decode(errors="replace")
        except SettingsError as error:
            raise ValueError(f"{where}: private_key_file: {error}") from None
        if "PRIVATE KEY-----" not in key:
            raise ValueError(f"{where}: {key_file} is not a PEM private key; download one in the App's settings")
        apps.append(GithubApp(int(app_id), key))
    return tuple(apps)


def _api_tokens(path: Path) -> tuple[ApiToken, ...]:
    tokens = []
    for where, entry in _entries(path, {"name", "sha256", "scope"}):
        name, digest, scope = entry["name"], str(entry["sha256"]).lower(), entry["scope"]
        if not isinstance(name, str) or not name:
            raise ValueError(f"{where}: name {name!r} is not a text")
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ValueError(f"{where}: sha256 is not 64 hex digits; make it with `printf %s TOKEN | sha256sum`")
        if scope not in ("read", "write"):
            raise ValueError(f"{where}: scope {scope!r} is neither read nor write")
        tokens.append(ApiToken(name, digest, scope))
    return tuple(tokens)


def _entries(path: Path, keys: set[str]) -> list[tuple[str, dict[str, Any]]]:
    """The mappings of a YAML list, each with `file:line`; every key is required and no other is known."""
    expected = f"expected a YAML list of {{{', '.join(sorted(keys))}}}"
    content = read_bytes(path)
    try:
        loader = yaml.SafeLoader(content)
        root = loader.get_single_node()
        nodes = root.value if isinstance(root, yaml.SequenceNode) else []
        found = [(f"{path}:{node.start_mark.line + 1}", loader.construct_document(node)) for node in nodes]
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"{path}{line}: not YAML ({error.problem}); {expected}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not YAML ({str(error).splitlines()[0]}); {expected}") from None
    if not found:
        raise ValueError(f"{path}: {expected}")
    for where, entry in found:
        if not isinstance(entry, dict):
            raise ValueError(f"{where}: {expected}")
        if wrong := sorted(map(str, entry.keys() ^ keys)):
            state = "unknown" if wrong[0] in map(str, entry) else "missing"
            raise ValueError(f"{where}: {state} key {wrong[0]!r}; {expected}")
    return found
