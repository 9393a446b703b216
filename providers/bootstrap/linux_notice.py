#!/usr/bin/env python3
"""Waits until the cloud says that it will take this spot machine back, prints that as one line, and ends.

`notice.py ec2|gce|azure URL NAME SECONDS`: asks the metadata service at URL every SECONDS; NAME is the machine's.
A service that is away, or answers in another way, says nothing. Standard library only, Python 3.9 on.

Sources: EC2 "Spot Instance interruption notices" (2 minutes ahead, IMDSv2), Compute Engine "Preemption process"
(30 s), Azure "Scheduled Events for Linux VMs" (30 s).
"""

from __future__ import annotations

import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from typing import Any

PLAIN = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(url: str, headers: dict[str, str], method: str = "GET") -> str:
    """The answer's text; empty for any status but 200."""
    try:
        with PLAIN.open(urllib.request.Request(url, headers=headers, method=method), timeout=10) as answer:
            return str(answer.read(65536).decode(errors="replace"))
    except urllib.error.HTTPError:
        return ""


def ec2(url: str, name: str) -> str:
    token = ask(f"{url}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
    said = (
        ask(f"{url}/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token}) if token else ""
    )
    return "EC2 will {action} it at {time}".format(**json.loads(said)) if said else ""


def gce(url: str, name: str) -> str:
    google, base = {"Metadata-Flavor": "Google"}, f"{url}/computeMetadata/v1/instance"
    if ask(f"{base}/preempted", google).strip() == "TRUE":
        return "Compute Engine preempts it now"
    event = ask(f"{base}/maintenance-event", google).strip()
    return f"Compute Engine announces {event}" if event.startswith("TERMINATE") else ""


def azure(url: str, name: str) -> str:
    said = ask(f"{url}/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"})
    events: list[dict[str, Any]] = json.loads(said)["Events"] if said else []
    for event in events:
        if event["EventType"] in ("Preempt", "Terminate") and name in event["Resources"]:
            return "Azure announces {EventType} at {NotBefore}".format(**event)
    return ""


def main(cloud: str, url: str, name: str, seconds: str) -> None:
    look = {"ec2": ec2, "gce": gce, "azure": azure}[cloud]
    while True:
        try:
            notice = look(url, name)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            notice = ""
        if notice:
            print(notice[:200], flush=True)
            return
        time.sleep(float(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
