"""What AUTOSCALER_REDIS_URL may say, and the client it makes.

`redis://[user:password@]host[:port][/db]`, `rediss://` (TLS), `unix:///path/to/socket[?db=1]`,
`redis+sentinel://[user:password@]host:port,host:port/service[/db]`, and `embedded:DIR`. With `?replicas=N` a write
counts only once that many replicas of the server have it: a failover then loses nothing that was acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

CONNECT_SECONDS = 1.0
EMBEDDED = "embedded:"
_SCHEMES = ("redis", "rediss", "unix", "redis+sentinel")
_TLS_OPTIONS = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
_OPTIONS = {
    "redis": {"db", "replicas"},
    "rediss": {"db", "replicas"} | _TLS_OPTIONS,
    "unix": {"db", "username", "password"},
    "redis+sentinel": {"sentinel_username", "sentinel_password", "replicas"},
}
_EXPECTED = (
    "expected redis://HOST:PORT/DB, rediss://HOST:PORT/DB, unix:///PATH, "
    "redis+sentinel://HOST:PORT,HOST:PORT/SERVICE or embedded:DIR"
)


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """A checked address. `directory` is set for an embedded server, which has no client before it runs."""

    scheme: str
    shown: str  # without the password, for messages
    text: str = field(repr=False)
    directory: Path | None = None
    sentinels: tuple[tuple[str, int], ...] = ()
    service: str = ""
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    replicas: int = 0  # that must have a write before it counts

    def client(self, answer_seconds: float | None) -> Redis:
        """A client without built-in retries: they would run a command twice that was applied and not answered.

        `answer_seconds` bounds the wait for each answer; None leaves that to the caller.
        """
        common: dict[str, Any] = {
            "socket_timeout": answer_seconds,
            "socket_connect_timeout": CONNECT_SECONDS,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "driver_info": None,
        }
        if not self.sentinels:
            return Redis.from_url(self.text, **common)
        asking = {**common, "socket_timeout": CONNECT_SECONDS}
        for name, value in self.options.items():
            (asking if name.startswith("sentinel_") else common)[name.removeprefix("sentinel_")] = value
        sentinel: Any = Sentinel(self.sentinels, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
        client: Redis = sentinel.master_for(self.service, **common)
        return client


def parse(text: str) -> RedisUrl:
    """Check an address without I/O. ValueError says what is wrong with it, never showing its password."""
    if text.startswith(EMBEDDED):
        directory = text.removeprefix(EMBEDDED)
        if not directory:
            raise ValueError("embedded: names no directory; write embedded:DIR")
        return RedisUrl("embedded", text, text, directory=Path(directory).expanduser())
    try:
        parts = urlsplit(text)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise ValueError(f"not an address ({error}); {_EXPECTED}") from None
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"unknown scheme {parts.scheme!r}; {_EXPECTED}")
    unknown = sorted(set(options) - _OPTIONS[parts.scheme])
    if unknown:
        known = ", ".join(sorted(_OPTIONS[parts.scheme]))
        raise ValueError(f"unknown option {unknown[0]!r} in the address; {parts.scheme} takes {known}")
    hosts = parts.netloc.rpartition("@")[2]
    shown = f"{parts.scheme}://{hosts}{parts.path}"
    replicas = _number("replicas", options.pop("replicas", ""))
    if parts.scheme == "redis+sentinel":
        found = _sentinel(text, shown, hosts, parts.path, parts.username, parts.password, options)
        return replace(found, replicas=replicas)
    if parts.scheme == "unix":
        if not parts.path:
            raise ValueError(f"names no socket; {_EXPECTED}")
    else:
        _host_and_port(hosts)
        _database(parts.path)
    if "db" in options:
        _database(options["db"])
    text = urlunsplit(parts._replace(query=urlencode(options))) if replicas else text
    return RedisUrl(parts.scheme, shown, text, replicas=replicas)


async def close(client: Redis) -> None:
    """Close a client of `RedisUrl.client`, and those it asks for its address."""
    await client.aclose()
    manager = getattr(client.connection_pool, "sentinel_manager", None)
    for sentinel in manager.sentinels if manager else ():
        await sentinel.aclose()


def unix_url(path: Path) -> RedisUrl:
    """The address of a server that listens on this socket."""
    return parse(f"unix://{quote(str(path))}")


def _sentinel(
    text: str,
    shown: str,
    hosts: str,
    path: str,
    username: str | None,
    password: str | None,
    options: dict[str, Any],
) -> RedisUrl:
    service, _, database = path.strip("/").partition("/")
    if not service:
        raise ValueError("names no service; write redis+sentinel://HOST:PORT,HOST:PORT/SERVICE")
    options["db"] = _database(database)
    if username:
        options["username"] = unquote(username)
    if password:
        options["password"] = unquote(password)
    sentinels = tuple(_host_and_port(host, 26379) for host in hosts.split(","))
    return RedisUrl("redis+sentinel", shown, text, sentinels=sentinels, service=service, options=options)


def _host_and_port(text: str, port: int = 6379) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "", parts.port or port
    except ValueError:
        host = ""
    if not host:
        raise ValueError(f"{text!r} is not HOST:PORT; {_EXPECTED}")
    return host, port


def _database(text: str) -> int:
    return _number("database", text.strip("/"))


def _number(what: str, text: str) -> int:
    if text and not text.isdecimal():
        raise ValueError(f"{what} {text!r} is not a number; {_EXPECTED}")
    return int(text or 0)
