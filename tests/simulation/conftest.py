"""Collected tasks of killed replicas have nothing to say; errors that replicas log are the checker's to judge."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator

import pytest

from autoscaler import daemon
from autoscaler.http import runner_api


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    monkeypatch.setattr(daemon, "IDLE_S", daemon.IDLE_S)  # `simulate` sets both: put them back
    monkeypatch.setattr(runner_api, "LOOK_SECONDS", runner_api.LOOK_SECONDS)
    yield
    gc.collect()
    logging.disable(logging.NOTSET)
