"""Statistics across trained pairs: one pair of computers is one observation.

The spread over the trajectories of one computer describes sampling, never replication: average
over samples first, then compare the seed-level values here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from thermoloom.errors import UserError

Values = Sequence[float] | NDArray[Any]
Interval = tuple[float, float]


@dataclass(frozen=True)
class MeanEstimate:
    """Mean of a sample with its standard error; a single number has neither sd nor sem."""

    count: int
    mean: float
    sd: float | None
    """Sample standard deviation, divisor n − 1."""
    sem: float | None
    """Standard error of the mean, sd/√n."""


@dataclass(frozen=True)
class PairedComparison:
    """d_i = other_i − reference_i over n pairs (online − batch in the main comparison)."""

    reference: tuple[float, ...]
    """Seed-level values of the reference (batch)."""
    other: tuple[float, ...]
    """Seed-level values of the other (online)."""
    pairs: int
    """n, number of pairs."""
    differences: tuple[float, ...]
    """d_i, other minus reference: negative where the other is lower."""
    mean_difference: float
    """d̄."""
    interval: Interval | None
    """95 % Student-t interval d̄ ± t s_d/√n; None for one pair."""
    t_test_p: float | None
    """Two-sided p of the paired t-test; None for one pair or where all d_i are equal."""
    sign_test_p: float
    """Exact two-sided p of the sign test; ties are left out."""
    mean_percent_difference: float | None
    """100 d̄/mean reference."""
    percent_interval: Interval | None
    """95 % interval of the mean difference as a percentage of the reference's seed-level mean."""
    note: str
    """Which statistics are undefined, and why; empty if all are defined."""

    @property
    def numbers(self) -> dict[str, Any]:
        """Means, their difference and its tests, by their names in tables and texts."""
        return {
            "batch": float(np.mean(self.reference)),
            "online": float(np.mean(self.other)),
            "difference": self.mean_difference,
            "interval": self.interval,
            "percent": self.mean_percent_difference,
            "percent_interval": self.percent_interval,
            "t_test_p": self.t_test_p,
            "sign_test_p": self.sign_test_p,
            "lower": sum(d < 0 for d in self.differences),
            "higher": sum(d > 0 for d in self.differences),
            "pairs": self.pairs,
        }


def compare_pairs(reference: Values, other: Values, confidence: float = 0.95) -> PairedComparison:
    """Paired comparison of seed-level values; equal positions form a pair."""
    a, b = _finite("reference", reference), _finite("other", other)
    if len(a) != len(b):
        raise UserError(f"{len(a)} reference values for {len(b)} others: they must come in pairs")
    differences = b - a
    mean = float(a.mean())
    mean_difference = float(differences.mean())
    interval, p, note = _t_statistics(a, b, confidence)
    percent = None if mean == 0 else 100 / mean
    return PairedComparison(
        reference=tuple(a.tolist()),
        other=tuple(b.tolist()),
        pairs=len(a),
        differences=tuple(differences.tolist()),
        mean_difference=mean_difference,
        interval=interval,
        t_test_p=p,
        sign_test_p=sign_test(differences),
        mean_percent_difference=None if percent is None else percent * mean_difference,
        percent_interval=None
        if percent is None or interval is None
        else _scaled(interval, percent),
        note=note,
    )


def sign_test(differences: Values) -> float:
    """Exact two-sided p of the number of positive signs under Binomial(n, ½), ties left out."""
    d = _finite("differences", differences)
    positive, negative = int((d > 0).sum()), int((d < 0).sum())
    if positive + negative == 0:
        return 1.0
    return float(stats.binomtest(positive, positive + negative).pvalue)


def rate_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Wilson's interval of a rate."""
    interval = stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def ks_distance(a: Values, b: Values) -> float:
    """sup_x |F_a(x) − F_b(x)|, the two-sample Kolmogorov–Smirnov distance.

    Without a p value: samples that share their random numbers are not independent.
    """
    test = stats.ks_2samp(_finite("a", a), _finite("b", b), method="asymp")
    return float(test.statistic)


def estimate_mean(values: Values) -> MeanEstimate:
    """Mean, standard deviation (divisor n − 1) and standard error of the mean."""
    x = _finite("values", values)
    sd = float(x.std(ddof=1)) if len(x) > 1 else None
    return MeanEstimate(len(x), float(x.mean()), sd, None if sd is None else sd / math.sqrt(len(x)))


def mean_interval(estimate: MeanEstimate, confidence: float = 0.95) -> Interval | None:
    """Student-t interval of a mean; None for a single number."""
    if estimate.sem is None:
        return None
    half = float(stats.t.ppf((1 + confidence) / 2, estimate.count - 1)) * estimate.sem
    return estimate.mean - half, estimate.mean + half


def _t_statistics(
    a: NDArray[np.float64], b: NDArray[np.float64], confidence: float
) -> tuple[Interval | None, float | None, str]:
    """Student-t interval and p of the paired differences b − a, and what is undefined."""
    differences = b - a
    if len(differences) == 1:
        return None, None, "one pair: no interval and no t-test are defined"
    if np.ptp(differences) == 0:
        value = float(differences[0])
        return (value, value), None, "all differences are equal: the t-test is not defined"
    test = stats.ttest_rel(b, a)
    low, high = test.confidence_interval(confidence)
    return (float(low), float(high)), float(test.pvalue), ""


def negated(interval: Interval | None) -> Interval | None:
    """The interval of a difference taken the other way round."""
    return None if interval is None else _scaled(interval, -1)


def _scaled(interval: Interval, factor: float) -> Interval:
    low, high = sorted(factor * end for end in interval)  # a negative factor swaps the ends
    return low, high


def _finite(name: str, values: Values) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64).ravel()
    if len(array) == 0:
        raise UserError(f"{name}: no values to compare; at least one is needed")
    if not np.isfinite(array).all():
        raise UserError(f"{name}: some values are not finite; leave out unmeasured ones")
    return array
