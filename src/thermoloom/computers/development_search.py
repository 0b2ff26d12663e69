"""The outer loop: which development brings samples nearest to held-out images.

    distance   ½ ln F(samples, data) + ½ ln F(samples with the data's thermal noise, data)

F is the Fréchet distance in the features of a classifier. Samples are generated once, up to t_f;
only the window after it is simulated for every candidate, with the same random numbers, so that the
distance is a smooth function of the few numbers of a window and Nelder–Mead can follow it.

    wells     J₂ = −2Aw², J₄ = A, centre m, springs K, duration        binary images
    cooling   J₂ = λ(1 + ε)J₂⁰, learned couplings times λ, duration    grey images
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans
from scipy.optimize import minimize
from scipy.sparse import csr_array

from thermoloom.errors import UserError
from thermoloom.generation import drawn_words, generate
from thermoloom.machine.device import BuiltMachine
from thermoloom.machine.energy import effective_bias
from thermoloom.machine.machine import Machine
from thermoloom.machine.onsite import Development
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.protocol import generation_windows
from thermoloom.measures.classifier import Classifier, image_features
from thermoloom.measures.fidelity import frechet_distance

Float32 = NDArray[np.float32]

FEW_COUPLINGS = 0.05
"""Fraction of pairs below which the couplings of a window are a sparse matrix."""
SIMPLEX = 0.2
"""First steps of the search, relative to the size of each number."""
FINEST = 1e-3
"""Variance of thermal noise below which it is not raised to the data's."""


class Candidate(NamedTuple):
    """A window, and how far its samples are from the data."""

    window: Development
    distance: float
    """The mean of both logarithms."""
    frechet: float
    """Fréchet distance of the samples as they are."""
    equal_noise: float
    """… with the thermal noise of the data."""


OnCandidate = Callable[[Candidate], None]


def developed(theta: Parameters, states: Float32, words: Float32 | None, seed: int) -> Float32:
    """States (S, N) after the windows of development of θ's machine, from those at t_f."""
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


@dataclass(frozen=True, eq=False)
class Search:
    """Samples at t_f and held-out images, between which windows are compared."""

    theta: Parameters
    states: Float32
    """(S, N) at t_f."""
    words: Float32 | None
    images: Float32
    """Held-out patterns, (P, visible), without noise."""
    noise: float
    """Variance of the thermal noise that the images receive."""
    classifier: Classifier
    seed: int

    @classmethod
    def of(
        cls, theta: Parameters, images: Float32, noise: float | None, classifier: Classifier,
        samples: int, seed: int,
    ) -> Search:  # fmt: skip
        """Generate the samples, without any development."""
        machine = replace(theta.machine, development=())
        if isinstance(machine, BuiltMachine):
            raise UserError("develop: choose a window on an ideal computer, not on a device")
        theta = theta.on(machine)
        generated = generate(theta, samples, seed)
        if noise is None:
            noise = machine.kT / float(machine.potential.curvature(0.0))
        words = drawn_words(theta, samples, seed, None)
        return cls(theta, generated.final_states, words, images, noise, classifier, seed)

    def _noisy(self, images: Float32, variance: float, stream: int) -> Any:
        rng = np.random.default_rng([self.seed, stream])
        return images + math.sqrt(variance) * rng.standard_normal(images.shape)

    def candidate(self, window: Development) -> Candidate:
        """How far the samples of a window are from the images."""
        machine = replace(self.theta.machine, development=(window,))
        theta, visible = self.theta.on(machine), machine.visible
        with np.errstate(over="ignore", invalid="ignore"):
            states = developed(theta, self.states, self.words, self.seed)[:, :visible]
        if not np.isfinite(states).all():
            return Candidate(window, math.inf, math.inf, math.inf)
        missing = self.noise - thermal_variance(machine, states)
        raised = self._noisy(states, missing, 1) if missing > FINEST else states
        data = image_features(self._noisy(self.images, self.noise, 2), self.classifier)
        distances = [
            frechet_distance(image_features(each, self.classifier), data)
            for each in (states, raised)
        ]
        mean = 0.5 * sum(math.log(distance) for distance in distances)
        return Candidate(window, mean, *distances)

    def best(self, evaluations: int, on_candidate: OnCandidate | None) -> Candidate:
        """The best window of the kind whose first guess is better."""
        candidates: list[Candidate] = []

        def compare(window: Development) -> float:
            candidates.append(self.candidate(window))
            if on_candidate is not None:
                on_candidate(candidates[-1])
            return candidates[-1].distance

        kinds = [(wells, self._levels()), (cooling, np.array([20.0, 0.08, 0.3]))]
        machine = self.theta.machine
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
        pixels = self.images[:200].astype(np.float64).reshape(-1, 1)
        low, high = np.sort(kmeans(pixels, np.array([[pixels.min()], [pixels.max()]]))[0].ravel())
        return np.array([0.5, (high - low) / 2, (high + low) / 2, 0.15, 1.0])


def wells(machine: Machine, numbers: Sequence[float] | NDArray[Any]) -> Development:
    """A double well from its strength A, half width w and centre m, with springs K and duration."""
    A, w, m, K, t = (float(number) for number in numbers)
    return Development(-2 * A * w * w, A, m, K, 0.0, max(t, machine.dt))


def cooling(machine: Machine, numbers: Sequence[float] | NDArray[Any]) -> Development:
    """The last stage at a λ-th of the temperature, made stiffer by ε, for a duration."""
    factor, excess, t = (float(number) for number in numbers)
    stiffness = float(machine.potential.curvature(0.0)) / 2
    return Development(
        stiffness * factor * (1 + excess), learned=factor, duration=max(t, machine.dt)
    )


def thermal_variance(machine: Machine, states: Float32) -> float:
    """k_BT/V″ of visible units at these states, in the last window of generation."""
    onsite: Any = machine.generating_potential(generation_windows(machine)[-1][0])
    padded = np.zeros((len(states), machine.units))
    padded[:, : machine.visible] = states
    curvature = np.broadcast_to(onsite.curvature(padded), padded.shape)[:, : machine.visible]
    return machine.kT / float(np.mean(curvature))
