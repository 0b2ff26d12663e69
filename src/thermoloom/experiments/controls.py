"""Optimization controls: how fast the computer learns, and how late updates are applied.

    learning rate   α = scale × Δt/t_f, scale 0.5, 1, 2; batch and online   100 cycles, 100 samples
    update period   gradients added up over M = 1, 10, 100, 2500 steps       80 cycles, 120 samples

Three seeds. All computers of a seed see the same noising paths and are sampled with the same
random numbers, so they are compared in pairs; a seed is one observation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.config import Settings
from thermoloom.experiments import paper
from thermoloom.experiments.plan import Experiment, Plan
from thermoloom.experiments.screens import (
    VARIED,
    Condition,
    Curve,
    base_summary,
    check_grid,
    collect,
    save_tables,
    trained,
    training_tasks,
)
from thermoloom.measures.statistics import PairedComparison, compare_pairs
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task

NAME = "controls"
RATE, PERIOD = "learning rate", "update period"
RULES = ("batch", "online")

LOWEST_SCALE = 0.5
"""Where the paper finds its lowest heat."""
MODERATE = (10, 100)
"""Moderately delayed updates."""


@dataclass(frozen=True)
class ControlsPlan(Plan):
    """Grids, cycles and samples of both controls."""

    seeds: tuple[int, ...] = (101, 102, 103)
    scales: tuple[float, ...] = (0.5, 1.0, 2.0)
    """α in units of Δt/t_f."""
    rate_cycles: int = 100
    rate_samples: int = 100
    periods: tuple[int, ...] = (1, 10, 100, 2500)
    """M, steps between updates."""
    period_cycles: int = 80
    period_samples: int = 120

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid("scales", self.scales)
        check_grid("periods", self.periods, 1, self.settings.machine.steps, reference=1)

    def rates(self, seed: int, rule: str) -> list[Condition]:
        """The learning rates of a rule."""
        return [trained(RATE, scale, self._rate(seed, rule, scale), rule) for scale in self.scales]

    def _rate(self, seed: int, rule: str, scale: float) -> Settings:
        training = {
            "rule": rule,
            "period": None,
            "seed": seed,
            "learning_rate_scale": scale,
            "cycles": self.rate_cycles,
        }
        return self.settings.updated(
            {"training": training, "generation": {"samples": self.rate_samples}}
        )

    def delays(self, seed: int) -> list[Condition]:
        """The update periods; M = 1 is the online rule, M = K the batch rule."""
        return [trained(PERIOD, period, self._delay(seed, period)) for period in self.periods]

    def _delay(self, seed: int, period: int) -> Settings:
        rule = {1: "online", self.settings.machine.steps: "batch"}.get(period, "delayed")
        training = {
            "rule": rule,
            "period": period if rule == "delayed" else None,
            "seed": seed,
            "cycles": self.period_cycles,
        }
        return self.settings.updated(
            {"training": training, "generation": {"samples": self.period_samples}}
        )

    def conditions(self) -> list[Condition]:
        rates = [c for seed in self.seeds for rule in RULES for c in self.rates(seed, rule)]
        return rates + [c for seed in self.seeds for c in self.delays(seed)]


def tasks(plan: ControlsPlan) -> list[Task]:
    """By seed: the rates of each rule, and the periods in two halves; the longest tasks first."""
    groups = [
        (f"learning rates, {rule}, seed {seed}", plan.rates(seed, rule))
        for seed in plan.seeds
        for rule in RULES
    ]
    for seed in plan.seeds:
        delays = plan.delays(seed)
        half = (len(delays) + 1) // 2
        for part in (delays[:half], delays[half:]):
            values = ", ".join(f"{c.value:g}" for c in part)
            groups.append((f"update periods {values}, seed {seed}", part))
    return training_tasks(groups)


def assemble(plan: ControlsPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """Tables of both controls, and the summary with its verdicts."""
    screens = collect(plan.conditions(), folder)
    save_tables(screens, run)
    rates = {rule: screens.curve(RATE, rule) for rule in RULES}
    delays = screens.curve(PERIOD)
    return base_summary(screens, plan, ControlsPlan()) | {
        "rate_differences": rate_rows(rates),
        "period_differences": period_rows(delays),
        "cycles": {"rate": plan.rate_cycles, "period": plan.period_cycles},
        "samples": {"rate": plan.rate_samples, "period": plan.period_samples},
        "steps": plan.settings.machine.steps,
        "quantities": quantities(rates, delays),
        "statements": statements(rates, delays, plan.settings.machine.steps),
    }


# --- pairs ----------------------------------------------------------------------------------------


def compare(
    reference: Curve, reference_value: float, other: Curve, value: float
) -> tuple[list[int], PairedComparison] | None:
    """other − reference of the mean heat over the seeds of which both are finite."""
    a, b = (
        {m.condition.seed: m.heat for m in curve.at(at) if not m.diverged}
        for curve, at in ((reference, reference_value), (other, value))
    )
    seeds = [seed for seed in a if seed in b]
    if not seeds:
        return None
    return seeds, compare_pairs([a[s] for s in seeds], [b[s] for s in seeds])


def _row(value: float, found: tuple[list[int], PairedComparison], sign: int) -> dict[str, Any]:
    seeds, compared = found
    interval = compared.interval
    if interval is not None and sign < 0:
        interval = (-interval[1], -interval[0])
    return {
        "value": value,
        "seeds": seeds,
        "differences": [sign * d for d in compared.differences],
        "mean": sign * compared.mean_difference,
        "interval": interval,
        "reference": float(np.mean(compared.reference)),
        "other": float(np.mean(compared.other)),
        "percent": compared.mean_percent_difference and sign * compared.mean_percent_difference,
        "t_test_p": compared.t_test_p,
    }


def rate_rows(rates: dict[str, Curve]) -> list[dict[str, Any]]:
    """batch − online at every scale, in pairs, in per cent of batch."""
    rows = []
    for scale in sorted({*rates["batch"].values, *rates["online"].values}):
        found = compare(rates["batch"], scale, rates["online"], scale)
        if found is not None:
            rows.append(_row(scale, found, -1))
    return rows


def period_rows(delays: Curve) -> list[dict[str, Any]]:
    """Heat of every period minus that of M = 1, in pairs."""
    rows = []
    for period in delays.values:
        found = compare(delays, 1, delays, period)
        if found is not None and period != 1:
            rows.append(_row(period, found, +1))
    return rows


def quantities(rates: dict[str, Curve], delays: Curve) -> list[dict[str, Any]]:
    """The headline numbers; the paper gives none of them."""
    rows = [
        paper.quantity(
            NAME,
            f"rate_{row['value']:g}",
            f"batch − online at scale {row['value']:g}",
            row["mean"],
            interval=row["interval"],
            unit="E₀",
        )
        for row in rate_rows(rates)
    ]
    rows += [
        paper.quantity(
            NAME,
            f"period_{row['value']:g}",
            f"M = {row['value']:g} minus M = 1",
            row["mean"],
            interval=row["interval"],
            unit="E₀",
        )
        for row in period_rows(delays)
    ]
    return rows


# --- the paper's statements -----------------------------------------------------------------------


def statements(rates: dict[str, Curve], delays: Curve, steps: int) -> list[dict[str, Any]]:
    return [
        online_lower(rates),
        lowest_scale(rates),
        still_lower(rates),
        similar(delays),
        full_period(delays, steps),
        fully_accumulated(delays, steps),
    ]


def weakest(verdicts: Sequence[str]) -> str:
    """The verdict on several things that must all hold."""
    ranked = (paper.NOT_MEASURED, paper.DIFFERS, paper.UNRESOLVED, paper.HOLDS)
    return next(verdict for verdict in ranked if verdict in verdicts)


def online_lower(rates: dict[str, Curve]) -> dict[str, Any]:
    key = "online_lower"
    found = {
        scale: compare(rates["batch"], scale, rates["online"], scale)
        for scale in rates["online"].values
    }
    compared = {scale: pair[1] for scale, pair in found.items() if pair is not None}
    if not compared:
        return paper.missing(NAME, key, "no scale was measured with both rules")
    return paper.statement(
        NAME,
        key,
        weakest([paper.in_all_pairs(c, -1) for c in compared.values()]),
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
        return paper.missing(NAME, key, f"scale {LOWEST_SCALE:g} or another was not measured")
    lowest = {rule: min(curve.values, key=curve.heat) for rule, curve in rates.items()}
    return paper.statement(
        NAME,
        key,
        paper.HOLDS if set(lowest.values()) == {LOWEST_SCALE} else paper.DIFFERS,
        "lowest mean heat at scale {batch:g} (batch, {batch_heat:.1f} E₀) and {online:g} (online, "
        "{online_heat:.1f} E₀)",
        **lowest,
        **{f"{rule}_heat": rates[rule].heat(lowest[rule]) for rule in RULES},
    )


def still_lower(rates: dict[str, Curve]) -> dict[str, Any]:
    found = compare(rates["batch"], LOWEST_SCALE, rates["online"], LOWEST_SCALE)
    if found is None:
        return paper.missing(NAME, "still_lower", f"scale {LOWEST_SCALE:g} was not measured")
    _, compared = found
    return paper.statement(
        NAME,
        "still_lower",
        paper.in_all_pairs(compared, -1),
        "{online:.1f} against {batch:.1f} E₀ at scale {scale:g}, lower in {lower} of {pairs}",
        online=float(np.mean(compared.other)),
        batch=float(np.mean(compared.reference)),
        scale=LOWEST_SCALE,
        lower=sum(d < 0 for d in compared.differences),
        pairs=compared.pairs,
    )


def similar(delays: Curve) -> dict[str, Any]:
    found = {period: compare(delays, 1, delays, period) for period in MODERATE}
    percents = {
        period: pair[1].mean_percent_difference
        for period, pair in found.items()
        if pair is not None
    }
    known = {period: p for period, p in percents.items() if p is not None}
    if not known:
        return paper.missing(NAME, "similar", "neither M = 10 nor M = 100 was measured")
    within = 100 * paper.threshold(NAME, "similar", "similar")
    close = all(abs(percent) <= within for percent in known.values())
    return paper.statement(
        NAME,
        "similar",
        paper.HOLDS if close else paper.DIFFERS,
        ", ".join(f"{{m{period}:+.2f}} % at M = {period}" for period in known)
        + " relative to M = 1; similar: within {similar:.0f} %",
        **{f"m{period}": percent for period, percent in known.items()},
        similar=within,
    )


def full_period(delays: Curve, steps: int) -> dict[str, Any]:
    found = compare(delays, 1, delays, steps)
    if found is None or steps == 1:
        return paper.missing(NAME, "full_period", f"M = {steps} was not measured")
    _, compared = found
    return paper.statement(
        NAME,
        "full_period",
        paper.in_all_pairs(compared, +1),
        "M = {steps} is higher than M = 1 in {higher} of {pairs} seeds, by {mean:+.2f} E₀ "
        "({percent:+.1f} %) on average",
        steps=steps,
        higher=sum(d > 0 for d in compared.differences),
        pairs=compared.pairs,
        mean=compared.mean_difference,
        percent=compared.mean_percent_difference,
    )


def fully_accumulated(delays: Curve, steps: int) -> dict[str, Any]:
    """Full accumulation against every shorter period."""
    key = "fully_accumulated"
    shorter = [period for period in delays.values if period < steps]
    found = {period: compare(delays, period, delays, steps) for period in shorter}
    compared = {period: pair[1] for period, pair in found.items() if pair is not None}
    if not compared:
        return paper.missing(NAME, key, f"M = {steps} was not measured")
    return paper.statement(
        NAME,
        key,
        weakest([paper.in_all_pairs(c, +1) for c in compared.values()]),
        f"M = {steps} minus "
        + ", ".join(f"M = {p:g}: {{d{i}:+.2f}} E₀" for i, p in enumerate(compared)),
        **{f"d{i}": c.mean_difference for i, c in enumerate(compared.values())},
    )


EXPERIMENT = Experiment(
    name=NAME,
    title="Optimization controls: learning rate and update timing",
    presets={
        "paper": ControlsPlan(),
        "quick": ControlsPlan(
            seeds=(101, 102),
            rate_cycles=10,
            rate_samples=12,
            periods=(1, 100, 2500),
            period_cycles=10,
            period_samples=12,
        ),
    },
    tasks=tasks,
    assemble=assemble,
    varied=(*VARIED, "training.learning_rate_scale", "training.cycles", "generation.samples"),
)
