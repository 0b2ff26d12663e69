"""Curves: machines that differ from the digit machine in one setting each, solved and sampled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from thermoloom.studies.case import Job
from thermoloom.studies.digits.judged_samples import TOLERANCE, judged_samples
from thermoloom.studies.digits.styles import labelled_drive
from thermoloom.studies.first_patterns import first_patterns
from thermoloom.theory.best_windows import best_windows
from thermoloom.theory.solver import solve_optimum


class Axis(NamedTuple):
    """Label and scale of the axis of a curve: the setting that is varied along it."""

    label: str
    scale: str = "log"
    """``log``, ``linear``, or ``even`` for values that are names or too uneven for a scale."""


CURVES = {
    "styles": Axis("styles of each class"),
    "stages": Axis("stages $T$"),
    "patterns": Axis("patterns of each class"),
    "duration": Axis("duration $t_f$", "linear"),
    "temperature": Axis("thermal energy $k_BT$ ($E_0$)"),
    "label amplitude": Axis("label amplitude"),
    "quartic": Axis("quartic coefficient $J_4$ ($E_0$)", "even"),
    "windows": Axis("windows of the stages", "even"),
    "code": Axis("code of 512 hidden units", "even"),
    "hidden": Axis("hidden units"),
}
"""All curves, in the order of their panels."""


def varied_machine(job: Job, patterns: int, noise: float | None = None) -> dict[str, Any]:
    """Solve a machine on the first ``patterns`` (0: all), and judge its samples."""
    learned, machine = first_patterns(job.patterns, patterns), job.settings.machine
    optimum = solve_optimum(machine, labelled_drive(learned, machine), TOLERANCE)
    return judged_samples(job, optimum.parameters, noise) | {
        "solving": optimum.seconds,
        "loss": optimum.expected_loss,
        "patterns": len(learned),
    }


def optimized_windows(job: Job, pieces: int, noise: float | None = None) -> dict[str, Any]:
    """Solve the machine with the windows of least expected loss, made of equal ``pieces``."""
    machine, drive = job.settings.machine, labelled_drive(job.patterns, job.settings.machine)
    windows = best_windows(machine, drive, pieces)
    optimum = solve_optimum(replace(machine, windows=windows), drive, TOLERANCE)
    return judged_samples(job, optimum.parameters, noise) | {
        "windows": windows,
        "loss": optimum.expected_loss,
        "patterns": len(job.patterns),
    }
