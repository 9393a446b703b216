"""What a good policy becomes."""

from __future__ import annotations

import pytest

from autoscaler.policy.file import provider_config
from scheduling.model import Gpu, Hardware, Purchase
from scheduling.policy import Access, FairShare, Forks, Price, ReadyFloor, RunnerType, Selector, Share
from tests.policy.policies import FULL, SMALL, Folder, changed

MINUTE, HOUR = 60_000, 3_600_000


def test_everything_of_the_documented_policy_is_compiled(folder: Folder) -> None:
    policy = folder.load(FULL).policy
    assert policy.max_runners == 2500
    assert policy.ignore_labels == ("ubuntu-*", "windows-*", "macos-*")

    aws, gcp, cash = (policy.funds[name] for name in ("aws-2026", "gcp-gift", "cash"))
    assert (aws.cash, aws.limit, aws.pays) == (False, 10**12, frozenset({"aws"}))
    assert (aws.from_ms, aws.until_ms) == (1_767_225_600_000, 1_801_440_000_000)
    assert (aws.spent, aws.spent_as_of_ms) == (412_000 * 10**6, 1_795_996_800_000)
    assert (gcp.from_ms, gcp.repositories, gcp.spent) == (None, ("pytorch/*",), None)
    assert (cash.cash, cash.limit, cash.purchase) == (True, 20_000 * 10**6, frozenset({Purchase.SPOT}))
    assert (cash.regions, cash.families, cash.daily) == (("us-east-1",), ("c5",), 900 * 10**6)

    provider = policy.providers["aws"]
    assert (provider.kind, provider.regions, provider.max_runners) == ("aws", ("us-east-1", "us-west-2"), 800)
    assert provider.launch_rate == 2.0
    assert provider.price == Price(times_ppm=1_100_000, plus=30_000)
    assert provider.settings == {"subnets": {"us-east-1": {"us-east-1a": "subnet-0abc"}}}

    assert policy.images["al2023"].reference("aws", "aws", "us-east-1") == "ami-0abc"
    assert policy.images["al2023"].reference("aws", "aws", "us-west-2") is None
    assert policy.images["al2023"].reference("other", "gcp", "x") == "projects/x/global/images/y"
    assert "trial" not in policy.images["al2023"].by

    release, others = policy.rules
    assert (release.repository, release.ref, release.prefer) == (
        ("pytorch/*",),
        ("refs/heads/release/*",),
        ("aws",),
    )
    assert release.waiting_hour == 20_000_000
    assert (others.event, others.avoid, others.deny, others.rerun) == (
        ("push", "schedule"),
        ("gcp",),
        ("rocm-lab",),
        True,
    )
    assert (policy.placement.waiting_hour, policy.placement.restart_cost) == (2_000_000, 500_000)
    assert policy.fair_share == FairShare("repository", 24 * HOUR, {"pytorch/pytorch": 5}, HOUR, {"x/*": 3})
    assert policy.on_deadline is not None
    assert (policy.on_deadline.after_ms, policy.on_deadline.action) == (2 * HOUR, "alert")


def test_runner_types_of_the_documented_policy(folder: Folder) -> None:
    types = folder.load(FULL).policy.runner_types
    big, gpu, fork = types.values()
    assert big.labels == ("self-hosted", "Linux", "x64", "linux.2xlarge")  # as written
    assert big.hardware == Hardware("linux", "x64", 8, 16_384, 150)
    assert big.selectors == (
        Selector("aws", ("c5.2xlarge", "c6i.2xlarge"), (Purchase.ON_DEMAND, Purchase.SPOT)),
        Selector("gcp", ("n2-standard-8",), (Purchase.ON_DEMAND,)),
    )
    assert (big.max_price, big.max_runners, big.image, big.register) == (500_000, 500, "al2023", "repository")
    floor, always = big.ready
    assert floor.count == 10
    assert floor.when is not None
    assert floor.when.text == "Mon-Fri 08:00-20:00 America/Los_Angeles"
    assert always == ReadyFloor(0)
    assert big.share == Share(10, 15 * MINUTE)
    assert gpu.hardware == Hardware(gpu=Gpu("amd", "gfx942", 1))
    assert (gpu.register, gpu.bootstrap) == ("group:gpu runners", "userdata")
    assert fork.access == Access(("pytorch/*",), Forks.ONLY, ("pull_request",))
    assert fork.register == "organization"


def test_built_in_defaults_are_those_of_the_contract(folder: Folder) -> None:
    written = (
        "defaults: {boot_timeout: 8m, register_timeout: 3m, idle_timeout: 5m, max_lifetime: 3h,\n"
        "           ready_max_age: 1h, register: repository}\nrunner_types:"
    )
    stated = folder.load(changed("runner_types:", written)).policy.runner_types["small"]
    built_in = folder.load(SMALL).policy.runner_types["small"]
    assert stated == built_in
    assert built_in == RunnerType(
        name="small",
        labels=("self-hosted", "small"),
        hardware=Hardware(),
        access=Access(("octo/*",)),
        boot_timeout_ms=8 * MINUTE,
        register_timeout_ms=3 * MINUTE,
        idle_timeout_ms=5 * MINUTE,
        max_lifetime_ms=3 * HOUR,
        ready_max_age_ms=HOUR,
        register="repository",
        image="",
    )


def test_a_type_says_for_itself_what_it_says_and_defaults_say_the_rest(folder: Folder) -> None:
    text = SMALL.replace(
        "runner_types:",
        "defaults: {idle_timeout: 9m, max_lifetime: 1h,\n"
        '           access: {repositories: ["a/*"], forks: allow, events: [push]}}\nrunner_types:',
    ).replace('{repositories: ["octo/*"]}', "{forks: only}\n    max_lifetime: 2h")
    small = folder.load(text).policy.runner_types["small"]
    assert (small.idle_timeout_ms, small.max_lifetime_ms) == (9 * MINUTE, 2 * HOUR)
    assert small.access == Access(("a/*",), Forks.ONLY, ("push",))


def test_access_is_denied_unless_written(folder: Folder) -> None:
    text = changed('    access: {repositories: ["octo/*"]}\n', "")
    assert folder.load(text).policy.runner_types["small"].access == Access((), Forks.DENY, ())


def test_a_maximum_of_zero_is_zero(folder: Folder) -> None:
    text = changed("    access:", "    max_runners: 0\n    ready: [{count: 0}]\n    access:")
    small = folder.load(text).policy.runner_types["small"]
    assert (small.max_runners, small.ready) == (0, (ReadyFloor(0),))


@pytest.mark.parametrize(
    ("price", "list_price", "ours"),
    [("0 USD/h", 340_000, 0), ("{times: 1.15}", 100_000, 115_000), ("{plus: 0.03 USD/h}", 340_000, 370_000)],
)
def test_price_of_a_provider(folder: Folder, price: str, list_price: int, ours: int) -> None:
    lab = folder.load(changed("price: 0 USD/h", f"price: {price}")).policy.providers["lab"]
    assert lab.price.of(list_price) == ours


def test_the_hash_names_the_content_not_the_spelling(folder: Folder) -> None:
    first = folder.load(SMALL).policy.hash
    small = '{access: {repositories: ["octo/*"]}, labels: ["self-hosted", small]}'
    flow = (
        f'{{runner_types: {{small: {small}}}, "version": 1, providers: {{lab: {{price: "0 USD/h", kind: sim}}}}}}'
    )
    assert folder.load(flow).policy.hash == first
    folder.write("version: 1\nproviders:\n  lab: {kind: sim, price: 0 USD/h}\n", "lab.yaml")
    rest = SMALL.replace("providers:\n  lab: {kind: sim, price: 0 USD/h}", "include: [lab.yaml]")
    assert folder.load(rest).policy.hash == first
    assert folder.load(changed("octo/*", "octo/x")).policy.hash != first
    assert len(first) == 16


def test_settings_come_as_the_kinds_own_model(folder: Folder) -> None:
    loaded = folder.load(changed("price: 0 USD/h", "settings: {seed: 7}"))
    assert loaded.settings["lab"].seed == 7
    config = provider_config(loaded.policy, "lab", loaded.settings["lab"], fleet="ci")
    assert (config.name, config.fleet, config.needs) == ("lab", "ci", {"small": Hardware()})
    assert config.settings is loaded.settings["lab"]


def test_a_provider_is_told_only_the_needs_of_types_that_may_run_there(folder: Folder) -> None:
    text = SMALL + "  large: {labels: [large], hardware: {cpus: 64}, offers: [{provider: other}]}\n"
    loaded = folder.load(text.replace("  lab:", "  other: {kind: sim}\n  lab:"))
    needs = {
        name: set(provider_config(loaded.policy, name, loaded.settings[name], "").needs)
        for name in ("lab", "other")
    }
    assert needs == {"lab": {"small"}, "other": {"small", "large"}}
