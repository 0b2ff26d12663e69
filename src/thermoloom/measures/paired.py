"""Pairs of computers, batch and online on the same paths, compared by seed-level numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thermoloom.measures.statistics import PairedComparison, compare_pairs

RULES = ("batch", "online")
"""Reference first: a difference is online − batch."""


def number(results: Mapping[str, Any], key: str) -> float | None:
    """A number of nested results by its path, such as ``quality.max_softmax``."""
    node: Any = results
    for part in key.split("."):
        node = None if node is None else node.get(part)
    return None if node is None else float(node)


@dataclass(frozen=True)
class PairedModels:
    """The results of each computer, with its rule and seed; every seed has both rules."""

    models: Sequence[Mapping[str, Any]]

    def values(self, rule: str, *keys: str) -> list[float] | None:
        """The sum of these numbers for each seed; None if one was not measured."""
        computers = [model for model in self.models if model["rule"] == rule]
        numbers = [[number(model, key) for key in keys] for model in computers]
        if any(entry is None for row in numbers for entry in row):
            return None
        sums: list[float] = np.array(numbers, np.float64).sum(axis=1).tolist()
        return sums

    def compare(self, *keys: str) -> PairedComparison | None:
        """online − batch of the sum of these numbers; None if one was not measured."""
        batch, online = (self.values(rule, *keys) for rule in RULES)
        return None if batch is None or online is None else compare_pairs(batch, online)

    def compared(self, *keys: str) -> PairedComparison:
        """``compare`` for numbers that every computer must have."""
        comparison = self.compare(*keys)
        if comparison is None:
            raise ValueError(f"{keys}: not measured")
        return comparison
