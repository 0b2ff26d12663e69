"""Moments of noising paths for machines with few wires, where only wires are needed.

    (J S)_ij = Σ_{k ~ i} J_ik S_kj,   j ~ i,      S = Σ_k E[m mᵀ]

needs S between neighbours of one unit only: for every unit i of degree d_i the d_i × d_i block of
its neighbours. A product with the Hessian then costs Σ d_i² products and as much memory, for any
number of patterns. Units of equal degree are stored and multiplied together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Layout, layout
from thermoloom.machine.wires import Units, wiring
from thermoloom.theory.marginals import Array64
from thermoloom.threads import in_threads

if TYPE_CHECKING:
    from thermoloom.theory.expected_loss import Fields, TimeModes

_NUMBERS_AT_ONCE = 1 << 21
"""Numbers that a piece of a sum over wires has in memory."""
_MODES_AT_ONCE = 1 << 23
"""Numbers in the means of the patterns that are added together."""
_FIELDS_AT_ONCE = 1 << 18
"""Fields that are interpolated together, with some 60 numbers each."""


def worth_blocks(machine: Machine) -> bool:
    """Whether the blocks of all units have fewer numbers than S."""
    if not machine.sparse:
        return False
    degree = np.diff(wiring(machine).start)
    return int(degree @ degree) <= machine.units**2


class _SameDegree(NamedTuple):
    """Units with equally many wires."""

    units: Units
    """(n,)"""
    entries: Units
    """(n, d): places of their wires in the lists of ``Wiring``."""
    blocks: Array64
    """(n, d, d): S between the neighbours of each unit."""


class WireMoments:
    """Moments on wires, and with the clamped units, of the paths of some patterns."""

    def __init__(
        self, machine: Machine, modes: TimeModes, fields: Fields, words: Fields | None, dtype: Any
    ) -> None:
        """``dtype``: precision of products, which are added up in float64."""
        self.layout, self._wiring = layout(machine), wiring(machine)
        self._units, count, labels = machine.units, len(fields), machine.size_of("label")
        self._by_degree = self._empty_blocks()
        self._cross = np.zeros(len(self._wiring.others))
        """Σ_k E[d_i m_j], d as a force, for both directions of every wire."""
        clamped = np.ones((count, labels + 1))
        if words is not None:
            clamped[:, :-1] = words
        self.with_clamped = np.zeros((machine.units, labels + 1))
        """Σ_k E[m_i] c of free and clamped units."""
        self.among: Array64 = float(modes.one @ modes.one) * (clamped.T @ clamped) / count
        """Σ_k E[c cᵀ] of clamped units."""
        self._cross_clamped = np.zeros_like(self.with_clamped)
        self.diagonal, self.variance = np.zeros((2, machine.units))
        """Σ_k E[m²] and Σ_k E[v] of every unit."""
        self.square = 0.0
        size = len(modes.one)
        together = max(1, min(count, _MODES_AT_ONCE // (machine.units * size)))
        mean, drift = np.empty((2, machine.units, together, size), dtype)
        for first in range(0, count, together):
            last = min(first + together, count)
            step = max(1, _FIELDS_AT_ONCE // machine.units)
            for begin in range(first, last, step):
                end = min(begin + step, last)
                paths = modes.paths(fields[begin:end])
                places = slice(begin - first, end - first)
                mean[:, places] = paths.mean.transpose(1, 0, 2) * count**-0.5
                drift[:, places] = paths.drift.transpose(1, 0, 2) * (count**-0.5 / machine.drift)
                share = clamped[begin:end] * count**-0.5
                self.with_clamped += (mean[:, places] @ modes.one) @ share
                self._cross_clamped += (drift[:, places] @ modes.one) @ share
                self.variance += paths.variance.sum(axis=0) / count
                self.square += float(paths.square.sum()) / count
            used = (each[:, : last - first].reshape(machine.units, -1) for each in (mean, drift))
            self._add(*used)

    def _empty_blocks(self) -> list[_SameDegree]:
        start = self._wiring.start
        degrees = np.diff(start)
        groups = []
        for degree in np.unique(degrees[degrees > 0]).tolist():
            units = np.flatnonzero(degrees == degree)
            entries = start[units, None] + np.arange(degree)
            groups.append(_SameDegree(units, entries, np.zeros((len(units), degree, degree))))
        return groups

    def _pieces(self, width: int) -> list[tuple[_SameDegree, slice]]:
        """Units in pieces of bounded size, ``width`` numbers for every wire."""
        pieces = []
        for group in self._by_degree:
            step = max(1, _NUMBERS_AT_ONCE // (width * group.entries.shape[1]))
            starts = range(0, len(group.units), step)
            pieces += [(group, slice(first, first + step)) for first in starts]
        return pieces

    def _add(self, mean: Any, drift: Any) -> None:
        """Add m and d of some patterns, (N, patterns · modes)."""
        self.diagonal += np.einsum("uk,uk->u", mean, mean, dtype=np.float64)

        def add(group: _SameDegree, some: slice) -> None:
            entries = group.entries[some]
            of_neighbours = mean[self._wiring.others[entries]]
            group.blocks[some] += of_neighbours @ of_neighbours.swapaxes(1, 2)
            forces = drift[group.units[some]]
            self._cross[entries] += (of_neighbours @ forces[:, :, None])[..., 0]

        in_threads(add, self._pieces(mean.shape[1]))

    def correlate(self, theta: Array64 | None, out: Array64, with_drift: bool) -> None:
        """Σ f_i m_j + f_j m_i over steps, f the mean force of θ (and of d), for every edge."""
        numbers, others = self._wiring.numbers, self._wiring.others
        wires = len(numbers) // 2
        along = self._cross.copy() if with_drift else np.zeros_like(self._cross)
        rows = self._cross_clamped * float(with_drift)
        if theta is not None:
            driven = clamped_couplings(self.layout, theta)

            def add(group: _SameDegree, some: slice) -> None:
                entries = group.entries[some]
                J = theta[numbers[entries]]
                along[entries] += np.einsum("uij,uj->ui", group.blocks[some], J)
                if driven.any():
                    along[entries] += np.einsum(
                        "uc,uic->ui", driven[group.units[some]], self.with_clamped[others[entries]]
                    )

            in_threads(add, self._pieces(driven.shape[1] + 1))
            J = csr_array((theta[numbers], others, self._wiring.start), (self._units,) * 2)
            rows += J @ self.with_clamped + driven @ self.among
        out[:wires] = np.bincount(numbers, along, minlength=wires)
        set_clamped_couplings(self.layout, out, rows)

    def totals(self) -> dict[str, Array64]:
        """Σ_k m of every group."""
        total = np.concatenate([self.with_clamped[:, -1], self.among[:, -1]])
        return {group: total[where] for group, where in self.layout.positions.items()}


def clamped_couplings(form: Layout, vector: Array64) -> Array64:
    """Label couplings and biases as one matrix, (N, L + 1), 0 where there are none."""
    first, last = form.positions["label"].start, form.positions["one"].stop
    matrix = np.zeros((first, last - first))
    for block in form.blocks:
        columns = form.positions[block.columns]
        if columns.start >= first:
            inside = slice(columns.start - first, columns.stop - first)
            matrix[form.positions[block.rows], inside] = block.dense(vector)
    return matrix


def set_clamped_couplings(form: Layout, vector: Array64, matrix: Array64) -> None:
    """The inverse of ``clamped_couplings``, written into a flat vector."""
    first = form.positions["label"].start
    for block in form.blocks:
        columns = form.positions[block.columns]
        if columns.start >= first:
            inside = slice(columns.start - first, columns.stop - first)
            numbers = matrix[form.positions[block.rows], inside]
            block.of(vector)[...] = numbers.reshape(block.shape)
