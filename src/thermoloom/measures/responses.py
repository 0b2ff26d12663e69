"""Response curves: conditions that differ in one setting, compared in pairs of samples or seeds.

Two tables are read: one row per condition (screen, variant, value, seed, state, heat,
quality), and one per denoising trajectory. A condition that diverged has infinite heat. The spread
over the trajectories of a computer describes sampling; only several training seeds are replications
of a curve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thermoloom.measures.statistics import Interval, MeanEstimate, estimate_mean, mean_interval
from thermoloom.runs.formats import Table, only, rows_of

KEYS = ("screen", "variant", "value", "seed")
"""Columns that identify a condition in both tables."""


@dataclass(frozen=True)
class Measured:
    """A condition that was run: its row and, unless it diverged, its samples."""

    row: Mapping[str, Any]
    samples: Table

    @property
    def value(self) -> float:
        return float(self.row["value"])

    @property
    def seed(self) -> int:
        return int(self.row["seed"])

    @property
    def diverged(self) -> bool:
        return bool(self.row["state"] == "diverged")

    @property
    def heat(self) -> float:
        """Mean heat; infinite where the condition diverged."""
        return math.inf if self.diverged else float(self.row["heat_mean"])

    def known(self, name: str) -> float | None:
        """A measure of quality, or another number of the row; None where it is not defined."""
        number: float | None = self.row[name]
        return number


@dataclass(frozen=True)
class ResponseChange:
    """Mean heat (or another measure) of a condition minus that of another, with its error.

    The error is over the trajectories of one seed, which share their random numbers, or over
    several seeds.
    """

    mean: float
    """Infinite where a condition diverged."""
    error: float | None
    reference: float
    interval: Interval | None = None
    """95 % interval of the mean; None for a single difference, or divergence."""

    @classmethod
    def of(cls, differences: MeanEstimate, reference: float) -> ResponseChange:
        return cls(differences.mean, differences.sem, reference, mean_interval(differences))

    @property
    def percent(self) -> float:
        """Relative to |reference|, since heat may be negative where little was learned."""
        return 100 * self.mean / abs(self.reference)

    @property
    def percent_interval(self) -> Interval | None:
        """The interval relative to |reference|; infinite for a single difference."""
        if math.isinf(self.mean):
            return None
        low, high = self.interval or (-math.inf, math.inf)
        return 100 * low / abs(self.reference), 100 * high / abs(self.reference)


@dataclass(frozen=True)
class Curve:
    """A response curve: the conditions of one screen and variant."""

    measured: Sequence[Measured]

    @property
    def values(self) -> list[float]:
        """Values with a measured condition, ascending."""
        return sorted({m.value for m in self.measured})

    def at(self, value: float) -> list[Measured]:
        return [m for m in self.measured if math.isclose(m.value, value, abs_tol=1e-12)]

    def has(self, reference: float, *values: float) -> bool:
        """Whether reference and values were run, and the reference did not diverge."""
        base = self.at(reference)
        finite = bool(base) and not any(m.diverged for m in base)
        return finite and all(self.at(value) for value in values)

    def heat(self, value: float) -> float:
        """Mean over seeds of the mean heat; infinite if one of them diverged."""
        return float(np.mean([m.heat for m in self.at(value)]))

    def ratio(self, value: float, reference: float) -> float:
        """Heat in units of |heat| at ``reference``."""
        return self.heat(value) / abs(self.heat(reference))

    def mean(self, value: float, name: str) -> float | None:
        """Mean over seeds of a number of the rows; None where a seed has none."""
        numbers = [m.known(name) for m in self.at(value)]
        known = [v for v in numbers if v is not None]
        return float(np.mean(known)) if known and len(known) == len(numbers) else None

    def change(self, value: float, reference: float, measure: str = "heat") -> ResponseChange:
        """A column of the samples at ``value`` minus that at ``reference``, in pairs."""
        return self.mean_change([value], reference, measure)

    def mean_change(
        self, values: Sequence[float], reference: float, measure: str = "heat"
    ) -> ResponseChange:
        """The change from ``reference``, averaged over ``values``.

        In pairs of trajectories if there is one seed, in pairs of seed means if there are several.
        """
        base = {m.seed: m for m in self.at(reference)}
        others = {seed: [m for v in values for m in self.at(v) if m.seed == seed] for seed in base}
        pairs = [(base[seed], conditions) for seed, conditions in others.items() if conditions]
        if any(m.diverged for b, conditions in pairs for m in (b, *conditions)):
            return ResponseChange(math.inf, None, float(np.mean([b.heat for b, _ in pairs])))
        differences = [
            np.mean([m.samples[measure] for m in conditions], axis=0) - b.samples[measure]
            for b, conditions in pairs
        ]
        difference = estimate_mean(
            differences[0] if len(pairs) == 1 else [d.mean() for d in differences]
        )
        level = float(np.mean([b.samples[measure].mean() for b, _ in pairs]))
        return ResponseChange.of(difference, level)

    def points(self) -> list[dict[str, Any]]:
        """Points of the figure: mean heat and its error bar at every value.

        The bar is the standard error over trajectories for one seed, the standard deviation
        across seed means for several.
        """
        return [self._point(value) for value in self.values]

    def _point(self, value: float) -> dict[str, Any]:
        conditions = self.at(value)
        done = [m for m in conditions if not m.diverged]
        heats = estimate_mean([m.heat for m in done]) if done else None
        bar = None if heats is None else heats.sd
        if len(conditions) == 1 and done:
            bar = done[0].known("heat_sem")
        return {
            "value": value,
            "heat": None if heats is None else heats.mean,
            "bar": bar,
            "seeds": len(done),
            "diverged": len(conditions) - len(done),
            "diverged_in": min(
                (m.row["diverged_in"] for m in conditions if m.diverged), default=None
            ),
        }


@dataclass(frozen=True)
class Responses:
    """The measured conditions of an experiment."""

    measured: Sequence[Measured]

    @classmethod
    def of_tables(cls, conditions: Table, samples: Table) -> Responses:
        """From the tables ``conditions`` and ``samples`` that an experiment saved."""
        return cls(
            [
                Measured(row, only(samples, **{key: row[key] for key in KEYS}))
                for row in rows_of(conditions)
            ]
        )

    def curve(self, screen: str, variant: str = "") -> Curve:
        names = (screen, variant)
        return Curve([m for m in self.measured if (m.row["screen"], m.row["variant"]) == names])

    def curves(self) -> list[dict[str, Any]]:
        """One row per point of every curve, in the order of the conditions."""
        names = dict.fromkeys((m.row["screen"], m.row["variant"]) for m in self.measured)
        return [
            {"screen": screen, "variant": variant, **point}
            for screen, variant in names
            for point in self.curve(screen, variant).points()
        ]
