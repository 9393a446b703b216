"""A GitHub runner for the stand-in: a tarball as a machine installs it, whose run.sh does one job.

`{github}` is the stand-in's address, `{speed}` how much faster than real time it lives.
"""

from __future__ import annotations

import io
import tarfile

from aiohttp import web

RUNNER = """#!/usr/bin/python3 -I
import json, os, subprocess, time, urllib.request

def ask(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {{"Content-Type": "application/json"}}
    request = urllib.request.Request("{github}/_runner/" + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.status, answer.read()

session = json.loads(ask("POST", "connect", {{"jit": os.environ["ACTIONS_RUNNER_INPUT_JITCONFIG"]}})[1])["session"]
print("Listening for Jobs", flush=True)
status = 204
while status == 204:
    status, body = ask("GET", session + "/job?wait=20")
job = json.loads(body)
with open("event.json", "w") as file:
    json.dump({{}}, file)
env = {{**os.environ, "GITHUB_REPOSITORY": job["repository"], "GITHUB_EVENT_NAME": job["event"],
       "GITHUB_RUN_ID": str(job["run_id"]), "GITHUB_EVENT_PATH": os.path.abspath("event.json")}}
subprocess.run(["bash", "-e", os.environ["ACTIONS_RUNNER_HOOK_JOB_STARTED"]], env=env, check=True)
time.sleep(job["duration_ms"] / {speed}_000)
subprocess.run(["bash", "-e", os.environ["ACTIONS_RUNNER_HOOK_JOB_COMPLETED"]], env=env, check=True)
ask("POST", session + "/finish", {{"conclusion": "success"}})
"""


async def tarball_server():
    tarball: dict[str, bytes] = {}

    async def download(_: web.Request) -> web.Response:
        return web.Response(body=tarball["content"])

    app = web.Application()
    app.router.add_get("/runner.tar.gz", download)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/runner.tar.gz", tarball


def pack(script: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        entry = tarfile.TarInfo("./run.sh")
        entry.mode, entry.size = 0o755, len(script)
        tar.addfile(entry, io.BytesIO(script.encode()))
    return packed.getvalue()
