"""Quality of generated visible states: recognizability, nearness to a pattern, diversity.

All distances are Euclidean, between unrescaled states, in float64. Beyond the paper: polarity,
because without visible biases x → −x is nearly a symmetry of the computer, and a sample may be
the negative of a pattern.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, pdist
from scipy.special import entr

from thermoloom.errors import UserError
from thermoloom.measures.classifier import CLASSES, SIDE, Classifier, classifier_in, classify
from thermoloom.patterns.patterns import Patterns
from thermoloom.sections import html_table
from thermoloom.threads import linear_algebra

Float64 = NDArray[np.float64]
Indices = NDArray[np.intp]

MEASURES = {
    "max_softmax": "mean maximum softmax",
    "target_fraction": "target-class fraction",
    "class_entropy": "class entropy (nats)",
    "pattern_distance": "nearest-pattern distance",
    "pairwise_distance": "mean pairwise distance",
    "polarity": "polarity (negative fraction)",
    "absolute_correlation": "strongest absolute correlation",
}
"""One number per set of samples: name in ``Quality`` → label in tables and figures."""
CLASSIFIED = ("max_softmax", "target_fraction", "class_entropy")
"""Measures that depend on the classifier."""


def on_panel(measure: str, member: str) -> str:
    """Name of a measure by one classifier of the panel; the main classifier has no suffix."""
    return f"{measure}@{member}" if member else measure


def value_range(values: Iterable[float | None]) -> tuple[float, float] | None:
    """Smallest and largest of the numbers that are defined."""
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


@dataclass(frozen=True, eq=False)
class Assignment:
    """The class that one classifier assigns to every sample."""

    classes: Indices
    """Most probable class, (S,)."""
    scores: Float64
    """Its softmax probability, (S,)."""
    targets: tuple[int, ...]
    """Classes that were learned."""

    @classmethod
    def of(cls, states: Float64, patterns: Patterns, classifier: Classifier) -> Assignment:
        probabilities = classify(states, classifier)
        targets = tuple(patterns.targets)
        return cls(probabilities.argmax(axis=1), probabilities.max(axis=1), targets)

    @property
    def counts(self) -> NDArray[np.integer[Any]]:
        """Samples assigned to each of the ten classes."""
        return np.bincount(self.classes, minlength=CLASSES)

    def summary(self) -> dict[str, float]:
        """The measures of ``CLASSIFIED``."""
        on_target = float(self.counts[list(self.targets)].sum() / len(self.classes))
        return {
            "max_softmax": float(self.scores.mean()),
            "target_fraction": on_target,
            "class_entropy": entropy(self.counts),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Quality:
    """Measures of a set of samples, from ``Drawn.quality``; NaN or None where not defined.

    x is the visible state of a sample, s a learned pattern. Distances are Euclidean, in units of x.
    Measures that use the classifier are defined for 28 × 28 images of MNIST classes, and of other
    classes if a classifier is named; the pairwise distance is defined for at least two samples.

    >>> import thermoloom as tl
    >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
    >>> quality = machine.solve(tl.digits(0, 1), resize=True).generate(5, seed=1).quality()
    >>> 0 <= quality.polarity <= 1, quality.summary()["max_softmax"]
    (True, None)
    """

    samples: int
    """S, number of samples."""
    max_softmax: float
    """Mean over samples of the largest class probability, which is not calibrated."""
    target_fraction: float
    """Fraction of samples that the classifier assigns to a class that was learned."""
    class_entropy: float
    """−Σ_c p_c ln p_c of the fractions p_c of samples assigned to each of the ten classes."""
    pattern_distance: float
    """Mean distance ‖x − s‖ to the nearest pattern."""
    pairwise_distance: float
    """Mean distance over all S(S − 1)/2 distinct pairs of samples."""
    polarity: float
    """Fraction of samples whose strongest correlation with a pattern is negative."""
    absolute_correlation: float
    """Mean over samples of max_s |r(x, s)|."""
    class_counts: tuple[int, ...] | None
    """Samples assigned to each of the ten classes."""
    sample_class: Indices | None
    """Predicted class of every sample."""
    sample_max_softmax: Float64 | None
    """Largest class probability of every sample."""
    nearest_pattern: Indices
    """Index of the nearest pattern of every sample."""
    sample_pattern_distance: Float64
    """Distance of every sample to its nearest pattern."""
    sample_correlation: Float64
    """r of largest |r| among the patterns, with its sign, for every sample."""
    panel: Mapping[str, Assignment] = field(default_factory=dict)
    """Classes that the classifiers of the panel assign to the same samples, by name."""

    def __repr__(self) -> str:
        numbers = {k: f"{v:.3g}" for k, v in self.summary().items() if v is not None}
        measures = ", ".join(f"{name}={number}" for name, number in numbers.items())
        return f"Quality({self.samples} samples, {measures})"

    def _repr_html_(self) -> str:
        numbers = {MEASURES[k]: f"{v:.3g}" for k, v in self.summary().items() if v is not None}
        return html_table(numbers, f"Quality of {self.samples} samples")

    def panel_summary(self) -> dict[str, float]:
        """Classifier-based measures by each classifier of the panel: ``max_softmax@NAME``."""
        return {
            on_panel(measure, member): value
            for member, assignment in self.panel.items()
            for measure, value in assignment.summary().items()
        }

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Smallest and largest value of each classifier-based measure over all classifiers."""
        main = self.summary()
        members = [member.summary() for member in self.panel.values()]
        ranges = {n: value_range([main[n], *(m[n] for m in members)]) for n in CLASSIFIED}
        return {name: ends for name, ends in ranges.items() if ends is not None}

    def summary(self) -> dict[str, float | None]:
        """Every measure that is one number, by name; None where not defined."""
        values = {name: float(getattr(self, name)) for name in MEASURES}
        return {name: None if math.isnan(value) else value for name, value in values.items()}


@linear_algebra()
def measure_quality(
    visible_states: NDArray[Any],
    patterns: Patterns,
    classifier: Classifier | str = "",
    panel: Mapping[str, Classifier] | None = None,
) -> Quality:
    """All measures of the visible states (S, N_v).

    Samples of MNIST classes are judged by ``classifier`` (an object, a folder, or the bundled one
    if empty) and by the ``panel``. Samples of other classes are judged only if a classifier is
    named.
    """
    patterns.needed_for("quality")
    states = _checked(visible_states, patterns)
    images = patterns.patterns.astype(np.float64)
    distances = cdist(states, images)
    nearest = distances.argmin(axis=1)
    nearest_distance = distances[np.arange(len(states)), nearest]
    strongest = strongest_correlation(states, images)
    main: Assignment | None = None
    others: dict[str, Assignment] = {}
    known_classes = patterns.digits or (classifier != "" and len(patterns.classes) > 0)
    if known_classes and patterns.shape == (SIDE, SIDE):
        judge = classifier_in(classifier) if isinstance(classifier, str) else classifier
        main = Assignment.of(states, patterns, judge)
        members = panel if panel and patterns.digits else {}
        others = {name: Assignment.of(states, patterns, member) for name, member in members.items()}
    return Quality(
        samples=len(states),
        **(dict.fromkeys(CLASSIFIED, math.nan) if main is None else main.summary()),
        pattern_distance=float(nearest_distance.mean()),
        pairwise_distance=mean_pairwise_distance(states),
        polarity=float(np.mean(strongest < 0)),
        absolute_correlation=float(np.abs(strongest).mean()),
        class_counts=None if main is None else tuple(main.counts.tolist()),
        sample_class=None if main is None else main.classes,
        sample_max_softmax=None if main is None else main.scores,
        nearest_pattern=nearest,
        sample_pattern_distance=nearest_distance,
        sample_correlation=strongest,
        panel=others,
    )


def entropy(counts: NDArray[np.integer[Any]]) -> float:
    """−Σ_c p_c ln p_c with p_c = n_c/Σn, in nats; an empty class adds nothing."""
    return float(entr(counts / counts.sum()).sum())


def mean_pairwise_distance(states: NDArray[Any]) -> float:
    """Mean of ‖x_a − x_b‖ over all distinct pairs a < b; NaN for a single sample."""
    if len(states) < 2:
        return math.nan
    return float(pdist(np.asarray(states, dtype=np.float64)).mean())


def strongest_correlation(states: Float64, patterns: Float64) -> Float64:
    """The Pearson correlation r(x, s) of largest |r| among the patterns, for every state.

    The correlation of a constant state is 0.
    """
    correlations = unit_rows(states) @ unit_rows(patterns).T
    strongest: Float64 = correlations[np.arange(len(states)), np.abs(correlations).argmax(axis=1)]
    return strongest


def unit_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Every row centred and of length one; a constant row becomes zero."""
    varies = (rows != rows[:, :1]).any(axis=1, keepdims=True)
    centred = rows - rows.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    unit: NDArray[Any] = np.divide(
        centred, length, out=np.zeros_like(rows), where=varies & (length > 0)
    )
    return unit


def _checked(visible_states: NDArray[Any], patterns: Patterns) -> Float64:
    states = np.asarray(visible_states, dtype=np.float64)
    width = patterns.patterns.shape[1]
    if states.ndim != 2 or len(states) == 0 or states.shape[1] != width:
        raise UserError(
            f"visible states of shape {states.shape}: expected (samples, {width}), as many "
            "values as the patterns have"
        )
    broken = np.flatnonzero(~np.isfinite(states).all(axis=1))
    if len(broken):
        raise UserError(
            f"{len(broken)} of {len(states)} samples are not finite (first: sample {broken[0]}): "
            "the dynamics diverged; try a smaller machine.dt"
        )
    return states
