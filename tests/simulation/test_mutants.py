"""Each safeguard, taken away, is missed by its own oracle; with it, the same schedule is clean."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant, switched_off
from tests.simulation.world import simulate

pytestmark = pytest.mark.filterwarnings("ignore")

TRIES = 40


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.partition(":")[0])
def test_the_checker_notices(mutant: Mutant) -> None:
    for seed in dict.fromkeys((mutant.seed, *range(TRIES))):
        with switched_off(mutant):
            found = simulate(seed, mutant.kinds).violations
        if any(text.startswith(f"{mutant.oracle}:") for text in found):
            assert not simulate(seed, mutant.kinds).violations
            return
    pytest.fail(f"nothing noticed: {mutant.name}")
