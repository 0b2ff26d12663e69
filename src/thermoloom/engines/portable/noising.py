"""Noising paths: from a pattern into thermal noise, many trajectories together.

    x_{k+1} = x_k + μΔt (a_k s − V′_onsite(x_k)) + √(2μk_BTΔt) z_k        Euler–Maruyama, Itô

K steps of preparation from x = 0 with a = 2, then K steps of noising with a(t) falling to 0. A path
never sees θ, so all trajectories take a step at once: with sixteen together a step of each costs a
third of what it costs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from thermoloom.engines import Path
from thermoloom.engines.portable.library import Array, NumPy
from thermoloom.engines.portable.random_streams import Stream
from thermoloom.machine.action import StepConstants, drive, step_constants
from thermoloom.machine.machine import Machine
from thermoloom.machine.protocol import preparation, ramp

NUMBERS_AT_ONCE = 40_000
"""Normals that are drawn together, so that the arrays on the way to them stay in the cache."""


def chunks(first: int, last: int, units: int) -> list[tuple[int, int]]:
    """(first, steps) of pieces of a trajectory whose normals are drawn together."""
    length = max(4, min(64, NUMBERS_AT_ONCE // max(units, 1) // 4 * 4))
    edges = [first, *range(first - first % length + length, last, length), last]
    return [(begin, end - begin) for begin, end in zip(edges, edges[1:], strict=False)]


def noising_steps(
    library: NumPy,
    static: None,
    states: Array,
    fields: Array,
    amplitudes: Array,
    normals: Array,
    constants: StepConstants,
) -> tuple[Array, Array]:
    """States (S, N) after some steps, and after each of them, (steps, S, N)."""

    def step(x: Array, inputs: tuple[Array, Array]) -> tuple[Array, tuple[Array]]:
        amplitude, z = inputs
        force = amplitude * fields - constants.onsite.gradient(x)  # type: ignore[union-attr]
        x = x + (constants.drift * force + constants.kick * z)
        return x, (x,)

    last, (after,) = library.scan(step, states, (amplitudes, normals))
    return last, after


def noising_paths(
    library: NumPy,
    machine: Machine,
    fields: Any,
    seed: int,
    numbers: Sequence[int],
    stream: str = "",
) -> Array:
    """x(t_0) … x(t_K) of trajectories ``numbers`` from fields (S, N): (K + 1, S, N)."""
    constants, s = step_constants(machine, library.array), library.array(fields)
    x = 0 * s
    states = [x[None]]
    for name, protocol in (("preparation", preparation(machine)), ("noising", ramp(machine))):
        random, amplitudes = Stream(library, seed, stream + name), library.array(protocol)
        states = [x[None]]
        for first, steps in chunks(0, machine.steps, s.shape[0] * s.shape[1]):
            z = random.normals(numbers, first, steps, s.shape[1])
            a = amplitudes[first : first + steps]
            x, after = library.run(noising_steps, None, x, s, a, z, constants)
            if name == "noising":
                states.append(after)
    return library.xp.concatenate(states, 0)


@dataclass(frozen=True, eq=False)
class DevicePath:
    """A path in the memory of the library's device; all learners share it (``Path.prepared``)."""

    library: NumPy
    machine: Machine
    states: Array
    """(K + 1, N)"""
    word: Array | None
    """(1, L)"""

    @classmethod
    def of(cls, library: NumPy, path: Path, machine: Machine) -> DevicePath:
        """That of a path; of one that another engine made, a copy."""
        known = path.prepared
        if isinstance(known, cls) and known.library is library and known.machine == machine:
            return known
        expected = (machine.steps + 1, machine.units)
        if path.states.shape != expected:
            raise ValueError(f"a path of shape {path.states.shape}; this machine has {expected}")
        word = None if path.word is None else library.array(path.word[None])
        return cls(library, machine, library.array(path.states), word)

    @cached_property
    def alone(self) -> Array:
        """Residuals that units would have if they were coupled to nothing, (K, N)."""
        constants = step_constants(self.machine, self.library.array)
        return self.library.run(uncoupled_residuals, None, self.states, constants)


def uncoupled_residuals(
    library: NumPy, static: None, states: Array, constants: StepConstants
) -> Array:
    """[−Δx + μΔt V′_onsite(x′)]/(2k_BT) of every step."""
    return drive(constants, states[:-1], states[1:])
