"""Optimization controls: how fast the computer learns, and how late updates are applied.

    learning rate   α = scale × Δt/t_f, scale 0.5, 1, 2; batch and online   100 cycles, 100 samples
    update period   gradients added up over M = 1, 10, 100, 2500 steps       80 cycles, 120 samples

Three seeds. All computers of a seed see the same noising paths and are sampled with the same
random numbers, so they are compared in pairs; a seed is one observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from thermoloom.experiments import screens
from thermoloom.experiments.plan import SECTION, Experiment
from thermoloom.experiments.screens import Condition, ScreenPlan, check_grid, trained
from thermoloom.measures.paired import RULES
from thermoloom.measures.responses import Curve
from thermoloom.measures.statistics import PairedComparison, compare_pairs, negated
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings

RATE, PERIOD = "learning rate", "update period"


@dataclass(frozen=True)
class ControlsPlan(ScreenPlan):
    """Grids, cycles and samples of both controls."""

    seeds: tuple[int, ...] = (101, 102, 103)
    scales: tuple[float, ...] = (0.5, 1.0, 2.0)
    """α in units of Δt/t_f."""
    rate_cycles: int = 100
    rate_samples: int = 100
    periods: tuple[int, ...] = (1, 10, 100, 2500)
    """M, steps between updates; unless given, those of a shorter machine end at its steps."""
    period_cycles: int = 80
    period_samples: int = 120

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid("scales", self.scales)
        check_grid("periods", self.periods, 1, self.settings.machine.steps, reference=1)

    def updated(self, values: Mapping[str, Mapping[str, Any]]) -> Self:
        """A copy with ``{section: {key: value}}`` replaced, periods that the machine has."""
        steps = self.settings.updated(
            {k: v for k, v in values.items() if k != SECTION}
        ).machine.steps
        own = values.get(SECTION, {})
        if "periods" not in own and max(self.periods) > steps:
            shorter = [period for period in self.periods if period < steps]
            own = {**own, "periods": [*shorter, steps]}
        return super().updated({**values, SECTION: own})

    def rates(self, seed: int, rule: str) -> list[Condition]:
        """The learning rates of a rule."""
        return [trained(RATE, scale, self._rate(seed, rule, scale), rule) for scale in self.scales]

    def _rate(self, seed: int, rule: str, scale: float) -> Settings:
        own = {"rule": rule, "period": None, "learning_rate_scale": scale}
        return self._model(own, seed, self.rate_cycles, self.rate_samples)

    def delays(self, seed: int) -> list[Condition]:
        """The update periods; M = 1 is the online rule, M = K the batch rule."""
        return [trained(PERIOD, period, self._delay(seed, period)) for period in self.periods]

    def _delay(self, seed: int, period: int) -> Settings:
        rule = {1: "online", self.settings.machine.steps: "batch"}.get(period, "delayed")
        own = {"rule": rule, "period": period if rule == "delayed" else None}
        return self._model(own, seed, self.period_cycles, self.period_samples)

    def _model(self, own: dict[str, Any], seed: int, cycles: int, samples: int) -> Settings:
        training = own | {"seed": seed, "cycles": cycles}
        return self.settings.updated({"training": training, "generation": {"samples": samples}})

    def conditions(self) -> list[Condition]:
        """By seed: the rates of each rule, then the periods."""
        rates = [c for seed in self.seeds for rule in RULES for c in self.rates(seed, rule)]
        return rates + [c for seed in self.seeds for c in self.delays(seed)]


def assemble(plan: ControlsPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """Tables of both controls, and their summary."""
    found = screens.collect(plan.conditions(), folder)
    return screens.summed_up(found, plan, run) | {
        "rate_differences": rate_rows({rule: found.curve(RATE, rule) for rule in RULES}),
        "period_differences": period_rows(found.curve(PERIOD)),
        "cycles": {"rate": plan.rate_cycles, "period": plan.period_cycles},
        "samples": {"rate": plan.rate_samples, "period": plan.period_samples},
        "steps": plan.settings.machine.steps,
    }


# --- pairs ----------------------------------------------------------------------------------------


def compare(
    reference: Curve, reference_value: float, other: Curve, value: float
) -> tuple[list[int], PairedComparison] | None:
    """other − reference of the mean heat, over the seeds for which both are finite."""
    a, b = (
        {m.seed: m.heat for m in curve.at(at) if not m.diverged}
        for curve, at in ((reference, reference_value), (other, value))
    )
    seeds = [seed for seed in a if seed in b]
    if not seeds:
        return None
    return seeds, compare_pairs([a[s] for s in seeds], [b[s] for s in seeds])


def _row(value: float, found: tuple[list[int], PairedComparison], sign: int) -> dict[str, Any]:
    seeds, compared = found
    return {
        "value": value,
        "seeds": seeds,
        "differences": [sign * d for d in compared.differences],
        "mean": sign * compared.mean_difference,
        "interval": compared.interval if sign > 0 else negated(compared.interval),
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


EXPERIMENT = Experiment(
    name="controls",
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
    models=screens.models,
    tasks=screens.tasks,
    assemble=assemble,
    varied=(*screens.SET, "training.learning_rate_scale", "training.cycles", "generation.samples"),
)
