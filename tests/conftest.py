"""What this machine can run: tests that need more than Python say so, and the run ends by naming those left out.

A test marked `@pytest.mark.needs("redis-server")` is skipped where the capability is missing. The closing summary
lists every test that was not run with its reason, so that a green run never hides a gap.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Callable

import pytest

pytest.register_assert_rewrite("providers.conformance")


def _program(name: str) -> Callable[[], bool]:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    return lambda: shutil.which(name, path=path) is not None


CAPABILITIES: dict[str, tuple[Callable[[], bool], str]] = {
    "root": (lambda: os.geteuid() == 0, "needs root"),
    "redis-server": (_program("redis-server"), "no redis-server here (Debian: apt-get install redis-server)"),
    "bwrap": (_program("bwrap"), "no bwrap here (Debian: apt-get install bubblewrap)"),
    "sshd": (_program("sshd"), "no sshd here (Debian: apt-get install openssh-server)"),
    "unshare": (_program("unshare"), "no unshare here (Debian: apt-get install util-linux)"),
    "ip": (_program("ip"), "no ip here (Debian: apt-get install iproute2)"),
    "chromium": (_program("chromium"), "no chromium here (Debian: apt-get install chromium)"),
}
"""Capability of the machine -> (is it there?, why a test that needs it was not run)."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            present, reason = CAPABILITIES[name]
            if not present():
                pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    stats = terminalreporter.stats
    if stats.get("error") or stats.get("deselected"):
        return  # not the whole suite
    not_run: dict[str, list[str]] = defaultdict(list)
    for report in stats.get("skipped", []):
        longrepr = report.longrepr
        reason = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
        not_run[reason.removeprefix("Skipped: ")].append(report.nodeid)
    if not not_run:
        terminalreporter.section("every test was run")
        return
    terminalreporter.section("not run, and why")
    for reason, tests in sorted(not_run.items()):
        terminalreporter.line(f"{reason}:")
        for test in sorted(tests):
            terminalreporter.line(f"    {test}")
