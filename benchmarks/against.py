"""Compare two checkouts: each measures its own rows in separate processes, alternating.

Each checkout runs its own ``benchmarks`` package, whatever its interface; rows are compared by
name. The ratio of the medians is a ratio of costs: above 1, this checkout is slower.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

HERE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Comparison:
    """One row in both checkouts."""

    group: str
    name: str
    unit: str
    here: float
    there: float
    ratio: float
    """Cost here over cost there."""


def compare(
    other: Path, groups: Sequence[str], rounds: int, full: bool, say: Callable[[str], None]
) -> list[Comparison]:
    """Medians over ``rounds`` rounds of each group; the checkouts take turns at going first."""
    comparisons: list[Comparison] = []
    for group in groups:
        rows: dict[Path, list[dict[str, Any]]] = {HERE: [], other: []}
        for turn in range(rounds):
            for checkout in (HERE, other) if turn % 2 else (other, HERE):
                say(f"{group}, round {turn + 1} of {rounds}: {checkout}")
                rows[checkout] += _rows(checkout, group, full)
        for name in dict.fromkeys(row["name"] for row in rows[HERE]):
            here, there = ([r for r in rows[c] if r["name"] == name] for c in (HERE, other))
            if there:
                comparisons.append(_compared(group, here, there))
    return comparisons


def _compared(group: str, here: list[dict[str, Any]], there: list[dict[str, Any]]) -> Comparison:
    mine, theirs = (median(row["value"] for row in rows) for rows in (here, there))
    less = here[0]["better"] == "less"
    ratio = mine / theirs if less else theirs / mine
    return Comparison(group, here[0]["name"], here[0]["unit"], mine, theirs, ratio)


def _rows(checkout: Path, group: str, full: bool) -> list[dict[str, Any]]:
    """Measure the rows of one group in a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        command = [sys.executable, "-m", "benchmarks", "--only", group, "--out", str(out)]
        done = subprocess.run(
            command + ["--full"] * full,
            cwd=checkout,
            env=os.environ | {"PYTHONPATH": str(checkout / "src")},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{checkout}: benchmarks --only {group}: {done.stderr[-2000:]}")
        rows: list[dict[str, Any]] = json.loads(out.read_text())["rows"]
    return rows


def table(comparisons: Sequence[Comparison], figures: Callable[[float], str]) -> Table:
    result = Table(title="this checkout and the other", show_edge=False, pad_edge=False)
    for heading in ("what", "here", "there", "unit", "cost here/there"):
        right = heading not in ("what", "unit")
        result.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for row in comparisons:
        name = row.name.replace("[", "\\[")
        result.add_row(name, figures(row.here), figures(row.there), row.unit, f"{row.ratio:.3f}")
    return result
