"""Verdicts as they are shown: their colour, their grammar, and how short runs are marked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

TOO_SHORT = "too short to judge"
KINDS = {
    "holds": "good",
    "same sign, not resolved": "fair",
    "differs": "bad",
    TOO_SHORT: "none",
    "not measured": "none",
    "inside the paper's interval": "good",
    "our interval covers the paper's value": "good",
    "as in the paper": "good",
    "same side of 0.05": "good",
    "higher than the paper's": "fair",
    "lower than the paper's": "fair",
    "same sign": "fair",
}
"""Colour of each verdict; the first five are those of statements, in the order of a tally."""
SIGNS = {"good": "✓", "fair": "≈", "bad": "✗", "none": "·"}
"""Beside the colour, for readers who do not see it."""
_COUNTED = {
    "holds": ("holds", "hold"),
    "differs": ("differs", "differ"),
    "same sign, not resolved": ("has the same sign but is not resolved",
                                "have the same sign but are not resolved"),
    TOO_SHORT: ("cannot be judged by so short a run", "cannot be judged by so short a run"),
    "not measured": ("was not measured", "were not measured"),
}  # fmt: skip


def counted(verdict: str, count: int) -> str:
    """What stands after the number of statements with this verdict: 1 holds, 18 hold."""
    one, many = _COUNTED.get(verdict, (verdict, verdict))
    return one if count == 1 else many


def tally(counts: Mapping[str, int]) -> str:
    """``18 hold, 2 have the same sign but are not resolved, 1 differs``; nothing if none."""
    return ", ".join(f"{n} {counted(verdict, n)}" for verdict, n in counts.items() if n)


def together(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The verdicts of several experiments added up, in the order of ``KINDS``."""
    found: dict[str, int] = {}
    for one in counts:
        for verdict, count in one.items():
            found[verdict] = found.get(verdict, 0) + count
    order = [*KINDS, *found]
    return dict(sorted(found.items(), key=lambda item: order.index(item[0])))


def mark(summary: Mapping[str, Any]) -> str:
    """What page and figures say of a run that cannot bear out the paper's statements (yet)."""
    if interim := summary.get("interim"):
        return f"Not final: {interim['seeds']} of {interim['of']} pairs so far"
    if summary["preset"] == "quick":
        return "Quick look: too short for the paper's statements"
    short = [row["verdict"] == TOO_SHORT for row in summary["statements"]]
    some = "" if all(short) else "some of "
    return f"Short run: too short for {some}the paper's statements" if any(short) else ""
