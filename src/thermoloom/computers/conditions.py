"""Conditions under which a trained θ runs: temperature, time, potential, device.

They may differ from the conditions of the training. θ keeps its meaning as long as units, wires,
labels and stages stay the same; training fixes these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from thermoloom.errors import UserError
from thermoloom.machine.device import Device
from thermoloom.machine.machine import Machine
from thermoloom.machine.protocol import resampled
from thermoloom.settings import Settings

CONDITIONS = (
    "kT",
    "mobility",
    "dt",
    "duration",
    "windows",
    "onsite",
    "J2",
    "J4",
    "generating",
    "development",
    "label_amplitude",
)
"""Settings of ``machine`` that a trained computer may change."""


def under(
    settings: Settings, conditions: Mapping[str, Any], device: Device | None = None
) -> Settings:
    """The settings with other conditions (settings of ``machine`` by name) and another device."""
    for key in conditions:
        if key in Machine.__dataclass_fields__ and key not in CONDITIONS:
            raise UserError(
                f"{key}: fixed by training; conditions are {', '.join(CONDITIONS)} and device"
            )
    machine = replace(settings.machine, protocol=(), preparation=(), **conditions)
    machine = replace(machine, **resampled(settings.machine, machine.steps))
    return replace(settings, machine=machine, device=settings.device if device is None else device)
