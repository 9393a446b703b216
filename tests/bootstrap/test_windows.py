"""The Windows programs. None of this ran on Windows: their grammar, their constancy, and how they are sent."""

from __future__ import annotations

import base64
import gzip
import json
import re
from typing import Any

import pytest

from providers.aws.request import Root, run_instances
from providers.aws.settings import AwsSettings
from providers.base import LaunchSpec, Refused
from providers.bootstrap import RunnerPackage, program, windows_launch
from providers.catalogue import offers_at, table
from providers.gcp.request import instance
from providers.gcp.settings import GcpSettings
from scheduling.matching import fits
from scheduling.messages import Stage
from scheduling.model import Hardware

PROGRAMS = ("windows.ps1", "windows_hook.ps1")
BOOT = {
    "fleet": "ci",
    "runner_id": "r0",
    "name": "ci-r0'; Remove-Item C:\\ -Recurse; $(whoami) `id`",
    "url": "http://here",
    "token": "secret",
    "access": {"repositories": ["octo/*"], "forks": "deny", "events": []},
    "place": {"provider": "aws", "offer": "c5.large\n::add-mask::x", "fund": "grant"},
}
RUNNER = {"version": "2.338.0", "sha256": {"win-x64": "AB" * 32}}
SUBNETS = {"us-east-1": {"us-east-1a": "subnet-0abc"}}


def spec(os: str = "windows", boot: dict[str, Any] | None = None) -> LaunchSpec:
    kind = table("ec2.csv")["c5.large"]
    offer = next(offers_at("aws", "us-east-1", "us-east-1a", kind, os))
    return LaunchSpec(
        "ci", "r0", "windows", offer, 100_000, "grant", 1, "ami-1", 0, json.dumps(boot or BOOT), 90_000
    )  # fmt: skip


def aws(**changes: Any) -> AwsSettings:
    return AwsSettings.model_validate({"subnets": SUBNETS, "os": "windows", "runner": RUNNER, **changes})


def user_data(launch: LaunchSpec, settings: AwsSettings) -> str:
    return run_instances(launch, settings, Root("/dev/sda1", 30))["UserData"].decode()


def unpacked(text: str) -> dict[str, Any]:
    launch: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(text)))
    return launch


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_powershell(name: str) -> None:
    tree_sitter = pytest.importorskip("tree_sitter", reason="tree-sitter is not installed")
    grammar = pytest.importorskip("tree_sitter_powershell", reason="tree-sitter-powershell is not installed")
    parser = tree_sitter.Parser(tree_sitter.Language(grammar.language()))
    assert not parser.parse(program(name)).root_node.has_error


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_evaluated(name: str) -> None:
    text = program(name).decode("ascii")
    assert not re.search(r"(?i)invoke-expression|\biex\b|scriptblock\]::create|-encodedcommand|-command\b", text)
    assert '"' not in text  # PowerShell interpolates in double quotes only


def test_every_stage_of_the_protocol_is_named() -> None:
    text = b"".join(map(program, PROGRAMS)).decode()
    of_linux_alone = {Stage.INTERRUPTED}
    assert {stage for stage in Stage if f"'{stage}'" not in text} == of_linux_alone
    assert "X-Machine-Nonce" in text
    assert "jit?wait=25" in text


def test_launches_differ_in_their_data_alone() -> None:
    first, second = user_data(spec(), aws()), user_data(spec(boot={**BOOT, "token": "another"}), aws())
    cut = re.compile(r"<autoscaler>[A-Za-z0-9+/=]+</autoscaler>$")
    assert first != second
    assert (
        cut.sub("", first)
        == cut.sub("", second)
        == f"<powershell>\n{program('windows.ps1').decode()}\n</powershell>\n"
    )
    assert first == user_data(spec(), aws())
    assert len(first) < 16_384
    # the program looks for its data with this pattern, which must not find the program's own text
    (found,) = re.findall("<autoscaler>([A-Za-z0-9+/=]+)</autoscaler>", first)
    assert unpacked(found)["boot"] == BOOT


def test_the_launch_names_the_archive_of_windows_and_its_folders() -> None:
    launch = unpacked(re.findall("<autoscaler>([A-Za-z0-9+/=]+)</autoscaler>", user_data(spec(), aws()))[0])
    assert launch["plan"]["runner"]["url"].endswith("/actions-runner-win-x64-2.338.0.zip")
    assert launch["plan"]["runner"]["sha256"] == "ab" * 32
    assert launch["plan"]["cache"] == "C:\\actions-runner-cache"
    assert launch["plan"]["unreachable"] == ["169.254.169.254/32"]
    assert launch["plan"]["lifetime_seconds"] == 90
    assert launch["hook"] == program("windows_hook.ps1").decode()


def test_the_jobs_side_has_no_token_and_an_inert_line() -> None:
    package = RunnerPackage.model_validate(RUNNER).for_arch("x64", "windows")
    assert package
    job = unpacked(windows_launch(json.dumps(BOOT), package, 1000, []))["job"]
    assert "secret" not in json.dumps(job)
    assert job["line"].startswith("ci: this job runs at aws on c5.large")
    assert "::" not in job["line"]
    assert "\n" not in job["line"]


def test_without_the_checksum_of_windows_nothing_is_launched() -> None:
    with pytest.raises(Refused, match=r"settings\.runner\.sha256 has no entry for win-x64, which c5\.large needs"):
        user_data(spec(), aws(runner={}))


def test_a_launch_for_the_other_system_is_refused() -> None:
    with pytest.raises(Refused, match=r"this launch is for linux, and settings\.os says windows now"):
        user_data(spec("linux"), aws())


def test_compute_engine_runs_it_as_its_startup_script() -> None:
    settings = GcpSettings.model_validate({"os": "windows", "runner": RUNNER})
    items = {item["key"]: item["value"] for item in instance(spec(), settings, "p")["metadata"]["items"]}
    assert items["windows-startup-script-ps1"] == program("windows.ps1").decode()
    assert unpacked(items["autoscaler"])["boot"] == BOOT
    assert unpacked(items["autoscaler"])["plan"]["unreachable"] == []  # the name server is there
    assert "startup-script" not in items


def test_machines_under_windows_have_no_bundled_price_and_serve_no_linux_type() -> None:
    offer = spec().offer
    assert offer.list_price is None
    assert fits(Hardware(os="windows"), offer.hardware, True) == ""
    assert fits(Hardware(os="linux"), offer.hardware, True) == "runs windows, not linux"
