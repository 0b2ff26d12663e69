"""The studies of heat on a small machine: tables, page, resumption, refusals."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import constants
from study_runs import SMALL, read_table, run
from test_report import Reader, leaves

from thermoloom.errors import UserError
from thermoloom.runs.execution import Resources
from thermoloom.studies.discovery import study
from thermoloom.studies.frontier.study import FrontierPlan
from thermoloom.studies.run import Performed, compute

PLANS: dict[str, dict[str, dict[str, Any]]] = {
    "ledger": SMALL
    | {
        "study": SMALL["study"]
        | {
            "first_cycles": 6,
            "price_read": 1e-15,
            "free_energy_pixels": 9,
            "free_energy_samples": 40,
        }
    },
    "frontier": SMALL
    | {
        "study": SMALL["study"]
        | {
            "weights": [0.0, 0.2, 0.6],
            "few_weights": [0.0, 0.2],
            "durations": [0.2, 0.3],
            "temperatures": [0.1],
            "stages": [2],
            "schedule_durations": [0.6],
            "schedule_stages": 2,
            "schedule_evaluations": 8,
            "schedule_pixels": 25,
        }
    },
}
PICTURES = {"ledger": 1, "frontier": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("heat")


NO_PYMBAR = "the free energy needs pymbar (the extra free-energy)"


@pytest.fixture(scope="module")
def ledger(folder: Path) -> Iterator[Performed]:
    with pytest.MonkeyPatch.context() as patch:  # ten units rest soon
        patch.setattr("thermoloom.studies.ledger.study.REST", 2.0)
        yield run(folder, PLANS["ledger"], "ledger")


@pytest.fixture(scope="module")
def frontier(folder: Path, ledger: Performed) -> Performed:
    """After the ledger, whose computers it shares."""
    return run(folder, PLANS["frontier"], "frontier")


@pytest.mark.parametrize("name", PLANS)
def test_nothing_fails_and_the_page_has_no_number_of_its_own(
    name: str, request: pytest.FixtureRequest
) -> None:
    done: Performed = request.getfixturevalue(name)
    assert done.failures == []
    extra = name == "ledger" and find_spec("pymbar") is None
    assert done.summary["missing"] == [NO_PYMBAR] * extra
    assert done.summary["statements"] == []  # the paper makes none
    text = (done.path / "report.html").read_text(encoding="utf-8")
    reader = Reader(text)
    known = list(leaves(json.loads((done.path / "summary.json").read_text(encoding="utf-8"))))
    assert set(reader.numbers) <= {repr(v) for v in known if isinstance(v, (int, float))}
    assert len(reader.numbers) > 50
    assert reader.tags.count("img") == PICTURES[name]
    plain = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert not any(word in plain for word in ("None", "NaN", "Traceback", ">nan<"))


@pytest.mark.parametrize("name", PLANS)
def test_a_second_run_does_nothing_again(
    name: str, request: pytest.FixtureRequest, folder: Path
) -> None:
    done: Performed = request.getfixturevalue(name)
    before = {path: path.read_bytes() for path in folder.glob("runs/*/manifest.json")}
    plan = study(name).plan("quick", PLANS[name])
    again = compute(study(name), plan, folder, Resources(1))
    assert {path: path.read_bytes() for path in folder.glob("runs/*/manifest.json")} == before
    assert again.summary["rows"] == done.summary["rows"]


def test_ledger_adds_up(ledger: Performed) -> None:
    summary = ledger.summary
    rules = [row["rule"] for row in summary["means"]]
    assert rules == ["batch", "online", "optimum", "copy, batch", "copy, online"]
    assert {row["rule"]: row["computers"] for row in summary["means"]}["optimum"] == 2
    for row in summary["rows"]:
        assert sum(row["parts"].values()) == pytest.approx(row["heat"])  # one stage
        assert row["first_law_error"] < 1e-9
        assert row["speed_limit"] < row["most_production"]
    heat = summary["differences"][0]
    table = read_table(ledger.path / "ledger.csv")
    batch, online = (table["heat"][table["rule"] == rule] for rule in ("batch", "online"))
    assert heat["difference"] == pytest.approx(float(np.mean(online - batch)))


def test_free_energy_bounds_dissipation_from_above(ledger: Performed) -> None:
    """Of nine pixels: between the speed limit and ⟨U(x₀)⟩ − ΔF, up to errors of sampling."""
    pytest.importorskip("pymbar", reason="extra free-energy is not installed")
    free = ledger.summary["free_energy"]
    assert free["refused"] is None
    assert free["units"] == 9 + 1
    error = free["most_production_error"]
    assert free["most_production"] > free["speed_limit"] - 4 * error
    assert free["least_overlap"] > 0.3
    assert 0 < error < 0.5


def test_joules_and_prices(ledger: Performed) -> None:
    rows = {row["label"]: row for row in ledger.summary["joules"]}
    label = rows["Landauer: a label of ten classes, ln 10"]
    assert label["joules"] == pytest.approx(math.log(10) * constants.k * 300)
    prices = ledger.summary["prices"]
    assert [row["label"] for row in prices[:2]] == ["reading a pixel", "heat (online)"]
    assert prices[0]["joules"] == pytest.approx(196 * 1e-15)
    assert [row["joules"] for row in prices[2:]] == [None, None]  # no price, not charged


def test_frontier_is_the_parabola_and_no_computer_is_below_it(frontier: Performed) -> None:
    rows, kT = frontier.summary["rows"], frontier.summary["kT"]
    along = [row for row in rows if row["rule"] == "optimum"]
    assert [row["weight"] for row in along] == [0.0, 0.2, 0.6]
    rate = frontier.summary["rate"]
    assert rate < 0
    for row in along:
        expected = along[0]["expected_heat"] + rate * row["weight"]
        assert row["expected_heat"] == pytest.approx(expected, abs=1e-3 * abs(rate))
        least = -(row["weight"] ** 2) * rate / (2 * kT)
        assert row["excess"] == pytest.approx(least, rel=1e-3, abs=1e-3)
    for row in rows:
        assert row["excess"] >= row["least_excess"] * (1 - 1e-3) - 1e-3
    trained = {row["rule"]: row["excess"] for row in frontier.summary["trained"]}
    assert trained["batch"] > 1
    assert trained["online"] > 1


def test_other_machines_stand_beside_that_of_the_plan(frontier: Performed) -> None:
    """Only machines that differ are solved again; the rows of the plan's are the curve's."""
    points = [(r["varied"], r["value"], r["weight"]) for r in frontier.summary["variants"]]
    durations = [("duration", value, weight) for value in (0.2, 0.3) for weight in (0.0, 0.2)]
    assert points == durations + [("stages", T, weight) for T in (1, 2) for weight in (0.0, 0.2)]
    curve = {row["weight"]: row["heat"] for row in frontier.summary["rows"]}
    for row in frontier.summary["variants"]:
        assert (row["excess"] == 0) == (row["weight"] == 0)
        if (row["varied"], row["value"]) in (("duration", 0.3), ("stages", 1)):
            assert row["heat"] == curve[row["weight"]]
        assert (row["work"] != 0) == (row["varied"] == "stages" and row["value"] == 2)


def test_schedules_keep_the_quality_and_the_speed_limit(frontier: Performed) -> None:
    rows = frontier.summary["schedules"]
    assert [(r["duration"], r["schedule"]) for r in rows] == [
        (duration, kind) for duration in (0.3, 0.6) for kind in ("own", "best")
    ]
    for row in rows:
        assert row["production"] > row["speed_limit"] > 0
        assert row["production"] == pytest.approx(row["heat"] / 0.1 + row["entropy_change"])
    assert all(row["reached"] for row in rows if row["schedule"] == "best")
    headline = frontier.summary["schedule"]
    assert headline["saved"] > 0
    assert headline["searched"]["percent_above"] < headline["unchanged"]["percent_above"]


def test_images_without_classes_have_no_schedule(tmp_path: Path) -> None:
    path = tmp_path / "images.npy"
    np.save(path, np.random.default_rng(0).random((2, 196)))
    images = {"patterns": {"source": "images", "path": str(path), "resize": False}}
    plan = study("frontier").plan("quick", PLANS["frontier"] | images)
    assert isinstance(plan, FrontierPlan)
    assert plan.on_demand is None
    assert plan.schedule_cases == []


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("frontier", {"weights": [0.1, 0.2]}, "must contain 0"),
        ("frontier", {"weights": [0.0, -0.2]}, "values must be from 0"),
        ("frontier", {"few_weights": [0.0, 0.17]}, r"weights = .*: must contain 0\.17"),
        ("frontier", {"schedule_durations": [0.0]}, r"machine\.duration = 0"),
        ("ledger", {"temperature": 0.0}, r"study\.temperature = 0: must be positive"),
        ("ledger", {"price_hold": -1.0}, r"study\.price_hold = -1: must be positive"),
    ],
)
def test_impossible_plans_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        study(name).plan("quick", {"study": options})


def test_few_samples_bound_no_dissipation() -> None:
    with pytest.raises(UserError, match=r"generation\.samples = 4: at least 8 are needed"):
        study("ledger").plan("quick", {"generation": {"samples": 4}})
