"""A machine as built: its units differ, and its couplings deviate from the values written.

    unit       J̃₂ᵢ = J₂ s(σ_J₂),  J̃₄ᵢ = J₄ s(σ_J₄),  μ̃ᵢ = μ s(σ_μ),  T̃ᵢ = T s(σ_T)
               s(σ) = exp(σz − σ²/2): log-normal, of mean 1 and relative spread √(exp σ² − 1) ≈ σ
    coupling   J̃_ij = (1 + γz_ij) exp(−λz_ij² n) J_ij + o z_ij       as both units feel it
               0 where it is dead, ±J_stuck where it is stuck; J_ij on a grid of b bits
    one way    J̃_{i←j} = J̃_ij (1 + κz_ij),  J̃_{j←i} = J̃_ij (1 − κz_ij)

θ = (J_ij) are the values written, biases and label couplings included; z are standard normals,
drawn once for each seed of a device. Each imperfection has a separate stream, and no draw depends
on the strength of an imperfection. All stages use the same hardware, so z is the same for all.

A device without imperfections is the machine itself, bit for bit.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.extensions import is_extension
from thermoloom.machine.energy import coupling_gradient
from thermoloom.machine.machine import Machine
from thermoloom.machine.onsite import ONSITE, CentredQuartic, Onsite, own_potential
from thermoloom.machine.parameters import Array, Block, Parameters, layout
from thermoloom.machine.quantization import UNQUANTIZED, mirrored, quantized
from thermoloom.sections import Section

Float64 = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Device(Section):
    """Imperfections of a machine as built, all off by default.

    Pass it to ``Machine.train`` as ``device``, or build a learned computer with ``computer.on``.
    Below, z is a standard normal number, drawn separately for each unit or coupling.

    >>> import thermoloom as tl
    >>> machine = tl.Machine(visible=49, hidden=8, duration=0.05)
    >>> computer = machine.solve(tl.digits(0, 1), resize=True)
    >>> computer.on(tl.Device(dead=0.1, spread_temperature=0.2, seed=7)).generate(5).heat.shape
    (5,)
    """

    section: ClassVar[str] = "device"

    spread_J2: float = 0.0
    """Relative spread σ of J₂ among units: J₂ exp(σz − σ²/2), log-normal with mean J₂."""
    spread_J4: float = 0.0
    """Relative spread σ of J₄ among units; log-normal like J₂."""
    spread_mobility: float = 0.0
    """Relative spread σ of the mobility among units; log-normal like J₂."""
    spread_temperature: float = 0.0
    """Relative spread σ of the temperature among units; log-normal like J₂."""
    bits: int = 32
    """Bits of written couplings, with a grid for each block; biases stay in float32, and 32 means
    float32 for all. Applies to generation only: [imperfections] sets the bits of training."""
    rounding: str = "nearest"
    """How couplings are rounded if bits < 32: nearest, or stochastic (unbiased)."""
    gain_error: float = 0.0
    """γ, relative error of every coupling and bias: J (1 + γz)."""
    offset: float = 0.0
    """o, error of every coupling and bias that does not depend on its value: J + oz, in E₀."""
    dead: float = 0.0
    """Fraction of couplings and biases that are always 0."""
    stuck: float = 0.0
    """Fraction of couplings and biases that are stuck at ±stuck_at."""
    stuck_at: float = 0.1
    """|J| of stuck couplings, in E₀; either sign is equally likely."""
    non_reciprocity: float = 0.0
    """κ: unit i feels J (1 + κz) x_j, unit j feels J (1 − κz) x_i. Such forces have no
    potential."""
    drift: float = 0.0
    """λ, mean rate at which couplings decay: J exp(−λz²n) after n trajectories."""
    age: float = 0.0
    """n, number of trajectories between writing θ and generation; training always writes θ anew."""
    seed: int = 1
    """Seed of all random numbers of the device."""

    def check(self) -> None:
        limits = {"dead": 1.0, "stuck": 1.0} | dict.fromkeys(SPREADS, 2.0)
        self._non_negative(*(entry.name for entry in fields(self) if entry.name != "rounding"))
        must = "must be 2 to 24, or 32 for unquantized float32"
        self._require("bits", self.bits == UNQUANTIZED or 2 <= self.bits <= 24, must)
        self._require("rounding", self.rounding in ROUNDINGS, f"must be {' or '.join(ROUNDINGS)}")
        for key, most in limits.items():
            self._require(key, getattr(self, key) <= most, f"must be at most {most:g}")
        must = "has no effect without drift; set device.drift, or leave it at 0"
        self._require("age", self.age == 0 or self.drift > 0, must)

    @property
    def couples(self) -> bool:
        """Whether couplings differ from those that were written."""
        keys = ("gain_error", "offset", "dead", "stuck", "non_reciprocity")
        return self.bits != UNQUANTIZED or any(getattr(self, key) for key in keys)

    @property
    def bounded(self) -> bool:
        """Whether units have equal mobility and temperature, as bounds of dissipation require."""
        return not (self.spread_mobility or self.spread_temperature)

    @property
    def ideal(self) -> bool:
        """Whether the device has no imperfection."""
        return not (self.couples or self.drift or any(getattr(self, key) for key in SPREADS))


ROUNDINGS = ("nearest", "stochastic")
SPREADS = ("spread_J2", "spread_J4", "spread_mobility", "spread_temperature")


@dataclass(frozen=True, repr=False)
class BuiltMachine(Machine):
    """The machine as built on a device: coefficients of every unit, (N,), and couplings as felt.

    Δt, k_BT, μ and all other plain numbers are nominal: they are the constants of a circuit beside
    the units.
    """

    device: Device = Device()

    def check(self) -> None:
        """Check nothing: the nominal machine has been checked."""

    @cached_property
    def potential(self) -> Onsite:
        """The onsite potential of every unit."""
        if is_extension(self.onsite):
            return own_potential(self.onsite).astype(partial(np.broadcast_to, shape=self.units))
        coefficients = SimpleNamespace(
            J2=self.J2 * self._spread("spread_J2"), J4=self.J4 * self._spread("spread_J4")
        )
        return ONSITE[self.onsite](coefficients)  # type: ignore[arg-type]

    def generating_potential(self, stage: int) -> Onsite:
        """The onsite potential of every unit in V_θ of a stage."""
        if not self.generating and stage < self.stages:
            return self.potential
        meant: Any = super().generating_potential(stage)
        spreads = self._spread("spread_J2"), self._spread("spread_J4"), np.ones(self.units)
        return CentredQuartic(*(a * spread for a, spread in zip(meant, spreads, strict=True)))

    @cached_property
    def step(self) -> tuple[Any, Any]:
        """(μΔt, √(2μk_BTΔt)) of every unit."""
        drift = self.drift * self._spread("spread_mobility")
        return drift, np.sqrt(2 * drift * self.kT * self._spread("spread_temperature"))

    def _spread(self, key: str) -> Float64:
        sigma = getattr(self.device, key)
        spread: Float64 = np.exp(sigma * self._drawn(key).normal(size=self.units) - sigma**2 / 2)
        return spread

    def _drawn(self, stream: str) -> np.random.Generator:
        """The random stream of an imperfection, counter-based like all others."""
        text = f"thermoloom/device {stream}/{self.device.seed}"
        key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")
        return np.random.Generator(np.random.Philox(key=key))

    def _of_couplings(self, stream: str, uniform: bool = False) -> Float64:
        """Draw a number for each coupling, flat in the layout of θ: equal in both directions, and 0
        where a unit would be coupled to itself.
        """
        rng = self._drawn(stream)
        draw = rng.random if uniform else rng.normal
        flat = np.empty(layout(self).size)
        for block in layout(self).blocks:
            numbers = block.of(flat)
            if block.wires is None:
                numbers[...] = draw(size=block.shape)
                numbers[...] = mirrored(numbers) if block.symmetric else numbers
            else:  # drawn for all pairs, row by row, so that a wire does not depend on the others
                starts = np.searchsorted(block.wires.rows, np.arange(block.pairs[0] + 1))
                for first, last in pairwise(starts.tolist()):
                    row = draw(size=block.pairs[1])
                    numbers[first:last] = row[block.wires.columns[first:last]]
        return flat

    @property
    def stiffest(self) -> Machine:
        """A machine of equal units, with the largest value of every coefficient of these units."""
        spreads = {"mobility": "mobility", "kT": "temperature"}
        if not is_extension(self.onsite):
            spreads |= {"J2": "J2", "J4": "J4"}
        largest = {
            key: getattr(self, key) * float(self._spread(f"spread_{name}").max())
            for key, name in spreads.items()
        }
        return Machine(**_meant(self) | largest)

    # written couplings → felt couplings

    @cached_property
    def gain(self) -> Float64:
        """∂J̃/∂J, flat: 0 where a coupling is dead or stuck."""
        gain = 1 + self.device.gain_error * self._of_couplings("gain_error")
        return np.where(self._lost, 0.0, gain)

    @cached_property
    def offset(self) -> Float64:
        """J̃ where J = 0 is written, flat."""
        device = self.device
        stuck = device.stuck_at * np.sign(self._of_couplings("stuck_at"))
        offset = device.offset * self._of_couplings("offset")
        return np.where(self._dead, 0.0, np.where(self._lost, stuck, offset))

    @cached_property
    def _dead(self) -> NDArray[np.bool_]:
        return self._of_couplings("dead", uniform=True) < self.device.dead

    @cached_property
    def _lost(self) -> NDArray[np.bool_]:
        return self._dead | (self._of_couplings("stuck", uniform=True) < self.device.stuck)

    @cached_property
    def decay(self) -> Float64:
        """λz²: how fast written couplings decay, per trajectory, flat."""
        return self.device.drift * self._of_couplings("drift") ** 2

    @cached_property
    def twist(self) -> Float64 | None:
        """κz, flat: relative excess of a coupling as the unit of the row feels it, over the mean of
        both directions.

        Only for couplings between free units; None if all are reciprocal.
        """
        if self.device.non_reciprocity == 0:
            return None
        twist = self.device.non_reciprocity * self._of_couplings("non_reciprocity")
        for block in layout(self).blocks:
            block.of(twist)[...] = _one_way(block, block.of(twist), self)
        return twist

    @cached_property
    def _rounding(self) -> Float64 | None:
        """u of n = ⌊y + u⌋, flat; None for rounding to the nearest level."""
        stochastic = self.device.rounding == "stochastic"
        return self._of_couplings("rounding", uniform=True) if stochastic else None

    def felt(self, theta: Parameters, age: float = 0.0) -> Felt:
        """Couplings as the units feel them, ``age`` trajectories after θ was written."""
        written = quantized(theta, self.device.bits, self._rounding).vector
        written = written * np.exp(-self.decay * age) if age else written
        both = (self.gain * written + self.offset).astype(theta.vector.dtype)
        twisted = None
        if self.twist is not None:
            twisted = Parameters(self, (self.twist * both).astype(both.dtype))
        return Felt(Parameters(self, both, theta.style_weights), twisted)

    def drifted_parameters(self, theta: Parameters, trajectories: float = 1.0) -> Parameters:
        """θ as the device retains it after this number of trajectories."""
        if self.device.drift == 0:
            return theta
        decayed = theta.vector * np.exp(-self.decay * trajectories)
        return theta.with_vector(decayed.astype(theta.vector.dtype))


def _one_way(block: Block, drawn: Array, machine: Machine) -> Array | float:
    """Antisymmetric within a group; zero where one of the two units is clamped."""
    if block.columns not in machine.groups:
        return 0.0
    return np.tril(drawn, -1) - np.tril(drawn, -1).T if block.doubled else drawn


class Felt(NamedTuple):
    """Couplings as the units of a device feel them."""

    both: Parameters
    """The reciprocal part, which has a potential: the energy of the device."""
    twisted: Parameters | None
    """Excess that a row feels and a column lacks; None where couplings are reciprocal."""

    def gradient(self, states: Array, stage: int = 0, word: Array | None = None) -> Array:
        """Σ_j J̃_{i←j} x_j + b̃_i."""
        gradient = coupling_gradient(self.both, states, stage, word)
        if self.twisted is not None:
            gradient += coupling_gradient(self.twisted, states, stage, word, twisted=True)
        return gradient


@lru_cache(maxsize=4)
def build(machine: Machine, device: Device) -> Machine:
    """The machine as built; the machine itself where the device has no imperfection."""
    if is_extension(machine.onsite) and (device.spread_J2 or device.spread_J4):
        raise UserError(
            "device.spread_J2, device.spread_J4: your own machine.onsite has no J₂ and J₄; leave "
            "them at 0"
        )
    return machine if device.ideal else BuiltMachine(**_meant(machine), device=device)


def felt(theta: Parameters) -> Felt:
    """Couplings as the units feel them, on an ideal or a built machine."""
    machine, theta = theta.machine, theta.developed
    if isinstance(machine, BuiltMachine):
        return machine.felt(theta, machine.device.age)
    return Felt(theta, None)


def sensed_gradient(
    theta: Parameters, states: Array, stage: int = 0, word: Array | None = None
) -> Array:
    """Σ_j J̃_{i←j} x_j + b̃_i, as a learner senses it just after writing θ."""
    machine = theta.machine
    if isinstance(machine, BuiltMachine):
        return machine.felt(theta).gradient(states, stage, word)
    return coupling_gradient(theta, states, stage, word)


def _meant(machine: Machine) -> dict[str, Any]:
    return {entry.name: getattr(machine, entry.name) for entry in fields(Machine)}
