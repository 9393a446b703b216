"""Each safeguard, taken away, is missed by its own oracle; with it, the same schedule is clean."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant, caught
from tests.simulation.world import simulate

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.partition(":")[0])
def test_the_checker_notices(mutant: Mutant) -> None:
    found = caught(mutant)
    assert found, f"nothing noticed: {mutant.name}"
    assert not simulate(found[0], mutant.kinds).violations
