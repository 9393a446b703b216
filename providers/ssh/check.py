"""`provider check` for donated hosts: the way in, the launcher, and the hardware that the policy sells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from providers import checking
from providers.base import CheckLine, ProviderError, Refused
from providers.ssh.settings import HostSettings
from scheduling.model import UnixMs

KEY_MEND = "if the host was installed anew, put what `ssh-keyscan` prints into host_key; else find out who answers"
IN_MEND = (
    "add the public half of settings.key_file to the user's authorized_keys, and the sudo rule of deploy/providers"
)
AWAY_MEND = "see that the host is up and that its address and port can be reached from the daemon's host"
LAUNCHER_MEND = "install it there, or choose the other settings.launcher"


def refused(host: HostSettings, error: ProviderError) -> CheckLine:
    """Why nobody got in, or nothing could be run there."""
    what = f"{host.name}: way in"
    if isinstance(error, Refused):
        return checking.failed(what, error, KEY_MEND if "host key" in str(error) else "")
    return checking.failed(what, error, AWAY_MEND if "is away" in str(error) else IN_MEND)


def probed(host: HostSettings, has: Mapping[str, Any], lacks: str, now_ms: UnixMs) -> list[CheckLine]:
    """What the program there found. `lacks` is what of it is less than the policy says."""
    found = f"{has['cpus']} CPUs, {has['memory_mib'] // 1024} GiB, {has['arch']}"
    launcher = ", ".join(has["no_launcher"])
    cooled = "; ".join(f"slot {number}: {why}" for number, why in has["cooled"].items())
    slots = host.slots - len(has["cooled"])
    return [
        CheckLine(f"{host.name}: way in", True, f"{host.user}, host key as in the policy"),
        CheckLine(
            f"{host.name}: launcher",
            not launcher,
            f"{launcher} is missing" if launcher else "",
            LAUNCHER_MEND if launcher else "",
        ),
        CheckLine(
            f"{host.name}: hardware",
            not lacks,
            lacks or found,
            "correct slots, cpus, memory_gib or gpu" if lacks else "",
        ),
        CheckLine(
            f"{host.name}: slots",
            slots > 0,
            cooled or f"{slots} in use",
            "free what holds them, or wait half an hour" if slots < 1 else "",
        ),
        *(
            [checking.clock(has["time_ms"], now_ms)] if host.host_key else []
        ),  # else its report is of some time ago
    ]
