"""Headline numbers, and whether the local rule reaches its optimum."""

from __future__ import annotations

import math
from typing import Any

from thermoloom.measures.statistics import rate_interval
from thermoloom.studies.verdicts import Evidence, Rows, Statements, own_quantity

said = Statements.beside(__file__)
Headline = tuple[str, str, float | None, str, str]
"""Key, label, number, unit and note."""
STYLES = {"die": "random style", "nearest": "nearest style"}


def judge(evidence: Evidence) -> dict[str, Rows]:
    """How often a request is recognized, and how diverse and how near to data the samples are."""
    summary = evidence.summary
    headlines = [
        *_of_machine(summary["machine"]),
        *_of_inpainting(summary["inpainting"]),
        *_of_classification(summary["classification"]),
    ]
    return {
        "quantities": [
            own_quantity(key, label, number, unit=unit, note=note)
            for key, label, number, unit, note in headlines
        ],
        "statements": [_of_rule(summary["online"], summary["online_optimum"])],
    }


def _of_rule(rows: Rows, optimum: dict[str, Any] | None) -> dict[str, Any]:
    """The rule after its last trajectory, beside its optimum."""
    if not rows or optimum is None:
        return said.missing("online", "the rule or its optimum was not computed")
    last = rows[-1]
    if last["correct_class"] is None or optimum["correct_class"] is None:
        return said.missing("online", "samples grew without bound")
    return said.judge(
        "online",
        [
            said.check("online", "points", *_points_below(last, optimum)),
            said.check("online", "percent", 100 * (last["frechet"] / optimum["frechet"] - 1)),
        ],
        cycles=last["cycles"],
        correct_class=100 * last["correct_class"],
        best_correct_class=100 * optimum["correct_class"],
        frechet=last["frechet"],
        best_frechet=optimum["frechet"],
    )


def _points_below(row: dict[str, Any], best: dict[str, Any]) -> tuple[float, tuple[float, float]]:
    """Difference of two rates and its 95 % interval, by Newcombe's method from both intervals."""
    rate, best_rate = row["correct_class"], best["correct_class"]
    (low, high), (best_low, best_high) = (
        rate_interval(round(each["correct_class"] * each["images"]), each["images"])
        for each in (row, best)
    )
    difference = best_rate - rate
    down, up = (
        math.hypot(best_rate - best_low, high - rate),
        math.hypot(best_high - best_rate, rate - low),
    )
    return 100 * difference, (100 * (difference - down), 100 * (difference + up))


def _of_machine(machine: dict[str, Any]) -> list[Headline]:
    measured, reference, means = machine["measured"], machine["data"], machine["style_means"]
    samples = f"{measured['images']} samples"
    same_noise = f"{samples}; images with the same noise: {100 * reference['correct_class']:.1f} %"
    return [
        ("correct_class", "samples recognized as the requested class",
         _percent(measured["correct_class"]), "%", same_noise),
        ("negatives", "negatives (dark and bright swapped) among the samples",
         _percent(measured["negatives"]), "%", ""),
        ("diversity", "diversity within a class, relative to the data's",
         _ratio(measured["diversity"], reference["diversity"]), "", "both with thermal noise"),
        ("die", "diversity of the means of the drawn styles, relative to the data's",
         _ratio(means["diversity"], reference["diversity"]), "", "without noise"),
        ("frechet", "Fréchet distance in the classifier's 128 features", measured["frechet"], "",
         f"{samples}, {measured['data']} images"),
    ]  # fmt: skip


def _of_inpainting(inpainting: dict[str, Any] | None) -> list[Headline]:
    return [
        (f"kept {row['known']} {row['style']}",
         f"inpainting: correct class, {row['known']} half known, {STYLES[row['style']]}",
         _percent(row["kept"]), "%", f"{row['images']} images")
        for row in (inpainting["rows"] if inpainting else ())
    ]  # fmt: skip


def _of_classification(classification: dict[str, Any] | None) -> list[Headline]:
    return [
        ("classified", "images classified by path likelihood", _percent(row["accuracy"]), "%",
         f"{row['images']} images")
        for row in (classification["rows"][:1] if classification else ())
    ]  # fmt: skip


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _ratio(diversity: float | None, reference: float | None) -> float | None:
    return None if diversity is None or not reference else diversity / reference
