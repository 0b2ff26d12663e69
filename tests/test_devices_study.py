"""Recalibration the whole way on a small machine: courses, summary, page, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from study_runs import read_table, run
from test_report import Reader, leaves

from thermoloom.errors import UserError
from thermoloom.runs.execution import Resources
from thermoloom.studies.devices.study import (
    LABELS,
    NONE,
    QUALITY,
    condition_rows,
    recovery_groups,
)
from thermoloom.studies.discovery import study
from thermoloom.studies.run import Performed, compute

PLAN: dict[str, dict[str, Any]] = {
    "machine": {"visible": 49, "hidden": 8, "duration": 0.2},
    "patterns": {"resize": True},
    "generation": {"samples": 6},
    "study": {"seeds": [1], "trajectories": [2, 4], "offset": [0.1, 5.0]},
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Performed:
    return run(tmp_path_factory.mktemp("devices"), PLAN, "devices")


def test_every_device_has_its_course(done: Performed) -> None:
    assert done.failures == []
    assert done.summary["missing"] == []
    table = read_table(done.path / "courses.csv")
    assert set(table["imperfection"]) == {NONE, *LABELS}
    for name in LABELS:
        rows = table["imperfection"] == name
        points = list(zip(table["how"][rows], table["trajectories"][rows], strict=True))
        course = [("written", 0), ("learning", 2), ("learning", 4)]
        if name == "drift":  # beside a device that ages without learning
            course = [*course[:2], ("written", 2), course[2], ("written", 4)]
        assert points[: len(course)] == course
    measure = done.summary["measure"]
    start = table[measure][(table["how"] == "written") & (table["trajectories"] == 0)]
    assert len(set(start.tolist())) == 11  # nothing has drifted yet
    drift = table["imperfection"] == "drift"
    assert len(set(table["heat"][drift].tolist())) == 5


def test_the_page_has_no_number_of_its_own(done: Performed) -> None:
    text = (done.path / "report.html").read_text(encoding="utf-8")
    reader = Reader(text)
    known = list(leaves(json.loads((done.path / "summary.json").read_text(encoding="utf-8"))))
    assert set(reader.numbers) <= {repr(v) for v in known if isinstance(v, (int, float))}
    assert reader.tags.count("img") == 2
    plain = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert not any(word in plain for word in ("None", "NaN", "Traceback", ">nan<"))


def test_a_second_run_does_nothing_again(done: Performed) -> None:
    folder = done.path.parent
    before = {path: path.read_bytes() for path in folder.glob("runs/*/manifest.json")}
    devices = study("devices")
    again = compute(devices, devices.plan("quick", PLAN), folder, Resources(1))
    assert {path: path.read_bytes() for path in folder.glob("runs/*/manifest.json")} == before
    assert again.summary["rows"] == done.summary["rows"]


def test_recovery_is_counted_from_the_loss() -> None:
    """Ideal 0.9; offsets cost 0.4, of which 0.3 is recovered; a gain error costs nothing."""

    def point(name: str, how: str, value: float) -> dict[str, Any]:
        others = dict.fromkeys(("heat", "work", "max_softmax", "correct_class"), 1.0)
        labels = {"imperfection": name, "strength": 0.1, "seed": 1, "how": how}
        return {**labels, "trajectories": 0, QUALITY: value, f"{QUALITY}_sem": 0.01, **others}

    rows = [point(NONE, "written", 0.9) | {"strength": 0.0}]
    rows += [point(NONE, "learning", 0.88) | {"strength": 0.0}]
    rows += [point("offset", "written", 0.5), point("offset", "learning", 0.8)]
    rows += [point("gain_error", "written", 0.88), point("gain_error", "learning", 0.88)]
    rows += [point("dead", "written", 0.3), point("dead", "learning", 0.9)]
    rows += [point("drift", "written", 0.3), point("drift", "learning", 0.2)]
    conditions = {row["imperfection"]: row for row in condition_rows(rows)}
    assert conditions["offset"]["recovered"] == pytest.approx(0.75)
    assert conditions["gain_error"]["recovered"] is None
    assert conditions["drift"]["recovered"] == pytest.approx(-1 / 6)
    groups = recovery_groups(list(conditions.values()))
    named = {key: [row["imperfection"] for row in rows] for key, rows in groups.items()}
    assert named == {
        "harmless": ["gain_error"], "corrected": ["dead"], "partly": ["offset"], "lost": ["drift"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"study": {"trajectories": [5, 2]}}, r"study\.trajectories: must be at least 1"),
        ({"study": {"dead": [2.0]}}, r"device\.dead = 2\.0: must be at most 1"),
        ({"study": {"offset": [0.0]}}, r"study\.offset: 0 is the ideal device"),
        ({"device": {"offset": 0.1}}, r"device\.offset: set by the study itself"),
    ],
)
def test_plans_that_make_no_sense_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        study("devices").plan("quick", values)


def test_courses_end_where_numbers_end(done: Performed) -> None:
    """Offsets of 5 E₀ may diverge; the page appears nevertheless."""
    rows = [r for r in done.summary["rows"] if r["strength"] == 5.0]
    assert rows[0]["heat"] is None or np.isfinite(rows[0]["heat"])
    assert Path(done.path / "devices.png").exists()
