#!/usr/bin/env python3
"""The startup script of a machine on Compute Engine: does cloud-init's part where the image has no cloud-init.

Reads the same user data from the metadata service (constant text, data in JSON: files to write, commands to run).
Standard library only, Python 3.9 on. Google's guest agent runs it as root at every boot; it acts once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request

URL = "http://metadata.google.internal/computeMetadata/v1/instance/attributes/user-data"


def main(root: str, url: str) -> None:
    """Apply the user data below `root`, once."""
    done = os.path.join(root, "etc/autoscaler/boot.json")
    if shutil.which("cloud-init") or os.path.exists(done):
        return
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        plan = json.loads(answer.read().decode().partition("\n")[2])
    for file in plan["write_files"]:
        path = os.path.join(root, file["path"].lstrip("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
            out.write(file["content"].encode())
        os.chmod(path, int(file["permissions"], 8))
    for command in plan["runcmd"]:
        subprocess.run(command, check=False)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["/", URL]))
