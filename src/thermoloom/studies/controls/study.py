"""Optimization controls: how fast the computer learns, and how late updates are applied.

    learning rate   α = scale × Δt/t_f, scale 0.5, 1, 2; batch and online   100 cycles, 100 samples
    update period   gradients added up over M = 1, 10, 100, 2500 steps       80 cycles, 120 samples

Three seeds. All computers of a seed see the same noising paths and are sampled with the same
random numbers, so they are compared in pairs; a seed is one observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Self

import numpy as np

from thermoloom.measures.paired import RULES
from thermoloom.measures.responses import Curve
from thermoloom.measures.statistics import PairedComparison, compare_pairs, negated
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings, current_names
from thermoloom.studies.case import Case
from thermoloom.studies.gather import Gathered
from thermoloom.studies.screens import SET, check_grid, condition, responses_of, summarize_screens
from thermoloom.studies.study import SECTION, Figure, Plan, Study

RATE, PERIOD = "learning rate", "update period"


@dataclass(frozen=True)
class ControlsPlan(Plan):
    """Grids, cycles and samples of both controls."""

    seeds: tuple[int, ...] = (101, 102, 103)
    scales: tuple[float, ...] = (0.5, 1.0, 2.0)
    """α in units of Δt/t_f."""
    rate_cycles: int = 100
    rate_samples: int = 100
    periods: tuple[int, ...] = (1, 10, 100, 2500)
    """M, steps between updates. Unless set, periods are limited to the steps of the machine."""
    period_cycles: int = 80
    period_samples: int = 120

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid("scales", self.scales)
        check_grid("periods", self.periods, 1, self.settings.machine.steps, reference=1)

    def updated(self, values: Mapping[str, Mapping[str, Any]]) -> Self:
        """A copy with ``{section: {key: value}}`` replaced and periods that the machine allows."""
        sections = current_names(values)
        options = dict(sections.pop(SECTION, {}))
        steps = self.settings.updated(sections).machine.steps
        if "periods" not in options and max(self.periods) > steps:
            shorter = [period for period in self.periods if period < steps]
            options["periods"] = [*shorter, steps]
        return super().updated(sections | {SECTION: options})

    def rate(self, seed: int, rule: str, scale: float) -> Case:
        """A rule at a learning rate."""
        training = {"rule": rule, "period": None, "learning_rate_scale": scale}
        settings = self._computer(seed, training, self.rate_cycles, self.rate_samples)
        return condition(RATE, scale, settings, rule)

    def delay(self, seed: int, period: int) -> Case:
        """An update period; M = 1 is the online rule, M = K the batch rule."""
        rule = {1: "online", self.settings.machine.steps: "batch"}.get(period, "delayed")
        training = {"rule": rule, "period": period if rule == "delayed" else None}
        settings = self._computer(seed, training, self.period_cycles, self.period_samples)
        return condition(PERIOD, period, settings)

    def _computer(
        self, seed: int, training: Mapping[str, Any], cycles: int, samples: int
    ) -> Settings:
        training = {**training, "seed": seed, "cycles": cycles}
        return self.settings.updated({"training": training, "generation": {"samples": samples}})


def cases(plan: ControlsPlan, folder: Path) -> list[Case]:
    """The rates of each rule, then the periods, seed by seed."""
    return [
        *(plan.rate(seed, *rate) for seed in plan.seeds for rate in product(RULES, plan.scales)),
        *(plan.delay(seed, period) for seed in plan.seeds for period in plan.periods),
    ]


def summarize(plan: ControlsPlan, gathered: Gathered, run: RunDirectory) -> dict[str, Any]:
    """Tables of both controls, and their summary."""
    responses = responses_of(gathered)
    return summarize_screens(responses, plan, gathered, run) | {
        "rate_differences": rate_rows({rule: responses.curve(RATE, rule) for rule in RULES}),
        "period_differences": period_rows(responses.curve(PERIOD)),
        "cycles": {"rate": plan.rate_cycles, "period": plan.period_cycles},
        "samples": {"rate": plan.rate_samples, "period": plan.period_samples},
        "steps": plan.settings.machine.steps,
    }


# --- pairs ---


def heat_pairs(
    reference: Curve, reference_value: float, other: Curve, value: float
) -> dict[int, tuple[float, float]]:
    """(reference, other) mean heat by seed, where both are finite."""
    others = {m.seed: m.heat for m in other.at(value) if not m.diverged}
    return {
        m.seed: (m.heat, others[m.seed])
        for m in reference.at(reference_value)
        if not m.diverged and m.seed in others
    }


def compare(
    reference: Curve, reference_value: float, other: Curve, value: float
) -> PairedComparison | None:
    """other − reference of the mean heat across seeds; None where no seed has both."""
    pairs = heat_pairs(reference, reference_value, other, value)
    return _compared(pairs) if pairs else None


def _compared(pairs: Mapping[int, tuple[float, float]]) -> PairedComparison:
    reference, other = zip(*pairs.values(), strict=True)
    return compare_pairs(reference, other)


def rate_rows(rates: Mapping[str, Curve]) -> list[dict[str, Any]]:
    """batch − online at every scale, in pairs, in per cent of batch."""
    batch, online = (rates[rule] for rule in RULES)
    return [
        _difference_row(scale, pairs, -1)
        for scale in sorted({*batch.values, *online.values})
        if (pairs := heat_pairs(batch, scale, online, scale))
    ]


def period_rows(delays: Curve) -> list[dict[str, Any]]:
    """Heat of every period minus that of M = 1, in pairs."""
    return [
        _difference_row(period, pairs, +1)
        for period in delays.values
        if period != 1 and (pairs := heat_pairs(delays, 1, delays, period))
    ]


def _difference_row(
    value: float, pairs: Mapping[int, tuple[float, float]], sign: int
) -> dict[str, Any]:
    """Pairs compared; ``sign`` −1: reference − other."""
    compared = _compared(pairs)
    percent = compared.mean_percent_difference
    return {
        "value": value,
        "seeds": list(pairs),
        "differences": [sign * difference for difference in compared.differences],
        "mean": sign * compared.mean_difference,
        "interval": compared.interval if sign > 0 else negated(compared.interval),
        "reference": float(np.mean(compared.reference)),
        "other": float(np.mean(compared.other)),
        "percent": percent and sign * percent,
        "t_test_p": compared.t_test_p,
    }


STUDY = Study(
    name="controls",
    title="Optimization controls: learning rate and update timing",
    question="Figure 6: how fast can a computer learn, and how long can updates be delayed?",
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
    cases=cases,
    summarize=summarize,
    figures=(Figure("figure-6", "Learning rate and update period", "draw_heat"),),
    order=5,
    together=True,
    varied=(*SET, "training.learning_rate_scale", "training.cycles", "generation.samples"),
)
