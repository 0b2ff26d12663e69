"""Search for the window of development whose samples are nearest to held-out images.

    distance   ½ ln F(samples, data) + ½ ln F(samples with the data's thermal noise, data)
               + 10 Σ relative shortfalls of goals

F is the Fréchet distance in the features of a classifier. The goals are the rate of the correct
class, precision, recall, diversity, and novelty: samples should be no nearer to a learned image
than held-out images are.

States at t_f are drawn once. Only the window after t_f is simulated for every candidate, always
with the same random numbers. The distance is therefore a smooth function of the few numbers that
define a window, and the Nelder–Mead method can minimize it.

    wells     J₂ = −2Aw², J₄ = A, centre m, springs K, duration        images of two levels
    cooling   J₂ = λ(1 + ε)J₂⁰, learned couplings times λ, duration    grey images
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans
from scipy.optimize import minimize
from scipy.sparse import csr_array

from thermoloom.errors import UserError
from thermoloom.generation import drawn_words, generate, requested_classes
from thermoloom.machine.device import BuiltMachine
from thermoloom.machine.energy import effective_bias
from thermoloom.machine.machine import Machine
from thermoloom.machine.onsite import Development
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.protocol import generation_windows
from thermoloom.measures.classifier import Classifier, classify, image_features
from thermoloom.measures.fidelity import (
    class_diversity,
    frechet_distance,
    nearest_images,
    precision_recall,
)
from thermoloom.patterns.patterns import Patterns
from thermoloom.theory.generation_law import generation_law
from thermoloom.theory.marginals import is_harmonic

Float32 = NDArray[np.float32]

FEW_COUPLINGS = 0.05
"""Fraction of coupled pairs below which the couplings of a window are a sparse matrix."""
SIMPLEX = 0.2
"""First steps of the search, relative to the size of each number."""
FINEST = 1e-3
"""Thermal noise is raised to the data's only if more variance than this is missing."""
PENALTY = 10.0
"""Weight of a goal's shortfall: a shortfall of 1 % counts like 10 % of the Fréchet distance."""


class Goals(NamedTuple):
    """Targets for the samples of a window; 0 leaves a goal out."""

    correct: float = 0.0
    """Rate of the correct class."""
    precision: float = 0.85
    recall: float = 0.6
    diversity: float = 0.95
    """Diversity within a class, relative to that of the images."""
    novelty: float = 1.0
    """1 − correlation with the nearest learned image, relative to that of the images."""


class Candidate(NamedTuple):
    """A window, and how far its samples are from the data."""

    window: Development
    distance: float
    """The mean of both logarithms plus the penalties for missed goals."""
    frechet: float
    """Fréchet distance of the samples as they are."""
    equal_noise: float
    """Fréchet distance of the samples with the thermal noise of the data."""
    reached: Mapping[str, float] = MappingProxyType({})
    """The value that the samples reach for each goal."""


OnCandidate = Callable[[Candidate], None]


def developed(theta: Parameters, states: Float32, words: Float32 | None, seed: int) -> Float32:
    """States (S, N) after the windows of development of θ's machine, from the states at t_f."""
    machine, rows, x = theta.machine, theta.developed, states.astype(np.float32)
    rng = np.random.default_rng(seed)
    drift, kick = (np.float32(each) for each in machine.step)
    for number, steps in enumerate(machine.development_steps):
        stage = machine.stages + number
        onsite: Any = machine.generating_potential(stage).astype(np.float32)
        J: Any = rows.coupling_matrix(stage)[:, : machine.units].astype(np.float32)
        if np.count_nonzero(J) < FEW_COUPLINGS * J.size:
            J = csr_array(J)
        bias = effective_bias(rows, stage, words).astype(np.float32)
        for _ in range(steps):
            force = onsite.gradient(x) + x @ J + bias
            x += kick * rng.standard_normal(x.shape, np.float32) - drift * force
    return x


def states_at_end(theta: Parameters, words: Float32 | None, samples: int, seed: int) -> Float32:
    """States (S, N) at t_f; for harmonic machines from their exact law, which takes a second."""
    if not is_harmonic(theta.machine):
        return generate(theta, samples, seed).final_states
    law = generation_law(theta, words).laws[-1]
    normal = np.random.default_rng([seed, 3]).standard_normal((samples, theta.machine.units))
    states: Float32 = (law.mean + normal @ np.linalg.cholesky(law.covariance).T).astype(np.float32)
    return states


class HeldOut(NamedTuple):
    """Measures of the held-out images; None where they are not defined."""

    features: Float32
    diversity: float | None
    novelty: float | None


@dataclass(frozen=True, eq=False)
class Search:
    """Samples at t_f, and the held-out images with which developed samples are compared."""

    theta: Parameters
    states: Float32
    """(S, N) at t_f."""
    words: Float32 | None
    held_out: Patterns
    learned: Float32
    """Patterns that were learned, (P, N_v), where P may be 0."""
    noise: float
    """Variance of the thermal noise that the held-out images receive."""
    classifier: Classifier
    seed: int
    goals: Goals

    @classmethod
    def of(
        cls, theta: Parameters, held_out: Patterns, learned: Float32, noise: float | None,
        classifier: Classifier, samples: int, seed: int, goals: Goals,
    ) -> Search:  # fmt: skip
        """A search; the samples at t_f are generated here, without any development."""
        machine = replace(theta.machine, development=())
        if isinstance(machine, BuiltMachine):
            raise UserError(
                "develop: needs an ideal computer; choose the window first, then call on(device)"
            )
        theta = theta.on(machine)
        if noise is None:
            noise = machine.kT / float(machine.potential.curvature(0.0))
        words = drawn_words(theta, samples, seed, None)
        states = states_at_end(theta, words, samples, seed)
        return cls(theta, states, words, held_out, learned, noise, classifier, seed, goals)

    def _noisy(self, images: Float32, variance: float, stream: int) -> Any:
        rng = np.random.default_rng([self.seed, stream])
        return images + math.sqrt(variance) * rng.standard_normal(images.shape)

    def candidate(self, window: Development) -> Candidate:
        """A window with the distance of its samples from the held-out images."""
        machine = replace(self.theta.machine, development=(window,))
        theta, visible = self.theta.on(machine), machine.visible
        with np.errstate(over="ignore", invalid="ignore"):
            states = developed(theta, self.states, self.words, self.seed)[:, :visible]
        if not np.isfinite(states).all():
            return Candidate(window, math.inf, math.inf, math.inf)
        missing = self.noise - thermal_variance(machine, states)
        raised = self._noisy(states, missing, 1) if missing > FINEST else states
        features = [image_features(each, self.classifier) for each in (states, raised)]
        frechet, equal_noise = (frechet_distance(each, self.data.features) for each in features)
        mean = 0.5 * (math.log(frechet) + math.log(equal_noise))
        reached = self._reached(states, features[0])
        shortfall = sum(
            max(0.0, 1 - reached[name] / goal)
            for name, goal in self.goals._asdict().items()
            if goal and name in reached
        )
        return Candidate(window, mean + PENALTY * shortfall, frechet, equal_noise, reached)

    @cached_property
    def data(self) -> HeldOut:
        """Features, diversity and novelty of the held-out images with their noise."""
        states = self._noisy(self.held_out.patterns, self.noise, 2)
        classes = self.held_out.classes
        varied = len(set(classes)) < len(classes)
        diversity = class_diversity(states, np.array(classes)) if varied else None
        features = image_features(states, self.classifier)
        return HeldOut(features, diversity, self._novelty(states))

    def _novelty(self, states: Float32) -> float | None:
        """1 − mean correlation with the nearest learned pattern."""
        if not len(self.learned):
            return None
        return 1 - float(nearest_images(states, self.learned).correlation.mean())

    def _reached(self, states: Float32, features: Float32) -> dict[str, float]:
        """The value that the samples reach for each goal that can be measured on these images."""
        manifold, data = precision_recall(features, self.data.features), self.data
        reached: dict[str, float] = manifold._asdict()
        requested = requested_classes(self.theta, len(states), None)
        if requested is not None and data.diversity is not None:
            reached["diversity"] = class_diversity(states, requested) / data.diversity
            recognized = classify(states, self.classifier).argmax(axis=1)
            reached["correct"] = float(np.mean(recognized == requested))
        novelty = self._novelty(states) if self.goals.novelty else None
        if novelty is not None and data.novelty:
            reached["novelty"] = novelty / data.novelty
        return reached

    def best(self, evaluations: int, on_candidate: OnCandidate | None) -> Candidate:
        """The best window, of the kind whose first guess is better."""
        candidates: list[Candidate] = []

        def compare(window: Development) -> float:
            candidates.append(self.candidate(window))
            if on_candidate is not None:
                on_candidate(candidates[-1])
            return candidates[-1].distance

        machine, guesses = self.theta.machine, (self._levels(), np.array([20.0, 0.08, 0.3]))
        kinds = list(zip(STARTS, guesses, strict=True))
        starts = [compare(window_of(machine, start)) for window_of, start in kinds]
        window_of, start = kinds[int(np.argmin(starts))]
        simplex = np.vstack([np.log(start), np.log(start + np.diag(SIMPLEX * start))])
        minimize(
            lambda numbers: compare(window_of(machine, np.exp(numbers))),
            np.log(start),
            method="Nelder-Mead",
            options={"maxfev": evaluations, "initial_simplex": simplex},
        )
        return min(candidates, key=lambda each: each.distance)

    def _levels(self) -> NDArray[np.float64]:
        """First guess of wells: at the two levels that represent the grey values best."""
        levels = two_levels(self.held_out.patterns[:200])
        return np.array([0.5, levels.half_width, levels.middle, 0.15, 1.0])


class Levels(NamedTuple):
    """Two grey values that represent the pixels of images best."""

    middle: float
    half_width: float
    explained: float
    """Fraction of the variance of the pixels that their nearer level explains."""


def two_levels(images: NDArray[Any]) -> Levels:
    """The two levels of the pixels of these patterns, by k-means."""
    pixels = np.asarray(images, np.float64).reshape(-1, 1)
    ends = np.array([[pixels.min()], [pixels.max()]])
    low, high = np.sort(kmeans(pixels, ends)[0].ravel())
    scatter = float(np.minimum((pixels - low) ** 2, (pixels - high) ** 2).mean())
    return Levels((high + low) / 2, (high - low) / 2, 1 - scatter / float(pixels.var()))


def wells(machine: Machine, numbers: Sequence[float] | NDArray[Any]) -> Development:
    """A double well from its strength A, half width w and centre m, with springs K and duration.

    Without wires that could be springs, K is 0.
    """
    A, w, m, K, t = (float(number) for number in numbers)
    K = K if machine.takes_springs else 0.0
    return Development(-2 * A * w * w, A, m, K, 0.0, max(t, machine.dt))


def cooling(machine: Machine, numbers: Sequence[float] | NDArray[Any]) -> Development:
    """The last stage at 1/λ of its temperature, with a potential stiffer by ε, for a duration."""
    factor, excess, t = (float(number) for number in numbers)
    stiffness = float(machine.potential.curvature(0.0)) / 2
    return Development(
        stiffness * factor * (1 + excess), learned=factor, duration=max(t, machine.dt)
    )


STARTS = (wells, cooling)
"""Kinds of windows; the search begins with one window of each kind."""


def thermal_variance(machine: Machine, states: Float32) -> float:
    """k_BT/V″ of visible units at these states, in the last window of generation."""
    onsite: Any = machine.generating_potential(generation_windows(machine)[-1][0])
    padded = np.zeros((len(states), machine.units))
    padded[:, : machine.visible] = states
    curvature = np.broadcast_to(onsite.curvature(padded), padded.shape)[:, : machine.visible]
    return machine.kT / float(np.mean(curvature))
