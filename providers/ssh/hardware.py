"""What a donated host has and what holds it: processors, memory, disk, GPUs, and the processes on its devices.

Runs on the host: standard library only, Python 3.9 on.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from typing import Any

SYS_DRM = "/sys/class/drm"
NVIDIA_GPUS = "/proc/driver/nvidia/gpus"
KEPT_MIB = 1_024
"""GPU memory in use without a process; less is what drivers keep for themselves."""


def probe(folder: str, devices: set[str]) -> dict[str, Any]:
    """What the host really has. `missing` are device files of the policy that are not there."""
    with open("/proc/meminfo", encoding="ascii") as file:
        memory_kib = next(int(line.split()[1]) for line in file if line.startswith("MemTotal:"))
    os.makedirs(folder, exist_ok=True)
    return {
        "cpus": os.cpu_count(),
        "memory_mib": memory_kib // 1024,
        "disk_gib": shutil.disk_usage(folder).total >> 30,
        "arch": {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
        "gpus": gpus(),
        "missing": sorted(device for device in devices if not os.path.exists(device)),
    }


def gpus() -> dict[str, list[str]]:
    """Names of the GPUs by vendor; a vendor whose tool is not installed is left out."""
    found = {}
    if listed := said("nvidia-smi", "--list-gpus"):
        found["nvidia"] = re.findall(r"^GPU \d+: (.*?)(?: \(UUID.*)?$", listed, re.MULTILINE)
    if listed := said("rocm-smi", "--showproductname", "--json"):
        with contextlib.suppress(ValueError, AttributeError):
            cards = {card: about for card, about in json.loads(listed).items() if card.startswith("card")}
            found["amd"] = [str(about.get("Card Series") or card) for card, about in sorted(cards.items())]
    return found


def gpu_memory(devices: set[str]) -> str:
    """Which of these GPUs still has memory in use; empty when none has, or nothing tells."""
    for device in sorted(devices):
        if (used := _used_mib(os.path.basename(device))) > KEPT_MIB:
            return f"{used} MiB of memory are still in use on {device}"
    return ""


def _used_mib(device: str) -> int:
    """AMD's `renderD128` answers in sysfs (docs.kernel.org/gpu/amdgpu/driver-misc.html), `nvidia0` by its tool."""
    if device.startswith("renderD"):
        with (
            contextlib.suppress(OSError, ValueError),
            open(f"{SYS_DRM}/{device}/device/mem_info_vram_used") as file,
        ):
            return int(file.read()) >> 20
    if number := re.fullmatch(r"nvidia(\d+)", device):
        for bus in os.listdir(NVIDIA_GPUS) if os.path.isdir(NVIDIA_GPUS) else ():
            with contextlib.suppress(OSError, ValueError), open(f"{NVIDIA_GPUS}/{bus}/information") as file:
                if re.search(rf"^Device Minor:\s*{number[1]}$", file.read(), re.MULTILINE):
                    query = ("--query-gpu=memory.used", "--format=csv,noheader,nounits")
                    return int(said("nvidia-smi", f"--id={bus}", *query))
    return 0


def said(*command: str) -> str:
    """What a tool printed; empty where it is missing or failed."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=True
        )
        return done.stdout
    return ""


def command_lines() -> dict[int, list[str]]:
    """Arguments of every live process."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if words := file.read():
                found[int(pid)] = words.decode(errors="replace").split("\0")
    return found


def holders(devices: set[str]) -> list[int]:
    """Processes that have one of these devices open."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc") if devices else ()):
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{fd}") in devices:
                        found.append(int(pid))
                        break
    return found
