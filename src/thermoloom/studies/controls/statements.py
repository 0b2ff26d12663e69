"""The paper's statements on optimization: heat by learning rate and by update period."""

from __future__ import annotations

from typing import Any

from thermoloom.measures.paired import RULES
from thermoloom.measures.responses import Curve
from thermoloom.measures.statistics import PairedComparison
from thermoloom.studies.controls.study import PERIOD, RATE, compare
from thermoloom.studies.verdicts import Evidence, Statements

said = Statements.beside(__file__)
LOWEST_SCALE = 0.5
"""Learning rate at which the paper finds its lowest heat."""
MODERATE = (10, 100)
"""Update periods that the paper calls moderately delayed."""


def judge(evidence: Evidence) -> dict[str, Any]:
    """Headline numbers and statements."""
    rates = {rule: evidence.responses.curve(RATE, rule) for rule in RULES}
    delays = evidence.responses.curve(PERIOD)
    return {
        "quantities": quantities(evidence.summary),
        "statements": statements(rates, delays, evidence.summary["steps"]),
    }


def quantities(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The headline numbers; the paper gives none of them."""
    labels = {
        "rate": "heat, batch − online, at learning-rate scale {value:g}",
        "period": "heat, M = {value:g} minus M = 1",
    }
    return [
        said.quantity(
            f"{key}_{row['value']:g}",
            label.format(**row),
            row["mean"],
            interval=row["interval"],
            unit="E₀",
        )
        for key, label in labels.items()
        for row in summary[f"{key}_differences"]
    ]


def statements(rates: dict[str, Curve], delays: Curve, steps: int) -> list[dict[str, Any]]:
    return [
        online_lower(rates),
        lowest_scale(rates),
        still_lower(rates),
        similar(delays),
        full_period(delays, steps),
        fully_accumulated(delays, steps),
    ]


def online_lower(rates: dict[str, Curve]) -> dict[str, Any]:
    key, batch, online = "online_lower", rates["batch"], rates["online"]
    compared = {
        scale: comparison
        for scale in online.values
        if (comparison := compare(batch, scale, online, scale)) is not None
    }
    if not compared:
        return said.missing(key, "no scale was measured with both rules")
    lower = {s: sum(d < 0 for d in c.differences) for s, c in compared.items()}
    return said.judge(
        key,
        [
            said.check(key, "pairs", 100 * lower[s] / c.pairs, about=f"at scale {s:g}")
            for s, c in compared.items()
        ],
        "lower in "
        + ", ".join(f"{{l{i}}} of {{n{i}}} seeds at scale {s:g}" for i, s in enumerate(compared))
        + "; mean "
        + ", ".join(f"{{p{i}:+.1f}} %" for i in range(len(compared))),
        **{f"l{i}": count for i, count in enumerate(lower.values())},
        **{f"n{i}": c.pairs for i, c in enumerate(compared.values())},
        **{f"p{i}": c.mean_percent_difference for i, c in enumerate(compared.values())},
    )


def lowest_scale(rates: dict[str, Curve]) -> dict[str, Any]:
    """Compare every other scale with the one at which the paper finds the lowest heat."""
    key = "lowest_scale"
    others = {
        (rule, scale): comparison
        for rule, curve in rates.items()
        for scale in curve.values
        if scale != LOWEST_SCALE
        and (comparison := compare(curve, LOWEST_SCALE, curve, scale)) is not None
    }
    if {rule for rule, _ in others} != set(rates):
        return said.missing(key, f"scale {LOWEST_SCALE:g} or another was not measured")
    lowest = {rule: min(curve.values, key=curve.heat) for rule, curve in rates.items()}
    heats = {f"{rule}_heat": rates[rule].heat(lowest[rule]) for rule in RULES}
    criteria = [
        said.check_pairs(key, "difference", comparison, f"({rule}, scale {scale:g})")
        for (rule, scale), comparison in others.items()
    ]
    return said.judge(key, criteria, **lowest, **heats)


def still_lower(rates: dict[str, Curve]) -> dict[str, Any]:
    key = "still_lower"
    compared = compare(rates["batch"], LOWEST_SCALE, rates["online"], LOWEST_SCALE)
    if compared is None:
        return said.missing(key, f"scale {LOWEST_SCALE:g} was not measured")
    criteria = [said.check_pairs(key, "difference", compared)]
    return said.judge(key, criteria, **compared.numbers, scale=LOWEST_SCALE)


def similar(delays: Curve) -> dict[str, Any]:
    compared = {
        period: comparison
        for period in MODERATE
        if (comparison := compare(delays, 1, delays, period)) is not None
    }
    if not compared:
        return said.missing("similar", "neither M = 10 nor M = 100 was measured")
    return said.judge(
        "similar",
        [
            said.check_pairs("similar", "size_of_difference", c, f"at M = {p}")
            for p, c in compared.items()
        ],
        ", ".join(f"{{m{period}:+.2f}} % at M = {period}" for period in compared)
        + " relative to M = 1",
        **{f"m{period}": c.mean_percent_difference for period, c in compared.items()},
    )


def full_period(delays: Curve, steps: int) -> dict[str, Any]:
    key, compared = "full_period", compare(delays, 1, delays, steps)
    if compared is None or steps == 1:
        return said.missing(key, f"M = {steps} was not measured")
    criteria, mean = said.check_every_pair(key, compared, +1), compared.mean_difference
    return said.judge(key, criteria, **compared.numbers, steps=steps, mean=mean)


def fully_accumulated(delays: Curve, steps: int) -> dict[str, Any]:
    """Compare full accumulation with every shorter period."""
    key = "fully_accumulated"
    compared: dict[float, PairedComparison] = {
        period: comparison
        for period in delays.values
        if period < steps and (comparison := compare(delays, period, delays, steps)) is not None
    }
    if not compared:
        return said.missing(key, f"M = {steps} was not measured")
    return said.judge(
        key,
        [said.check_pairs(key, "difference", c, f"than M = {p:g}") for p, c in compared.items()],
        f"M = {steps} minus "
        + ", ".join(f"M = {p:g}: {{d{i}:+.2f}} E₀" for i, p in enumerate(compared)),
        **{f"d{i}": c.mean_difference for i, c in enumerate(compared.values())},
    )
