"""Recalibration the whole way on a small machine: courses, summary, page, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_runs import read_table, run
from test_report import Reader, leaves

from thermoloom.errors import UserError
from thermoloom.experiments import experiment
from thermoloom.experiments.devices import LABELS, NONE, QUALITY, _conditions, _groups
from thermoloom.experiments.run import Performed, compute
from thermoloom.runs.execution import Resources

PLAN: dict[str, dict[str, Any]] = {
    "machine": {"visible": 49, "hidden": 8, "duration": 0.2},
    "patterns": {"resize": True},
    "generation": {"samples": 6},
    "experiment": {"seeds": [1], "trajectories": [2, 4], "offset": [0.1, 5.0]},
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
        own = table["imperfection"] == name
        seen = list(zip(table["how"][own], table["trajectories"][own], strict=True))
        course = [("written", 0), ("learning", 2), ("learning", 4)]
        if name == "drift":  # held against a device that was left alone as long
            course = [*course[:2], ("written", 2), course[2], ("written", 4)]
        assert seen[: len(course)] == course
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
    plan = experiment("devices").plan("quick", PLAN)
    again = compute(experiment("devices"), plan, folder, Resources(1))
    assert {path: path.read_bytes() for path in folder.glob("runs/*/manifest.json")} == before
    assert again.summary["rows"] == done.summary["rows"]


def test_what_came_back_is_counted_from_what_was_lost() -> None:
    """Ideal 0.9; offsets took 0.4, of which 0.3 came back; a gain error took nothing."""

    def point(name: str, how: str, value: float) -> dict[str, Any]:
        others = dict.fromkeys(("heat", "work", "max_softmax", "asked"), 1.0)
        about = {"imperfection": name, "strength": 0.1, "seed": 1, "how": how}
        return {**about, "trajectories": 0, QUALITY: value, f"{QUALITY}_sem": 0.01, **others}

    rows = [point(NONE, "written", 0.9) | {"strength": 0.0}]
    rows += [point(NONE, "learning", 0.88) | {"strength": 0.0}]
    rows += [point("offset", "written", 0.5), point("offset", "learning", 0.8)]
    rows += [point("gain_error", "written", 0.88), point("gain_error", "learning", 0.88)]
    rows += [point("dead", "written", 0.3), point("dead", "learning", 0.9)]
    rows += [point("drift", "written", 0.3), point("drift", "learning", 0.2)]
    found = {row["imperfection"]: row for row in _conditions(rows)}
    assert found["offset"]["recovered"] == pytest.approx(0.75)
    assert found["gain_error"]["recovered"] is None
    assert found["drift"]["recovered"] == pytest.approx(-1 / 6)
    groups = _groups(list(found.values()))
    named = {key: [row["imperfection"] for row in rows] for key, rows in groups.items()}
    assert named == {
        "harmless": ["gain_error"], "mended": ["dead"], "partly": ["offset"], "lost": ["drift"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"experiment": {"trajectories": [5, 2]}}, r"experiment\.trajectories: must rise"),
        ({"experiment": {"dead": [2.0]}}, r"device\.dead = 2\.0: must be at most 1"),
        ({"experiment": {"offset": [0.0]}}, r"experiment\.offset: 0 is the ideal device"),
        ({"device": {"offset": 0.1}}, r"device\.offset: set by the experiment itself"),
    ],
)
def test_what_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        experiment("devices").plan("quick", values)


def test_courses_end_where_numbers_end(done: Performed) -> None:
    """Offsets of 5 E₀: what diverges is said to, and the page is made nevertheless."""
    rows = [r for r in done.summary["rows"] if r["strength"] == 5.0]
    assert rows[0]["heat"] is None or np.isfinite(rows[0]["heat"])
    assert Path(done.path / "devices.png").exists()
