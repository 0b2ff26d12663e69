"""Small studies that several test files look at; each is run once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from thermoloom.runs.execution import Resources
from thermoloom.runs.formats import decode_table
from thermoloom.studies.discovery import study
from thermoloom.studies.report import write_report
from thermoloom.studies.run import Performed, compute
from thermoloom.studies.verdicts import Evidence, Statements

SMALL: dict[str, dict[str, Any]] = {
    "machine": {"visible": 196, "hidden": 24, "duration": 0.3},
    "patterns": {"resize": True},
    "training": {"cycles": 12, "validation_every": 2},
    "generation": {"samples": 8},
    "study": {"seeds": [1, 2], "paths_per_pattern": 1},
}
"""Two pairs on a 14 × 14 layer, so without the classifier."""

CLASSIFIED: dict[str, dict[str, Any]] = {
    "machine": {"hidden": 12, "duration": 0.3},
    "training": {"cycles": 9, "validation_every": 3},
    "generation": {"samples": 8},
    "study": {"seeds": [1], "paths_per_pattern": 1},
}
"""One pair on the 28 × 28 layer, with the classifier."""


def read_table(path: Path) -> dict[str, Any]:
    """A CSV table by itself: whole numbers, floats, truth values, texts."""
    return decode_table(path.read_bytes())


_FOLDER = tempfile.TemporaryDirectory(prefix="thermoloom-tests-")  # removed when tests end


@cache
def two_pairs() -> Performed:
    """Two pairs, no classifier."""
    return run(Path(_FOLDER.name) / "small", SMALL)


@cache
def one_pair() -> Performed:
    """One pair, with the classifier."""
    return run(Path(_FOLDER.name) / "classified", CLASSIFIED)


def run(folder: Path, values: dict[str, dict[str, Any]], name: str = "comparison") -> Performed:
    """A study computed, judged and reported."""
    record = study(name)
    done = compute(record, record.plan("quick", values), folder, Resources(1))
    write_report(done.path)
    return done


# --- thresholds ---


def thresholds_of(name: str) -> set[tuple[str, str]]:
    """(entry, threshold) of everything in a study's statements.toml."""
    entries = Statements(study(name).folder).entries
    return {
        (key, threshold)
        for kind in ("quantities", "statements")
        for key, entry in entries.get(kind, {}).items()
        for threshold in entry.get("threshold", {})
    }


def thresholds_read(
    name: str, performed: Iterable[Performed], monkeypatch: pytest.MonkeyPatch
) -> set[tuple[str, str]]:
    """(entry, threshold) that a study asks for when it judges these runs once more."""
    read: set[tuple[str, str]] = set()
    limit = Statements.limit

    def noted(self: Statements, key: str, threshold: str) -> float:
        read.add((key, threshold))
        return limit(self, key, threshold)

    monkeypatch.setattr(Statements, "limit", noted)
    for run_of_study in performed:
        study(name).judge(Evidence.open(run_of_study.path))
    return read
