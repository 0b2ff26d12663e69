"""ΔF of switching the couplings on: from the onsite potential alone to V_θ.

    V_s = V_onsite + s·U_θ,   s = 0, 1/n, …, 1        switched in n jumps, with a rest after each

Starting from the onsite equilibrium, the work of the jumps gives ΔF by Jarzynski's equality, and
neighbouring s give it jump by jump by Bennett's acceptance ratio, from states at the end of each
rest: x at s forwards, other x at s + 1/n backwards. A jump whose forward and backward works do not
overlap is refused. The estimators are pymbar's.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.inputs import whole_number
from thermoloom.machine.generated import Generated
from thermoloom.machine.parameters import Parameters

Float64 = NDArray[np.float64]

LEAST_OVERLAP = 0.03
"""Below this overlap the acceptance ratio rests on a handful of samples (pymbar's advice)."""


@dataclass(frozen=True)
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

    @property
    def agree(self) -> bool:
        """Whether both estimates are the same within four standard errors: if not, states could
        not follow the jumps, and a longer rest is needed.
        """
        combined = math.hypot(self.error, self.jarzynski_error)
        return abs(self.difference - self.jarzynski) <= 4 * combined


def free_energy(
    theta: Parameters,
    stage: int = 0,
    samples: int = 400,
    seed: int = 0,
    switches: int = 20,
    rest: float = 4.0,
    classes: Sequence[int] | int | None = None,
) -> FreeEnergy:
    """ΔF of one stage's couplings, switched on in ``switches`` jumps with ``rest`` after each.

    ``rest``: time for the states to follow a jump. Bennett's estimate takes them to be at rest
    then, Jarzynski's does not: where the two do not ``agree`` it is too short.
    """
    pymbar = _pymbar()
    whole_number("samples", samples, 8)
    if theta.machine.generating or theta.machine.development:
        raise UserError(
            "machine.generating, machine.development: free energies are those of couplings in the "
            "reference potential"
        )
    switches = whole_number("switches", switches, 1)
    steps = max(1, round(rest / theta.machine.dt))
    ramp = replace(
        theta.machine, stages=switches, windows=(), duration=switches * steps * theta.machine.dt
    )
    strengths = np.arange(1, switches + 1) / switches
    # stages are counted from the pattern: the last one is the first of generation
    vector = strengths[::-1, None].astype(np.float32) * theta.vector[stage]
    slow = Parameters(ramp, vector.astype(np.float32), theta.style_weights)
    generated = generate(slow, samples, seed, classes)
    couplings = coupling_energies(generated, strengths) / theta.machine.kT
    forwards = couplings[:, :-1] / switches
    backwards = -couplings[:, 1:] / switches
    jumps, overlaps = [], []
    even = np.arange(samples) % 2 == 0
    work = forwards.sum(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pymbar and its libraries, about their own code
        for jump in range(switches):
            w_f, w_r = forwards[even, jump], backwards[~even, jump]
            overlaps.append(_overlap(pymbar, w_f, w_r, jump, switches))
            bennett = pymbar.bar(w_f, w_r)
            jumps.append((float(bennett["Delta_f"]), float(bennett["dDelta_f"])))
        jarzynski = pymbar.exp(work)
    differences, errors = np.array(jumps).T
    return FreeEnergy(
        difference=float(differences.sum()),
        error=float(np.sqrt((errors**2).sum())),
        jarzynski=float(jarzynski["Delta_f"]),
        jarzynski_error=float(jarzynski["dDelta_f"]),
        work=float(work.mean()),
        overlaps=tuple(overlaps),
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
    except Exception:  # its solver finds no root where nothing is shared
        overlap = 0.0
    if not overlap >= LEAST_OVERLAP:
        raise UserError(
            f"switches = {switches}: states before and after jump {jump + 1} have next to nothing "
            f"in common (overlap {overlap:.3f}); take more of them"
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
