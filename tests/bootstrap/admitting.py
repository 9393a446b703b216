"""Jobs that a machine must refuse, one after the other: the real program, and a runner whose steps always run.

Run as `python -I admitting.py FOLDER FIRST COUNT`, FOLDER holding the programs; prints what came of each as JSON.
The runner is a tree of shells like GitHub's (listener, worker, hook) that heeds no exit code: as soon as the hook
is gone, its steps write into `steps.txt`.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
from pathlib import Path

ACCESS = {"repositories": ["pytorch/*"], "forks": "deny", "events": []}
WORKER = """\
export GITHUB_REPOSITORY=pytorch/pytorch GITHUB_EVENT_NAME=push GITHUB_RUN_ID=7 GITHUB_EVENT_PATH="$PWD/event.json"
{environment}
{escape}
bash -e "$ACTIONS_RUNNER_HOOK_JOB_STARTED" > hook.log 2>&1 & hook=$!; echo $hook > hook.pid
{during}
wait $hook
sleep 1  # the machine may be slow; a runner that lost its hook is to be dead by then
echo step >> steps.txt  # if: always()
bash -c 'echo step >> steps.txt'
"""
STRANGER = "export GITHUB_REPOSITORY=mallory/miner"
FORK = {"pull_request": {"head": {"repo": {"full_name": "mallory/pytorch"}}}}
ESCAPE = """\
( setsid bash -c 'until [ -s hook.pid ]; do sleep 0.01; done
while kill -0 $(cat hook.pid); do sleep 0.01; done; echo escaped >> steps.txt' > /dev/null 2>&1 & )
"""
WELCOME = """\
python3 -c '
import os, socket
line = socket.socket(socket.AF_UNIX); line.bind("mine.sock"); line.listen(); open("mine", "w").close()
one, _ = line.accept(); one.recv(999); one.sendall(b"{\\"refused\\": \\"\\"}\\\\n")
' & until [ -e mine ]; do sleep 0.01; done
export AUTOSCALER_SOCKET="$PWD/mine.sock"
"""
OPENED = "until ls -l /proc/$hook/fd | grep -q started.sh; do :; done 2> /dev/null"
KINDS: dict[str, dict[str, object]] = {
    "stranger": {"environment": STRANGER},
    "fork": {"environment": "export GITHUB_EVENT_NAME=pull_request", "event": FORK},
    "daemonised": {"environment": STRANGER, "escape": ESCAPE},
    "cancelled": {"environment": STRANGER, "during": f"{OPENED}; kill -INT $hook; kill -TERM $hook"},
    "shell killed": {"environment": STRANGER, "during": f"{OPENED}; kill -KILL $hook"},
    "hook killed": {"environment": STRANGER, "during": "until pkill -KILL -P $hook; do sleep 0.01; done"},
    "no repository": {"environment": "unset GITHUB_REPOSITORY"},
    "no event": {"environment": "unset GITHUB_EVENT_PATH"},
    "broken event": {"event": "[[["},
    "no socket": {"environment": "unset AUTOSCALER_SOCKET"},
    "another's socket": {"environment": STRANGER, "escape": WELCOME},
}


def attempt(linux, folder: Path, number: int, kind: str) -> dict[str, object]:
    """One job on a machine of its own; `kind` not of KINDS: one that may run."""
    parts = {"environment": "", "escape": "", "during": "", "event": {}, **KINDS.get(kind, {})}
    event = parts.pop("event")
    home = folder / f"job-{number}"
    home.mkdir()
    (home / "event.json").write_text(event if isinstance(event, str) else json.dumps(event))
    (home / "worker.sh").write_text(WORKER.format(**parts))
    (home / "run.sh").write_text("#!/bin/bash\nbash worker.sh\n")
    (home / "run.sh").chmod(0o755)
    boot = {"url": "http://127.0.0.1:9", "runner_id": "r0", "token": "t", "access": ACCESS, "fleet": "fleet"}
    plan = {"home": str(home), "user": "", "socket": str(folder / f"{number}.sock"), "grace_seconds": 0.05}
    machine = linux.Machine(str(folder), boot, plan)
    machine.run_runner("jit", {})
    linux.kill_descendants()  # as the program does before it shuts the machine down
    steps = home / "steps.txt"
    stages = [report["stage"] for report in machine.reports.queue if report]
    return {"kind": kind, "steps": steps.read_text() if steps.exists() else "", "stages": stages}


def main(folder: str, first: str, count: str) -> None:
    sys.path.insert(0, folder)
    linux = importlib.import_module("machine")

    kinds, done = [*KINDS, "allowed"], []
    for number in range(int(first), int(first) + int(count)):
        result = Path(folder, f"{number}.json")
        if not (child := os.fork()):  # a machine has one job, and ends with it
            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans become its own, as the program has it
            result.write_text(json.dumps(attempt(linux, Path(folder), number, kinds[number % len(kinds)])))
            os._exit(0)
        os.waitpid(child, 0)
        done.append(json.loads(result.read_text()))
    print(json.dumps(done))


if __name__ == "__main__":
    main(*sys.argv[1:])
