"""The report: each line says where, what was expected, what was found and what to write."""

# ruff: noqa: E501 (tables: one mistake a line, reports as they are printed)

from __future__ import annotations

import pytest

from tests.policy.policies import SMALL, Folder, changed


@pytest.mark.parametrize(
    ("old", "new", "report"),
    [
        ("version: 1", "version: 2", "policy.yaml:1: version: expected `1`, got `2`"),
        ("version: 1", 'version: "1"', "policy.yaml:1: version: expected `1`, got `1`; remove the quotes"),
        ("version: 1", "version: one", "policy.yaml:1: version: expected `1`, got `one`"),
        ("kind: sim", "kid: sim", "policy.yaml:3: providers.lab.kid: unknown key; did you mean `kind`?"),
        ("kind: sim", "kind: sims", "there is no provider kind `sims`; installed: aws, azure, gcp, kubernetes, sim, ssh; did you mean `sim`?"),
        ("kind: sim", "kind: vsphere", "there is no provider kind `vsphere`; installed: aws, azure, gcp, kubernetes, sim, ssh"),
        ("kind: sim", "kind: [sim]", "policy.yaml:3: providers.lab.kind: expected text, got a list"),
        ("price: 0 USD/h", "price: 0", "providers.lab.price: expected a price an hour such as `0.50 USD/h`, got `0`; write `0 USD/h`"),
        ("price: 0 USD/h", "price: {time: 2}", "providers.lab.price.time: unknown key; did you mean `times`?"),
        ("price: 0 USD/h", "max_runners: many", "expected a whole number or `from_cluster`, got `many`"),
        ("price: 0 USD/h", "max_runners: from_cluster", "`max_runners: from_cluster` is for kind kubernetes"),
        ("price: 0 USD/h", "regions: here", "providers.lab.regions: expected a list such as [a, b], got `here`; write [here]"),
        ("price: 0 USD/h", "regions: []", "providers.lab.regions: must not be empty"),
        ("price: 0 USD/h", "settings: {sed: 1}", "providers.lab.settings.sed: unknown key; did you mean `seed`?"),
        ("price: 0 USD/h", "settings: {faults: {quotas: 1}}", "settings.faults.quotas: unknown key; did you mean `quota`?"),
        ("price: 0 USD/h", "settings: {zones: 99}", "providers.lab.settings.zones: expected 26 or less, got `99`"),
        ("price: 0 USD/h", "settings: 5", "providers.lab.settings: expected a mapping such as {key: value}, got `5`"),
        ("price: 0 USD/h", "available: Mon-Fri", "providers.lab.available: expected a weekly window"),
        ("price: 0 USD/h", "launch_rate: 2", "write `2/s`, `2/min` or `2/h`"),
        ("small:\n", "sm all:\n", "runner_types.sm all: expected a name of up to 100 letters, digits"),
        ("[self-hosted, small]", "self-hosted", "runner_types.small.labels: expected a list such as [a, b]"),
        ("[self-hosted, small]", "[self-hosted, 24]", "labels[1]: expected text, got `24`; put it in quotes"),
        ("[self-hosted, small]", "[small, Small]", "labels: lists `small` twice (case does not count)"),
        ("[self-hosted, small]", '["a,b"]', "labels[0]: expected a label of up to 256 characters without a comma"),
        ("[self-hosted, small]", "[]", "runner_types.small.labels: must not be empty"),
        ('["octo/*"]', "[octo]", "expected OWNER/REPOSITORY, got `octo`; write `octo/*` for all of an owner"),
        ('["octo/*"]}', '["octo/*"], forks: denny}', "access.forks: expected `deny`, `only` or `allow`, got `denny`; did you mean `deny`?"),
        ('["octo/*"]}', "}", "policy.yaml:7: runner_types.small.access.repositories: is empty: write a value"),
        ("    access:", "    max_runners: '5'\n    access:", "max_runners: expected a whole number, got `5`; remove the quotes"),
        ("    access:", "    max_runners: 1.5\n    access:", "max_runners: expected a whole number, got `1.5`"),
        ("    access:", "    max_runners: -1\n    access:", "max_runners: expected 0 or more, got `-1`"),
        ("    access:", "    max_runners: yes\n    access:", "max_runners: expected a whole number, got `yes`"),
        ("    access:", "    hardware: {memory: 16}\n    access:", "policy.yaml:7: runner_types.small.hardware.memory: expected a size such as `16 GiB`, got `16`; write `16 GiB`"),
        ("    access:", "    hardware: {gpu: amd}\n    access:", "hardware.gpu: expected a mapping such as {key: value}, got `amd`"),
        ("    access:", "    hardwear: {}\n    access:", "policy.yaml:7: runner_types.small.hardwear: unknown key; did you mean `hardware`?"),
        ("    access:", "    boot_timeout: 8\n    access:", "boot_timeout: expected a duration such as `8m`, got `8`; write `8s`, `8m` or `8h`"),
        ("    access:", "    boot_timeout: 0s\n    access:", "boot_timeout: expected a duration above 0"),
        ("    access:", "    register: repos\n    access:", "register: expected `repository` or `organization`, got `repos`; did you mean `repository`?"),
        ("    access:", "    register: {groop: x}\n    access:", "register.groop: unknown key; did you mean `group`?"),
        ("    access:", "    offers: []\n    access:", "runner_types.small.offers: must not be empty"),
        ("    access:", "    offers: [{provider: lap}]\n    access:", "offers[0].provider: there is no provider `lap`; did you mean `lab`?"),
        ("    access:", "    offers: [{provider: lab, purchase: [sport]}]\n    access:", "purchase[0]: expected `on_demand`, `spot` or `reserved`, got `sport`; did you mean `spot`?"),
        ("    access:", "    offers: [{provider: lab, purchase: [reserved]}]\n    access:", "offers[0]: `purchase: [reserved]` needs `count`"),
        ("    access:", "    offers: [{provider: lab, count: 3}]\n    access:", "offers[0]: `count` is for `purchase: [reserved]`; to limit runners write `max_runners`"),
        ("    access:", "    image: ubuntu\n    access:", "runner_types.small.image: there is no image `ubuntu`"),
        ("    access:", "    share: {percent: 101}\n    access:", "share.percent: expected 100 or less, got `101`"),
        ("    access:", "    share: {}\n    access:", "share.percent: is required"),
        ("    access:", "    bootstrap: userdata\n    ready: [{count: 1}]\n    access:", "runner_types.small.ready: a type with `bootstrap: userdata` can have no `ready` floor"),
        ("runner_types:\n  small:", "defaults: {bootstrap: userdata}\nrunner_types:\n  small:\n    ready: [{count: 1}]", "runner_types.small.ready: a type with `bootstrap: userdata` can have no `ready` floor"),
        ("runner_types:", "limits: {runner: 5}\nrunner_types:", "limits.runner: unknown key; did you mean `runners`?"),
        ("runner_types:", "limits:\nrunner_types:", "policy.yaml:4: limits: is empty: write a value, or remove the key"),
        ("runner_types:", "runer_types:", "policy.yaml:4: runer_types: unknown key; did you mean `runner_types`?"),
        ("runner_types:", "rules: [{prefer: [labb]}]\nrunner_types:", "rules[0].prefer[0]: there is no provider `labb`"),
        ("runner_types:", "rules: [{match: {}}]\nrunner_types:", "rules[0]: this rule does nothing: write prefer"),
        ("runner_types:", "rules: [{prefer: [lab], rerun: yes}]\nrunner_types:", "rules[0].rerun: expected true or false, got `yes`; write `true`"),
        ("runner_types:", "rules: {prefer: [lab]}\nrunner_types:", "rules: expected a list such as [a, b], got a mapping"),
        ("runner_types:", "funds: {a: {credit: 5 USD, cash: 5 USD/month}}\nrunner_types:", "funds.a: expected either `credit: 50000 USD` or `cash: 20000 USD/month`"),
        ("runner_types:", "funds: {a: {}}\nrunner_types:", "funds.a: expected either"),
        ("runner_types:", "funds: {a: {credit: 5}}\nrunner_types:", "funds.a.credit: expected an amount of money such as `2.00 USD`, got `5`; write `5 USD`"),
        ("runner_types:", "funds: {a: {cash: 5 USD}}\nrunner_types:", "write `5 USD/month`"),
        ("runner_types:", "funds: {a: {credit: 5 USD, pays: [labs]}}\nrunner_types:", "funds.a.pays[0]: there is no provider `labs`; did you mean `lab`?"),
        ("runner_types:", "funds: {a: {credit: 5 USD, from: 2026-02-01, until: 2026-01-01}}\nrunner_types:", "funds.a: `until` must be later than `from`"),
        ("runner_types:", "funds: {a: {cash: 5 USD/month, balance: lab}}\nrunner_types:", "funds.a: `balance` is for credit"),
        ("runner_types:", "funds: {a: {credit: 5 USD, balance: lab}, b: {credit: 5 USD, balance: lab}}\nrunner_types:", "funds: a and b both take the balance of lab: only one can"),
        ("runner_types:", "funds: {a: {credit: 5 USD, spent: {amount: 1 USD}}}\nrunner_types:", "funds.a.spent.as_of: is required"),
        ("runner_types:", "images: {u: {lap: x}}\nrunner_types:", "images.u.lap: `lap` is no provider and no kind; did you mean `lab`?"),
        ("runner_types:", "images: {u: {lab: 5}}\nrunner_types:", "images.u.lab: expected text, got `5`; put it in quotes"),
        ("runner_types:", "images: {u: {lab: {r: 5}}}\nrunner_types:", "images.u.lab.r: expected text, got `5`; put it in quotes"),
        ("runner_types:", "images: {u: {trial: {image: w, percent: 5}}}\nrunner_types:", "images.u.trial.image: there is no image `w`"),
        ("runner_types:", "fair_share: {weights: {a: 0}}\nrunner_types:", "fair_share.weights.a: expected more than 0, got `0`"),
        ("runner_types:", "include: 5\nrunner_types:", "include: expected a file name or pattern such as `providers/*.yaml`, got `5`"),
    ],
)  # fmt: skip
def test_each_mistake_is_named(folder: Folder, old: str, new: str, report: str) -> None:
    assert report in folder.errors(changed(old, new))


def test_all_mistakes_are_reported_together_in_the_order_of_the_file(folder: Folder) -> None:
    text = """\
        version: 1
        funds:
          gift: {credit: 5000, pays: [labb]}
        providers:
          lab: {kind: sim, pric: 0 USD/h, settings: {zones: 0}}
          lab: {kind: sim}
        runner_types:
          small:
            hardware: {memory: 8 GB}
            access: {repositories: [octo], forks: never}
            offers: [{provider: lap, purchase: [spit]}]
        """
    assert folder.errors(text).splitlines() == [
        "policy.yaml:3: funds.gift.credit: expected an amount of money such as `2.00 USD`, got `5000`; write `5000 USD`",
        "policy.yaml:3: funds.gift.pays[0]: there is no provider `labb`; did you mean `lab`?",
        "policy.yaml:5: providers.lab.pric: unknown key; did you mean `price`?",
        "policy.yaml:5: providers.lab.settings.zones: expected 1 or more, got `0`",
        "policy.yaml:6: providers.lab: given twice, first in line 5; remove one",
        "policy.yaml:8: runner_types.small.labels: is required",
        "policy.yaml:9: runner_types.small.hardware.memory: expected a size such as `16 GiB`, got `8 GB`; write `8 GiB`",
        "policy.yaml:10: runner_types.small.access.repositories[0]: expected OWNER/REPOSITORY, got `octo`; write `octo/*` for all of an owner",
        "policy.yaml:10: runner_types.small.access.forks: expected `deny`, `only` or `allow`, got `never`",
        "policy.yaml:11: runner_types.small.offers[0].provider: there is no provider `lap`; did you mean `lab`?",
        "policy.yaml:11: runner_types.small.offers[0].purchase[0]: expected `on_demand`, `spot` or `reserved`, got `spit`; did you mean `spot`?",
    ]  # fmt: skip


def test_an_unknown_key_without_a_near_one_lists_what_there_is(folder: Folder) -> None:
    report = folder.errors(changed("price: 0 USD/h", "zzz: 1"))
    assert report == (
        "policy.yaml:3: providers.lab.zzz: unknown key; known here: available, endpoint, kind, launch_rate, "
        "max_runners, price, regions, settings"
    )


def test_nothing_unprintable_reaches_the_terminal(folder: Folder) -> None:
    report = folder.errors(changed("price: 0 USD/h", '"\\e[31mred": "\\e[0m"'))
    assert "\x1b" not in report
    assert "\\x1b[31mred: unknown key" in report


def test_a_long_value_is_cut(folder: Folder) -> None:
    report = folder.errors(changed("price: 0 USD/h", f"price: {'9' * 500}"))
    assert len(report) < 200


def test_a_kind_that_cannot_be_imported_is_named_at_its_provider(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from providers import registry

    def broken(name: str) -> None:
        raise ImportError(f"No module named 'provider_of_{name}'")

    monkeypatch.setattr(registry, "kind", broken)
    assert folder.errors(SMALL) == (
        "policy.yaml:3: providers.lab.kind: kind `sim` is installed but cannot be used: "
        "No module named 'provider_of_sim'"
    )


def test_every_installed_kind_refuses_unknown_settings() -> None:
    from providers import registry

    for name in registry.kinds():
        assert registry.kind(name).settings.model_config.get("extra") == "forbid", name
