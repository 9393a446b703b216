#!/usr/bin/env python3
"""The job's side of admission: runs inside the job, as the runner's user, at its start and at its end.

`hook.py started|finished` tells the machine's program (`linux.py`) what GitHub's own environment says of the job.
A refused job gets no exit status from here: it prints why and waits, and the whole runner is killed meanwhile,
because a hook that only fails does not stop steps with `if: always()`.

Standard library only, Python 3.9 on.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from typing import Any


def is_fork(event: Any, name: str, repository: str) -> bool | None:
    """Whether the run comes from a fork, by GitHub's event payload; None when the payload does not tell."""
    if not isinstance(event, dict):
        return None
    request = event.get("pull_request")
    if not isinstance(request, dict):
        return None if name.startswith("pull_request") else False
    head = (request.get("head") or {}).get("repo") or {}  # null when the fork was deleted
    return str(head.get("full_name", "")).casefold() != repository.casefold()


def descends_from(pid: int) -> bool:
    """Whether that process is above this one: no other process can speak for the machine's program."""
    here = os.getpid()
    while here > 1:
        with open(f"/proc/{here}/stat", encoding="latin-1") as file:
            here = int(file.read().rpartition(")")[2].split()[1])
        if here == pid:
            return True
    return False


def main(stage: str) -> int:
    repository, name = os.environ.get("GITHUB_REPOSITORY", ""), os.environ.get("GITHUB_EVENT_NAME", "")
    try:
        with open(os.environ["GITHUB_EVENT_PATH"], encoding="utf-8") as file:
            event = json.load(file)
    except (KeyError, OSError, ValueError):
        event = None
    fork, run = is_fork(event, name, repository), os.environ.get("GITHUB_RUN_ID", "")
    job = {"stage": stage, "repository": repository, "event": name, "fork": fork, "run": run}
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(os.environ["AUTOSCALER_SOCKET"])
        listener, _, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if not descends_from(listener):
            print("autoscaler refused this job: another program answers in place of its own", flush=True)
            return 1
        line.sendall(json.dumps(job).encode() + b"\n")
        answer = json.loads(line.makefile("rb").readline())
        why = answer["refused"]
        if answer["line"]:
            print(answer["line"], flush=True)
        if why:
            print(f"autoscaler refused this job: {why}", flush=True)
            line.recv(1)
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
