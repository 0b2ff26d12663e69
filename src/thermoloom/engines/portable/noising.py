"""Noising paths: from a pattern into thermal noise, many trajectories together.

    x_{k+1} = x_k + μΔt (a_k s − V′_onsite(x_k)) + √(2μk_BTΔt) z_k        Euler–Maruyama, Itô

K steps of preparation from x = 0 with a = 2, then K steps of noising with a(t) falling to 0. A path
never sees θ, so all trajectories take a step at once, which costs little more than one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from thermoloom.engines.portable.library import Array, NumPy
from thermoloom.machine.action import StepConstants, displacement, drives, step_constants
from thermoloom.machine.machine import Machine
from thermoloom.machine.protocol import preparation, ramp
from thermoloom.streams import PATH_STREAMS, Purpose, Stream

NORMALS_AT_ONCE = 40_000
"""Normals that are drawn together, so that the arrays on the way to them stay in the cache."""


def chunks(first: int, last: int, units: int) -> list[tuple[int, int]]:
    """(first, steps) of pieces of a trajectory whose normals are drawn together."""
    length = max(4, min(64, NORMALS_AT_ONCE // units // 4 * 4))
    edges = [first, *range(first - first % length + length, last, length), last]
    return [(begin, end - begin) for begin, end in pairwise(edges)]


def noising_steps(
    library: NumPy, static: None, states: Array, fields: Array, amplitudes: Array, normals: Array,
    constants: StepConstants,
) -> Array:  # fmt: skip
    """States (steps, S, N) after each of some steps from (S, N)."""
    onsite: Any = constants.onsite

    def step(x: Array, inputs: tuple[Array, ...]) -> tuple[Array, tuple[Array]]:
        amplitude, z = inputs
        force = amplitude * fields - onsite.gradient(x)
        x = x + displacement(constants, force, z)
        return x, (x,)

    return library.scan(step, states, (amplitudes, normals))[1][0]


def evolve(
    library: NumPy, machine: Machine, states: Array, fields: Array, amplitudes: Any,
    stream: Stream, numbers: Sequence[int],
) -> tuple[Array, list[Array]]:  # fmt: skip
    """States (S, N) after a whole protocol, and pieces (steps, S, N) of the way."""
    amplitudes, pieces = library.array(amplitudes), []
    constants = step_constants(machine, library.array)
    for first, steps in chunks(0, machine.steps, states.shape[0] * states.shape[1]):
        z = stream.normals(numbers, first, steps, machine.units)
        protocol = amplitudes[first : first + steps]
        pieces.append(library.run(noising_steps, None, states, fields, protocol, z, constants))
        states = pieces[-1][-1]
    return states, pieces


def noising_paths(
    library: NumPy, machine: Machine, fields: Any, seed: int, numbers: Any, purpose: Purpose
) -> Array:
    """x(t_0) … x(t_K) of trajectories ``numbers`` from fields (S, N): (K + 1, S, N)."""
    s = library.array(fields)
    prepare, noise = (Stream(library, seed, name) for name in PATH_STREAMS[purpose])
    x = evolve(library, machine, 0 * s, s, preparation(machine), prepare, numbers)[0]
    after = evolve(library, machine, x, s, ramp(machine), noise, numbers)[1]
    return library.xp.concatenate([x[None], *after], 0)


def uncoupled_residuals(library: NumPy, machine: Machine, states: Any) -> Array:
    """[−Δx + μΔt V′_onsite(x′)]/(2k_BT) of every step of a path (K + 1, N), in NumPy: (K, N)."""
    if states.shape != (machine.steps + 1, machine.units):
        raise ValueError(f"a path of shape {states.shape} is of another machine")
    return library.xp.concatenate([*drives(machine, library.array(states), library.array)], 0)
