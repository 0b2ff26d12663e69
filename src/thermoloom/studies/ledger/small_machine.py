"""Free energy of a small machine of the same kind, which bounds its entropy production.

    Σ(t_f) = β⟨U_θ(x_0)⟩ − βΔF − D(p_tf ‖ equilibrium) ≤ β⟨U_θ(x_0)⟩ − βΔF

Generation switches all couplings on at once, which takes the work U_θ(x_0), and then relaxes. So ΔF
bounds the entropy that it produces from above, as the speed limit does from below. The machine is
small because a large one does not equilibrate: its basins, patterns and mixtures of them, differ by
hundreds of k_BT and do not exchange states, and no way of switching couplings on reaches the lowest
of them.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np

from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.measures.dissipation import dissipation
from thermoloom.measures.free_energy import coupling_energies, free_energy
from thermoloom.measures.statistics import estimate_mean
from thermoloom.settings import Settings
from thermoloom.studies.case import Job
from thermoloom.theory.solver import solve_optimum

STEP = 5e-3
"""Longest Δt of the small machine: its ΔF takes a hundred thousand steps."""


def shrunk(settings: Settings, pixels: int) -> Settings:
    """The machine with fewer pixels, hidden units in proportion, and resized images."""
    machine = settings.machine
    if pixels >= machine.visible:
        return settings
    hidden = round(machine.hidden * pixels / machine.visible)
    dt = machine.duration / math.ceil(machine.duration / STEP)
    return settings.updated(
        {
            "machine": {"visible": pixels, "hidden": hidden, "dt": dt},
            "patterns": {"resize": True, "content": ""},
        }
    )


def has_pymbar() -> bool:
    """Whether the extra ``free-energy`` is installed."""
    return find_spec("pymbar") is not None


def free_energy_bounds(job: Job, samples: int, switches: int, rest: float) -> dict[str, Any]:
    """ΔF of the optimum, and the bounds on its entropy production, in k_BT."""
    machine, seed = job.settings.machine, job.settings.generation_seed
    theta = solve_optimum(machine, job.drive).parameters
    generated = generate(theta, 10 * samples, seed)
    bounds = dissipation(machine, generated)
    results = {
        "units": machine.units,
        "heat": bounds.heat.mean,
        "heat_sem": bounds.heat.sem,
        "speed_limit": bounds.speed_limit.mean,
        "most_entropy": bounds.entropy_change.mean,
        "refused": None,
    }
    switch_work = estimate_mean(coupling_energies(generated, np.ones(1))[:, 0] / machine.kT)
    try:
        free = free_energy(theta, 0, samples, seed, switches, rest)
    except UserError as error:
        return results | {"refused": str(error)}
    most_production = switch_work.mean - free.difference
    return results | {
        "free_energy": free.difference,
        "free_energy_error": free.error,
        "jarzynski": free.jarzynski,
        "jarzynski_error": free.jarzynski_error,
        "agree": free.agree,
        "least_overlap": min(free.overlaps),
        "switches": switches,
        "most_production": most_production,
        "most_production_error": ((switch_work.sem or 0.0) ** 2 + free.error**2) ** 0.5,
        "entropy_from_free_energy": most_production - bounds.heat.mean,
    }
