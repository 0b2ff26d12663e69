"""θ as arrays of the library: blocks of couplings, the forces they exert and how they are updated.

    force_i  = Σ_j J_ij x_j                         biases: x_j = 1, labels: x_j of the word
    update   u_ij = Σ_k (r_i x_j′ + r_j x_i′)       over steps k; r_j = 0 for clamped units

A block is a matrix (…, n_a, n_b) of couplings between the units of two groups; biases are a column
of couplings to the clamped unit ``one``. Leading axes count trainings that are computed together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from thermoloom.engines.library import Array, NumPy
from thermoloom.machine.device import BuiltMachine
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import layout

Blocks = dict[str, Array]
"""θ of one stage, or other numbers of its couplings, by the name of their block."""
Groups = dict[str, Array]
"""States, or residuals, by the name of their group of units, (…, steps, units)."""


def blocks_of(library: NumPy, machine: Machine, vector: Any, mirror_sign: int = 1) -> Blocks:
    """Flat θ of one stage, (…, size), in NumPy → blocks, antisymmetric if the sign is −1."""
    blocks = layout(machine).blocks
    return {block.name: library.array(block.dense(vector, mirror_sign)) for block in blocks}


def vector_of(library: NumPy, machine: Machine, blocks: Blocks) -> Any:
    """Blocks → flat θ of one stage, (…, size), in NumPy; symmetric to the last bit."""
    flat = []
    for block in layout(machine).blocks:
        matrix = library.numpy(blocks[block.name])
        on_wires = matrix if block.wires is None else block.wires.restricted(matrix)
        flat.append(on_wires.reshape(*matrix.shape[:-2], -1))
    return layout(machine).symmetrized(np.concatenate(flat, axis=-1))


def wires_of(library: NumPy, machine: Machine) -> Blocks:
    """1 for wired pairs and 0 for others, in each block that has pairs without a wire."""
    form, ones = layout(machine), np.ones(layout(machine).size)
    partial = [b for b in form.blocks if b.symmetric or b.wires is not None]
    masks = [1 - np.eye(b.shape[0]) if b.doubled else b.dense(ones) for b in partial]
    return {b.name: library.array(mask) for b, mask in zip(partial, masks, strict=True)}


def free_groups(machine: Machine, values: Array) -> Groups:
    """Values (…, N) by group of free units."""
    return {group: values[..., where] for group, where in machine.groups.items()}


def all_groups(library: NumPy, machine: Machine, states: Array, word: Array | None) -> Groups:
    """States (…, N) by group, with those of clamped units."""
    groups = free_groups(machine, states) | {"one": library.xp.ones_like(states[..., :1])}
    if word is not None:
        groups["label"] = library.xp.broadcast_to(word, (*states.shape[:-1], word.shape[-1]))
    return groups


def forces(
    library: NumPy, machine: Machine, x: Groups, J: Blocks, on_columns: Blocks | None = None
) -> Array:
    """Σ_j J_ij x_j of every free unit, (…, N); columns may feel other couplings than rows do."""
    totals, on_columns = [], J if on_columns is None else on_columns
    for group in machine.groups:
        total = 0 * x[group]
        for block, transposed in layout(machine).partners(group):
            if transposed:
                total = total + x[block.rows] @ on_columns[block.name]
            else:
                total = total + x[block.columns] @ library.transposed(J[block.name])
        totals.append(total)
    return library.xp.concatenate(totals, -1)


def update(library: NumPy, machine: Machine, wires: Blocks, x: Groups, r: Groups) -> Blocks:
    """u_ij of every block, summed over steps."""
    xp, result = library.xp, {}
    for block in layout(machine).blocks:
        left, right = r[block.rows], x[block.columns]
        if block.columns in r and not block.symmetric:  # trainings may share the states
            r_rows, r_columns = left, r[block.columns]
            left = xp.concatenate([r_rows, xp.broadcast_to(x[block.rows], r_rows.shape)], -2)
            right = xp.concatenate([xp.broadcast_to(right, r_columns.shape), r_columns], -2)
        u = library.transposed(left) @ right
        u = u + library.transposed(u) if block.symmetric else u
        result[block.name] = u * wires[block.name] if block.name in wires else u
    return result


def sensing_of(library: NumPy, machine: Machine) -> list[list[Blocks]] | None:
    """[G, O] and [G′, O′] of a device on which rows feel G∘J + O and columns feel G′∘J + O′.

    None where all units feel the couplings J as they were written.
    """
    if not isinstance(machine, BuiltMachine) or not machine.device.couples:
        return None
    affine = [blocks_of(library, machine, each) for each in (machine.gain, machine.offset)]
    kappa_z = np.zeros_like(machine.gain) if machine.twist is None else machine.twist
    twist = blocks_of(library, machine, kappa_z, -1)
    return [
        [{name: (1 + s * twist[name]) * block for name, block in each.items()} for each in affine]
        for s in (1, -1)
    ]


def sensed(sensing: list[list[Blocks]] | None, J: Blocks) -> list[Blocks]:
    """J̃_{i←j} of couplings J that were written on a device: as rows feel them, as columns do."""
    if sensing is None:
        return [J, J]
    return [{name: gain[name] * J[name] + offset[name] for name in J} for gain, offset in sensing]
