"""Verdicts on perturbations follow from curves whose heats are made up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from thermoloom.measures.responses import Curve, Measured
from thermoloom.studies import verdicts
from thermoloom.studies.noise import statements
from thermoloom.studies.noise.study import SCREENS


def condition(value: float, seed: int, heats: list[float] | None) -> Measured:
    """A measured condition made up of heats; None diverged."""
    row: dict[str, Any] = {
        "value": value,
        "seed": seed,
        "cycles": 1,
        "samples": 2,
        "pattern_distance": 20.0,
    }
    if heats is None:
        return Measured(row | {"state": "diverged", "diverged_in": 1}, {})
    row |= {"state": "done", "heat_mean": np.mean(heats), "heat_sem": stats.sem(heats)}
    return Measured(row, {"heat": np.array(heats)})


def made_up(heats: dict[float, float | None], spread: float = 1.0) -> Curve:
    """A curve with two samples a condition, ``spread`` apart; None diverged."""
    half = spread / 2
    return Curve(
        [
            condition(value, 1, None if heat is None else [heat - half, heat + half])
            for value, heat in heats.items()
        ]
    )


def test_crossover_by_hand() -> None:
    curve = made_up({0.0: 100, 0.3: 100, 0.35: 400})
    assert statements.crossover(curve, 2.0) == pytest.approx((0.30, 0.35, 0.325))
    assert statements.raised_at(curve, 2.0) == pytest.approx(0.325)  # √4 = 2
    assert statements.crossover(made_up({0.0: 100, 0.3: 150}), 2.0) is None
    assert statements.crossover(made_up({0.0: 100, 0.3: 150, 0.35: None}), 2.0) == (0.3, 0.35, 0.35)


def test_a_statement_about_what_diverged_says_infinity() -> None:
    orders = statements.orders(made_up({0.0: 100, 0.01: 300, 1e4: None}))
    assert orders["verdict"] == verdicts.HOLDS
    text = orders["measured"].format(**orders["values"])
    assert text == (
        "∞ times the heat without an offset at μ_bias = 10000; at least 100 times first at 10000"
    )


def test_a_change_is_taken_in_pairs_of_samples() -> None:
    curve = made_up({0.0: 100, 0.1: 101}, spread=50)  # both samples rise by one
    change = curve.change(0.1, 0.0)
    assert (change.mean, change.error) == pytest.approx((1.0, 0.0))
    assert change.percent_interval == pytest.approx((1.0, 1.0))
    assert change.percent == pytest.approx(1.0)


def test_a_change_over_several_seeds_is_one_of_seed_means() -> None:
    heats = {(0.0, 1): 100.0, (0.0, 2): 200.0, (0.1, 1): 101.0, (0.1, 2): 203.0}
    conditions = [condition(v, s, [heat - 5, heat + 5]) for (v, s), heat in heats.items()]
    change = Curve(conditions).change(0.1, 0.0)
    assert change.mean == pytest.approx(2.0)
    assert change.error == pytest.approx(stats.sem([1.0, 3.0]))
    assert change.percent == pytest.approx(100 * 2 / 150)


def test_a_diverged_reference_is_no_reference() -> None:
    lost = made_up({0.0: None, 0.1: 100, 0.3: 100, 0.35: 400})
    for check in (
        statements.near_baseline,
        statements.crossing_over,
        statements.low_noise,
        statements.monotone,
    ):
        assert check(lost)["verdict"] == verdicts.NOT_MEASURED


def test_a_longer_training_than_the_papers_has_another_crossover() -> None:
    curve = made_up({0.0: 1, 0.3: 1, 0.35: 9}, spread=0)
    curves = dict.fromkeys(SCREENS, curve)
    for cycles, verdict in ((100, verdicts.HOLDS), (101, verdicts.NOT_MEASURED)):
        judged = {row["key"]: row["verdict"] for row in statements.statements(curves, {}, cycles)}
        assert judged["crossover"] == verdict
