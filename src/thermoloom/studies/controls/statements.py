"""The paper on optimization: less heat online at every rate, more heat by full accumulation."""

from __future__ import annotations

from typing import Any

from thermoloom.measures.paired import RULES
from thermoloom.measures.responses import Curve
from thermoloom.studies import verdicts
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
    labels = {"rate": "batch − online at scale {value:g}", "period": "M = {value:g} minus M = 1"}
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
    return said.statement(
        key,
        verdicts.weakest([verdicts.in_all_pairs(c, -1) for c in compared.values()]),
        "lower in "
        + ", ".join(f"{{l{i}}} of {{n{i}}} seeds at scale {s:g}" for i, s in enumerate(compared))
        + "; mean "
        + ", ".join(f"{{p{i}:+.1f}} %" for i in range(len(compared))),
        **{f"l{i}": sum(d < 0 for d in c.differences) for i, c in enumerate(compared.values())},
        **{f"n{i}": c.pairs for i, c in enumerate(compared.values())},
        **{f"p{i}": c.mean_percent_difference for i, c in enumerate(compared.values())},
    )


def lowest_scale(rates: dict[str, Curve]) -> dict[str, Any]:
    key = "lowest_scale"
    if not all(curve.has(LOWEST_SCALE) and len(curve.values) > 1 for curve in rates.values()):
        return said.missing(key, f"scale {LOWEST_SCALE:g} or another was not measured")
    lowest = {rule: min(curve.values, key=curve.heat) for rule, curve in rates.items()}
    heats = {f"{rule}_heat": rates[rule].heat(lowest[rule]) for rule in RULES}
    verdict = verdicts.holds_if(set(lowest.values()) == {LOWEST_SCALE})
    return said.statement(key, verdict, **lowest, **heats)


def still_lower(rates: dict[str, Curve]) -> dict[str, Any]:
    compared = compare(rates["batch"], LOWEST_SCALE, rates["online"], LOWEST_SCALE)
    if compared is None:
        return said.missing("still_lower", f"scale {LOWEST_SCALE:g} was not measured")
    verdict = verdicts.in_all_pairs(compared, -1)
    return said.statement("still_lower", verdict, **compared.numbers, scale=LOWEST_SCALE)


def similar(delays: Curve) -> dict[str, Any]:
    percents = {
        period: compared.mean_percent_difference
        for period in MODERATE
        if (compared := compare(delays, 1, delays, period)) is not None
        and compared.mean_percent_difference is not None
    }
    if not percents:
        return said.missing("similar", "neither M = 10 nor M = 100 was measured")
    within = 100 * said.limit("similar", "similar")
    close = all(abs(percent) <= within for percent in percents.values())
    return said.statement(
        "similar",
        verdicts.holds_if(close),
        ", ".join(f"{{m{period}:+.2f}} % at M = {period}" for period in percents)
        + " relative to M = 1; similar: within {similar:.0f} %",
        **{f"m{period}": percent for period, percent in percents.items()},
        similar=within,
    )


def full_period(delays: Curve, steps: int) -> dict[str, Any]:
    compared = compare(delays, 1, delays, steps)
    if compared is None or steps == 1:
        return said.missing("full_period", f"M = {steps} was not measured")
    verdict, mean = verdicts.in_all_pairs(compared, +1), compared.mean_difference
    return said.statement("full_period", verdict, **compared.numbers, steps=steps, mean=mean)


def fully_accumulated(delays: Curve, steps: int) -> dict[str, Any]:
    """Full accumulation against every shorter period."""
    compared = {
        period: comparison
        for period in delays.values
        if period < steps and (comparison := compare(delays, period, delays, steps)) is not None
    }
    if not compared:
        return said.missing("fully_accumulated", f"M = {steps} was not measured")
    return said.statement(
        "fully_accumulated",
        verdicts.weakest([verdicts.in_all_pairs(c, +1) for c in compared.values()]),
        f"M = {steps} minus "
        + ", ".join(f"M = {p:g}: {{d{i}:+.2f}} E₀" for i, p in enumerate(compared)),
        **{f"d{i}": c.mean_difference for i, c in enumerate(compared.values())},
    )
