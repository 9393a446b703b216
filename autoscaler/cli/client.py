"""Commands that ask a running daemon: one request each, then its JSON or its text form on stdout."""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from autoscaler.settings import ClientSettings, client_from_env

ANSWER_SECONDS = 15.0
ANSWER_MAX = 64 * 1024 * 1024

Document = dict[str, Any]


class ClientError(Exception):
    """The daemon could not be asked or said no; the text says what to do."""


class Client:
    """Asks one daemon. Never follows a redirect: the token is for that address only."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._opener = build_opener(_NoRedirect)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Document:
        asked = f"?{urlencode(query, errors='replace')}" if query else ""
        return self._ask("GET", path + asked, None)

    def post(self, path: str, body: Document) -> Document:
        return self._ask("POST", path, json.dumps(body).encode())

    def post_to_host(self, path: str, body: Document) -> Document:
        return self._ask("POST", path, json.dumps(body).encode(), under="host/v1")

    def _ask(self, method: str, path: str, body: bytes | None, under: str = "api/v1") -> Document:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._settings.token:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        url = f"{self._settings.api_url}/{under}/{path}"
        try:
            with self._opener.open(Request(url, body, headers, method=method), timeout=ANSWER_SECONDS) as answer:
                found = json.loads(answer.read(ANSWER_MAX))
        except HTTPError as error:
            raise ClientError(_refusal(error)) from None
        except (URLError, OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise ClientError(
                f"no daemon answers at {self._settings.api_url} ({_words(reason)}); "
                "start `autoscaler serve`, or name its address in AUTOSCALER_API_URL"
            ) from None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ClientError(
                f"what answers at {self._settings.api_url} is no autoscaler; check AUTOSCALER_API_URL"
            )
        return found


def _segment(name: str) -> str:
    """One segment of a path; what is no text finds nothing."""
    return quote(name, safe="", errors="replace")


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _words(reason: Any) -> str:
    if isinstance(reason, TimeoutError):
        return f"no answer within {ANSWER_SECONDS:g} s"
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__


def _refusal(error: HTTPError) -> str:
    try:
        text = str(json.loads(error.read(ANSWER_MAX))["error"])
    except (ValueError, KeyError, TypeError, OSError):
        text = f"the daemon answered {error.code} {error.reason}"
    if 300 <= error.code < 400:
        return f"redirected to {error.headers.get('Location')}; name that address in AUTOSCALER_API_URL"
    if error.code == 401:
        return f"{text}; name the file with your token in AUTOSCALER_API_TOKEN_FILE"
    return text


# ---- the commands ------------------------------------------------------------------------------------------


def show_list(name: str, query: Mapping[str, str], *, as_json: bool) -> int:
    """`status`, `jobs`, `runners`, `providers`, `funds`: GET /api/v1/NAME."""
    found = _client().get(name, {key: value for key, value in query.items() if value})
    if as_json:
        return print_json(found)
    from autoscaler.cli import tables, terminal

    terminal.show(tables.TABLES[name](found))
    return 0


def why(subject: str, *, as_json: bool) -> int:
    """`why JOB_ID`: GET /api/v1/jobs/JOB_ID on one screen; `why fund:NAME` likewise of a fund."""
    if subject.startswith("fund:"):
        return _why_fund(subject.removeprefix("fund:"), as_json=as_json)
    found = _client().get(f"jobs/{_segment(subject)}")
    if as_json:
        return print_json(found)
    from autoscaler.cli import terminal
    from autoscaler.views import why_text

    terminal.show([why_text.screen(found)])
    return 0


def _why_fund(name: str, *, as_json: bool) -> int:
    found = _client().get(f"funds/{_segment(name)}")
    if as_json:
        return print_json(found)
    from autoscaler.cli import tables, terminal

    terminal.show(tables.fund(found))
    return 0


def fund_spent(name: str, amount: str, *, as_json: bool) -> int:
    """`funds set NAME --spent AMOUNT`: POST /api/v1/funds/NAME/spent."""
    found = _client().post(f"funds/{_segment(name)}/spent", {"spent": amount})
    if as_json:
        return print_json(found)
    print(f"{found['fund']}: ${found['spent_usd']} spent by now (stated by {found['by']})")
    return 0


def fund_statement(name: str, month: str, *, as_json: bool) -> int:
    """`funds statement NAME --month M`: GET /api/v1/funds/NAME/statement."""
    found = _client().get(f"funds/{_segment(name)}/statement", {"month": month})
    if as_json:
        return print_json(found)
    from autoscaler.cli import tables, terminal

    terminal.show(tables.statement(found))
    return 0


def switch(name: str, target: str, *, as_json: bool) -> int:
    """`pause`, `resume`, `drain`, `undrain`: POST /api/v1/NAME."""
    found = _client().post(name, {"target": target} if target else {})
    if as_json:
        return print_json(found)
    what = "the fleet" if found["target"] == "fleet" else found["target"]
    done = {"pause": "paused", "resume": "resumed", "drain": "drained", "undrain": "open again"}[name]
    print(f"{what} is {done} from the leader's next round on (by {found['by']})")
    return 0


def host_switch(name: str, host: str, minutes: int | None, *, as_json: bool) -> int:
    """`host pause`, `host resume`, `host keep`: POST /host/v1/PROVIDER/HOST/NAME."""
    body = {} if minutes is None else {"minutes": minutes}
    found = _client().post_to_host(f"{quote(host, errors='replace')}/{name}", body)
    if as_json:
        return print_json(found)
    keeps = (
        f"keeps what failed machines leave for {minutes} min" if minutes else "keeps nothing of failed machines"
    )
    done = {"pause": "is paused; running jobs finish", "resume": "is open again", "keep": keeps}[name]
    print(f"{found['host']} {done} (by {found['by']})")
    return 0


def print_json(found: Document) -> int:
    json.dump(found, sys.stdout, indent=2, ensure_ascii=False)
    print()
    return 0


def _client() -> Client:
    return Client(client_from_env(os.environ))
