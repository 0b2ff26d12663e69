"""A small machine as a circuit: a SPICE netlist that ngspice runs.

    C du_i/dt = −G V₀ V′_onsite(u_i/V₀) − G Σ_j J_ij u_j + i_i,     biases: u_j = V₀

A unit is a capacitor. A behavioural source draws its onsite current, transconductors G J_ij those
of its couplings, and a transient noise source is its heat bath. ``trnoise`` draws a Gaussian value
every Δt and interpolates linearly: values of variance 2k_BT G/Δt make the white noise of the
Langevin equation at all times longer than Δt. The circuit and the engine thus differ at first order
in Δt, as two integrators of one equation do.

Preparation (couplings off, from u = 0) takes t_f, then the stages follow. Couplings of a stage read
copies of the node voltages that are zero outside the stage's window.

On a device (``machine.device``) units differ in J̃₂, J̃₄, conductance G μ̃_i/μ and noise
temperature, and a transconductor has the coupling J̃_{i←j} that its unit feels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.errors import UserError
from thermoloom.export.physical_units import Realization, realize_device, reduced
from thermoloom.inputs import seed_number, whole_number
from thermoloom.machine.device import BuiltMachine, felt
from thermoloom.machine.energy import group_states, label_word
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Array, Parameters
from thermoloom.machine.protocol import generation_windows
from thermoloom.machine.quantization import quantized
from thermoloom.runs.files import write_atomically
from thermoloom.runs.manifest import refuse_file_of_run

MOST_UNITS = 32
"""Largest number of free units in a netlist."""
MOST_SAMPLES = 100_000
DATA = "thermoloom.data"
"""File that ngspice writes where it runs; a row is time, u_0, u_1, …"""


@dataclass(frozen=True)
class Expression:
    """A SPICE formula. Arithmetic builds larger ones, so a potential is written once, in Python."""

    text: str

    def __add__(self, other: Any) -> Expression:
        return Expression(f"({self.text}+{_text(other)})")

    def __mul__(self, other: Any) -> Expression:
        return Expression(f"({self.text}*{_text(other)})")

    def __sub__(self, other: Any) -> Expression:
        return Expression(f"({self.text}-{_text(other)})")

    def __rsub__(self, other: Any) -> Expression:
        return Expression(f"({_text(other)}-{self.text})")

    def __truediv__(self, other: Any) -> Expression:
        return Expression(f"({self.text}/{_text(other)})")

    __radd__, __rmul__ = __add__, __mul__


def _text(operand: Any) -> str:
    return operand.text if isinstance(operand, Expression) else f"({float(operand)!r})"


@dataclass(frozen=True, eq=False)
class Netlist:
    """A netlist in a file, with the computer that it describes."""

    path: Path
    parameters: Parameters
    word: Array | None
    """States of the label units."""
    samples: int
    realization: Realization | None


def save_netlist(
    path: Path,
    theta: Parameters,
    bits: int,
    class_number: int | None = None,
    samples: int = 100,
    seed: int = 1,
    device: Mapping[str, float] | None = None,
) -> Netlist:
    """Write θ in b bits as a circuit, in the physical units of a device or in reduced units.

    ``theta.machine`` may be a built machine; the circuit then has its imperfections. In a class
    of several styles, the most frequent one is generated.
    """
    if path.suffix != ".cir":
        raise UserError(f"{path}: a netlist must end in .cir")
    refuse_file_of_run(path)
    theta = quantized(theta, bits)
    word, weights = label_word(theta.machine, class_number), theta.style_weights
    if weights is not None and class_number is not None:
        word = label_word(theta.machine, class_number, int(np.argmax(weights[class_number])))
    realization = realize_device(theta.machine, device) if device else None
    text = netlist_text(theta, word, samples, seed, realization)
    write_atomically(path, text.encode())
    return Netlist(path, theta, word, samples, realization)


def switch_steps(theta: Parameters) -> list[int]:
    """Steps, counted from the start of preparation, at which generation begins and stages end."""
    machine = theta.machine
    return [machine.steps + k for k in (0, *(end for _, _, end in generation_windows(machine)))]


def written_steps(theta: Parameters) -> list[int]:
    """Steps at which a sample's voltages are written: evenly spaced, the switches among them."""
    every, last = math.gcd(*switch_steps(theta)), 2 * theta.machine.steps
    return list(range(every, last + 1, every))


def netlist_text(
    theta: Parameters,
    word: Array | None = None,
    samples: int = 1,
    seed: int = 1,
    realization: Realization | None = None,
) -> str:
    """The SPICE text of a machine that generates ``samples`` times, one after the other.

    ``word``: states of the label units. Without a realization, the units of energy, time and x
    are 1 J, 1 s and 1 V.
    """
    machine, built = theta.machine, isinstance(theta.machine, BuiltMachine)
    if machine.units > MOST_UNITS:
        raise UserError(
            f"a netlist has at most {MOST_UNITS} units, this machine {machine.units}: SPICE solves "
            "all nodes with about N² couplings at every time point, one sample after the other; "
            "export a table (.csv) instead"
        )
    if machine.generating or machine.development:
        raise UserError(
            "machine.generating, machine.development: a netlist has one onsite potential for all "
            "times; export a table (.csv) instead"
        )
    whole_number("samples", samples, 1, MOST_SAMPLES)
    scale = realization or reduced(machine)
    G, V0, C = scale.conductance, scale.voltage, scale.capacitance
    if G is None or V0 is None or C is None:
        raise UserError("a unit of a netlist is a capacitor; give its capacitance")
    dt = machine.dt * scale.time
    written = written_steps(theta)
    return "\n".join(
        [
            f"* thermoloom: {machine.visible} visible and {machine.hidden} hidden units",
            "* a unit x is the voltage of its node over V0, a coupling J a transconductance G J",
            *(["* on a device: units and couplings have its imperfections"] * built),
            f".param C={C!r} G={G!r} V0={V0!r}",
            f".param dt={dt!r} noise={math.sqrt(2 * scale.kT * G / dt)!r}",
            *_units(theta),
            *_clamped(theta, word),
            *(line for stage in range(machine.stages) for line in _stage(theta, stage, dt)),
            # corners of the noise are not errors of the integration: steps need not follow them
            f".options interp trtol=100 abstol={1e-6 * G * V0!r} vntol={1e-6 * V0!r} "
            f"chgtol={1e-6 * C * V0!r}",
            f".tran {written[0] * dt!r} {written[-1] * dt!r} 0 {dt!r} uic",
            *_control(machine.units, samples, seed_number("seed", seed)),
            ".end",
            "",
        ]
    )


def _units(theta: Parameters) -> Iterator[str]:
    """Capacitor, onsite current and noise of each unit."""
    machine = theta.machine
    strength = np.broadcast_to(machine.step[1] / machine.noise_amplitude, machine.units)
    for unit, (G, potential) in enumerate(
        zip(_conductances(machine), _onsite(machine), strict=True)
    ):
        onsite = _current(machine, potential, f"(v(u{unit})/{{V0}})")
        yield f"C{unit} u{unit} 0 {{C}} ic=0"
        yield f"B{unit} u{unit} 0 I={{{G}*V0}}*{onsite.text}"
        yield f"I{unit} 0 u{unit} dc 0 trnoise({{{_times('noise', strength[unit])}}} {{dt}} 0 0)"


def _current(machine: Machine, potential: Any, state: str) -> Expression:
    """The onsite force as a SPICE formula."""
    try:
        force = potential.gradient(Expression(state))
    except (TypeError, AttributeError):
        force = None
    if not isinstance(force, Expression):
        raise UserError(
            f"machine.onsite = {machine.onsite:.80}: a netlist needs a gradient of plain "
            "arithmetic (+, −, ·, /)"
        )
    return force


def _onsite(machine: Machine) -> Iterator[Any]:
    """The potential of each unit."""
    shared: Any = machine.potential
    by_unit = [np.broadcast_to(coefficient, machine.units) for coefficient in shared]
    for unit in range(machine.units):
        yield type(shared)(*(float(coefficient[unit]) for coefficient in by_unit))


def _conductances(machine: Machine) -> list[str]:
    """G of each unit: its mobility."""
    ratios = np.broadcast_to(machine.step[0] / machine.drift, machine.units)
    return [_times("G", ratio) for ratio in ratios]


def _times(name: str, factor: float) -> str:
    return name if factor == 1 else f"{name}*{float(factor)!r}"


def _names(theta: Parameters) -> dict[str, list[str]]:
    """Nodes of every group."""
    machine = theta.machine
    free = {
        g: [f"u{k}" for k in range(machine.units)[where]] for g, where in machine.groups.items()
    }
    labels = [f"label{k}" for k in range(machine.size_of("label"))]
    return {**free, "label": labels, "one": ["one"]}


def _clamped(theta: Parameters, word: Array | None) -> Iterator[str]:
    """Constant sources: the label units and the unit ``one`` of the biases."""
    names, states = _names(theta), group_states(theta.machine, np.zeros(theta.machine.units), word)
    for group in ("label", "one"):
        for name, state in zip(names[group], states.get(group, ()), strict=True):
            yield f"V{name} {name} 0 {{V0*({float(state)!r})}}"


def _stage(theta: Parameters, stage: int, dt: float) -> Iterator[str]:
    """Voltages of all nodes within the stage's window, and the transconductors that read them."""
    names, steps = _names(theta), theta.machine.steps
    first, last = next(w[1:] for w in generation_windows(theta.machine) if w[0] == stage)
    # a switch belongs to the stage that it ends: implicit steps take their force at their end
    on, off = ((steps + step + 1e-3) * dt for step in (first, last))
    for name in (name for group in names.values() for name in group):
        yield f"B{name}_{stage} 0 {name}_{stage} I=v({name})*(u(time-{on!r})-u(time-{off!r}))"
        yield f"R{name}_{stage} {name}_{stage} 0 1"
    conductance = dict(zip((f"u{unit}" for unit in range(theta.machine.units)),
                           _conductances(theta.machine), strict=True))  # fmt: skip
    both, twisted = felt(theta)
    for block in theta.layout.blocks:
        J = block.dense(both.vector[stage])
        twist = 0 * J if twisted is None else block.dense(twisted.vector[stage], -1)
        back = block.columns in theta.machine.groups and not block.symmetric
        for i, j in np.argwhere(J):
            a, b = names[block.rows][i], names[block.columns][j]
            for to, source, felt_J in ((a, b, J + twist), (b, a, J - twist))[: 1 + back]:
                gain = f"{conductance[to]}*({float(felt_J[i, j])!r})"
                yield f"G{to}_{source}_{stage} {to} 0 {source}_{stage} 0 {{{gain}}}"


def _control(units: int, samples: int, seed: int) -> Iterator[str]:
    """Commands that run all samples and append their voltages to one file."""
    nodes = " ".join(f"u{unit}" for unit in range(units))
    run = [f"save {nodes}", "run", f"wrdata {DATA} {nodes}", "destroy all"]
    yield from [".control", f"setseed {seed % (2**31 - 1) + 1}"]
    yield from ["set wr_singlescale", "set numdgt=12", *run, "set appendwrite"]
    if samples > 1:
        yield from [f"repeat {samples - 1}", *run, "end"]
    yield from ["quit", ".endc"]
