"""Checks before learning, made before any array is allocated or file written."""

from __future__ import annotations

import numpy as np

from thermoloom.engines.memory import solver_memory, training_memory
from thermoloom.errors import UserError
from thermoloom.feasibility import check_step, require_memory, warn_of_memory
from thermoloom.machine.machine import Machine
from thermoloom.machine.quantization import UNQUANTIZED
from thermoloom.patterns.drive import Drive
from thermoloom.settings import Settings


def check_learning(settings: Settings, drive: Drive) -> None:
    """Refuse settings with which no computer can be trained or solved on this drive."""
    _check_fields(settings.machine, drive)
    memory = solver_memory if settings.solved else training_memory
    require_memory(memory(settings.machine))
    check_step(settings.built, float(np.abs(drive.fields).max()))
    warn_of_memory(settings.machine)


def check_training(settings: Settings, drive: Drive) -> None:
    """Refuse settings that cannot be trained on this drive."""
    if settings.solved:
        raise UserError(
            "training.rule = 'optimum', or a table [solver]: such a computer is solved, not "
            "trained; use solve instead of train"
        )
    if settings.device.bits != UNQUANTIZED:
        raise UserError(
            f"device.bits = {settings.device.bits}: applies to couplings written after training; "
            "train in float32, or set imperfections.bits"
        )
    check_learning(settings, drive)


def _check_fields(machine: Machine, drive: Drive) -> None:
    """Refuse fields that are not one finite row of N numbers for every pattern."""
    fields = np.asarray(drive.fields)
    if fields.ndim != 2 or not len(fields) or fields.shape[1] != machine.units:
        raise UserError(
            f"unit fields of shape {fields.shape}: expected (patterns, {machine.units}): at least "
            "one row, and machine.visible + machine.hidden columns"
        )
    if fields.dtype.kind not in "iuf" or not np.isfinite(fields).all():
        raise UserError(f"unit fields ({fields.dtype}): must be real and finite")
