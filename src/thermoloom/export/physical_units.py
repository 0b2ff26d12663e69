"""Physical units: E₀, μ and the unit of time in joules, siemens and seconds.

    E₀ = k_BT/kT                            at T kelvin, with kT the machine's k_BT in E₀
    x  = u/V₀,  E₀ = C V₀²                  a unit is a node of capacitance C and voltage u
    C du/dt = −G V₀ ∂V/∂x + i,  ⟨i i⟩ = 2 k_BT G δ(t)
    τ  = μ C/G                              seconds per unit of time

μ is the conductance G: the mobility of the charge C u, whose Johnson noise is the heat bath. A
coupling J is a transconductance G J, a bias b a current G V₀ b. A device whose units are not
capacitors is described by E₀ and τ alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from scipy.constants import Boltzmann

from thermoloom.errors import UserError, argument
from thermoloom.inputs import shown
from thermoloom.machine.machine import Machine
from thermoloom.sections import html_table

DIGITS = 12
"""Significant digits of a summary; fewer than a float has, so that 300 K is 300.0."""
ROOM_TEMPERATURE = 300.0
"""Kelvin, the default."""


def joules(machine: Machine, energy: float, temperature: float = ROOM_TEMPERATURE) -> float:
    """Convert an energy from E₀ to joules, at a temperature in kelvin."""
    return float(energy / machine.kT * Boltzmann * temperature)


LABELS = {
    "energy_unit_J": "E0",
    "kT_J": "kT",
    "temperature_K": "temperature of the noise",
    "time_unit_s": "unit of time",
    "duration_s": "t_f",
    "step_s": "step of the simulation",
    "mobility_per_J_s": "mobility of x",
    "capacitance_F": "capacitance C of a node",
    "voltage_unit_V": "voltage V0 of x = 1",
    "conductance_S": "conductance G: mobility of charge",
    "noise_current_A_per_rtHz": "noise current of a node",
    "image_s": "preparation and generation",
    "images_per_s": "images per second and machine",
    "heat_J": "heat of an image",
    "work_J": "work of an image",
    "heat_W": "power released as heat",
}
"""Labels of the quantities in a summary, whose keys end in the unit."""


@dataclass(frozen=True)
class Realization:
    """A machine in physical units; everything else follows from E₀, τ and, for a circuit, C."""

    machine: Machine
    energy: float
    """E₀, in joules."""
    time: float
    """τ, in seconds."""
    capacitance: float | None = None
    """C of a node, in farads; None where a unit is not a capacitor."""

    def _repr_html_(self) -> str:
        numbers = {LABELS[key]: _readable(number, key) for key, number in self.summary().items()}
        return html_table(numbers, "Realization")

    @property
    def kT(self) -> float:
        """k_BT, in joules."""
        return self.energy * self.machine.kT

    @property
    def temperature(self) -> float:
        """Temperature of the noise, in kelvin."""
        return float(self.kT / Boltzmann)

    @property
    def mobility(self) -> float:
        """μ/(E₀τ), in 1/(J s): dx/dt = −mobility ∂E/∂x."""
        return self.machine.mobility / (self.energy * self.time)

    @property
    def voltage(self) -> float | None:
        """V₀ = √(E₀/C), the voltage of x = 1."""
        return None if self.capacitance is None else math.sqrt(self.energy / self.capacitance)

    @property
    def conductance(self) -> float | None:
        """G = μC/τ, in siemens."""
        return self.capacitance and self.machine.mobility * self.capacitance / self.time

    @property
    def noise_current(self) -> float | None:
        """√(4 k_BT G), in A/√Hz: the Johnson noise of a node."""
        return self.conductance and math.sqrt(4 * self.kT * self.conductance)

    @property
    def duration(self) -> float:
        """t_f, in seconds; preparation and generation take t_f each."""
        return self.machine.duration * self.time

    @property
    def image_seconds(self) -> float:
        """Seconds of preparation and generation of an image."""
        return 2 * self.duration

    def lines(self, summary: Mapping[str, float]) -> list[str]:
        """A summary as lines of text, with SI prefixes."""
        return [f"{LABELS[key]:<36}{_readable(number, key)}" for key, number in summary.items()]

    def summary(self, heat: float | None = None, work: float | None = None) -> dict[str, Any]:
        """Every quantity with its unit in its name; ``heat`` and ``work`` of an image in E₀."""
        quantities = {
            "energy_unit_J": self.energy,
            "kT_J": self.kT,
            "temperature_K": self.temperature,
            "time_unit_s": self.time,
            "duration_s": self.duration,
            "step_s": self.machine.dt * self.time,
            "mobility_per_J_s": self.mobility,
            "capacitance_F": self.capacitance,
            "voltage_unit_V": self.voltage,
            "conductance_S": self.conductance,
            "noise_current_A_per_rtHz": self.noise_current,
            "image_s": self.image_seconds,
            "images_per_s": 1 / self.image_seconds,
        }
        if heat is not None:
            heat_joules = joules(self.machine, heat, self.temperature)
            quantities |= {"heat_J": heat_joules, "heat_W": heat_joules / self.image_seconds}
        if work is not None:
            quantities["work_J"] = joules(self.machine, work, self.temperature)
        return {
            name: float(f"{number:.{DIGITS}g}")
            for name, number in quantities.items()
            if number is not None
        }


def _readable(number: float, key: str) -> str:
    """``6.44 mV``: three digits, with an SI prefix where the unit takes one."""
    unit = key.rpartition("_")[2]
    if "_per_" in key:
        of = {"mobility_per_J_s": "1/(J s)", "noise_current_A_per_rtHz": "A/√Hz"}
        return f"{number:.3g} {of.get(key, '1/s')}"
    power = math.floor(math.log10(abs(number)) / 3) if number else 0
    if unit == "K" or not -6 <= power <= 4:
        return f"{number:.3g} {unit}"
    return f"{number / 1000.0**power:.3g} {'afpnµm kMGT'[power + 6].strip()}{unit}"


def reduced(machine: Machine) -> Realization:
    """Reduced units read as SI units: E₀ = 1 J, τ = 1 s, C = 1 F, hence V₀ = 1 V and G = μ S."""
    return Realization(machine, 1.0, 1.0, 1.0)


PROPERTIES = ("temperature", "energy", "voltage", "capacitance", "conductance", "time_unit")
"""Properties of a device, the arguments of ``realize``."""


def realize_device(machine: Machine, device: Mapping[str, Any]) -> Realization:
    """A realization from the properties of a device by name; wrong names and types are refused."""
    for name, number in device.items():
        if name not in PROPERTIES:
            raise UserError(f"{name}: no such argument; known: {', '.join(PROPERTIES)}")
        if number is not None and not isinstance(number, Real):
            raise UserError(f"{name} = {shown(number)}: expected a number, in SI units")
    return realize(machine, **device)


def realize(
    machine: Machine,
    *,
    temperature: float | None = None,
    energy: float | None = None,
    voltage: float | None = None,
    capacitance: float | None = None,
    conductance: float | None = None,
    time_unit: float | None = None,
) -> Realization:
    """A realization from the properties of a device, in SI units.

    E₀ follows from one of ``temperature`` (kelvin, 300 by default), ``energy`` (E₀ in joules) and
    ``voltage`` (V₀ in volts, with ``capacitance``). The unit of time follows from ``time_unit``
    (seconds), or from ``conductance`` (siemens) and ``capacitance`` (farads).
    """
    properties = {
        "temperature": temperature, "energy": energy, "voltage": voltage,
        "capacitance": capacitance, "conductance": conductance, "time_unit": time_unit,
    }  # fmt: skip
    for name, number in properties.items():
        if number is not None and not (math.isfinite(number) and number > 0):
            raise UserError(f"{argument(name)} = {number}: must be positive and finite")
    scales = [name for name in ("temperature", "energy", "voltage") if properties[name] is not None]
    if len(scales) > 1:
        names = ", ".join(map(argument, scales))
        raise UserError(f"{names}: each of them fixes E0; give only one")
    if capacitance is None and (voltage is not None or conductance is not None):
        raise UserError(
            f"{argument('voltage')}, {argument('conductance')}: belong to a node; give its "
            "capacitance too"
        )
    if (conductance is None) == (time_unit is None):
        raise UserError(
            f"{argument('time_unit')}, {argument('conductance')}: give one of them, the seconds "
            "per unit of time or the conductance of a node in siemens (with its capacitance)"
        )
    if energy is None:
        energy = joules(machine, 1.0, ROOM_TEMPERATURE if temperature is None else temperature)
        if voltage is not None and capacitance is not None:
            energy = capacitance * voltage**2
    if time_unit is None:
        assert capacitance is not None
        assert conductance is not None
        time_unit = machine.mobility * capacitance / conductance
    return Realization(machine, energy, time_unit, capacitance)
