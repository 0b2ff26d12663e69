"""When a network of double wells samples like an Ising machine.

    V(x)/k_BT = B Σ_i (y_i² − 1)² + Σ_wired K_ij y_i y_j + Σ_i h_i y_i,        y = x/w
    P(s) → exp(−Σ K_ij s_i s_j − Σ h_i s_i)/Z,     s = sign y                  for barriers B ≫ 1

A unit moves within its well. With the mean m and the variance v of |y| there, both of a single
unit and known by quadrature, the next order is

    ln P(s) = −m² Σ K_ij s_i s_j − m Σ h_i s_i + (v/2) Σ_i (m Σ_j K_ij s_j + h_i)² + const,

in which m → 1 and v → 0 as 1/B. Higher barriers take longer: a unit crosses its barrier once in
2π/(μ√(V″(w)|V″(0)|)) exp(B), Kramers' time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad

from thermoloom.generation import generate
from thermoloom.machine.machine import Machine
from thermoloom.machine.onsite import Development
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.wires import neighbours
from thermoloom.studies.case import Job
from thermoloom.studies.pbits.pbit_machine import PbitMachine, PbitParameters

Array64 = NDArray[np.float64]
Signs = NDArray[np.int8]

KT = 0.1
RELAXATION_STEP = 0.05
"""Δt in units of the relaxation time 1/(μV″(w)) at the bottom of a well."""
PREPARATION = 20
"""Steps before the double wells are switched on."""
READINGS = 40
"""Number of times at which all units are read: evenly in log t, and evenly in the second half."""
ITERATIONS = 600
"""Steps after which only the slowest mode is left: the next one decays by 5 % per step."""
CHAIN_SWEEPS = (1, 2, 3, 5, 8, 12, 20, 30)
"""Sweeps after which p-bits are read."""
ROWS_AT_ONCE = 1 << 16
"""Sign patterns that are enumerated together; bounds the memory."""


# --- the Ising machine, by enumeration ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Spins:
    """Couplings K (n, n) and fields h (n,) in k_BT; E(s) = Σ_wired K_ij s_i s_j + Σ h_i s_i."""

    couplings: Array64
    fields: Array64

    @property
    def units(self) -> int:
        return len(self.fields)


def spins_on_a_sheet(units: int, coupling: float, bias: float, seed: int) -> Spins:
    """Couplings ±K between neighbours on a sheet and fields ±h, with random signs."""
    rng = np.random.default_rng([seed, units])
    couplings = np.zeros((units, units))
    pairs = neighbours(units)
    couplings[tuple(pairs.T)] = coupling * rng.choice([-1, 1], len(pairs))
    return Spins(couplings + couplings.T, bias * rng.choice([-1, 1], units))


def sign_patterns(units: int, first: int = 0, last: int | None = None) -> Signs:
    """Sign patterns by number, (2ⁿ, n): unit i is −1 where bit i is set."""
    numbers = np.arange(first, 1 << units if last is None else last)
    return (1 - 2 * ((numbers[:, None] >> np.arange(units)) & 1)).astype(np.int8)


def ising_law(spins: Spins, mean: float = 1.0, variance: float = 0.0) -> Array64:
    """P(s) of every sign pattern, (2ⁿ,); with mean and variance of |y|, to order 1/B."""
    weights = np.empty(1 << spins.units)
    for first in range(0, len(weights), ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, len(weights))
        signs = mean * sign_patterns(spins.units, first, last).astype(np.float64)
        force = signs @ spins.couplings
        energy = (signs * force).sum(axis=1) / 2 + signs @ spins.fields
        softness = variance / 2 * np.square(force + spins.fields).sum(axis=1)
        weights[first:last] = softness - energy
    law: Array64 = np.exp(weights - weights.max())
    law /= law.sum()
    return law


def well_moments(barrier: float) -> tuple[float, float]:
    """Mean and variance of |y| of a single unit."""

    def moment(power: int) -> float:
        return float(quad(lambda y: y**power * math.exp(-barrier * (y * y - 1) ** 2), 0, 5)[0])

    mean = moment(1) / moment(0)
    return mean, moment(2) / moment(0) - mean**2


def law_moments(law: Array64, units: int) -> Array64:
    """Magnetizations and pair correlations of a law, (n + n(n − 1)/2,)."""
    mean, pairs = np.zeros(units), np.zeros((units, units))
    for first in range(0, len(law), ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, len(law))
        signs = sign_patterns(units, first, last).astype(np.float64)
        mean += law[first:last] @ signs
        pairs += signs.T @ (law[first:last, None] * signs)
    return np.concatenate([mean, pairs[np.triu_indices(units, 1)]])


def sample_moments(signs: NDArray[Any]) -> Array64:
    """Magnetizations and pair correlations of samples (S, n)."""
    rows = signs.astype(np.float64)
    pairs = rows.T @ rows / len(rows)
    return np.concatenate([rows.mean(axis=0), pairs[np.triu_indices(rows.shape[1], 1)]])


def deviation(a: Array64, b: Array64) -> float:
    """Root mean square difference of moments."""
    return float(np.sqrt(np.mean(np.square(a - b))))


def variation_distance(signs: NDArray[Any], law: Array64) -> float:
    """Total variation distance between the patterns of samples and a law."""
    numbers = (signs < 0) @ (1 << np.arange(signs.shape[1]))
    frequency = np.bincount(numbers, minlength=len(law)) / len(signs)
    return float(np.abs(frequency - law).sum() / 2)


def drawn_patterns(law: Array64, units: int, samples: int, seed: int) -> Signs:
    """Independent draws from a law."""
    numbers = np.random.default_rng(seed).choice(len(law), samples, p=law)
    return (1 - 2 * ((numbers[:, None] >> np.arange(units)) & 1)).astype(np.int8)


# --- the Langevin machine -------------------------------------------------------------------------


def double_wells(units: int, barrier: float, steps: int) -> Machine:
    """A machine whose units start at x ≈ 0 and fall into wells at x = ±1, which last ``steps``."""
    depth = barrier * KT  # A of A(x² − 1)²; V″(±1) = 8A
    dt = RELAXATION_STEP / (8 * depth)
    wells = Development(J2=-2 * depth, J4=depth, learned=1.0, duration=steps * dt)
    return Machine(
        visible=units,
        hidden=0,
        wiring=("visible-visible",),
        biases=("visible",),
        J2=4 * depth,
        J4=0.0,
        kT=KT,
        dt=dt,
        duration=PREPARATION * dt,
        development=(wells,),
    )


def signs_in_time(
    spins: Spins, barrier: float, steps: int, samples: int, seed: int, read_at: list[int]
) -> Signs:
    """Signs of all units at the steps ``read_at`` of the double wells, (samples, steps, n)."""
    machine = double_wells(spins.units, barrier, steps)
    energies = {"visible_visible": spins.couplings, "visible_bias": spins.fields}
    arrays = {name: (KT * array).astype(np.float32) for name, array in energies.items()}
    theta = Parameters.from_arrays(machine, arrays)
    readings = [PREPARATION + step for step in read_at]
    generated = generate(
        theta, samples, seed, snapshot_steps=readings, snapshot_samples=range(samples)
    )
    signs: Signs = np.where(generated.snapshots < 0, -1, 1).astype(np.int8)
    return signs


# --- the time to cross a barrier ------------------------------------------------------------------


def kramers_steps(barrier: float) -> float:
    """Kramers' time between crossings of a lone unit, in steps: V″(w) = 8A, |V″(0)| = 4A."""
    return 2 * math.pi * math.sqrt(8 / 4) * math.exp(barrier) / RELAXATION_STEP


def crossing_steps(barrier: float, sites: int = 500, largest: float = 2.5) -> float:
    """Steps between crossings of a lone unit, from the slowest odd mode of one step.

    y′ = y − (ε/2) y(y² − 1) + √(ε/4B) z with ε = ``RELAXATION_STEP``. The mode's eigenvalue is the
    factor by which ⟨s(0)s(t)⟩ falls in one step: exp(−2/τ) for one crossing in τ steps.
    """
    y = (np.arange(sites) + 0.5) * largest / sites
    drift = y - RELAXATION_STEP / 2 * y * (y * y - 1)
    width = math.sqrt(RELAXATION_STEP / (4 * barrier))
    direct, mirrored = (
        np.exp(-(((sign * y[None] - drift[:, None]) / width) ** 2) / 2) for sign in (1, -1)
    )
    step = (direct - mirrored) * largest / sites / (width * math.sqrt(2 * math.pi))
    mode, slowest = np.ones(sites), 1.0
    for _ in range(ITERATIONS):
        mode = step @ mode
        slowest = float(mode.max())
        mode /= slowest
    return -2 / math.log(slowest)


def measured_crossing_steps(
    barrier: float, steps: int, samples: int, units: int, seed: int
) -> float:
    """Steps between crossings of units without couplings: τ = 2(t₂ − t₁)/ln(C(t₁)/C(t₂)).

    C is the correlation of their signs over two lags, beyond the relaxation within a well.
    """
    lag = round(min(max(60.0, crossing_steps(barrier) / 4), steps / 5))
    read_at = list(range(lag, steps + 1, lag))[:READINGS]
    still = Spins(np.zeros((units, units)), np.zeros(units))
    signs = signs_in_time(still, barrier, steps, samples, seed, read_at)
    short, long = (float((signs[:, :-n] * signs[:, n:]).mean()) for n in (1, 3))
    return 4 * lag / math.log(short / max(long, 1e-3))


# --- one barrier ----------------------------------------------------------------------------------


def ising_limit(
    job: Job, units: int, barrier: float, coupling: float, bias: float, samples: int, steps: int
) -> dict[str, Any]:
    """Distance of the machine's signs from the Ising law, over time and at the end."""
    seed = job.settings.generation_seed
    spins = spins_on_a_sheet(units, coupling, bias, job.settings.training.seed)
    course = np.unique(np.geomspace(20, steps, READINGS).astype(int))
    late = np.linspace(steps / 2, steps, READINGS).astype(int)
    read_at = np.union1d(course, late)
    signs = signs_in_time(spins, barrier, steps, samples, seed, read_at.tolist())
    laws = {"ising": ising_law(spins), "corrected": ising_law(spins, *well_moments(barrier))}
    expected = {name: law_moments(law, units) for name, law in laws.items()}
    crossing = crossing_steps(barrier)
    pooled = signs[:, read_at >= steps / 2].reshape(-1, units)
    independent = max(samples, round(samples * steps / 2 / crossing))
    drawn = drawn_patterns(laws["corrected"], units, min(independent, len(pooled)), seed)
    job.run.save_table(
        "course",
        {
            "step": course,
            "crossings": course / crossing,
            "deviation": [
                deviation(sample_moments(signs[:, reading]), expected["ising"])
                for reading in np.searchsorted(read_at, course)
            ],
        },
    )
    moments = sample_moments(pooled)
    mean, variance = well_moments(barrier)
    return {
        "well_mean": mean,
        "well_variance": variance,
        "deviation": deviation(moments, expected["ising"]),
        "corrected_deviation": deviation(moments, expected["corrected"]),
        "predicted_deviation": deviation(expected["corrected"], expected["ising"]),
        "sampling_error": deviation(sample_moments(drawn), expected["corrected"]),
        "variation": variation_distance(pooled, laws["ising"]),
        "corrected_variation": variation_distance(pooled, laws["corrected"]),
        "predicted_variation": float(np.abs(laws["ising"] - laws["corrected"]).sum() / 2),
        "variation_of_draws": variation_distance(drawn, laws["corrected"]),
        "crossing_steps": crossing,
        "measured_crossing_steps": measured_crossing_steps(
            barrier, steps, max(20, samples // 4), units, seed + 1
        ),
        "kramers_steps": kramers_steps(barrier),
    }


def pbit_chain(job: Job, units: int, coupling: float, bias: float, samples: int) -> dict[str, Any]:
    """Distance of p-bits from the Ising law after growing numbers of sweeps."""
    seed = job.settings.generation_seed
    spins = spins_on_a_sheet(units, coupling, bias, job.settings.training.seed)
    pairs = np.argwhere(np.triu(spins.couplings))
    machine = PbitMachine(units, pairs, 1, 0.0)
    theta = PbitParameters(
        -spins.couplings[tuple(pairs.T)].astype(np.float32),
        -spins.fields.astype(np.float32),
        np.zeros((units, 1), np.float32),
    )
    rng = np.random.default_rng([seed, 3])
    noise = np.where(rng.random((samples, units)) < 0.5, -1, 1).astype(np.int8)
    label = np.zeros(samples, np.intp)
    expected = law_moments(ising_law(spins), units)
    drawn = {n: machine.relaxed(theta, noise, noise, label, n, seed) for n in CHAIN_SWEEPS}
    distances = [deviation(sample_moments(drawn[n]), expected) for n in CHAIN_SWEEPS]
    job.run.save_table("course", {"sweeps": CHAIN_SWEEPS, "deviation": distances})
    return {"deviation": distances[-1]}
