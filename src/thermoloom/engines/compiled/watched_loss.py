"""The loss of one path for many θ, as a quadratic form that is summed over the path once.

    r = r⁰ + c J̃x̃,   x̃ = (x′, 1),   J̃ = [J | b_i + Σ_l J_il x_l]
    L(θ) = L(0) + ⟨J̃, Σ_k r⁰x̃ᵀ⟩ + μΔt/(4k_BT) ⟨J̃ᵀJ̃, Σ_k x̃x̃ᵀ⟩

J and both matrices of the last product are symmetric. So only the lower triangles of C = Σ xxᵀ,
S = Σ (rxᵀ + xrᵀ) and JᵀJ are computed, in blocks of rows, with complete squares on the diagonal.
Cost for 784 + 512 units and 2500 steps: 9.5 GFLOP once and 1.1 GFLOP per θ, compared with 5.2 for
forces along the path. Products are in float32, their sums in float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import Path
from thermoloom.engines.compiled.aligned_memory import paged_zeros
from thermoloom.engines.compiled.block_memory import row_length
from thermoloom.engines.compiled.compiling import copy, fast_jit, fast_loops, frame, inner
from thermoloom.engines.compiled.noising import start_of
from thermoloom.engines.compiled.sparse_forces import few_wires
from thermoloom.engines.compiled.tiles import (
    LANES,
    Extent,
    Operand,
    add_product,
    address,
    transpose,
)
from thermoloom.machine.action import PathLoss, loss_scale
from thermoloom.machine.device import BuiltMachine
from thermoloom.machine.energy import effective_bias
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.threads import in_threads, unit_ranges

Float32 = NDArray[np.float32]

ROWS = 112
"""Rows in one task. Independent of the threads, so bits do not depend on them."""
STRETCH = 128
"""Terms summed in a register: their operands stay in the cache."""
PARTS = 8
"""Ranges of columns that are summed separately."""
ONE = np.float32(1)


def worth_a_form(machine: Machine) -> bool:
    """Whether the form is cheaper than forces along the path: windows longer than states."""
    shortest = min(last - first for first, last in machine.stage_windows)
    return (
        not (isinstance(machine, BuiltMachine) or few_wires(machine)) and machine.units <= shortest
    )


class _Columns(NamedTuple):
    """Columns of the groups' units in matrices: groups are padded to full vectors with zeros, and
    rows to an odd number of vectors (``row_length``).
    """

    of_units: dict[str, slice]
    padded: dict[str, slice]
    """The same, padded to full vectors."""
    width: int

    @classmethod
    def of(cls, machine: Machine) -> _Columns:
        of_units, padded, end = {}, {}, 0
        for group, where in machine.groups.items():
            size = where.stop - where.start
            padded_size = -(-size // LANES) * LANES
            of_units[group], padded[group] = slice(end, end + size), slice(end, end + padded_size)
            end += padded_size
        return cls(of_units, padded, row_length(end))

    def matrix(self, rows: int) -> Float32:
        return paged_zeros(rows * self.width).reshape(rows, self.width)

    def spread(self, machine: Machine, rows: Float32) -> Float32:
        """States or residuals (K, N) in these columns; not copied if there is no padding."""
        if self.width == machine.units and rows.flags.c_contiguous:
            return rows
        out = np.zeros((len(rows), self.width), np.float32)
        for group, where in machine.groups.items():
            out[:, self.of_units[group]] = rows[:, where]
        return out


class _Form(NamedTuple):
    """The form of one stage."""

    curvature: Float32
    """C, on and below the diagonal."""
    slope: Float32
    """S, on and below the diagonal, where units are coupled."""
    states: NDArray[np.float64]
    """Σ_k x′, (columns,)"""
    residuals: NDArray[np.float64]
    """Σ_k r⁰, (columns,)"""
    steps: int


class WatchedLoss:
    """θ → L/K on one path."""

    def __init__(self, path: Path) -> None:
        machine, drives = path.machine, start_of(path)
        self._machine, self._word, self._steps = machine, path.word, machine.steps
        self._columns = _Columns.of(machine)
        self._couplings = {
            group: self._columns.matrix(where.stop - where.start)
            for group, where in machine.groups.items()
        }
        self._reduced, self._increments = 0.0, 0.0  # of L(0)
        self._forms = [
            self._form(path.states[first : last + 1], drives[first:last])
            for first, last in machine.stage_windows
        ]

    def __call__(self, theta: Parameters) -> PathLoss:
        """L/K with and without its θ-independent term."""
        of_theta = sum(self._term(theta, stage, form) for stage, form in enumerate(self._forms))
        reduced = self._reduced + of_theta
        return PathLoss((reduced + self._increments) / self._steps, reduced / self._steps)

    def _form(self, states: Float32, drives: Float32) -> _Form:
        """Sums over the steps of a window; the θ-independent part is added to that of the path."""
        machine, columns = self._machine, self._columns
        states, r = columns.spread(machine, states), columns.spread(machine, drives)
        x, (curvature, slope) = states[1:], (columns.matrix(columns.width) for _ in range(2))
        of_states, of_residuals = np.zeros((2, columns.width))
        window = (states, r, 1 / (2 * machine.kT), of_states, of_residuals)
        parts = [(*part, *window) for part in unit_ranges(columns.width, PARTS)]
        for reduced, increments in in_threads(_totals, parts):
            self._reduced += loss_scale(machine) * reduced
            self._increments += loss_scale(machine) * increments
        work = []
        for group, padded in columns.padded.items():
            coupled = [columns.padded[other] for other in _partners(machine, group)]
            wired = np.array([(c.start, c.stop) for c in coupled], np.int64).reshape(-1, 2)
            work += [(*rows, x, r, wired, curvature, slope) for rows in _blocks(padded)]
        in_threads(_add_steps, reversed(work))  # the lowest rows are the longest
        return _Form(curvature, slope, of_states, of_residuals, len(x))

    def _term(self, theta: Parameters, stage: int, form: _Form) -> float:
        """L(θ) − L(0) of the steps of a stage."""
        machine, columns = self._machine, self._columns
        bias = effective_bias(theta, stage, self._word).astype(np.float32)
        self._arrange(theta, stage)
        linear, square, work = 0.0, 0.0, []
        for group, where in machine.groups.items():
            units, b, J = columns.of_units[group], bias[where], self._couplings[group]
            square += form.steps * float(np.einsum("i,i->", b, b, dtype=np.float64))
            linear += float(b @ form.residuals[units])
            partners = [columns.padded[other] for other in _partners(machine, group)]
            if partners:
                used = slice(partners[0].start, partners[-1].stop)
                square += 2 * _bilinear(b, J, form.states) if b.any() else 0.0
                if used.start <= units.start:
                    linear += _lower_inner(J, units.start, form.slope)
                work += [(*rows, used.start, J, form.curvature) for rows in _blocks(used)]
        square += sum(in_threads(_inner_of_gram, reversed(work)))
        return float(linear + machine.drift / (4 * machine.kT) * square)

    def _arrange(self, theta: Parameters, stage: int) -> None:
        """Copy J of every group with all units, (N_g, columns)."""
        work = []
        for group, couplings in self._couplings.items():
            for block, turned in theta.layout.partners(group):
                other = block.rows if turned else block.columns
                if other in self._couplings:
                    matrix = np.ascontiguousarray(block.matrix(theta.vector[stage]), np.float32)
                    column = self._columns.of_units[other].start
                    halves = unit_ranges(len(matrix), 2)
                    work += [(*half, matrix, turned, column, couplings) for half in halves]
        in_threads(_copy, work)


def _partners(machine: Machine, group: str) -> list[str]:
    """Groups of free units that this group is coupled to."""
    partners = layout(machine).partners(group)
    others = {block.rows if turned else block.columns for block, turned in partners}
    return [other for other in machine.groups if other in others]


def _blocks(rows: slice) -> list[tuple[int, int]]:
    """Ranges of rows, one per task."""
    return [(low, min(low + ROWS, rows.stop)) for low in range(rows.start, rows.stop, ROWS)]


@fast_jit
def _totals(low, high, states, r, inverse_2kT, of_states, of_residuals):  # type: ignore[no-untyped-def]
    """Σ_k x′ and Σ_k r of units low … high; returns their Σ (r² − δ²) and Σ δ², δ = Δx/(2k_BT).

    r + δ is the force alone, which is small, so the first sum does not subtract large numbers.
    """
    reduced = increments = 0.0
    sum_x, sum_r = of_states[low:high], of_residuals[low:high]
    for k in range(r.shape[0]):
        x, after, residual = states[k, low:high], states[k + 1, low:high], r[k, low:high]
        for i in range(residual.size):
            sum_x[i] += np.float64(after[i])
        for i in range(residual.size):
            sum_r[i] += np.float64(residual[i])
        for i in range(residual.size):
            moved = inverse_2kT * (np.float64(after[i]) - np.float64(x[i]))
            reduced += (np.float64(residual[i]) + moved) * (np.float64(residual[i]) - moved)
            increments += moved * moved
    return reduced, increments


@inner
def _add_gram(a, b, first, last, low, high, column, begins, out, at):  # type: ignore[no-untyped-def]
    """Σ_k a[k, i] b[k, j] over steps first … last for rows low … high and one vector of columns;
    for two different matrices of equal shape plus Σ_k b[k, i] a[k, j].
    """
    width, of_a, of_b = a.shape[1], address(a, first * a.shape[1]), address(b, first * a.shape[1])
    distance = (of_b - of_a) // 4
    row_factors = Operand(of_a + 4 * low, 1, distance, width)
    column_factors = Operand(of_b + 4 * column, 0, -distance, width)
    sums = Operand(address(out, at), out.shape[1], 0, 0)
    extent = Extent(high - low, 1 if distance == 0 else 2, last - first, begins)
    add_product(row_factors, column_factors, sums, extent, ONE)


@frame
def _add_steps(low, high, x, r, wired, curvature, slope):  # type: ignore[no-untyped-def]
    """Rows low … high of C, and of S in the ranges of columns that are ``wired`` to them."""
    for first in range(0, x.shape[0], STRETCH):
        last, begins = min(first + STRETCH, x.shape[0]), first == 0
        for column in range(0, high, LANES):
            top = max(low, column)
            at = top * curvature.shape[1] + column
            _add_gram(x, x, first, last, top, high, column, begins, curvature, at)
            for other in range(wired.shape[0]):
                if wired[other, 0] <= column < wired[other, 1]:
                    _add_gram(r, x, first, last, top, high, column, begins, slope, at)


@fast_loops
def _add_inner(a, first, last, b, low, column, total):  # type: ignore[no-untyped-def]
    """⟨a, b⟩ of rows first … last of a with the rows of b from ``low`` + first on, in one vector of
    columns with one sum each.
    """
    for i in range(first, last):
        row, other = a[i], b[low + i, column : column + LANES]
        for j in range(LANES):
            total[j] += np.float64(row[j] * other[j])


@frame
def _inner_of_gram(low, high, start, J, curvature):  # type: ignore[no-untyped-def]
    """⟨JᵀJ, C⟩ over rows low … high of both, and all columns from ``start`` on. Numbers below the
    squares on the diagonal count twice.
    """
    gram, (once, twice) = np.empty((high - low, LANES), np.float32), np.zeros((2, LANES))
    for column in range(start, high, LANES):
        top = max(low, column)
        for first in range(0, J.shape[0], STRETCH):
            last, at = min(first + STRETCH, J.shape[0]), (top - low) * LANES
            _add_gram(J, J, first, last, top, high, column, first == 0, gram, at)
        below = min(max(top, column + LANES), high)
        _add_inner(gram, top - low, below - low, curvature, low, column, once)
        _add_inner(gram, below - low, high - low, curvature, low, column, twice)
    return once.sum() + 2 * twice.sum()


@fast_jit
def _lower_inner(J, start, slope):  # type: ignore[no-untyped-def]
    """Σ J_ij S_ij, each undirected edge once: complete squares on the diagonal count half."""
    total = 0.0
    for i in range(J.shape[0]):
        square, half = (start + i) // LANES * LANES, 0.0
        for j in range(square):
            total += np.float64(J[i, j] * slope[start + i, j])
        for j in range(square, square + LANES):
            half += np.float64(J[i, j] * slope[start + i, j])
        total += 0.5 * half
    return total


@fast_jit
def _bilinear(a, J, b):  # type: ignore[no-untyped-def]
    """aᵀJb in float64, without BLAS, whose idle threads would compete with ours for cores."""
    total = 0.0
    for i in range(J.shape[0]):
        of_row = 0.0
        for j in range(J.shape[1]):
            of_row += np.float64(J[i, j]) * b[j]
        total += np.float64(a[i]) * of_row
    return total


@frame
def _copy(low, high, a, turned, column, out):  # type: ignore[no-untyped-def]
    """Copy rows low … high of a, or of aᵀ as columns, to ``out`` from ``column`` on."""
    if turned:
        transpose(a[low:high], out[:, column + low : column + high])
    else:
        for i in range(low, high):
            copy(a[i], out[i, column : column + a.shape[1]])
