"""The distribution of generated states, where it is known without sampling.

    start   units are independent: one density, carried through all steps of preparation
    end     harmonic machines (J₄ = 0): x′ = (1 − μΔtM) x − μΔt b + √(2μk_BTΔt) ξ is linear, so
            states stay Gaussian and a recursion gives their mean and covariance

They give heat, entropy and distance travelled of a harmonic machine in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thermoloom.errors import UserError
from thermoloom.machine.energy import effective_bias
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Array, Parameters
from thermoloom.machine.protocol import generation_windows, preparation
from thermoloom.theory.marginals import Array64, is_harmonic
from thermoloom.threads import linear_algebra

_POINTS_PER_KICK = 1.2
"""Points of the grid for each standard deviation of a thermal kick: sums over a Gaussian at this
spacing are exact to 1e-12."""
_MOST_POINTS = 4000


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Mean (N,), or means (W, N) of several words, and covariance (N, N) of states."""

    mean: Array64
    covariance: Array64

    @property
    def entropy(self) -> float:
        """½ ln det(2πe C), in nats."""
        sign, log = np.linalg.slogdet(2 * np.pi * np.e * self.covariance)
        return 0.5 * float(log) if sign > 0 else -math.inf

    def energy(self, stiffness: Array64, bias: Array64) -> Array64:
        """E[½xᵀMx + b·x], for each word."""
        spread = 0.5 * np.sum(stiffness * self.covariance)
        pull = 0.5 * self.mean @ stiffness + bias
        return np.asarray(spread + (pull * self.mean).sum(axis=-1))


@linear_algebra()
def gelbrich(p: Gaussian, q: Gaussian) -> Array64:
    """W₂² of two Gaussians, for each word: a lower bound for any distributions with these means and
    covariances.
    """
    values, modes = np.linalg.eigh(p.covariance)
    root = (modes * np.sqrt(np.maximum(values, 0))) @ modes.T
    cross = np.linalg.eigvalsh(root @ q.covariance @ root)
    overlap = float(np.sqrt(np.maximum(cross, 0)).sum())
    spread = float(np.trace(p.covariance + q.covariance)) - 2 * overlap
    return np.asarray(np.sum((p.mean - q.mean) ** 2, axis=-1) + max(spread, 0.0))


@dataclass(frozen=True, eq=False)
class GenerationLaw:
    """Exact energies, heat and work of a harmonic machine, for each requested label word."""

    machine: Machine
    laws: Sequence[Gaussian]
    """At the start of generation, then after each stage in turn."""
    stage_heat: Array64
    """E[Q] of each stage, (T,) or (T, W), in E₀."""
    switching_work: Array64
    """E[W] of the switch to each stage but the first, (T − 1,) or (T − 1, W), in E₀."""

    @property
    def heat(self) -> Array64:
        """E[Q], in E₀."""
        return np.asarray(self.stage_heat.sum(axis=0))

    @property
    def work(self) -> Array64:
        """E[W], in E₀."""
        return np.asarray(self.switching_work.sum(axis=0))

    @property
    def entropy_change(self) -> float:
        """ΔS of the states, in nats."""
        return self.laws[-1].entropy - self.laws[0].entropy

    @property
    def entropy_production(self) -> Array64:
        """Σ = βQ + ΔS, in nats."""
        return self.heat / self.machine.kT + self.entropy_change

    @property
    def speed_limit(self) -> Array64:
        """W₂²/(μk_BT t_f) ≤ Σ, in nats."""
        return gelbrich(self.laws[0], self.laws[-1]) / transport_scale(self.machine)


def transport_scale(machine: Machine) -> float:
    """μk_BT t_f: the squared distance whose transport produces at least one nat of entropy."""
    return machine.mobility * machine.kT * machine.duration


@linear_algebra()
def generation_law(theta: Parameters, word: Array | None = None) -> GenerationLaw:
    """Means and covariances after every stage, step by step as the engine takes them.

    ``word`` (L,) is the state of the label units, or words (W, L); covariances do not depend on it.
    """
    machine = theta.machine
    if machine.generating or machine.development:
        raise UserError(
            "machine.generating, machine.development: the distribution of states is known for the "
            "reference potential only; generate instead"
        )
    if not is_harmonic(machine):
        raise UserError(
            f"machine.J4 = {machine.J4:g}: states are Gaussian only where it is 0; generate instead"
        )
    onsite_stiffness = float(machine.potential.curvature(0.0))
    law = Gaussian(np.zeros(machine.units), np.eye(machine.units) * _prepared_variance(machine))
    laws, starts, ends = [law], [], []
    for stage, begin, end in generation_windows(machine):
        couplings = theta.coupling_matrix(stage)[:, : machine.units]
        stiffness = onsite_stiffness * np.eye(machine.units) + couplings
        bias = effective_bias(theta.astype(np.float64), stage, word)
        after = _relaxed(machine, law, stiffness, bias, end - begin)
        starts.append(law.energy(stiffness, bias))
        ends.append(after.energy(stiffness, bias))
        laws.append(after)
        law = after
    V_start, V_end = np.array(starts), np.array(ends)
    return GenerationLaw(machine, laws, V_start - V_end, V_start[1:] - V_end[:-1])


@linear_algebra()
def imprinted_law(machine: Machine, fields: Array64) -> Gaussian:
    """Distribution after K steps of preparation from 0 at these fields (..., N)."""
    onsite_stiffness = float(machine.potential.curvature(0.0))
    pushed = machine.drift * sum(
        a * (1 - machine.drift * onsite_stiffness) ** remaining
        for remaining, a in enumerate(reversed(preparation(machine)))
    )
    return Gaussian(pushed * fields, np.eye(machine.units) * _prepared_variance(machine))


def _prepared_variance(machine: Machine) -> float:
    factor = (1 - machine.drift * float(machine.potential.curvature(0.0))) ** 2
    return machine.noise_amplitude**2 * _geometric(factor, machine.steps)


def _geometric(factor: float, count: int) -> float:
    """1 + f + … + f^(n−1)."""
    return count if abs(1 - factor) < 1e-14 else (1 - factor**count) / (1 - factor)


def _relaxed(
    machine: Machine, law: Gaussian, stiffness: Array64, bias: Array64, steps: int
) -> Gaussian:
    """The distribution after this number of steps, mode by mode."""
    values, modes = np.linalg.eigh(stiffness)
    factor = 1 - machine.drift * values
    power = factor**steps
    pushed = np.array([_geometric(f, steps) for f in factor])
    kicked = np.array([_geometric(f * f, steps) for f in factor])
    mean = (power * (law.mean @ modes) - machine.drift * pushed * (bias @ modes)) @ modes.T
    carried = np.outer(power, power) * (modes.T @ law.covariance @ modes)
    covariance = modes @ (carried + np.diag(machine.noise_amplitude**2 * kicked)) @ modes.T
    return Gaussian(mean, covariance)


@linear_algebra()
def prepared_entropy(machine: Machine) -> float:
    """Entropy of one unit at the start of generation, in nats: K steps from x = 0, alone."""
    potential = machine.potential
    if is_harmonic(machine):
        return 0.5 * math.log(2 * np.pi * np.e * _prepared_variance(machine))
    kick = machine.noise_amplitude
    reach = _reach(machine)
    points = 2 * math.ceil(reach * _POINTS_PER_KICK / kick) + 1
    if points > _MOST_POINTS:
        raise UserError(
            f"machine.dt = {machine.dt:g}: steps too short to follow the density of a unit "
            f"({points} points, at most {_MOST_POINTS}); use a larger machine.dt"
        )
    x = np.linspace(-reach, reach, points)
    spacing = x[1] - x[0]
    y = x - machine.drift * potential.gradient(x)
    step = np.exp(-0.5 * ((x[:, None] - y) / kick) ** 2) * (spacing / (kick * math.sqrt(2 * np.pi)))
    density = np.exp(-0.5 * (x / kick) ** 2) / (kick * math.sqrt(2 * np.pi))
    density = np.linalg.matrix_power(step, machine.steps - 1) @ density
    inside = density[density > 0]
    return float(-spacing * np.sum(inside * np.log(inside)))


def _reach(machine: Machine) -> float:
    """Largest |x| of a prepared unit: V(x) = 40 k_BT, or nine diffusion lengths if that is less."""
    x = np.linspace(0, 1, 20001)
    scale = 1.0
    while machine.potential.energy(scale) < 40 * machine.kT:
        scale *= 2
    bound = scale * x[np.searchsorted(machine.potential.energy(scale * x), 40 * machine.kT)]
    return min(float(bound), 9 * math.sqrt(2 * machine.mobility * machine.kT * machine.duration))
