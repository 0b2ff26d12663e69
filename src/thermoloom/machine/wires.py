"""Wires: which pairs of free units are coupled, where units lie on a sheet, wire lengths.

    complete   every pair of units whose groups ``machine.wiring`` couples
    grid       of these, the pairs at most ``machine.radius`` apart on the sheet
    moore      of these, the pairs at most ``machine.radius`` rows and columns apart
    random     of these, N·d/2 pairs drawn evenly: d = ``machine.degree`` wires per unit on average
    edges      the pairs of a list, ``machine.edges``

A wire joins two free units and serves all stages. Biases and label couplings join a unit to one
that never moves: they are drive lines of that unit, and form whole blocks in every topology.

If the topology leaves out pairs, arrays cover only the wires, never an N × N table.

The sheet is a square of N sites or slightly more, at a spacing of 1. Visible units keep the rows
and columns of their image, spread evenly over the sheet; hidden units take the sites between, in
reading order. Lengths are Manhattan distances.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from thermoloom.errors import UserError
from thermoloom.sections import require

if TYPE_CHECKING:
    from thermoloom.machine.machine import Machine

Array = NDArray[Any]
Units = NDArray[np.integer[Any]]
Pairs = NDArray[np.int64]

TOPOLOGIES = ("complete", "grid", "moore", "random", "edges")
MOST_UNITS = 1 << 20
"""Largest number of units of a machine with incomplete wiring."""
MOST_WIRES = 1 << 27
"""Largest number of wires of a machine with incomplete wiring: a few gigabytes of couplings and
indices."""
FEW = 1 / 8
"""Largest fraction of wired pairs for which single wires are used. Above it, products of dense
matrices are faster."""
_ENTRIES_AT_ONCE = 1 << 22
"""Numbers that a sum over wires has in memory at a time."""


class Sheet(NamedTuple):
    """The settings of a machine that determine its wires."""

    visible: int
    hidden: int
    wiring: tuple[str, ...]
    topology: str
    radius: int
    degree: int
    topology_seed: int
    edges: str

    @classmethod
    def of(cls, machine: Machine) -> Sheet:
        return cls(*(getattr(machine, name) for name in cls._fields))

    @property
    def units(self) -> int:
        return self.visible + self.hidden

    def joins(self, lower: Units, upper: Units) -> NDArray[np.bool_]:
        """Whether the wiring couples the groups of two units each, lower < upper."""
        within = [f"{group}-{group}" in self.wiring for group in ("visible", "hidden")]
        visible = np.where(upper < self.visible, within[0], "visible-hidden" in self.wiring)
        joined: NDArray[np.bool_] = np.where(lower < self.visible, visible, within[1])
        return joined


def sites(machine: Machine) -> Pairs:
    """(row, column) of every unit on the sheet, (N, 2)."""
    return _sites(machine.visible, machine.hidden)


@lru_cache(maxsize=8)
def _sites(visible: int, hidden: int) -> Pairs:
    side, columns = (isqrt(n - 1) + 1 for n in (visible + hidden, visible))
    rows = -(-visible // columns)
    row, column = np.divmod(np.arange(visible), columns)
    image = np.stack([row * side // rows, column * side // columns], axis=1)
    empty = np.ones((side, side), bool)
    empty[tuple(image.T)] = False
    free_sites = np.argwhere(empty)
    between = free_sites[np.arange(hidden) * len(free_sites) // max(hidden, 1)]
    return np.concatenate([image, between])


def lengths(machine: Machine, pairs: Pairs) -> Units:
    """Manhattan distance between the two units of each pair, (E,)."""
    place = sites(machine)
    distances: Units = np.abs(place[pairs[:, 0]] - place[pairs[:, 1]]).sum(axis=1)
    return distances


def neighbours(visible: int) -> Pairs:
    """(i, j) with i < j of every two adjacent pixels in an image, (E, 2)."""
    columns = isqrt(visible - 1) + 1
    pixel = np.arange(visible)
    right = pixel[(pixel % columns < columns - 1) & (pixel + 1 < visible)]
    above = pixel[pixel + columns < visible]
    return np.concatenate([np.stack([right, right + 1], 1), np.stack([above, above + columns], 1)])


# --- which pairs ----------------------------------------------------------------------------------


def wires(machine: Machine) -> Pairs:
    """(i, j) with i < j of every wire, in order, (E, 2)."""
    return _pairs_on(Sheet.of(machine))


@lru_cache(maxsize=4)
def _pairs_on(sheet: Sheet) -> Pairs:
    near = {"grid": _near, "moore": _near}
    chosen = {"complete": _all_pairs, "random": _drawn, "edges": _listed} | near
    pairs = chosen[sheet.topology](sheet)
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    pairs.setflags(write=False)
    return pairs


def _coupled_rows(sheet: Sheet) -> tuple[Units, Units]:
    """For every unit i, the first j > i and the number of such j that it may be joined to.

    Visible units come first, so these j are one range.
    """
    i, (v, n) = np.arange(sheet.units), (sheet.visible, sheet.units)
    within = "visible-visible" in sheet.wiring, "hidden-hidden" in sheet.wiring
    first = np.where((i < v) & (not within[0]), v, i + 1)
    of_visible = n if "visible-hidden" in sheet.wiring else v
    last = np.where(i < v, of_visible, n if within[1] else 0)
    return first, np.maximum(last - first, 0)


def _ranked(sheet: Sheet, ranks: Units) -> Pairs:
    """The pairs with these ranks among all coupled pairs, in order."""
    first, counts = _coupled_rows(sheet)
    ends = np.cumsum(counts)
    i = np.searchsorted(ends, ranks, side="right")
    return np.stack([i, first[i] + ranks - (ends[i] - counts[i])], axis=1)


def _all_pairs(sheet: Sheet) -> Pairs:
    return _ranked(sheet, np.arange(_coupled_rows(sheet)[1].sum()))


def _near(sheet: Sheet) -> Pairs:
    """Coupled pairs at most ``machine.radius`` apart, from shifts of the sheet."""
    side, radius, square = isqrt(sheet.units - 1) + 1, sheet.radius, sheet.topology == "moore"
    reach = (1 + square) * min(radius, 2 * side)
    _limit("machine.radius", radius, sheet.units * min(reach * (reach + 1), sheet.units // 2))
    unit_at = np.full((side, side), -1)
    unit_at[tuple(_sites(sheet.visible, sheet.hidden).T)] = np.arange(sheet.units)
    by_shift = [np.empty((0, 2), np.int64)]
    for down in range(min(radius, side - 1) + 1):
        most = min(radius if square else radius - down, side - 1)
        for right in range(-most if down else 1, most + 1):
            begin, end = max(0, -right), side - max(0, right)
            here = unit_at[: side - down, begin:end].ravel()
            there = unit_at[down:, begin + right : end + right].ravel()
            pairs = np.stack([np.minimum(here, there), np.maximum(here, there)], axis=1)
            by_shift.append(pairs[(pairs[:, 0] >= 0) & sheet.joins(*pairs.T)])
    return np.concatenate(by_shift)


def _drawn(sheet: Sheet) -> Pairs:
    """N·d/2 of the coupled pairs, drawn at random."""
    total = int(_coupled_rows(sheet)[1].sum())
    count = round(sheet.units * sheet.degree / 2)
    if count > total:
        raise UserError(
            f"machine.degree = {sheet.degree}: the groups that are wired have {total} pairs "
            f"of units, {2 * total / sheet.units:.4g} per unit; use a lower degree"
        )
    _limit("machine.degree", sheet.degree, count)
    rng = np.random.default_rng(sheet.topology_seed)
    return _ranked(sheet, rng.choice(total, count, replace=False))


def _listed(sheet: Sheet) -> Pairs:
    """The pairs of ``machine.edges``; pairs that the wiring does not couple are refused."""
    pairs = pairs_of(sheet.edges)
    if (largest := int(pairs.max())) >= sheet.units:
        raise UserError(
            f"machine.edges: names unit {largest}; this machine has the units 0 to "
            f"{sheet.units - 1}, visible ones first"
        )
    wrong = ~sheet.joins(*pairs.T)
    if wrong.any():
        i, j = pairs[np.argmax(wrong)]
        wire = "-".join("visible" if unit < sheet.visible else "hidden" for unit in (i, j))
        raise UserError(
            f"machine.edges: joins units {i} and {j}, a {wire} wire; add {wire} to machine.wiring, "
            "or take it out of the list"
        )
    return pairs


def _limit(key: str, setting: int, count: int) -> None:
    must = f"up to {count} wires; at most {MOST_WIRES} are possible unless the wiring is complete"
    require(count <= MOST_WIRES, key, setting, must)


def are_joined(machine: Machine, pairs: Pairs) -> NDArray[np.bool_]:
    """Whether a wire joins the units i < j of each pair."""
    n = machine.units
    joined: NDArray[np.bool_] = np.isin(pairs @ [n, 1], wires(machine) @ [n, 1])
    return joined


# --- wires as arrays ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WiredPairs:
    """The wires between two groups, or within one (``mirrored``: i > j, once each).

    Numbers that belong to wires are arrays (..., E) in the order of ``rows`` and ``columns``. As a
    matrix of the groups' units they are sparse, or dense on request.
    """

    rows: Units
    columns: Units
    shape: tuple[int, int]
    mirrored: bool

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def _entries(self) -> tuple[Units, Units, Units, Units]:
        """Row starts, columns, wires and whether they are mirror images, of a sparse matrix."""
        rows, columns, mirror = self.rows, self.columns, np.zeros(len(self), bool)
        number: Units = np.arange(len(self), dtype=np.int32)
        if self.mirrored:
            rows, columns = (np.concatenate(e) for e in ((rows, columns), (columns, rows)))
            number, mirror = np.tile(number, 2), np.repeat([False, True], len(self))
            order = np.lexsort((columns, rows))
            rows, columns, number, mirror = (e[order] for e in (rows, columns, number, mirror))
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=self.shape[0]))])
        return starts.astype(np.int32), columns, number, mirror

    def matrix(self, numbers: Array, mirror_sign: int = 1) -> Any:
        """The sparse matrix of numbers (E,); ``mirror_sign`` = −1: antisymmetric within a group."""
        starts, columns, wire, mirror = self._entries
        entries = numbers[wire]
        if mirror_sign < 0:
            entries = np.where(mirror, -entries, entries)
        return csr_array((entries, columns, starts), shape=self.shape)

    def dense(self, numbers: Array, mirror_sign: int = 1) -> Array:
        """The matrix of numbers (..., E) as an array (..., n_a, n_b)."""
        matrix = np.zeros((*numbers.shape[:-1], *self.shape), numbers.dtype)
        matrix[..., self.rows, self.columns] = numbers
        if self.mirrored:
            matrix[..., self.columns, self.rows] = mirror_sign * numbers
        return matrix

    def restricted(self, matrix: Array) -> Array:
        """The numbers of the wires in a matrix (..., n_a, n_b)."""
        return matrix[..., self.rows, self.columns]

    def outer(self, left: Array, right: Array) -> Array:
        """Σ_k left_ki right_kj on every wire (i, j), from (k, n_a) and (k, n_b)."""
        total = np.empty(len(self), np.result_type(left, right))
        a, b = (np.ascontiguousarray(each.T) for each in (left, right))
        for first in range(0, len(self), at_once := max(1, _ENTRIES_AT_ONCE // max(1, len(left)))):
            some = slice(first, first + at_once)
            np.einsum("wk,wk->w", a[self.rows[some]], b[self.columns[some]], out=total[some])
        return total

    def number_of(self, i: Any, j: Any) -> Units:
        """Number of the wire between units i and j of the groups, −1 where there is none."""
        i, j = np.broadcast_arrays(i, j)
        if self.mirrored:
            i, j = np.maximum(i, j), np.minimum(i, j)
        width = self.shape[1]
        keys, wanted = self.rows.astype(np.int64) * width + self.columns, i * np.int64(width) + j
        place = np.minimum(np.searchsorted(keys, wanted), max(len(self) - 1, 0))
        there = keys[place] == wanted if len(self) else np.zeros(wanted.shape, bool)
        return np.where(there, place, -1)


def few_wires(machine: Machine) -> bool:
    """Whether wires are so few that they are summed one by one, without dense matrices."""
    if not machine.sparse:
        return False
    blocks = [b for name, b in wiring(machine).blocks.items() if machine.wired(name)]
    pairs = sum(b.shape[0] * b.shape[1] // (2 if b.mirrored else 1) for b in blocks)
    return sum(len(b) for b in blocks) <= FEW * pairs


class Wiring(NamedTuple):
    """All wires of a machine, numbered as in θ: block by block, row by row."""

    blocks: dict[str, WiredPairs]
    """By names such as ``visible-hidden``, with units counted within their groups."""
    start: Units
    """(N + 1,): the wires of unit i are start[i] … start[i + 1] in the other lists."""
    others: Units
    """Units at the other ends, in ascending order for each unit."""
    numbers: Units
    """Number of the wire in θ."""
    in_row: NDArray[np.bool_]
    """Whether the unit is the row of the wire's block."""


def wiring(machine: Machine) -> Wiring:
    """The wires of a machine with incomplete wiring."""
    return _wiring_on(Sheet.of(machine))


@lru_cache(maxsize=4)
def _wiring_on(sheet: Sheet) -> Wiring:
    i, j = _pairs_on(sheet).T.astype(np.int32)
    v, n, blocks, ends = sheet.visible, sheet.units, {}, []
    kinds = {
        "visible-hidden": (i < v) & (j >= v),
        "hidden-hidden": i >= v,
        "visible-visible": j < v,
    }
    for name, chosen in kinds.items():
        mirrored = name != "visible-hidden"
        rows, columns = (j[chosen], i[chosen]) if mirrored else (i[chosen], j[chosen])
        order = np.lexsort((columns, rows))
        rows, columns = rows[order], columns[order]
        ends.append((rows, columns))
        sizes = {"visible": (0, v), "hidden": (v, n - v)}
        (top, height), (left, width) = (sizes[group] for group in name.split("-"))
        blocks[name] = WiredPairs(rows - top, columns - left, (height, width), mirrored)
    rows, columns = (np.concatenate(each) for each in zip(*ends, strict=True))
    units, others = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    order = np.argsort(units.astype(np.int64) * n + others)
    return Wiring(
        blocks=blocks,
        start=np.concatenate([[0], np.cumsum(np.bincount(units, minlength=n))]),
        others=others[order],
        numbers=np.tile(np.arange(len(rows), dtype=np.int32), 2)[order],
        in_row=np.repeat([True, False], len(rows))[order],
    )


# --- lists of wires as text -----------------------------------------------------------------------


def text_of(pairs: Iterable[Any] | NDArray[Any], origin: str = "machine.edges") -> str:
    """A list of wires as one text, independent of the order of the pairs and of their ends.

    Wire (i, j), i < j, is number j(j − 1)/2 + i; the text lists the gaps between the sorted
    numbers. Settings thus contain the list itself, which is compared, hashed and saved with them.
    Error messages name the ``origin`` of the pairs.
    """
    try:
        wires = np.asarray(pairs)
    except ValueError:
        raise UserError(f"{origin}: every wire must be a pair of units, such as 3, 17") from None
    if wires.ndim != 2 or wires.shape[1] != 2 or not len(wires) or wires.dtype.kind not in "iu":
        raise UserError(
            f"{origin}: a {wires.dtype} array of shape {wires.shape}; expected at least one pair "
            "of whole numbers"
        )
    ends = np.sort(wires.astype(np.int64), axis=1)
    for wrong, must in (
        (ends[:, 0] < 0, "units are counted from 0"),
        (ends[:, 1] >= 1 << 24, "too many units"),
        (ends[:, 0] == ends[:, 1], "no wire joins a unit to itself"),
    ):
        if wrong.any():
            i, j = wires[np.argmax(wrong)]
            raise UserError(f"{origin}: wire {i}, {j}: {must}")
    numbers, counts = np.unique(ends[:, 1] * (ends[:, 1] - 1) // 2 + ends[:, 0], return_counts=True)
    if (counts > 1).any():
        i, j = _pairs(numbers[counts > 1][:1])[0]
        raise UserError(f"{origin}: wire {i}, {j} is listed twice; list it once")
    return " ".join(map(str, np.diff(numbers, prepend=0).tolist()))


@lru_cache(maxsize=8)
def pairs_of(text: str) -> Pairs:
    """The list of ``text_of``, (E, 2)."""
    gaps = text.split()
    if not gaps or not all(gap.isascii() and gap.isdigit() and len(gap) < 16 for gap in gaps):
        raise UserError(
            "machine.edges: not a list of wires; --edges FILE or thermoloom.edges(FILE) reads one"
        )
    return _pairs(np.cumsum(np.array(gaps, np.int64)))


def _pairs(numbers: NDArray[np.int64]) -> Pairs:
    j = ((1 + np.sqrt(1.0 + 8.0 * numbers)) / 2).astype(np.int64)
    j -= j * (j - 1) // 2 > numbers  # the root may be off by one
    j += (j + 1) * j // 2 <= numbers
    return np.stack([numbers - j * (j - 1) // 2, j], axis=1)


# --- the size of a wiring -------------------------------------------------------------------------


@dataclass(frozen=True)
class Wired:
    """Wires of a machine, and their lengths on the sheet in units of its pitch."""

    wires: int
    """Pairs of free units that are joined, once each, whatever the number of stages."""
    degree: float
    """Mean number of wires per unit."""
    length: int
    """Total Manhattan length of all wires."""
    mean_length: float
    longest: int
    drive_lines: int
    """Biases and label couplings, by which clamped units act on free ones."""


def measure(machine: Machine) -> Wired:
    """Count and length of the wires of a machine."""
    distances = lengths(machine, wires(machine))
    count = len(distances)
    drives = sum(
        machine.size_of(group)
        * ((group in machine.biases) + machine.wired(f"{group}-label") * machine.size_of("label"))
        for group in machine.groups
    )
    return Wired(
        wires=count,
        degree=2 * count / machine.units,
        length=int(distances.sum(dtype=np.int64)),
        mean_length=float(distances.mean()) if count else 0.0,
        longest=int(distances.max(initial=0)),
        drive_lines=drives,
    )
