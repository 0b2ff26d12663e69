"""ΔF of switching the couplings on: from the onsite potential alone to V_θ.

    V_s = V_onsite + s·U_θ,   s = 0, 1/n, …, 1        switched in n jumps, with a rest after each

Starting from the onsite equilibrium, the work of the jumps gives ΔF by Jarzynski's equality, and
neighbouring s give it jump by jump by Bennett's acceptance ratio, from states at the end of each
rest: x at s forwards, other x at s + 1/n backwards. A jump whose forward and backward works do not
overlap is refused. The estimators are pymbar's.

Crooks' theorem compares whole trajectories with those that switch the couplings off again, from
the equilibrium of V_θ and in the same jumps: with W of the former and −W of the latter,

    ln p_F(W)/p_R(−W) = W − ΔF

so in logistic regression the direction of a trajectory has slope 1 in W, and even odds at ΔF.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from thermoloom.errors import UserError, warnings_become
from thermoloom.generation import generate
from thermoloom.inputs import real_number, whole_number
from thermoloom.machine.generated import Generated
from thermoloom.machine.parameters import Parameters

Float64 = NDArray[np.float64]

LEAST_OVERLAP = 0.03
"""Below this overlap the acceptance ratio rests on a handful of samples (pymbar's advice)."""


@dataclass(frozen=True, repr=False)
class FreeEnergy:
    """ΔF of switching the couplings on, in k_BT."""

    difference: float
    """Sum over jumps of Bennett's estimate."""
    error: float
    """Its standard error, if samples of all jumps are independent and at rest."""
    jarzynski: float
    """−ln⟨exp(−W)⟩ over whole trajectories; too high if samples are few."""
    jarzynski_error: float
    work: float
    """⟨W⟩ over trajectories, at least ΔF."""
    overlaps: tuple[float, ...]
    """Overlap of forward and backward work at each jump, from 0 to 1."""
    crooks: CrooksTest | None = None
    """Crooks' theorem on whole trajectories; None if it was not tested."""

    def __repr__(self) -> str:
        numbers = f"Bennett {self.difference:.3g} ± {self.error:.2g}, "
        numbers += f"Jarzynski {self.jarzynski:.3g} ± {self.jarzynski_error:.2g}"
        if self.crooks is not None:
            test = self.crooks
            numbers += f", Crooks {test.difference:.3g} ± {test.error:.2g} with "
            numbers += f"slope {test.slope:.2f} ± {test.slope_error:.2f}"
        return f"FreeEnergy({numbers} kT)"

    @property
    def agree(self) -> bool:
        """Whether both estimates agree within four standard errors: if not, states could
        not follow the jumps, and a longer rest is needed.
        """
        combined = math.hypot(self.error, self.jarzynski_error)
        return abs(self.difference - self.jarzynski) <= 4 * combined


@dataclass(frozen=True, eq=False, repr=False)
class CrooksTest:
    """Work of switching the couplings on and off, and ΔF by Crooks' theorem, in k_BT.

    ΔF and slope are NaN where forward and backward work do not overlap.
    """

    forwards: Float64
    """W of switching on, one for each trajectory."""
    backwards: Float64
    """W of switching off."""
    difference: float
    """ΔF, where both directions are equally likely."""
    error: float
    slope: float
    """Slope of ln p_F(W)/p_R(−W) in W: 1 if the theorem holds."""
    slope_error: float


def free_energy(
    theta: Parameters,
    stage: int = 0,
    samples: int = 400,
    seed: int = 0,
    switches: int = 20,
    rest: float = 4.0,
    classes: int | None = None,
    crooks: bool = False,
    on_progress: Callable[[float], None] = lambda part: None,
) -> FreeEnergy:
    """ΔF of one stage's couplings, switched on in ``switches`` jumps with ``rest`` after each.

    ``rest``: time for the states to follow a jump. Bennett's estimate assumes that they are at rest
    then, Jarzynski's does not: if the two do not ``agree``, ``rest`` is too short. ``classes``:
    the class of the label units, in its first style. ``crooks``: also switch off again.
    ``on_progress`` receives the completed fraction of the computation.
    """
    pymbar = _pymbar()
    if theta.machine.labels and classes is None:
        raise UserError("classes: a machine with labels has a free energy for each class; name one")
    whole_number("samples", samples, 8)
    if theta.machine.generating or theta.machine.development:
        raise UserError(
            "machine.generating, machine.development: free energies are defined in the reference "
            "potential only; leave both unset"
        )
    switches, rest = whole_number("switches", switches, 1), real_number("rest", rest)
    if rest < theta.machine.dt:
        raise UserError(f"rest = {rest:g}: must be at least one step, {theta.machine.dt:g}")
    strengths, rests = np.arange(1, switches + 1) / switches, np.full(switches, rest)

    ramps = [_switched(theta, stage, strengths, rests)]
    if crooks:  # at rest at full strength for as long as it took to get there
        back = np.concatenate([[switches * rest], rests[1:]])
        ramps.append(_switched(theta, stage, strengths[::-1], back))
    total, done = samples * sum(ramp.machine.steps for ramp in ramps), 0

    def advance(steps: int) -> None:
        nonlocal done
        done += steps
        on_progress(done / total)

    def energies(ramp: Parameters, strengths: Float64, first: int) -> Float64:
        """U_θ in k_BT before the first jump and after every rest, (samples, n + 1)."""
        styles = [0] * (first + samples) if theta.machine.labels else None
        generated = generate(
            ramp, samples, seed, classes, on_progress=advance, first=first, styles=styles
        )
        return coupling_energies(generated, strengths) / theta.machine.kT

    couplings = energies(ramps[0], strengths, 0)
    forwards = couplings[:, :-1] / switches
    backwards = -couplings[:, 1:] / switches
    jumps, overlaps = [], []
    even = np.arange(samples) % 2 == 0
    work = forwards.sum(axis=1)
    with warnings_become("ignore"):  # of pymbar and its libraries, about their own code
        for jump in range(switches):
            w_f, w_r = forwards[even, jump], backwards[~even, jump]
            overlaps.append(_overlap(pymbar, w_f, w_r, jump, switches))
            bennett = pymbar.bar(w_f, w_r)
            jumps.append((float(bennett["Delta_f"]), float(bennett["dDelta_f"])))
        jarzynski = pymbar.exp(work)
    differences, errors = np.array(jumps).T
    test = None
    if crooks:
        couplings = energies(ramps[1], strengths[::-1], samples)
        test = crooks_test(work, -couplings[:, 1:].sum(axis=1) / switches)
    return FreeEnergy(
        difference=float(differences.sum()),
        error=float(np.sqrt((errors**2).sum())),
        jarzynski=float(jarzynski["Delta_f"]),
        jarzynski_error=float(jarzynski["dDelta_f"]),
        work=float(work.mean()),
        overlaps=tuple(overlaps),
        crooks=test,
    )


def _switched(theta: Parameters, stage: int, strengths: Float64, rests: Float64) -> Parameters:
    """A machine whose stages are the couplings at these strengths, with these rests, in turn."""
    machine = theta.machine
    steps = np.maximum(1, np.round(rests / machine.dt)).astype(int)
    # stages are counted from the pattern: the last one is the first of generation
    ends = np.cumsum(steps[::-1]) / steps.sum()
    ramp = replace(
        machine,
        stages=len(steps),
        windows=tuple(ends.tolist()),
        duration=int(steps.sum()) * machine.dt,
        protocol=(),
        preparation=(),
    )
    vector = strengths[::-1, None].astype(np.float32) * theta.vector[stage]
    return Parameters(ramp, vector.astype(np.float32), theta.style_weights)


def crooks_test(forwards: Float64, backwards: Float64) -> CrooksTest:
    """Logistic regression of the direction on W, by Newton's method."""
    works, forward = np.concatenate([forwards, -backwards]), np.repeat([1.0, 0.0], len(forwards))
    if forwards.min() > (-backwards).max():
        return CrooksTest(forwards, backwards, *[math.nan] * 4)
    centre, width = works.mean(), works.std()
    design = np.column_stack([np.ones_like(works), (works - centre) / width])
    logit = np.zeros(2)
    for _ in range(50):
        odds = expit(design @ logit)
        information = design.T @ (design * (odds * (1 - odds))[:, None])
        step = np.linalg.solve(information, design.T @ (forward - odds))
        logit += step
        if np.abs(step).max() < 1e-10:
            break
    covariance = np.linalg.inv(information)
    even = -logit[0] / logit[1]
    shift = np.array([-1.0, -even]) / logit[1]  # how even odds shift with the coefficients
    return CrooksTest(
        forwards,
        backwards,
        difference=float(centre + width * even),
        error=float(width * np.sqrt(shift @ covariance @ shift)),
        slope=float(logit[1] / width),
        slope_error=float(np.sqrt(covariance[1, 1]) / width),
    )


def coupling_energies(generated: Generated, strengths: Float64) -> Float64:
    """U_θ at s = 0, 1/n, …, 1, (samples, n + 1), in E₀: the energy of couplings and biases."""
    learned = [part for part in generated.ends.parts if part != "onsite"]
    first = sum(generated.starts.parts[part][:, 0] for part in learned) / strengths[0]
    ends = sum(generated.ends.parts[part] for part in learned) / strengths
    return np.column_stack([first, ends])


def _overlap(pymbar: Any, forwards: Float64, backwards: Float64, jump: int, switches: int) -> float:
    """Overlap of the two ensembles of a jump; refused below ``LEAST_OVERLAP``."""
    try:
        overlap = float(pymbar.bar_overlap(forwards, backwards))
    except Exception:  # its solver finds no root if there is no overlap
        overlap = 0.0
    if not overlap >= LEAST_OVERLAP:
        raise UserError(
            f"switches = {switches}: the states before and after jump {jump + 1} hardly overlap "
            f"({overlap:.3f}, at least {LEAST_OVERLAP} needed); increase switches"
        )
    return overlap


def _pymbar() -> Any:
    """Import pymbar without its greeting."""
    logging.getLogger("pymbar").setLevel(logging.ERROR)
    try:
        import pymbar
    except ImportError:
        raise UserError(
            "free energies need pymbar; install it with: pip install 'thermoloom[free-energy]'"
        ) from None
    return pymbar
