"""Noising paths: from a pattern into thermal noise, many trajectories together.

    x_{k+1} = x_k + μΔt (a_k s − V′_onsite(x_k)) + √(2μk_BTΔt) z_k        Euler–Maruyama, Itô

K steps of preparation from x = 0 with a = 2, then K steps of noising with a(t) falling to 0. Paths
do not depend on θ, so many of them are simulated together, at little more than the cost of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from thermoloom.engines.library import Array, NumPy
from thermoloom.machine.action import StepConstants, displacement, drives, step_constants
from thermoloom.machine.machine import Machine
from thermoloom.machine.protocol import preparation, ramp
from thermoloom.streams import PATH_STREAMS, Purpose, Stream


def chunks(library: NumPy, first: int, last: int, units: int) -> list[tuple[int, int]]:
    """(first, steps) of each piece of a trajectory; the normals of a piece are drawn together."""
    length = max(4, min(64, library.normals_at_once // units // 4 * 4))
    edges = [first, *range(first - first % length + length, last, length), last]
    return [(begin, end - begin) for begin, end in pairwise(edges)]


def noising_steps(
    library: NumPy, static: None, states: Array, fields: Array, amplitudes: Array, normals: Array,
    constants: StepConstants,
) -> Array:  # fmt: skip
    """States (steps, S, N) after each step, from states (S, N)."""
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
) -> Iterator[Array]:  # fmt: skip
    """States (steps, S, N) after each step of a protocol, piece by piece."""
    amplitudes, constants = library.array(amplitudes), step_constants(machine, library.array)
    for first, steps in chunks(library, 0, machine.steps, states.shape[0] * states.shape[1]):
        z = stream.normals(numbers, first, steps, machine.units)
        a = amplitudes[first : first + steps]
        piece = library.run(noising_steps, None, states, fields, a, z, constants)
        states = piece[-1]
        yield piece


def noising_paths(
    library: NumPy, machine: Machine, fields: Any, seed: int, numbers: Any, purpose: Purpose
) -> Array:
    """x(t_0) … x(t_K) of trajectories ``numbers`` from fields (S, N): (K + 1, S, N)."""
    s = library.array(fields)
    prepare, noise = (Stream(library, seed, name) for name in PATH_STREAMS[purpose])
    for piece in evolve(library, machine, 0 * s, s, preparation(machine), prepare, numbers):
        x = piece[-1:]
    after = evolve(library, machine, x[0], s, ramp(machine), noise, numbers)
    return library.xp.concatenate([x, *after], 0)


def uncoupled_residuals(library: NumPy, machine: Machine, states: Any) -> Array:
    """[−Δx + μΔt V′_onsite(x′)]/(2k_BT) of each step of a NumPy path (K + 1, N): (K, N)."""
    if states.shape != (machine.steps + 1, machine.units):
        raise ValueError(f"a path of shape {states.shape} does not fit this machine")
    return library.xp.concatenate([*drives(machine, library.array(states), library.array)], 0)
