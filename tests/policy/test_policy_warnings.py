"""What is valid and will not do what it seems to."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.policy.policies import FULL, NOW_MS, SMALL, Folder, changed

DAY_MS = 24 * 3_600_000


def test_a_plain_policy_has_no_warnings(folder: Folder) -> None:
    assert folder.warnings(SMALL) == ""


def test_rerun_false_is_no_wish(folder: Folder) -> None:
    assert folder.warnings(changed("runner_types:", "rules: [{prefer: [lab], rerun: false}]\nrunner_types:")) == ""


def test_providers_of_all_kinds_are_in_the_policy(folder: Folder) -> None:
    assert set(folder.load(FULL).policy.providers) == {"aws", "gcp", "rocm-lab", "cluster"}


def test_a_type_that_no_repository_may_use(folder: Folder) -> None:
    assert folder.warnings(changed('{repositories: ["octo/*"]}', "{repositories: []}")) == (
        "policy.yaml:5: runner_types.small: no repository is allowed: "
        'write `access: {repositories: ["OWNER/*"]}` here or under `defaults`'
    )


def test_many_types_with_one_fault_are_one_warning(folder: Folder) -> None:
    text = SMALL + "".join(f"  t{n}: {{labels: [t{n}]}}\n" for n in range(20))
    (line,) = folder.warnings(text).splitlines()
    assert line.startswith("policy.yaml:4: runner_types: t0, t1, t2 and 17 more: no repository is allowed")


@pytest.mark.parametrize(
    ("fund", "reason"),
    [
        ("{credit: 5 USD, from: 2026-11-30}", ""),
        ("{credit: 5 USD, from: 2026-11-29T12:00:00Z}", ""),
        ("{credit: 5 USD, from: 2026-11-29T11:59:00Z}", "what was spent before is unknown"),
        ("{credit: 5 USD, from: 2026-12-01}", "it begins on 2026-12-01"),
        ("{credit: 5 USD, until: 2026-11-30}", "its `until` passed on 2026-11-30"),
        ("{credit: 5 USD, until: 2026-12-01}", "what was spent before is unknown"),
        ("{credit: 5 USD, spent: {amount: 1 USD, as_of: 2026-11-29}}", ""),
        (
            "{credit: 5 USD, spent: {amount: 1 USD, as_of: 2026-11-28}}",
            "`spent` is of 2026-11-28, older than yesterday",
        ),
        ("{cash: 5 USD/month}", "what was spent before is unknown"),
        ("{cash: 5 USD/month, spent: {amount: 1 USD, as_of: 2026-11-30}}", ""),
    ],
)
def test_a_fund_that_is_closed_says_why_and_how_it_opens(folder: Folder, fund: str, reason: str) -> None:
    text = folder.warnings(changed("runner_types:", f"funds: {{f: {fund}}}\nrunner_types:"))
    assert text.startswith(f"policy.yaml:4: funds.f: this fund is closed: {reason}" if reason else "")
    if "spent" in reason:
        assert "`from: 2026-11-30` where it is new" in text
        assert "`autoscaler funds set f --spent AMOUNT`" in text
    assert bool(text) == bool(reason)


def test_the_time_of_the_check_counts(folder: Folder) -> None:
    text = changed("runner_types:", "funds: {f: {credit: 5 USD, from: 2026-11-30}}\nrunner_types:")
    assert folder.warnings(text) == ""
    assert "it begins on 2026-11-30" in folder.warnings(text, NOW_MS - DAY_MS)
    later = int(datetime(2027, 3, 1, tzinfo=UTC).timestamp() * 1000)
    assert "by `from: 2027-03-01` where it is new" in folder.warnings(text, later)


AWS = """\
version: 1
funds: {f: {credit: 5 USD, from: 2026-11-30}}
providers:
  cloud: {kind: aws}
images: {i: {aws: ami-0abc}}
defaults: {image: i, access: {repositories: ["octo/*"]}}
runner_types:
  small: {labels: [small], offers: [{provider: cloud, instance_types: [c5.large]}]}
"""
COMPLETE = "{kind: aws, regions: [us-east-1], settings: {subnets: {us-east-1: {us-east-1a: subnet-0a}}}}"


def test_what_a_cloud_account_lacks(folder: Folder) -> None:
    assert folder.warnings(AWS).splitlines() == [
        "policy.yaml:4: providers.cloud: `regions` is missing: nothing can be launched there",
        "policy.yaml:4: providers.cloud: `settings.subnets` is missing: nothing can be launched there",
    ]
    assert folder.warnings(AWS.replace("{kind: aws}", COMPLETE)) == ""
    half = COMPLETE.replace("[us-east-1]", "[us-east-1, us-west-2]")
    assert "`settings.subnets` has none in us-west-2" in folder.warnings(AWS.replace("{kind: aws}", half))


def test_a_cloud_account_that_nobody_pays(folder: Folder) -> None:
    text = AWS.replace("{kind: aws}", COMPLETE).replace("providers:\n", "providers:\n  lab: {kind: sim}\n")
    text = text.replace("from: 2026-11-30", "from: 2026-11-30, pays: [lab]")
    assert "no fund pays `cloud`: only offers at 0 USD/h can run there" in folder.warnings(text)


def test_a_type_without_an_image_where_one_is_needed(folder: Folder) -> None:
    text = AWS.replace("{kind: aws}", COMPLETE).replace("image: i, ", "")
    assert "runner_types.small: no `image` is named, here or under `defaults`" in folder.warnings(text)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("c5.large", "c5.lrage", "cloud is not known to sell `c5.lrage`; did you mean `c5.large`?"),
        ("offers:", "hardware: {cpus: 64}, offers:", "c5.large of cloud has 2 CPUs, 64 are needed"),
        ("offers:", "hardware: {arch: arm64}, offers:", "c5.large of cloud is x64, not arm64"),
        ("{aws: ami-0abc}", "{aws: {us-west-2: ami-0abc}}", "c5.large of cloud has no image i in us-east-1"),
        (
            "cloud, instance",
            "cloud, regions: [us-west-2], instance",
            "no provider sells what `offers` says",
        ),
        (
            "offers:",
            "max_price: 0.08 USD/h, offers:",
            "c5.large of cloud costs $0.0850/h, more than its `max_price`",
        ),
    ],
)
def test_a_type_that_nothing_can_serve(folder: Folder, old: str, new: str, reason: str) -> None:
    text = AWS.replace("{kind: aws}", COMPLETE)
    assert old in text
    found = folder.warnings(text.replace(old, new))
    assert f"policy.yaml:8: runner_types.small: no offer can ever match: {reason}" in found


def test_a_price_that_is_always_too_high(folder: Folder) -> None:
    text = changed("0 USD/h", "2 USD/h").replace("    access:", "    max_price: 1 USD/h\n    access:")
    assert "no offer can ever match: " in folder.warnings(text)
    assert "costs $2.00/h, more than its `max_price`" in folder.warnings(text)
