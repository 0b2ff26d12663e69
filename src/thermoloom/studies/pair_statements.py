"""Statements that every study of pairs judges: heat, and changes of quality."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from thermoloom.measures.quality import CLASSIFIED, on_panel, value_range
from thermoloom.measures.statistics import PairedComparison
from thermoloom.studies import verdicts
from thermoloom.studies.verdicts import Criterion, Evidence, Statements

FOLLOWS = "follows from the number of pairs with less heat online, so it is not judged"
NO_CLASSIFIER = "there is no classifier for this visible layer"


def quantities(said: Statements, summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The headline numbers, each with the paper's where there is one."""
    heat, note = summary["heat"], summary["heat"]["note"]
    rows: list[tuple[str, str, float | None, dict[str, Any]]] = [
        ("heat_reduction", "heat reduction, batch − online", heat["reduction"],
         {"interval": heat["interval"], "unit": "E₀", "note": note}),
        ("relative_reduction", "relative heat reduction, mean over pairs", heat["percent"],
         {"interval": heat["percent_interval"], "unit": "%", "note": note}),
        ("t_test_p", "paired t-test, p", heat["t_test_p"],
         {"digits": ".2g", "note": note, "compare": _by_level(said, "t_test_p")}),
        ("sign_test_p", "exact two-sided sign test, p", heat["sign_test_p"],
         {"digits": ".4g", "note": note or FOLLOWS, "compare": lambda *_: ""}),
        ("batch_heat", "mean heat, batch", heat["batch"], {"unit": "E₀"}),
        ("online_heat", "mean heat, online", heat["online"], {"unit": "E₀"}),
    ]  # fmt: skip
    if summary.get("optimum"):
        heat = summary["optimum"]["heat"]
        rows.append(("optimum_heat", "mean heat, optimum (ours)", heat, {"unit": "E₀"}))
    if summary["classifier"]:
        accuracy = summary["classifier"]["test_accuracy_percent"]
        details = {"unit": "%", "digits": ".1f", "compare": verdicts.compare_size}
        label = "test accuracy of the classifier on MNIST"
        rows.append(("classifier_accuracy", label, accuracy, details))
    return [said.quantity(key, label, value, **details) for key, label, value, details in rows]


def _by_level(said: Statements, key: str) -> Callable[[float | None, float], str]:
    return lambda p, paper_p: verdicts.compare_p(p, paper_p, said.limit(key, "level"))


def lower_heat(said: Statements, evidence: Evidence) -> dict[str, Any]:
    compared = evidence.models.compared("heat.mean")
    percent = -(compared.mean_percent_difference or 0.0)
    criteria = said.check_every_pair("lower_heat", compared, -1)
    return said.judge("lower_heat", criteria, **compared.numbers | {"percent": percent})


def change(said: Statements, evidence: Evidence, key: str, measure: str) -> dict[str, Any]:
    """Judge a statement about online − batch of one measure of quality by its thresholds.

    A measure that depends on the classifier is judged by all classifiers.
    """
    compared = evidence.models.compare(f"quality.{measure}")
    if compared is None:
        return said.missing(key, NO_CLASSIFIER)
    text = "{percent:+.2f} % of the batch mean; one pair has no interval"
    low, high = compared.percent_interval or (None, None)
    if low is not None:
        text = "{percent:+.2f} % of the batch mean, 95 % interval [{low:+.2f}, {high:+.2f}] %"
    numbers = compared.numbers | {"low": low, "high": high}
    if measure not in CLASSIFIED:
        return said.judge(key, _criteria(said, key, compared), text, **numbers)
    pairs = {
        name: evidence.models.compared(f"quality.{on_panel(measure, name)}")
        for name in evidence.classifiers
    }
    criteria = {name: _criteria(said, key, compared) for name, compared in pairs.items()}
    ends = value_range(compared.mean_percent_difference for compared in pairs.values())
    least, most = ends or (None, None)
    text += "; over the panel {least:+.2f} to {most:+.2f} %"
    return said.judge_panel(key, criteria, text, **numbers, least=least, most=most)


def _criteria(said: Statements, key: str, pairs: PairedComparison) -> list[Criterion]:
    """A criterion for each threshold; ``distance_from_zero`` is about the interval alone."""
    return [
        said.check(key, name, half_widths(pairs))
        if name == "distance_from_zero"
        else said.check_pairs(key, name, pairs)
        for name in said.entry(key)["threshold"]
    ]


def half_widths(pairs: PairedComparison) -> float:
    """Distance of the mean difference from zero, in half-widths of its interval: up to 1, the
    interval contains zero.
    """
    if pairs.interval is None:
        return 0.0
    low, high = pairs.interval
    if high == low:
        return math.inf if low else 0.0
    return abs(low + high) / (high - low)
