"""The demo's workload and policy: the same for one seed, and shaped so that every provider is used."""

from __future__ import annotations

from collections import Counter

import pytest

from autoscaler.sandbox.demo_world import LABELS, demo_runs, policy_text

NOON = 1_790_000_000_000


def runner_types(seed: int, count: int) -> Counter[str]:
    by_labels = {frozenset(labels): name for name, labels in LABELS.items()}
    return Counter(
        by_labels[frozenset(label.casefold() for label in job.labels)]
        for run in demo_runs(seed, count)
        for job in run.jobs
    )


@pytest.mark.parametrize("count", [1, 7, 20, 200])
def test_exactly_so_many_jobs(count: int) -> None:
    assert runner_types(1, count).total() == count


def test_one_seed_gives_the_same_jobs_and_another_gives_others() -> None:
    assert demo_runs(1, 200) == demo_runs(1, 200)
    assert demo_runs(1, 200) != demo_runs(2, 200)
    assert demo_runs(1, 200)[:10] == demo_runs(1, 60)[:10]


@pytest.mark.parametrize("seed", range(10))
def test_every_runner_type_is_used_even_in_a_short_demo(seed: int) -> None:
    assert set(runner_types(seed, 20)) == set(LABELS)


def test_jobs_come_in_order_and_last_minutes() -> None:
    runs = demo_runs(3, 500)
    assert [run.after_ms for run in runs] == sorted(run.after_ms for run in runs)
    assert all(60_000 <= job.duration_ms <= 900_000 for run in runs for job in run.jobs)
    assert {run.event for run in runs} == {"push", "pull_request"}


def test_labels_come_as_people_write_them() -> None:
    written = {job.labels for run in demo_runs(1, 200) for job in run.jobs}
    assert written - set(LABELS.values())


def test_the_policy_names_the_accounts_and_the_seed() -> None:
    text = policy_text(seed=5, clouds_url="http://127.0.0.1:1234/", now_ms=NOON)
    assert "endpoint: http://127.0.0.1:1234/gcp" in text
    assert text.count("seed: 5") == 4
    assert "$" not in text
