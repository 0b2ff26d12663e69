"""A small machine as a circuit: a SPICE netlist that ngspice runs.

    C du_i/dt = −G V₀ V′_onsite(u_i/V₀) − G Σ_j J_ij u_j + i_i,     biases: u_j = V₀

A unit is a capacitor. A behavioural source draws its onsite current, transconductors G J_ij those
of its couplings, and a transient noise source is its heat bath. ``trnoise`` draws a Gaussian value
every Δt and runs straight from one to the next: values of variance 2k_BT G/Δt make the white noise
of the Langevin equation for all that is slower than Δt. So the circuit and the engine differ in
first order of Δt, as two integrators of one equation.

Preparation (couplings off, from u = 0) takes t_f, then the stages follow. Couplings of a stage read
copies of the node voltages that are zero outside of its window.

On a device (``machine.device``) every unit has its own J̃₂, J̃₄, a conductance G μ̃_i/μ and noise of
its own temperature, and a transconductor has the coupling that its unit feels, J̃_{i←j}.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from thermoloom.errors import UserError
from thermoloom.inputs import seed_number, whole
from thermoloom.machine.device import BuiltMachine, felt
from thermoloom.machine.energy import group_states
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Array, Parameters
from thermoloom.machine.protocol import generation_windows
from thermoloom.machine.realization import Realization, reduced

MOST_UNITS = 32
"""Free units of a netlist."""
MOST_SAMPLES = 100_000
DATA = "thermoloom.data"
"""What the netlist writes, in the folder in which ngspice runs: time, u_0, u_1, … in rows."""


@dataclass(frozen=True)
class Expression:
    """A formula as SPICE writes it; arithmetic makes larger ones, so a potential needs no twin."""

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


def _text(value: Any) -> str:
    return value.text if isinstance(value, Expression) else f"({float(value)!r})"


def switch_steps(theta: Parameters) -> list[int]:
    """Steps, counted from the start of preparation, at which generation begins and stages end."""
    machine = theta.machine
    return [machine.steps + k for k in (0, *(end for _, _, end in generation_windows(machine)))]


def written_steps(theta: Parameters) -> list[int]:
    """Steps at which a sample's voltages are written: evenly spaced, the switches among them."""
    every, last = math.gcd(*switch_steps(theta)), 2 * theta.machine.steps
    return list(range(every, last + 1, every))


def netlist(
    theta: Parameters,
    word: Array | None = None,
    samples: int = 1,
    seed: int = 1,
    realization: Realization | None = None,
) -> str:
    """A machine with this θ that generates ``samples`` times, one after the other.

    ``word``: states of the label units. Without a realization a unit of energy is 1 J, of time 1 s
    and of x 1 V.
    """
    machine, built = theta.machine, isinstance(theta.machine, BuiltMachine)
    if machine.units > MOST_UNITS:
        raise UserError(
            f"format spice: {machine.units} units are too many for a netlist, which has at most "
            f"{MOST_UNITS}: SPICE solves all nodes with ~N² couplings at every time point, one "
            "sample after the other, and does not scale; take format table"
        )
    whole("samples", samples, 1, MOST_SAMPLES)
    scale = realization or reduced(machine)
    G, V0, C = scale.conductance, scale.voltage, scale.capacitance
    if G is None or V0 is None or C is None:
        raise UserError("format spice: a unit is a capacitor; give its capacitance")
    dt = machine.dt * scale.time
    written = written_steps(theta)
    return "\n".join(
        [
            f"* thermoloom: {machine.visible} visible and {machine.hidden} hidden units",
            "* a unit x is the voltage of its node over V0, a coupling J a transconductance G J",
            *(["* on a device: units and couplings as they are, not as they were meant"] * built),
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
    for unit, (G, own) in enumerate(zip(_conductances(machine), _onsite(machine), strict=True)):
        onsite = own.gradient(Expression(f"(v(u{unit})/{{V0}})"))
        yield f"C{unit} u{unit} 0 {{C}} ic=0"
        yield f"B{unit} u{unit} 0 I={{{G}*V0}}*{onsite.text}"
        yield f"I{unit} 0 u{unit} dc 0 trnoise({{{_times('noise', strength[unit])}}} {{dt}} 0 0)"


def _onsite(machine: Machine) -> Iterator[Any]:
    """The potential of each unit."""
    shared: Any = machine.potential
    for coefficients in zip(*(np.broadcast_to(c, machine.units) for c in shared), strict=True):
        yield type(shared)(*map(float, coefficients))


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
    """Constant sources: label units, and the unit behind the biases."""
    names, states = _names(theta), group_states(theta.machine, np.zeros(theta.machine.units), word)
    for group in ("label", "one"):
        for name, value in zip(names[group], states.get(group, ()), strict=True):
            yield f"V{name} {name} 0 {{V0*({float(value)!r})}}"


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
        J = block.matrix(both.vector[stage])
        more = 0 * J if twisted is None else block.matrix(twisted.vector[stage])
        back = block.columns in theta.machine.groups and not block.symmetric
        for i, j in np.argwhere(J):
            a, b = names[block.rows][i], names[block.columns][j]
            for to, source, value in ((a, b, J + more), (b, a, J - more))[: 1 + back]:
                gain = f"{conductance[to]}*({float(value[i, j])!r})"
                yield f"G{to}_{source}_{stage} {to} 0 {source}_{stage} 0 {{{gain}}}"


def _control(units: int, samples: int, seed: int) -> Iterator[str]:
    """Runs, each appended to the same file, which the first one begins anew."""
    nodes = " ".join(f"u{unit}" for unit in range(units))
    run = [f"save {nodes}", "run", f"wrdata {DATA} {nodes}", "destroy all"]
    yield from [".control", f"setseed {seed % (2**31 - 1) + 1}"]
    yield from ["set wr_singlescale", "set numdgt=12", *run, "set appendwrite"]
    if samples > 1:
        yield from [f"repeat {samples - 1}", *run, "end"]
    yield from ["quit", ".endc"]
