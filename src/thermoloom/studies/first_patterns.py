"""The first patterns of a set, for computers that learn only a part of it."""

from __future__ import annotations

from dataclasses import replace

from thermoloom.patterns.patterns import Patterns


def first_patterns(patterns: Patterns, count: int) -> Patterns:
    """The first ``count`` patterns (0: all), which take the classes in turn."""
    if count == 0 or count >= len(patterns):
        return patterns
    first = slice(count)
    return replace(
        patterns,
        patterns=patterns.patterns[first],
        labels=patterns.labels[first],
        classes=patterns.classes[first],
        pixels=None if patterns.pixels is None else patterns.pixels[first],
        scale=patterns.scale.of_rows(first),
    )
