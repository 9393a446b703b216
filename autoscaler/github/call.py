"""One request to GitHub, and the lists that GitHub need not send again while they are as they were."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from githubkit.response import Response

from autoscaler.github.budget import Need

Params = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Call:
    """One REST request. `collection`: the list that its path is an entry of, where a 404 shall be proof."""

    need: Need
    method: str
    path: str
    params: Params | None = None
    body: dict[str, Any] | None = field(default=None, repr=False)
    collection: str = ""

    @property
    def key(self) -> Hashable:
        """What is asked for."""
        return self.method, self.path, tuple(sorted((self.params or {}).items()))


class KnownLists:
    """The last answers to GETs of lists, so that GitHub is asked only for what has changed since.

    A 304 does not count against the primary limit: docs.github.com/en/rest/using-the-rest-api/
    best-practices-for-using-the-rest-api, "Use conditional requests if appropriate".
    """

    BYTES = 32 * 1024 * 1024

    def __init__(self) -> None:
        self._answers: OrderedDict[Hashable, Response[Any]] = OrderedDict()
        self._bytes = 0

    def get(self, call: Call) -> Response[Any] | None:
        key = call.key
        if key in self._answers:
            self._answers.move_to_end(key)
        return self._answers.get(key)

    def keep(self, call: Call, answer: Response[Any]) -> None:
        """The least used ones go when there is no more room."""
        self._forget(call.key)
        if call.method == "GET" and answer.status_code == 200 and "etag" in answer.headers:
            self._answers[call.key] = answer
            self._bytes += len(answer.content)
        while self._bytes > self.BYTES:
            self._forget(next(iter(self._answers)))

    def _forget(self, key: Hashable) -> None:
        if old := self._answers.pop(key, None):
            self._bytes -= len(old.content)
