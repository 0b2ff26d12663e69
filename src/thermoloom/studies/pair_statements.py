"""Statements that every study of pairs judges: heat, and what becomes of quality."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thermoloom.studies import verdicts
from thermoloom.studies.verdicts import Evidence, Statements

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
         {"digits": ".4g", "note": note, "compare": _by_level(said, "sign_test_p")}),
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
    verdict = verdicts.in_all_pairs(compared, -1)
    return said.statement("lower_heat", verdict, **compared.numbers | {"percent": percent})


def change(said: Statements, evidence: Evidence, key: str, value: str, sign: int) -> dict[str, Any]:
    """A statement about online − batch of one seed-level number: its sign, or no change (0)."""
    compared = evidence.models.compare(value)
    if compared is None:
        return said.missing(key, NO_CLASSIFIER)
    verdict = verdicts.direction(compared, sign) if sign else verdicts.no_change(compared)
    text = "{percent:+.2f} % of the batch mean; one pair has no interval"
    low, high = compared.percent_interval or (None, None)
    if low is not None:
        text = "{percent:+.2f} % of the batch mean, 95 % interval [{low:+.2f}, {high:+.2f}] %"
    return said.statement(key, verdict, text, **compared.numbers, low=low, high=high)
