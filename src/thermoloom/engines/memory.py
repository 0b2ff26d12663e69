"""Memory of computations with the engine in use: ``{settings that determine it: bytes}``.

An engine estimates its own arrays in ``training_memory``; one that does not is assumed to need the
arrays that any engine needs.
"""

from __future__ import annotations

from collections import Counter

from thermoloom.engines import engine, usual_training_memory
from thermoloom.feasibility import moments_memory
from thermoloom.machine.machine import Machine

SAMPLES = "generation.samples"


def training_memory(machine: Machine) -> dict[str, int]:
    """One training, with its paths and their validation."""
    estimate = getattr(engine(), "training_memory", usual_training_memory)
    return dict(estimate(machine))


def solver_memory(machine: Machine) -> dict[str, int]:
    """The optimum and its validation path."""
    return dict(Counter(training_memory(machine)) + Counter(moments_memory(machine)))


def generation_memory(machine: Machine, samples: int, kept_states: int = 0) -> dict[str, int]:
    """Samples with their energies, and the archive being written."""
    states = 64 * samples + 4 * kept_states
    return training_memory(machine) | {f"{SAMPLES} = {samples}": states * machine.units}


def measures_memory(machine: Machine, samples: int) -> dict[str, int]:
    """A generation and the S(S − 1)/2 distances between its samples, in float64."""
    parts = generation_memory(machine, samples)
    parts[f"{SAMPLES} = {samples}"] += 4 * samples * samples
    return parts
