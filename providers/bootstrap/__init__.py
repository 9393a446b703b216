"""What a fresh machine does before it is a runner: constant programs, and the JSON that they read.

Belongs here: the programs of the machine (`linux*`, `windows*`) and the user data that carries them. Launch
data travels as data: nothing is interpolated into a shell, and one launch gives the same bytes on every replay.

Never here: a cloud's API, and anything that only runs on our side.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from providers.bootstrap.linux import inert
from scheduling.model import DurationMs

Arch = Literal["x64", "arm64", "win-x64", "win-arm64"]

VERSION = "2.338.0"
SHA256: Mapping[Arch, str] = {  # as published with the release, github.com/actions/runner/releases/tag/v2.338.0
    "x64": "af4b794c1bc41d73d40535e3fe092a39f9679cd8d965954c2aca25a05ca41d32",
    "arm64": "628b4a7258487b80c1d3c221095a7ded349f5ae0175fd3dfab708d07428f041b",
}
RUNNER_URL = (
    "https://github.com/actions/runner/releases/download/v{version}/actions-runner-linux-{arch}-{version}.tar.gz"
)

WINDOWS_URL = (
    "https://github.com/actions/runner/releases/download/v{version}/actions-runner-win-{arch}-{version}.zip"
)
WINDOWS_FOLDERS = {"cache": r"C:\actions-runner-cache", "hooks": r"C:\autoscaler-hooks"}
LINUX_CACHE = "/opt/actions-runner-cache"
Os = Literal["linux", "windows"]

METADATA_URL = "http://169.254.169.254"  # of EC2, Compute Engine and Azure alike

PROGRAMS = {  # where cloud-init puts what; hooks look for `hook.py` beside themselves
    "linux.py": "/opt/autoscaler/machine.py",
    "linux_install.py": "/opt/autoscaler/install.py",
    "linux_hook.py": "/opt/autoscaler/hook.py",
    "linux_notice.py": "/opt/autoscaler/notice.py",
    "linux_started.sh": "/opt/autoscaler/started.sh",
    "linux_finished.sh": "/opt/autoscaler/finished.sh",
    "linux.service": "/etc/systemd/system/autoscaler-machine.service",
}


HOOKS_FOLDER = "/opt/autoscaler-hooks"
BEAT_SECONDS = 10
HOOK_CHARACTERS = 8192

Hook = Annotated[str, Field(max_length=HOOK_CHARACTERS)]


class RunnerPackage(BaseModel):
    """Which GitHub Actions runner a machine installs, and what else happens there, as root, before and after.

    GitHub refuses runners that are too old. Hooks come from here or from the image (an executable `pre_install` or
    `post_install` in /opt/autoscaler-hooks), never from anything that a job says.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str = Field(default=VERSION, pattern=r"^\d+\.\d+\.\d+$", description="release of actions/runner")
    sha256: Mapping[Arch, str] = Field(
        default=SHA256,
        description="SHA-256 of the tarball, by architecture: x64, arm64; of Windows' archive: win-x64, win-arm64",
    )
    url: str = Field(default=RUNNER_URL, description="where it is fetched; {version} and {arch} are filled in")
    cache: str = Field(
        default=LINUX_CACHE,
        pattern=r"^(/|[A-Z]:\\)",
        description="folder of the image that may hold the tarball, under its own name; on Windows the default is "
        r"C:\actions-runner-cache",
    )
    pre_install: Hook = Field(default="", description="bash, before the runner is installed")
    post_install: Hook = Field(default="", description="bash, after it: drivers of a GPU, mirrors, caches")

    @model_validator(mode="after")
    def _own_sums(self) -> RunnerPackage:
        if self.version != VERSION and self.sha256 == SHA256:
            raise ValueError(
                f"runner version {self.version} needs its own sha256, one for each of x64 and arm64 used"
            )
        return self

    def for_arch(self, arch: str, os: Os = "linux") -> dict[str, Any] | None:
        """Its part of the plan that the machine reads; None when no checksum is known for that architecture."""
        url = WINDOWS_URL if os == "windows" and self.url == RUNNER_URL else self.url
        url = url.replace("{version}", self.version).replace("{arch}", arch)
        arch = f"win-{arch}" if os == "windows" else arch
        known = {str(name): value for name, value in self.sha256.items()}.get(arch)
        if known is None:
            return None
        return {
            "runner": {"url": url, "sha256": known.lower(), "version": self.version},
            "cache": self.cache,
            "hooks": {
                "folder": HOOKS_FOLDER,
                "pre_install": self.pre_install,
                "post_install": self.post_install,
            },
            "beat_seconds": BEAT_SECONDS,
        }


def windows_launch(
    boot: str, package: Mapping[str, Any], lifetime_ms: DurationMs, unreachable: Sequence[str]
) -> str:
    """What `windows.ps1` reads: one launch as JSON, packed, in base64. A secret, as `boot` is.

    The program itself is `program("windows.ps1")`, the same for all. It never ran on a real Windows machine here.
    """
    said = json.loads(boot)
    place = said.get("place", {})
    line = f"{said.get('fleet', '')}: this job runs at {place.get('provider', '')} on {place.get('offer', '')}"
    launch = {
        "boot": said,
        "plan": {
            **_on_windows(package),
            "lifetime_seconds": lifetime_ms // 1000,
            "unreachable": list(unreachable),
        },
        "hook": program("windows_hook.ps1").decode(),
        "job": {
            "access": said.get("access"),
            "notice": bool(said.get("notice")),
            "line": inert(f"{line}, {'paid by ' + place['fund'] if place.get('fund') else 'for free'}"),
        },
    }
    packed = gzip.compress(json.dumps(launch, sort_keys=True).encode(), mtime=0)
    return base64.b64encode(packed).decode()


def _on_windows(package: Mapping[str, Any]) -> dict[str, Any]:
    cache = WINDOWS_FOLDERS["cache"] if package["cache"] == LINUX_CACHE else package["cache"]
    return {**package, "cache": cache, "hooks": {**package["hooks"], "folder": WINDOWS_FOLDERS["hooks"]}}


def linux_user_data(
    boot: str,
    package: Mapping[str, Any],
    lifetime_ms: DurationMs,
    unreachable: Sequence[str] = (),
    notice: str = "",
) -> str:
    """cloud-init user data for one launch.

    `boot` is the launch data as it stands (a secret); `package` is what `RunnerPackage.for_arch` gave.
    `lifetime_ms` arms the system's own shutdown timer, which holds even if the program never starts. `unreachable`
    are addresses that no process may reach once the job begins: the metadata service, which repeats this text.
    `notice` (`ec2`, `gce`, `azure`; empty: not a spot machine) says how that service announces that the machine
    will be taken; then root may still reach it.
    """
    plan = {
        **package,
        "home": "/opt/actions-runner",
        "user": "runner",  # an image may bring this user, with the groups that its jobs need
        "socket": "/run/autoscaler/hook.sock",
        "grace_seconds": 3,
        "shutdown": ["shutdown", "-h", "now"],
        "unreachable": list(unreachable),
        "notice": [notice, METADATA_URL] if notice else [],
    }
    content = [
        _file("/etc/autoscaler/boot.json", "0600", boot.encode()),
        _file("/etc/autoscaler/machine.json", "0644", json.dumps(plan, sort_keys=True).encode()),
    ]
    content += [_program_file(name, path) for name, path in PROGRAMS.items()]
    minutes = -(-lifetime_ms // 60_000)
    run = [["shutdown", "-P", f"+{minutes}"], ["systemctl", "start", "--no-block", "autoscaler-machine.service"]]
    return "#cloud-config\n" + json.dumps({"write_files": content, "runcmd": run}, sort_keys=True)


def program(name: str) -> bytes:
    """Text of one of `PROGRAMS`."""
    return files(__name__).joinpath(name).read_bytes()


@cache  # they are the same at every launch
def _program_file(name: str, path: str) -> dict[str, str]:
    return _file(path, "0644" if path.endswith(".service") else "0755", program(name))


def _file(path: str, mode: str, content: bytes) -> dict[str, str]:
    return {"path": path, "permissions": mode, "owner": "root:root", "content": content.decode()}
