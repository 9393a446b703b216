#!/bin/sh
# ACTIONS_RUNNER_HOOK_JOB_STARTED. A cancelled job must not slip past admission, so signals are ignored; and since a
# failing hook does not stop steps with `if: always()`, any doubt kills the runner's whole process group.
trap '' INT TERM HUP
python3 -I "${0%/*}/hook.py" started || kill -KILL 0
