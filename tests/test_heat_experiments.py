"""The experiments on heat, the whole way on a small machine: tables, page, resuming, refusals."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_runs import SMALL, run
from scipy import constants
from test_report import Reader, leaves

from thermoloom.errors import UserError
from thermoloom.experiments import experiment
from thermoloom.experiments.run import Performed, compute
from thermoloom.runs.execution import Resources
from thermoloom.runs.formats import read_table

PLANS: dict[str, dict[str, dict[str, Any]]] = {
    "ledger": SMALL
    | {"experiment": SMALL["experiment"] | {"first_cycles": 6, "price_read": 1e-15}},
    "frontier": SMALL | {"experiment": SMALL["experiment"] | {"weights": [0.0, 0.2, 0.6]}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("heat")


@pytest.fixture(scope="module")
def ledger(folder: Path) -> Performed:
    return run(folder, PLANS["ledger"], "ledger")


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
    assert done.summary["missing"] == []
    assert done.summary["statements"] == []  # the paper makes none
    text = (done.path / "report.html").read_text(encoding="utf-8")
    reader = Reader(text)
    known = list(leaves(json.loads((done.path / "summary.json").read_text(encoding="utf-8"))))
    assert set(reader.numbers) <= {repr(v) for v in known if isinstance(v, (int, float))}
    assert len(reader.numbers) > 50
    assert reader.tags.count("img") == 1
    plain = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert not any(word in plain for word in ("None", "NaN", "Traceback", ">nan<"))


@pytest.mark.parametrize("name", PLANS)
def test_a_second_run_does_nothing_again(
    name: str, request: pytest.FixtureRequest, folder: Path
) -> None:
    done: Performed = request.getfixturevalue(name)
    before = {path: path.read_bytes() for path in folder.glob("runs/*/manifest.json")}
    plan = experiment(name).plan("quick", PLANS[name])
    again = compute(experiment(name), plan, folder, Resources(1))
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


def test_joules_and_prices(ledger: Performed) -> None:
    rows = {row["label"]: row for row in ledger.summary["joules"]}
    label = rows["Landauer: a label of ten classes, ln 10"]
    assert label["joules"] == pytest.approx(math.log(10) * constants.k * 300)
    prices = ledger.summary["prices"]
    assert [row["label"] for row in prices[:2]] == ["reading a pixel", "heat (online)"]
    assert prices[0]["joules"] == pytest.approx(196 * 1e-15)
    assert [row["joules"] for row in prices[2:]] == [None, None]  # not given, not counted


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


@pytest.mark.parametrize(
    ("name", "own", "message"),
    [
        ("frontier", {"weights": [0.1, 0.2]}, "must contain 0"),
        ("frontier", {"weights": [0.0, -0.2]}, "values must be from 0"),
        ("ledger", {"temperature": 0.0}, r"experiment\.temperature = 0: must be positive"),
        ("ledger", {"price_hold": -1.0}, r"experiment\.price_hold = -1: must be positive"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, own: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        experiment(name).plan("quick", {"experiment": own})


def test_few_samples_bound_no_dissipation() -> None:
    with pytest.raises(UserError, match=r"generation\.samples = 4: at least 8 are needed"):
        experiment("ledger").plan("quick", {"generation": {"samples": 4}})
