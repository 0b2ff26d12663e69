"""Feasibility checks, made before any array is allocated or file written.

memory   sizes of arrays, added up by the settings that make them large; each engine estimates
         the memory of a training or a generation itself (``engines.memory``)
Δt       μ Δt V″(x_max) < 2, with V the onsite potential and x_max the farthest reachable state
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.errors import UserError, warn
from thermoloom.extensions import is_extension
from thermoloom.inputs import LARGEST, SMALLEST
from thermoloom.machine.clamp import resting_states
from thermoloom.machine.device import BuiltMachine
from thermoloom.machine.machine import Machine
from thermoloom.machine.onsite import CentredQuartic, Onsite
from thermoloom.machine.parameters import layout
from thermoloom.machine.protocol import largest_amplitude, rest_amplitude
from thermoloom.machine.roots import outermost_root
from thermoloom.machine.wires import few_wires, wires, wiring

SIZE = "machine.visible, machine.hidden"
TIME = "machine.duration, machine.dt"

LONG_PATH = 1 << 28
"""Size of a path in bytes above which it is simulated in stretches, where wires are few."""
STRETCH = 256
"""Steps of a long path that are in memory at once: a multiple of the learner's block."""
PATHS_BYTES = 1 << 28
"""Maximum memory of paths simulated together, and of residuals learned together."""
RAREST = 25.0
"""States of probability below exp(−25) ≈ 10⁻¹¹ count as unreachable: less than one in the 10⁹ unit
steps of a training."""
_STATES = 1001


# --- memory ---------------------------------------------------------------------------------------


def memory_bytes() -> int:
    """Memory of this machine, or of the container that confines this process."""
    try:
        limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        limits = []
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(file).read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue  # no container, or "max"
    return min((limit for limit in limits if limit > 0), default=1 << 62)


def require_memory(parts: Mapping[str, int], together: int = 1) -> None:
    """Refuse arrays that do not fit: ``{settings that make them large: bytes}``.

    ``together``: number of processes that need this memory at the same time.
    """
    needed, there = sum(parts.values()), memory_bytes()
    if together * needed > there >= needed:
        raise UserError(
            f"--workers: {together} at a time need about {_readable(together * needed)} of memory, "
            f"but only {_readable(there)} is available; use at most {there // needed}"
        )
    if needed > there:
        worst = max(parts, key=lambda name: parts[name])
        raise UserError(
            f"{worst}: too large, because this needs about {_readable(needed)} of memory and only "
            f"{_readable(there)} is available; make it smaller"
        )


def has_long_paths(machine: Machine) -> bool:
    """Whether noising paths are simulated in stretches: where they are long and wires are few."""
    uneven = isinstance(machine, BuiltMachine) or machine.generating
    large = 4 * (machine.steps + 1) * machine.units > LONG_PATH
    return large and not uneven and few_wires(machine)


def paths_together(machine: Machine) -> int:
    """Noising paths that are in memory at once where an engine simulates many together."""
    most = min(PATHS_BYTES, memory_bytes() // 16)
    return max(1, most // (4 * machine.steps * machine.units))


def size_memory(machine: Machine, bytes_of_pairs: int = 0) -> dict[str, int]:
    """Memory of an idle computer, in bytes: θ and P.

    θ is counted six times in float32 (θ, the learner's copy, pending changes, the learned θ, and a
    checkpoint while it is written) and P once in float32 and twice in float64.
    ``bytes_of_pairs``: additional memory of an engine, for pairs of units or for wires.
    """
    stages = machine.stages + len(machine.development)
    projection = machine.visible * machine.hidden * (machine.code in ("projection", "signs"))
    to_labels = _label_couplings(machine)
    size = 24 * stages * (layout(machine).size - to_labels) + 20 * projection
    return {
        f"{SIZE} = {machine.visible}, {machine.hidden}": size + 8 * 2**20 + bytes_of_pairs,
        _labels(machine): 24 * stages * to_labels,
    }


def path_memory(machine: Machine, arrays: int, itemsize: int = 4) -> dict[str, int]:
    """Arrays of the size of a path, or of the part of it that is in memory."""
    steps = min(machine.steps, STRETCH) if has_long_paths(machine) else machine.steps
    name = f"{machine.units} units × {steps} steps ({SIZE}, {TIME})"
    return {name: arrays * itemsize * steps * machine.units}


def moments_memory(machine: Machine) -> dict[str, int]:
    """Memory of the solver, in bytes: moments in float64 of all pairs, or of pairs with a common
    neighbour, the modes and interpolations of some patterns, and couplings to label units.
    """
    moments = 2 * machine.units**2
    if machine.sparse:
        degree = np.diff(wiring(machine).start)
        moments = min(int(degree @ degree) + 20 * len(wires(machine)), 3 * moments)
    modes = min(3 * 2**28, 2**16 * machine.units)
    return {
        f"moments of pairs of units ({SIZE}, machine.topology)": 8 * moments + modes,
        _labels(machine): 48 * machine.stages * _label_couplings(machine),
    }


def _labels(machine: Machine) -> str:
    return f"machine.labels, machine.styles = {machine.labels}, {machine.styles}"


def _label_couplings(machine: Machine) -> int:
    return sum(block.size for block in layout(machine).blocks if block.columns == "label")


def _readable(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.1e} EB"


# --- the integration step -------------------------------------------------------------------------


def farthest_state(machine: Machine, field: float) -> float:
    """x_max: where U(x) = V_onsite(x) − 2|s|x is 25 k_BT above its minimum, on the far side.

    A unit under its largest external force 2s in equilibrium is beyond it with a probability of
    about exp(−25).
    """
    force, onsite = rest_amplitude(machine) * abs(field), machine.potential
    rest = float(resting_states(machine, abs(field)))
    top = float(onsite.energy(rest)) - force * rest + RAREST * machine.kT
    farthest = outermost_root(
        lambda x: onsite.energy(x) - force * x - top,
        lambda x: onsite.gradient(x) - force,
        max(1.0, 2 * rest),
    )
    return float(farthest)


def largest_stable_step(machine: Machine, field: float = 0.0) -> float:
    """Δt_max = 2/(μ V″(x_max)) for units with fields up to ``field``.

    An Euler step multiplies a small distance between two states by 1 − μΔt V″(x). Up to Δt_max
    this is between −1 and 1 wherever a unit can be; beyond it, states overshoot the potential
    more with every step, and no training can correct this.
    """
    if is_extension(machine.onsite) or machine.protocol or machine.preparation:
        stiffness = machine.potential.curvature(_reachable_states(machine, field)).max()
    else:
        stiffness = machine.potential.curvature(farthest_state(machine, field))
    generating = [
        machine.group_potential(group, stage)
        for stage in range(machine.stages if machine.generating else 0)
        for group in machine.groups
    ]
    # the stiffest mode of springs, in which neighbours move against each other, has 8K
    developing = [
        CentredQuartic(2 * window.J2 + 8 * window.neighbours, 4 * window.J4, window.centre)
        for window in machine.development
    ]
    for potential in generating + developing:
        states = _reachable_states(machine, potential=potential)
        stiffness = max(stiffness, potential.curvature(states).max())
    return 2 / (machine.mobility * max(float(stiffness), SMALLEST))


def _reachable_states(machine: Machine, field: float = 0.0, potential: Onsite | None = None) -> Any:
    """Equally spaced states where V(x) ∓ 2|s|x is less than 25 k_BT above its minimum.

    This holds for potentials of any shape.
    """
    potential, reach = potential or machine.potential, 1.0
    while reach < LARGEST:
        x = np.linspace(-reach, reach, _STATES)
        pull = largest_amplitude(machine) * abs(field) * x
        energy = potential.energy(x)
        below = np.logical_or(*(
            side <= side.min() + RAREST * machine.kT for side in (energy - pull, energy + pull)
        ))  # fmt: skip
        if not below[0] and not below[-1]:
            inside = x[below]
            if len(inside) > _STATES // 8:
                return inside
            return np.linspace(inside[0], inside[-1], _STATES)
        reach *= 2
    raise UserError(
        f"machine.onsite = {machine.onsite:.80}: does not confine its units against fields up to "
        f"{field:.3g}; its energy must rise on both sides"
    )


@lru_cache(maxsize=64)
def warn_of_memory(machine: Machine) -> None:
    """Warn where a noising path cannot forget its pattern, as in a double well with a high barrier.

    The slowest relaxation of a unit alone has the rate λ₁ of the Fokker–Planck operator, here as
    jumps between neighbouring states in detailed balance.
    """
    if not is_extension(machine.onsite):
        return
    from scipy.linalg import eigh_tridiagonal

    x = _reachable_states(machine)
    half_steps = np.diff(machine.potential.energy(x)) / (2 * machine.kT)
    if np.count_nonzero(np.diff(np.sign(half_steps)) > 0) < 2:  # a single well
        return
    attempt = machine.mobility * machine.kT / (x[1] - x[0]) ** 2
    leaving = np.zeros(len(x))
    leaving[:-1] += attempt * np.exp(-half_steps)
    leaving[1:] += attempt * np.exp(half_steps)
    neighbours = np.full(len(x) - 1, -attempt)
    rate = eigh_tridiagonal(leaving, neighbours, eigvals_only=True, select="i", select_range=(1, 1))
    relaxation = 1 / max(float(rate[0]), SMALLEST)
    if relaxation > machine.duration:
        warn(
            f"machine.onsite = {machine.onsite:.80}: a unit relaxes within {relaxation:.3g}, which "
            f"is longer than machine.duration = {machine.duration:g}, so noising paths do not "
            "forget their pattern; lower the barriers, or choose a longer duration"
        )


def check_step(machine: Machine, field: float = 0.0) -> None:
    """Refuse a step with which the units would leave their potential."""
    if isinstance(machine, BuiltMachine):
        machine = machine.stiffest
    largest = largest_stable_step(machine, field)
    if machine.dt >= largest:
        digits = 10.0 ** (math.floor(math.log10(largest)) - 1)
        at_most = math.floor(largest / digits) * digits
        raise UserError(
            f"machine.dt = {machine.dt:g}: too long a step, with which states would grow without "
            f"bound; use at most {at_most:.2g}, which is stable for fields up to {field:.3g}"
        )
