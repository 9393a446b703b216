"""Which faults may strike now, and how often each did. All chances come from one seed."""

from __future__ import annotations

import random
from collections import Counter


class Weather:
    """`chances`: fault kind -> probability of each call it can meet. Cleared, the world is well."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.chances: dict[str, float] = {}
        self.hits: Counter[str] = Counter()
        self.over = False

    def strikes(self, kind: str) -> bool:
        """Whether this fault happens to this call."""
        chance = self.chances.get(kind)
        if chance is None or self.dice.random() >= chance:
            return False
        self.hits[kind] += 1
        return True

    def begin(self, kind: str, chance: float) -> None:
        if not self.over:
            self.chances[kind] = chance

    def end(self, kind: str) -> None:
        self.chances.pop(kind, None)

    def clear(self) -> None:
        """Faults have stopped for good."""
        self.chances.clear()
        self.over = True
