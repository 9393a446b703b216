"""A folder of policy files, and what the operator sees of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import pytest

from autoscaler.policy.file import Loaded, PolicyError, load

NOW_MS = int(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp() * 1000)

SMALL = """\
version: 1
providers:
  lab: {kind: sim, price: 0 USD/h}
runner_types:
  small:
    labels: [self-hosted, small]
    access: {repositories: ["octo/*"]}
"""

FULL = """\
version: 1
include: [providers/*.yaml]
ignore_labels: ["ubuntu-*", "windows-*", "macos-*"]
limits: {runners: 2500}
funds:
  aws-2026: {credit: 1000000 USD, from: 2026-01-01, until: 2027-02-01, pays: [aws],
             spent: {amount: 412000 USD, as_of: 2026-11-30}}
  gcp-gift: {credit: 50000 USD, until: 2026-12-31, pays: [gcp], repositories: ["pytorch/*"]}
  cash: {cash: 20000 USD/month, pays: [aws], purchase: [spot], regions: [us-east-1],
         families: [c5], daily: 900 USD}
providers:
  aws: {kind: aws, regions: [us-east-1, us-west-2], max_runners: 800, launch_rate: 2/s,
        price: {times: 1.1, plus: 0.03 USD/h}, settings: {subnets: {us-east-1: {us-east-1a: subnet-0abc}}}}
  gcp: {kind: gcp, regions: [us-central1]}
  rocm-lab: {kind: ssh, price: 0 USD/h, available: "Mon-Fri 19:00-08:00 Europe/Berlin",
             settings: {key_file: /etc/autoscaler/ssh_key, hosts: [
               {name: a, host_key: ssh-ed25519 AAAA, cpus: 16, memory_gib: 64,
                gpu: {vendor: amd, model: gfx942, devices: [[/dev/kfd, /dev/dri/renderD128]]}}]}}
  cluster: {kind: kubernetes, max_runners: from_cluster}
images:
  al2023: {aws: {us-east-1: ami-0abc}, gcp: projects/x/global/images/y, trial: {image: next, percent: 10}}
  next: {aws: ami-0def}
defaults: {image: al2023, boot_timeout: 8m, register_timeout: 3m, idle_timeout: 5m, max_lifetime: 3h,
           ready_max_age: 1h, register: repository, access: {repositories: ["pytorch/*"], forks: deny}}
runner_types:
  linux.2xlarge:
    labels: [self-hosted, Linux, x64, linux.2xlarge]
    hardware: {os: linux, arch: x64, cpus: 8, memory: 16 GiB, disk: 150 GiB}
    max_price: 0.50 USD/h
    offers:
      - {provider: aws, instance_types: [c5.2xlarge, c6i.2xlarge], purchase: [on_demand, spot]}
      - {provider: gcp, instance_types: [n2-standard-8]}
    max_runners: 500
    ready: [{count: 10, when: "Mon-Fri 08:00-20:00 America/Los_Angeles"}, {count: 0}]
    share: {percent: 10, all_after: 15m}
  linux.rocm.gpu:
    labels: [self-hosted, linux, linux.rocm.gpu]
    hardware: {os: linux, gpu: {vendor: amd, model: gfx942, count: 1}}
    offers: [{provider: rocm-lab}]
    register: {group: gpu runners}
    bootstrap: userdata
  linux.fork:
    labels: [self-hosted, linux, linux.fork]
    access: {repositories: ["pytorch/*"], forks: only, events: [pull_request]}
    offers: [{provider: gcp, instance_types: [e2-standard-4], purchase: [reserved], count: 2}]
    register: organization
rules:
  - {match: {repository: "pytorch/*", ref: "refs/heads/release/*"}, prefer: [aws], waiting_hour: 20 USD}
  - {match: {event: [push, schedule]}, avoid: [gcp], deny: [rocm-lab], rerun: true}
placement: {waiting_hour: 2.00 USD, restart_cost: 0.50 USD}
fair_share: {by: repository, half_life: 24h, weights: {"pytorch/pytorch": 5}, fifo_after: 1h,
             max_runners: {"x/*": 3}}
on_deadline: {after: 2h, action: alert}
"""


class Folder:
    """Files of one policy; the main one is `policy.yaml`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, text: str, name: str = "policy.yaml") -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text), encoding="utf-8")
        return file

    def load(self, text: str | None = None, now_ms: int = NOW_MS) -> Loaded:
        if text is not None:
            self.write(text)
        return load(self.path / "policy.yaml", now_ms)

    def errors(self, text: str | None = None) -> str:
        """The report, with paths relative to the folder."""
        with pytest.raises(PolicyError) as caught:
            self.load(text)
        return str(caught.value).replace(f"{self.path}/", "")

    def warnings(self, text: str | None = None, now_ms: int = NOW_MS) -> str:
        return "\n".join(map(str, self.load(text, now_ms).warnings)).replace(f"{self.path}/", "")


def changed(old: str, new: str) -> str:
    """The small policy with one passage replaced; the passage must be there."""
    assert old in SMALL
    return SMALL.replace(old, new)
