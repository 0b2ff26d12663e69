"""Damage to a machine, on a copy of its θ.

    temperature   k_BT → f k_BT
    bits          J → n Δ on the grid of b bits                  (``machine.quantization``)
    noise         J_ij → J_ij + σ · rms(J) · ξ_ij                rms of each block and stage
    dead wires    J_ij → 0 for a fraction of the wires
    dead units    all wires and the bias of a fraction of the units → 0

A dead unit continues to fluctuate in its own potential, but no other unit feels it. A wire has the
same error ξ in all stages. The seed fixes the order in which parts break, so that stronger damage
includes weaker damage.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from thermoloom.computers.computer import Computer
from thermoloom.machine.parameters import Array, Parameters
from thermoloom.machine.quantization import mirrored, quantized


class Damage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Kind and strength of the damage."""

    temperature: Annotated[float, Meta(ge=0.01, le=100)] = 1.0
    """Factor applied to k_BT."""
    bits: Annotated[int, Meta(ge=2, le=32)] = 32
    noise: Annotated[float, Meta(ge=0, le=10)] = 0.0
    """σ, relative to the rms of the couplings."""
    dead_units: Annotated[float, Meta(ge=0, le=1)] = 0.0
    dead_wires: Annotated[float, Meta(ge=0, le=1)] = 0.0
    seed: Annotated[int, Meta(ge=0, lt=1 << 53)] = 1


def damaged(computer: Computer, damage: Damage) -> Computer:
    """A damaged copy of the computer."""
    theta, machine = damaged_parameters(computer.parameters, damage), computer.settings.machine
    settings = replace(computer.settings, machine=replace(machine, kT=theta.machine.kT))
    return replace(computer, settings=settings, parameters=theta)


def damaged_parameters(theta: Parameters, damage: Damage) -> Parameters:
    """θ of the damaged machine; without damage, θ itself to the bit."""
    machine = theta.machine
    hot = replace(machine, kT=machine.kT * damage.temperature)
    parameters = quantized(theta, damage.bits).copy()
    rng = np.random.default_rng([damage.seed, 20261121])
    dead = {group: rng.random(machine.size_of(group)) < damage.dead_units
            for group in machine.groups}  # fmt: skip
    for block in theta.layout.blocks:
        shape = block.shape if block.wires is None else block.pairs
        error, throw = rng.standard_normal(shape), rng.random(shape)
        if block.doubled:
            error, throw = mirrored(error), mirrored(throw)
        elif block.wires is not None:
            error, throw = block.wires.restricted(error), block.wires.restricted(throw)
        values: Array = block.of(parameters.vector)
        axes = tuple(range(1, values.ndim))
        squares = np.square(values, dtype=np.float64).sum(axis=axes, keepdims=True)
        rms = np.sqrt(squares / max(block.size, 1))
        values += (damage.noise * rms * error).astype(np.float32)
        if not block.is_bias:
            values[:, throw < damage.dead_wires] = 0
        if block.wires is not None:
            i, j = block.places
            values[:, dead[block.rows][i] | dead[block.columns][j]] = 0
            continue
        values[:, dead[block.rows]] = 0
        if block.columns in dead:
            values[..., dead[block.columns]] = 0
    return Parameters(hot, parameters.vector, theta.style_weights)
