"""Images: one that does not boot cools for itself, and a trial takes its share only while it boots."""

from __future__ import annotations

from scheduling import messages as m
from scheduling.lifecycle import RunnerState
from scheduling.model import Purchase, Runner
from scheduling.policy import Image, ProviderPolicy, Selector
from tests.core.fleet import MINUTE, SECOND, Fleet, offer, policy, runner_type

EAST = {"east": ProviderPolicy("east", "sim")}


def fleet_with_trial(percent: int, **changes: object) -> Fleet:
    images = {
        "stable": Image("stable", {"sim": "img-stable"}, "next", percent),
        "next": Image("next", {"sim": "img-next"}, **changes),
    }
    return Fleet(policy(runner_type(image="stable"), providers=EAST, images=images))


def images_of(fleet: Fleet, jobs: int) -> list[str]:
    for number in range(jobs):
        fleet.job(number + 1)
    fleet.step()
    return [runner.terms.image for runner in fleet.runners()]


def give_up(fleet: Fleet, runner: Runner, *log: str) -> None:
    """It reports that its boot failed and shuts itself down, and two inventories miss it."""
    fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.FAILED, "no network", log))
    del fleet.cloud.machines[runner.id]


def test_a_trial_gets_its_percent_evenly_spread() -> None:
    images = images_of(fleet_with_trial(percent=25), 20)
    assert [index for index, image in enumerate(images) if image == "img-next"] == [0, 4, 8, 12, 16]


def test_no_percent_is_no_trial() -> None:
    assert set(images_of(fleet_with_trial(percent=0), 10)) == {"img-stable"}


def test_where_the_trial_image_does_not_exist_the_main_one_is_used() -> None:
    images = {
        "stable": Image("stable", {"sim": "img-stable"}, "next", 100),
        "next": Image("next", {"gcp": "projects/x"}),
    }
    fleet = Fleet(policy(runner_type(image="stable"), providers=EAST, images=images))
    assert set(images_of(fleet, 3)) == {"img-stable"}


def test_k11_a_trial_that_never_boots_falls_back_to_the_main_image() -> None:
    fleet = fleet_with_trial(percent=100)
    assert set(images_of(fleet, 3)) == {"img-next"}
    fleet.run(9 * MINUTE)
    assert "image:img-next" in fleet.world.cooldowns
    assert "image:img-stable" not in fleet.world.cooldowns
    starting = fleet.runners(RunnerState.STARTING)
    assert {runner.terms.image for runner in starting} == {"img-stable"}
    assert len(starting) == 3


def test_after_its_cooldown_one_machine_probes_the_trial() -> None:
    fleet = fleet_with_trial(percent=100)
    images_of(fleet, 3)
    fleet.run(9 * MINUTE)
    fleet.boot()
    fleet.now = fleet.world.cooldowns["image:img-next"].until_ms
    for number in (11, 12):
        fleet.job(number)
    fleet.step()
    assert sorted(runner.terms.image for runner in fleet.runners(RunnerState.STARTING)) == [
        "img-next",
        "img-stable",
    ]


def test_machines_that_give_up_cool_their_image_before_the_boot_timeout() -> None:
    fleet = fleet_with_trial(percent=0)
    images_of(fleet, 3)
    for runner in fleet.runners():
        give_up(fleet, runner, "dhclient: no lease")
    fleet.run(2 * MINUTE)
    cooldown = fleet.world.cooldowns["image:img-stable"]
    assert cooldown.failures == 3
    assert "did not boot one after the other" in cooldown.why
    assert "no network" in cooldown.why


def test_one_that_boots_between_them_keeps_the_image_open() -> None:
    fleet = fleet_with_trial(percent=0)
    images_of(fleet, 3)
    bad, good, worse = fleet.runners()
    give_up(fleet, bad)
    fleet.run(2 * MINUTE)
    fleet.boot(good)
    give_up(fleet, worse)
    fleet.run(90 * SECOND)
    assert fleet.world.cooldowns["image:img-stable"].until_ms == 0


def test_a_spot_machine_that_is_taken_while_it_boots_says_nothing_of_its_image() -> None:
    offers = {"east": (offer("east", purchase=Purchase.SPOT),)}
    spot = Selector("east", purchase=(Purchase.SPOT,))
    fleet = Fleet(policy(runner_type(selectors=(spot,)), providers=EAST), offers)
    fleet.job(1)
    fleet.step()
    fleet.cloud.machines.clear()
    fleet.run(2 * MINUTE)
    assert not fleet.world.cooldowns


def test_a_boot_says_what_it_does_and_leaves_its_last_lines() -> None:
    fleet = fleet_with_trial(percent=0)
    images_of(fleet, 1)
    (runner,) = fleet.runners()
    fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.BOOTING, "downloads the runner"))
    began = fleet.now
    fleet.now += 10 * SECOND
    fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.BOOTING, "downloads the runner"))
    assert (runner.boot, runner.boot_since_ms, runner.heard_ms) == ("downloads the runner", began, fleet.now)
    assert runner.state is RunnerState.STARTING
    give_up(fleet, runner, "one", "two")
    assert runner.log == ("one", "two")
    assert runner.state is RunnerState.STARTING  # a callback never ends it: only its absence does


def test_a_runner_too_old_closes_its_provider_and_names_the_setting() -> None:
    fleet = fleet_with_trial(percent=0)
    images_of(fleet, 1)
    (runner,) = fleet.runners()
    words = "GitHub refuses runner 2.1.0 as too old: raise settings.runner.version"
    fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.TOO_OLD, words))
    assert fleet.world.cooldowns["provider:east"].why == words
    fleet.job(2)
    fleet.step()
    assert len(fleet.runners()) == 1


def test_what_a_jobs_code_says_of_its_runner_closes_nothing() -> None:
    fleet = fleet_with_trial(percent=0)
    fleet.job(1)
    (runner,) = fleet.idle()
    fleet.start(1, runner)
    fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.TOO_OLD, "forged"))
    fleet.tell(m.StageReported(fleet.now, runner.id, m.Stage.FAILED, "forged", ("forged",)))
    assert not fleet.world.cooldowns
    assert runner.log == ()
    assert runner.state is RunnerState.BUSY


def test_a_trial_image_that_is_refused_does_not_close_the_offer_for_the_main_one() -> None:
    fleet = fleet_with_trial(percent=100)
    fleet.cloud.refuse_image = "img-next"
    fleet.job(1)
    fleet.step()
    fleet.step()
    assert [runner.terms.image for runner in fleet.runners(RunnerState.STARTING)] == ["img-stable"]
    assert "img-next" in fleet.world.cooldowns["image:img-next"].why
