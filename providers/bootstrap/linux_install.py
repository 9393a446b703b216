#!/usr/bin/env python3
"""Installs the GitHub runner on a machine: the image's and the policy's hooks, the tarball, what it needs.

`install.py FOLDER` reads FOLDER/machine.json and prints what it does: a line that begins with STEP is the next
step, every other one is a command's output. It ends with 0, or with 1 and the reason as its last line. A tarball
is used only with the SHA-256 of the policy. Standard library only, Python 3.9 on.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from typing import Any

STEP = "@step "
HOOK_SECONDS = 900
NO_ANSWER = (OSError, http.client.HTTPException)


def step(text: str) -> None:
    print(STEP + text, flush=True)


def install(plan: dict[str, Any]) -> None:
    runner, home = plan["runner"], plan["home"]
    hook("pre_install", plan)
    archive = os.path.join(plan["cache"], os.path.basename(runner["url"]))
    if not (os.path.exists(archive) and sha256(archive) == runner["sha256"]):
        archive = home + ".tar.gz"
        step("downloads the runner")
        download(runner["url"], archive)
        if sha256(archive) != runner["sha256"]:
            raise RuntimeError(f"{runner['url']} does not have the SHA-256 {runner['sha256']} of the policy")
    step("unpacks the runner")
    with tarfile.open(archive) as tar:
        tar.extractall(home)
    if os.geteuid() == 0:
        icu = subprocess.run(["ldconfig", "-p"], capture_output=True, check=False).stdout
        if b"libicuuc" not in icu:
            step("installs what the runner needs")
            command([f"{home}/bin/installdependencies.sh"], "installdependencies.sh", home)
    hook("post_install", plan)
    for address in plan["unreachable"]:
        close(address, plan.get("notice"))


def hook(name: str, plan: dict[str, Any]) -> None:
    """The image's own script of that name, then the policy's."""
    of_image = os.path.join(plan["hooks"]["folder"], name)
    if os.path.exists(of_image):
        step(f"runs the image's {name}")
        command([of_image], f"the image's {name} hook", "/")
    if text := plan["hooks"][name]:
        step(f"runs {name}")
        with tempfile.NamedTemporaryFile("w", prefix=name) as script:
            script.write(text)
            script.flush()
            command(["bash", "-e", script.name], f"the {name} hook", "/")


def command(words: list[str], name: str, folder: str) -> None:
    """Run it; its output is ours."""
    try:
        code = subprocess.run(
            words,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            timeout=HOOK_SECONDS,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{name} did not end in {HOOK_SECONDS} s") from None
    if code:
        raise RuntimeError(f"{name} ended with {code}")


def close(address: str, to_all_but_root: object) -> None:
    """No process may reach this address from now on; root may where it hears there that a spot machine goes."""
    root = ["pref", "98", "iif", "lo", "uidrange", "0-0", "to", address, "lookup", "main"]
    rules = [root, ["pref", "99", "to", address, "prohibit"]] if to_all_but_root else []
    done = [subprocess.run(["ip", "rule", "add", *rule], check=False).returncode == 0 for rule in rules]
    if not (done and all(done)):
        subprocess.run(["ip", "route", "replace", "prohibit", address], check=False)


def sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def download(url: str, path: str) -> None:
    for attempt in range(5):
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, open(path, "wb") as file:
                for block in iter(lambda: answer.read(1 << 20), b""):
                    file.write(block)
            return
        except NO_ANSWER as error:
            if attempt == 4 or getattr(error, "code", 500) < 500:
                raise RuntimeError(f"cannot download {url}: {error}") from error
        time.sleep(2**attempt * random.uniform(0.2, 1))


def main(folder: str) -> int:
    with open(f"{folder}/machine.json", encoding="utf-8") as file:
        plan = json.load(file)
    try:
        install(plan)
    except Exception as error:
        print(error if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
