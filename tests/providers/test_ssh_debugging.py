"""What is left of a machine that failed, and how a slot shows that it is not clean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from providers.ssh import hardware, host
from providers.ssh.host import Host

REQUEST = {
    "fleet": "fleet",
    "runner_id": "r1",
    "launcher": "bubblewrap",
    "slots": [{"devices": []}],
    "tags": {},
    "instance_type": "slot",
}


def machine(folder: Path, *stages: str) -> Path:
    """A lease whose machine has ended after these stages."""
    home = folder / "slots/0/fleet-r1"
    (home / "work").mkdir(parents=True)
    (home / "boot.json").write_text("secret")
    (home / "work/core").write_text("a core file")
    (home / "work/stages.txt").write_text("".join(f"{stage}\n" for stage in stages))
    (folder / "slots/0/lease.json").write_text(json.dumps({"name": "fleet-r1", "fleet": "fleet", "started": True}))
    return home


def terminate(folder: Path, keep_s: int) -> str:
    request = {**REQUEST, "call": "terminate", "folder": str(folder), "keep_s": keep_s}
    return host.answer(request)["cooled"]


def cooled(folder: Path) -> dict[str, str]:
    return host.answer({**REQUEST, "call": "probe", "folder": str(folder)})["cooled"]


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ((), "its machine never came up"),
        (("booted", "failed", "exited"), "its machine failed"),
        (("booted", "registered", "started"), "its machine ended without a word"),
    ],
)
def test_a_failed_machine_is_kept_for_debugging_and_its_slot_is_out(tmp_path, stages, why):
    home = machine(tmp_path, *stages)
    said = terminate(tmp_path, keep_s=600)
    assert said == f"{why}; kept for debugging: {home}/work"
    assert (home / "work/core").exists()
    assert not (home / "boot.json").exists()
    assert cooled(tmp_path) == {"0": said}
    assert not (tmp_path / "slots/0/lease.json").exists()  # nobody waits for its end


def test_what_was_kept_is_removed_when_its_time_is_over(tmp_path):
    home = machine(tmp_path)
    terminate(tmp_path, keep_s=600)
    file = tmp_path / "slots/0/cooled.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "until": 1}))
    assert cooled(tmp_path) == {}
    assert not home.exists()


@pytest.mark.parametrize(("stages", "keep_s"), [(("booted", "registered", "exited"), 600), ((), 0)])
def test_nothing_is_kept_of_a_machine_that_did_well_or_where_nobody_asked(tmp_path, stages, keep_s):
    home = machine(tmp_path, *stages)
    assert terminate(tmp_path, keep_s) == ""
    assert not home.exists()
    assert cooled(tmp_path) == {}


def test_a_job_cannot_make_us_read_another_file(tmp_path):
    home = machine(tmp_path)
    (home / "work/stages.txt").unlink()
    (tmp_path / "other").write_text("booted exited")
    (home / "work/stages.txt").symlink_to(tmp_path / "other")
    assert terminate(tmp_path, keep_s=60).startswith("its machine never came up")


def test_memory_that_stays_in_use_on_a_gpu_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "SYS_DRM", str(tmp_path))
    file = tmp_path / "renderD128/device/mem_info_vram_used"
    file.parent.mkdir(parents=True)
    file.write_text(str(5 << 30))
    devices = [{"devices": ["/dev/kfd", "/dev/dri/renderD128"]}, {"devices": ["/dev/kfd"]}]
    slots = Host({**REQUEST, "folder": str(tmp_path), "slots": devices})
    assert slots.held(0) == "5120 MiB of memory are still in use on /dev/dri/renderD128"
    assert slots.held(1) == ""
    file.write_text(str(20 << 20))
    assert slots.held(0) == ""


def test_gpus_are_counted_by_their_vendors_tool(tmp_path, monkeypatch):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\necho 'GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)'\necho 'GPU 1: NVIDIA T4 (UUID: GPU-2)'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert hardware.gpus() == {"nvidia": ["NVIDIA A100-SXM4-80GB", "NVIDIA T4"]}
