"""Free energy of a small machine of the same kind: what its heat dissipates, with error bars.

    Σ(t_f) = β⟨U_θ(x_0)⟩ − βΔF − D(p_tf ‖ equilibrium) ≤ β⟨U_θ(x_0)⟩ − βΔF

Generation switches all couplings on at once, which takes the work U_θ(x_0), and then lets go. So ΔF
bounds the entropy that it produces from above, as the speed limit does from below. Small, because a
large machine never comes to rest: its basins, patterns and mixtures of them, differ by hundreds of
k_BT and do not exchange states, and no way of switching couplings on finds the lowest of them.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np

from thermoloom.errors import UserError
from thermoloom.experiments.works import Job
from thermoloom.generation import generate
from thermoloom.measures.dissipation import dissipation
from thermoloom.measures.free_energy import coupling_energies, free_energy
from thermoloom.measures.statistics import estimate_mean
from thermoloom.patterns.fields import label_words
from thermoloom.settings import Settings
from thermoloom.theory.solver import solve_optimum

STEP = 5e-3
"""Δt of the small machine at most: its ΔF takes a hundred thousand steps."""


def small(settings: Settings, pixels: int) -> Settings:
    """The machine with fewer pixels and as many times fewer hidden units; images are resized."""
    machine = settings.machine
    if pixels >= machine.visible:
        return settings
    hidden = round(machine.hidden * pixels / machine.visible)
    dt = machine.duration / math.ceil(machine.duration / STEP)
    return settings.updated(
        {
            "machine": {"visible": pixels, "hidden": hidden, "dt": dt},
            "prototypes": {"resize": True, "content": ""},
        }
    )


def available() -> bool:
    """Whether the extra is installed."""
    return find_spec("pymbar") is not None


def measure_free_energy(job: Job, samples: int, switches: int, rest: float) -> dict[str, Any]:
    """ΔF of the optimum, and between which bounds its entropy production lies, in k_BT."""
    machine = job.settings.machine
    words = label_words(job.patterns, machine)
    theta = solve_optimum(machine, job.fields, words).parameters
    books = generate(theta, 10 * samples, job.settings.generation_seed)
    found = dissipation(machine, books)
    known = {
        "units": machine.units,
        "heat": found.heat.mean,
        "heat_sem": found.heat.sem,
        "speed_limit": found.speed_limit.mean,
        "most_entropy": found.entropy_change.mean,
        "refused": None,
    }
    switched = coupling_energies(books, np.ones(1))[:, 0] / machine.kT
    on = estimate_mean(switched)
    try:
        free = free_energy(theta, 0, samples, job.settings.generation_seed, switches, rest)
    except UserError as error:
        return known | {"refused": str(error)}
    most = on.mean - free.difference
    return known | {
        "free_energy": free.difference,
        "free_energy_error": free.error,
        "jarzynski": free.jarzynski,
        "jarzynski_error": free.jarzynski_error,
        "agree": free.agree,
        "least_overlap": min(free.overlaps),
        "switches": switches,
        "most_production": most,
        "most_production_error": ((on.sem or 0.0) ** 2 + free.error**2) ** 0.5,
        "entropy_from_free_energy": most - found.heat.mean,
    }
