"""The noising protocol: how a pattern is imprinted on the units and fades into noise.

    preparation   x = 0, then K steps under the force 2s
    noising path  K steps under the force a(t_k) s,   a(t) = 2 [1 − t/(e t_f)]₊ⁿ

s is the field of a unit and K = t_f/Δt. The force vanishes at t = e t_f; in the paper it falls
linearly (n = 1) and e = 0.75. ``machine.protocol`` replaces a(t_k), and ``machine.preparation``
replaces the amplitude 2. A machine with T stages cuts the K steps into T windows, and each stage
learns only from the steps of its window. Generation runs through the windows in reverse, from the
noisy end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.inputs import LARGEST, shown

if TYPE_CHECKING:
    from thermoloom.machine.machine import Machine

PREPARATION_AMPLITUDE = 2.0


def preparation(machine: Machine) -> NDArray[np.float64]:
    """Amplitude of the force at each of the K steps of preparation."""
    if machine.preparation:
        return np.array(machine.preparation)
    return np.full(machine.steps, PREPARATION_AMPLITUDE)


def rest_amplitude(machine: Machine) -> float:
    """Amplitude at the end of preparation, under which units come to rest."""
    return machine.preparation[-1] if machine.preparation else PREPARATION_AMPLITUDE


def ramp(machine: Machine) -> NDArray[np.float64]:
    """a(t_k) at the start of each of the K steps of a noising path."""
    if machine.protocol:
        return np.array(machine.protocol)
    return PREPARATION_AMPLITUDE * RAMPS[machine.ramp](machine)


def largest_amplitude(machine: Machine) -> float:
    """Largest |a| of preparation and noising path."""
    return float(max(np.abs(preparation(machine)).max(), np.abs(ramp(machine)).max()))


def power_ramp(machine: Machine) -> NDArray[np.float64]:
    """[1 − t/(e t_f)]₊ⁿ, with e = ``machine.ramp_end`` and n = ``machine.ramp_power``."""
    time = np.arange(machine.steps) / (machine.ramp_end * machine.steps)
    fraction: NDArray[np.float64] = np.maximum(0.0, 1 - time) ** machine.ramp_power
    return fraction


RAMPS: dict[str, Callable[[Machine], NDArray[np.float64]]] = {"power": power_ramp}
"""Every ramp by name: a(t_k)/a(0) at the start of each of the K steps, (K,)."""


def windows(machine: Machine) -> tuple[tuple[int, int], ...]:
    """(first, last) steps of each stage on a noising path, from the pattern to the noise."""
    ends = machine.windows or tuple((t + 1) / machine.stages for t in range(machine.stages))
    edges = (0, *(round(end * machine.steps) for end in ends))
    return tuple(pairwise(edges))


def generation_windows(machine: Machine) -> tuple[tuple[int, int, int], ...]:
    """(stage, first, last) in the order of generation, in steps of generation.

    Windows of development follow, as stages T, T + 1, …
    """
    steps = machine.steps
    spans = reversed(list(enumerate(windows(machine))))
    learned = [(stage, steps - last, steps - first) for stage, (first, last) in spans]
    ends = pairwise(accumulate(machine.development_steps, initial=steps))
    later = [(machine.stages + n, first, last) for n, (first, last) in enumerate(ends)]
    return (*learned, *later)


def window_names(machine: Machine) -> list[int | str]:
    """Stages T, …, 2, 1 and windows of development, in the order of generation.

    Stage 1 is nearest to the pattern.
    """
    return [*range(machine.stages, 0, -1), *["development"] * len(machine.development)]


def watched_steps(machine: Machine, spans: int) -> list[int]:
    """Steps that cut a generation into ``spans`` equal spans, and every switch of stages."""
    even = np.linspace(0, machine.generation_steps, spans + 1).round().astype(int)
    return sorted({*even.tolist(), *(first for _, first, _ in generation_windows(machine))})


def noising_heat(machine: Machine, field: NDArray[Any], states: NDArray[Any]) -> float:
    """Heat that a noising path (K + 1, N) releases, in E₀: Q = −ΔV_onsite + Σ_k a_k s·Δx_k."""
    x = np.asarray(states, np.float64)
    onsite = machine.potential.energy(x[[0, -1]]).sum(axis=1)
    return float(onsite[0] - onsite[1] + ramp(machine) @ (np.diff(x, axis=0) @ field))


# --- protocols of users ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Waveform:
    """Annotation of a setting that holds amplitudes: K numbers, or a function of t/t_f."""

    def text(self, key: str, value: Any) -> Any:
        """The numbers; a function stays one until the number of steps is known (``sampled``)."""
        if callable(value) or callable(getattr(value, "amplitude", None)):
            return value
        try:
            numbers = np.atleast_1d(np.asarray(value, np.float64))
        except (TypeError, ValueError):
            raise UserError(f"{key} = {shown(value)}: {_FORMS}") from None
        if numbers.ndim != 1:
            raise UserError(f"{key}: an array of shape {numbers.shape}; {_FORMS}")
        return tuple(numbers.tolist())


_FORMS = "expected amplitudes, one for each step, or a function of t/t_f"


def sampled(key: str, waveform: Any, steps: int) -> tuple[float, ...]:
    """Amplitudes at the start of each step; refused unless they are K finite numbers."""
    function = getattr(waveform, "amplitude", waveform)
    if callable(function):
        try:
            values = np.asarray(function(np.arange(steps) / steps), np.float64)
            waveform = tuple(np.broadcast_to(values, steps).tolist())
        except Exception as error:
            raise UserError(
                f"{key}: fails on an array of times t/t_f ({error}); it must return an amplitude "
                "for each of them"
            ) from None
    if len(waveform) == 1:
        waveform *= steps
    if waveform and len(waveform) != steps:
        raise UserError(
            f"{key}: {len(waveform)} amplitudes; this machine has {steps} steps (duration/dt)"
        )
    if waveform and not np.abs(waveform).max() <= LARGEST:
        raise UserError(f"{key}: amplitudes must be finite")
    return tuple(waveform)


def resampled(machine: Machine, steps: int) -> dict[str, Any]:
    """Protocol and preparation as the same functions of t/t_f, with another number of steps."""
    times, before = (np.arange(n) / n for n in (steps, machine.steps))
    numbers = {key: getattr(machine, key) for key in ("protocol", "preparation")}
    return {key: tuple(np.interp(times, before, a).tolist()) for key, a in numbers.items() if a}
