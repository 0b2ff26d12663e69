"""The parameters θ: named blocks of couplings and biases, for every stage, in one flat layout.

    θ_t = [J_vh | J_hh | J_vv | J_vl | J_hl | b_v | b_h]        blocks that the wiring has

Kernels, solver, checkpoints and diagnostics all use this layout. A block couples two groups; within
one group it is symmetric with zero diagonal, and contains every undirected edge twice. A bias is
the block of a group with the clamped unit ``one``. If the topology leaves out pairs
(``machine.wires``), a block contains only its wires, each once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.machine.machine import FREE, WIRES, Machine
from thermoloom.machine.wires import WiredPairs, neighbours, wiring

Array = NDArray[Any]


@dataclass(frozen=True)
class Block:
    """Couplings J_ab of group a (rows) with group b (columns)."""

    name: str
    rows: str
    columns: str
    shape: tuple[int, ...]
    """Shape of its numbers in θ: (n_a, n_b), (n_a,) for biases, or (wires,)."""
    start: int
    """Where it begins in the flat vector."""
    wires: WiredPairs | None = field(default=None, compare=False, repr=False)
    """Which pairs are wired; None if all are."""

    @property
    def symmetric(self) -> bool:
        return self.rows == self.columns

    @property
    def doubled(self) -> bool:
        """Whether it holds every undirected edge twice, as a symmetric matrix."""
        return self.symmetric and self.wires is None

    @property
    def is_bias(self) -> bool:
        return self.columns == "one"

    @property
    def part(self) -> str:
        """The term of the energy that it belongs to: its name, or ``bias``."""
        return "bias" if self.is_bias else self.name

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def pairs(self) -> tuple[int, int]:
        """(n_a, n_b), the shape of its matrix."""
        if self.wires is not None:
            return self.wires.shape
        return self.shape[0], 1 if self.is_bias else self.shape[1]

    @property
    def edges(self) -> int:
        """Independent parameters: an undirected edge counts once."""
        n = self.shape[0]
        return n * (n - 1) // 2 if self.doubled else self.size

    @property
    def places(self) -> tuple[Array, Array]:
        """(i, j) of each independent parameter in the matrix; i > j for an undirected edge."""
        if self.wires is not None:
            return self.wires.rows, self.wires.columns
        if self.symmetric:
            return np.tril_indices(self.shape[0], -1)
        i, j = np.divmod(np.arange(self.size), 1 if self.is_bias else self.shape[1])
        return i, j

    def of(self, vector: Array) -> Array:
        """View of this block in vectors of shape (..., size of θ)."""
        return vector[..., self.start : self.start + self.size].reshape(
            *vector.shape[:-1], *self.shape
        )

    def independent(self, vector: Array) -> Array:
        """Its independent parameters, (..., edges), in the order of ``places``."""
        numbers = self.of(vector)
        if self.wires is not None or self.is_bias:
            return numbers
        i, j = self.places
        return numbers[..., i, j]

    def set_independent(self, vector: Array, numbers: Array) -> None:
        """Write the numbers of ``independent`` into a flat vector, both entries of an edge."""
        if self.wires is not None or self.is_bias:
            self.of(vector)[...] = numbers
            return
        i, j = self.places
        self.of(vector)[..., i, j] = numbers
        if self.symmetric:
            self.of(vector)[..., j, i] = numbers

    def matrix(self, vector: Array, mirror_sign: int = 1) -> Any:
        """This block as a matrix (n_a, n_b): a view where all pairs are wired, with biases as one
        column; else a sparse matrix. ``mirror_sign`` = −1: antisymmetric within a group.
        """
        view = self.of(vector)
        if self.wires is not None:
            return self.wires.matrix(view, mirror_sign)
        return view[..., None] if self.is_bias else view

    def dense(self, vector: Array, mirror_sign: int = 1) -> Array:
        """This block as an array (..., n_a, n_b), whatever the wiring."""
        view: Array = self.of(vector)
        if self.wires is not None:
            return self.wires.dense(view, mirror_sign)
        return view[..., None] if self.is_bias else view

    def outer(self, left: Array, right: Array) -> Array:
        """Σ_k left_ki right_kj for its pairs (i, j), from (k, n_a) and (k, n_b)."""
        if self.wires is not None:
            return self.wires.outer(left, right)
        products: Array = left.T @ right
        return products.reshape(self.shape)


class Layout:
    """Where the blocks of a machine's θ lie in a flat vector."""

    def __init__(self, machine: Machine, complete: bool = False) -> None:
        """``complete``: as if all pairs were wired."""
        blocks: list[Block] = []
        start = 0
        pairs = [tuple(wire.split("-")) for wire in WIRES if machine.wired(wire)]
        pairs += [(g, "one") for g in FREE if g in machine.biases and machine.size_of(g)]
        for rows, columns in pairs:
            n, m = machine.size_of(rows), machine.size_of(columns)
            bias = columns == "one"
            name = f"{rows}_bias" if bias else f"{rows}_{columns}"
            shape: tuple[int, ...] = (n,) if bias else (n, m)
            wired = None
            if machine.sparse and not complete and columns in machine.groups:
                wired = wiring(machine).blocks[f"{rows}-{columns}"]
                shape = (len(wired),)
            block = Block(name, rows, columns, shape, start, wired)
            blocks.append(block)
            start += block.size
        self.blocks = tuple(blocks)
        self.size = start
        """Numbers in θ of one stage."""
        labels = slice(machine.units, machine.units + machine.size_of("label"))
        self.positions: dict[str, slice] = {
            **machine.groups, "label": labels, "one": slice(labels.stop, labels.stop + 1)
        }  # fmt: skip
        """Where each group lies in a list of all units: free ones, labels, then ``one``."""
        self._free = machine.units

    def __getitem__(self, name: str) -> Block:
        return next(block for block in self.blocks if block.name == name)

    def __contains__(self, name: str) -> bool:
        return any(block.name == name for block in self.blocks)

    @property
    def parts(self) -> tuple[str, ...]:
        """Terms of the energy: onsite, each block of couplings, and all biases together."""
        return tuple(dict.fromkeys(["onsite", *(block.part for block in self.blocks)]))

    @property
    def couplings(self) -> tuple[Block, ...]:
        """The blocks that are not biases."""
        return tuple(block for block in self.blocks if not block.is_bias)

    def partners(self, group: str) -> list[tuple[Block, bool]]:
        """Blocks that couple this group; True with a block whose columns are this group."""
        of_rows = [(block, False) for block in self.blocks if block.rows == group]
        of_columns = [
            (block, True) for block in self.blocks if block.columns == group and not block.symmetric
        ]
        return of_columns + of_rows

    def coupling_matrix(self, vector: Array, mirror_sign: int = 1) -> NDArray[np.float64]:
        """J of the free units with all units, (N, N + L + 1), from θ of one stage.

            ∂_iV = V′_onsite(x_i) + Σ_j J_ij x_j

        Columns are ordered as in ``positions``: J[:, :N] is symmetric, the last column holds the
        biases. Pairs without a wire have 0. The matrix has N (N + L + 1) numbers. With
        ``mirror_sign`` = −1, J[:, :N] is antisymmetric.
        """
        J = np.zeros((self._free, self.positions["one"].stop))
        for block in self.blocks:
            rows, columns = self.positions[block.rows], self.positions[block.columns]
            J[rows, columns] = block.dense(vector, mirror_sign)
            if columns.start < self._free and not block.symmetric:
                J[columns, rows] = mirror_sign * block.dense(vector).T
        return J

    def completed(self, vector: Array, mirror_sign: int = 1) -> Array:
        """θ of one stage as if all pairs were wired, flat, with 0 where there is no wire."""
        return np.concatenate([block.dense(vector, mirror_sign).ravel() for block in self.blocks])

    def inner(self, a: Array, b: Array) -> float:
        """⟨a, b⟩ over independent parameters: each undirected edge once."""
        total = float(a @ b)
        for block in self.blocks:
            if block.doubled:
                total -= 0.5 * float(block.of(a).ravel() @ block.of(b).ravel())
        return total

    def symmetrized(self, vector: Array) -> Array:
        """A copy in which matrices symmetric up to round-off are exactly symmetric."""
        symmetric = vector.copy()
        for block in self.blocks:
            if block.doubled:
                view = block.of(symmetric)
                view[...] = 0.5 * (view + np.swapaxes(view, -1, -2))
        return symmetric


@lru_cache(maxsize=64)
def layout(machine: Machine) -> Layout:
    """The layout of a machine's θ."""
    return Layout(machine)


@dataclass(frozen=True, eq=False, repr=False)
class Parameters:
    """θ of every stage. Arrays are float32 in training and generation."""

    machine: Machine
    vector: Array
    """(T, size), one row for each stage, in the machine's layout."""
    style_weights: Array | None = None
    """How often each style of a class occurs, (classes, styles); None where there are no styles."""

    def __post_init__(self) -> None:
        expected = (self.machine.stages, layout(self.machine).size)
        windows = len(self.machine.development)
        if self.vector.shape not in (expected, (expected[0] + windows, expected[1])):
            raise UserError(
                f"parameters of shape {self.vector.shape}: this machine has {expected} "
                "(stages, couplings and biases)"
            )

    def __repr__(self) -> str:
        blocks = ", ".join(f"{name} {array.shape}" for name, array in self.arrays.items())
        return f"Parameters({blocks})"

    @classmethod
    def zeros(cls, machine: Machine, dtype: Any = np.float32) -> Parameters:
        """θ = 0, where every training starts."""
        return cls(machine, np.zeros((machine.stages, layout(machine).size), dtype))

    @classmethod
    def from_arrays(cls, machine: Machine, arrays: Mapping[str, Array]) -> Parameters:
        """From blocks by name, each (T, …), or without the axis of stages where T = 1."""
        form = layout(machine)
        names = [block.name for block in form.blocks]
        if missing := [name for name in names if name not in arrays]:
            raise UserError(f"parameters: {', '.join(missing)} missing for this machine")
        blocks: dict[str, Array] = {}
        for block in form.blocks:
            shape = (machine.stages, *block.shape)
            array = np.asarray(arrays[block.name])
            if block.wires is not None and array.shape[-2:] == block.pairs:
                array = _on_wires(block, array)
            if array.shape not in (shape, shape[1:] if machine.stages == 1 else shape):
                raise UserError(
                    f"parameters: {block.name} has shape {array.shape}, this machine has {shape}"
                )
            if array.dtype.kind != "f":
                raise UserError(f"parameters: {block.name} has {array.dtype} numbers, not float32")
            blocks[block.name] = array
        theta = np.empty((machine.stages, form.size), np.result_type(*blocks.values()))
        for block in form.blocks:
            block.of(theta)[...] = np.reshape(blocks[block.name], (machine.stages, *block.shape))
        return cls(machine, theta, arrays.get("style_weights"))

    @classmethod
    def from_stored(cls, machine: Machine, arrays: Mapping[str, Array]) -> Parameters:
        """From the arrays of a file, which must be finite and of the precision of a stored θ.

        Each block is checked: ``from_arrays`` would silently widen a block of lower precision.
        """
        theta = cls.from_arrays(machine, arrays)
        for name in theta.arrays:
            wanted, stored = ("float64" if name == "style_weights" else "float32"), arrays[name]
            if stored.dtype.name != wanted:
                raise UserError(f"parameters: {name} has {stored.dtype} numbers, not {wanted}")
        theta.check()
        return theta

    @cached_property
    def layout(self) -> Layout:
        return layout(self.machine)

    def __getitem__(self, name: str) -> Array:
        """A block of all stages, (T, …): a view."""
        return self.layout[name].of(self.vector)

    @property
    def arrays(self) -> dict[str, Array]:
        """Blocks by name, in the order of the layout, and the weights of styles, as saved."""
        blocks = {block.name: block.of(self.vector) for block in self.layout.blocks}
        return blocks | (
            {} if self.style_weights is None else {"style_weights": self.style_weights}
        )

    def of_stage(self, stage: int) -> dict[str, Array]:
        """Blocks of one stage by name: views."""
        return {block.name: block.of(self.vector[stage]) for block in self.layout.blocks}

    def coupling_matrix(self, stage: int = 0) -> NDArray[np.float64]:
        """J of the free units with all units in one stage, (N, N + L + 1), in float64."""
        return self.layout.coupling_matrix(self.vector[stage])

    def with_vector(self, vector: Array) -> Parameters:
        return Parameters(self.machine, vector, self.style_weights)

    def on(self, machine: Machine) -> Parameters:
        """The same θ, written on another machine of this layout."""
        return Parameters(machine, self.vector, self.style_weights)

    @property
    def developed(self) -> Parameters:
        """These parameters with a row for each window of development, after those of the stages.

        Up to a constant, κ/2 Σ (x_i − x_j)² is −κ Σ x_i x_j, a bias κ m n_i with n_i neighbours,
        and an onsite part (``Machine.generating_potential``).
        """
        machine, rows = self.machine, []
        if not machine.development or len(self.vector) > machine.stages:
            return self
        pairs = neighbours(machine.visible)
        counts = np.bincount(pairs.ravel(), minlength=machine.visible)
        for window in machine.development:
            row = window.learned * self.vector[0]
            if window.neighbours:
                block = self.layout["visible_visible"]
                springs = block.of(row)
                if block.wires is not None:
                    springs[block.wires.number_of(*pairs.T)] -= window.neighbours
                else:
                    springs[tuple(pairs.T)] -= window.neighbours
                    springs[tuple(pairs.T[::-1])] -= window.neighbours
                bias = self.layout["visible_bias"].matrix(row)
                bias[:, 0] += window.neighbours * window.centre * counts
            rows.append(row.astype(self.vector.dtype))
        return self.with_vector(np.stack([*self.vector, *rows]))

    def with_styles_of(self, words: Array | None) -> Parameters:
        """These parameters, with styles drawn as often as they occur among the words (P, L)."""
        if words is None or self.machine.styles == 1:
            return self
        shape = (self.machine.labels, self.machine.styles)
        counts = np.count_nonzero(words, axis=0).reshape(shape)
        counts = np.where(counts.any(axis=1, keepdims=True), counts, 1)
        return Parameters(self.machine, self.vector, counts / counts.sum(axis=1, keepdims=True))

    def copy(self) -> Parameters:
        return self.with_vector(self.vector.copy())

    def astype(self, dtype: Any) -> Parameters:
        return self.with_vector(self.vector.astype(dtype))

    def same_as(self, other: Parameters) -> bool:
        """Elementwise equality of every parameter."""
        return np.array_equal(self.vector, other.vector)

    def check(self) -> None:
        """Refuse parameters that are not finite or not symmetric."""
        self._check_style_weights()
        if not np.isfinite(self.vector).all():
            raise UserError("parameters: some are not finite; the training diverged")
        for block in self.layout.blocks:
            if block.doubled:
                couplings = block.of(self.vector)
                if not np.array_equal(couplings, np.swapaxes(couplings, -1, -2)):
                    raise UserError(f"{block.name}: couplings are not symmetric")
                if np.any(np.diagonal(couplings, axis1=-2, axis2=-1)):
                    raise UserError(f"{block.name}: couplings have a nonzero diagonal")

    def _check_style_weights(self) -> None:
        weights, shape = self.style_weights, (self.machine.labels, self.machine.styles)
        if weights is None:
            return
        real = weights.shape == shape and weights.dtype.kind == "f"
        if not (real and (weights >= 0).all() and np.allclose(weights.sum(axis=1), 1)):
            raise UserError(f"style_weights: must have shape {shape} and sum to 1 in each class")


def _on_wires(block: Block, matrix: Array) -> Array:
    """The couplings of the wires in a matrix (..., n_a, n_b); others must be 0."""
    assert block.wires is not None
    numbers = block.wires.restricted(matrix)
    if np.count_nonzero(matrix) != np.count_nonzero(numbers) * (2 if block.symmetric else 1):
        raise UserError(f"{block.name}: has couplings where this machine has no wires")
    return numbers
