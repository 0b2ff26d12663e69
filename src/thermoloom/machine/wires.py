"""Wires: which pairs of free units are coupled, where units lie on a sheet, how long wires are.

    complete   every pair of the groups that ``machine.wiring`` couples
    grid       those of them that are at most ``machine.radius`` apart on the sheet
    moore      those that are at most ``machine.radius`` rows and columns apart: 8 neighbours at 1
    random     N·d/2 of them, drawn evenly: d wires per unit on average (``machine.degree``)
    edges      those of a list (``machine.edges``)

A wire joins two free units and serves all stages. Biases and label couplings join a unit to one
that never moves: they are drive lines of that unit, whole blocks whatever the topology.

The sheet is a square of N sites or little more, at a distance of 1. Visible units keep the rows and
columns of their image, spread evenly over it; hidden units take the sites between, in reading
order. Lengths are Manhattan distances.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError

if TYPE_CHECKING:
    from thermoloom.machine.machine import Machine

Pairs = NDArray[np.int64]

TOPOLOGIES = ("complete", "grid", "moore", "random", "edges")
MOST_UNITS = 1 << 14
"""Most units of a machine with incomplete wiring, whose wires are stored as an N × N table."""


@lru_cache(maxsize=8)
def sites(machine: Machine) -> Pairs:
    """(row, column) of every unit on the sheet, (N, 2)."""
    side, columns = (isqrt(n - 1) + 1 for n in (machine.units, machine.visible))
    rows = -(-machine.visible // columns)
    row, column = np.divmod(np.arange(machine.visible), columns)
    image = np.stack([row * side // rows, column * side // columns], axis=1)
    empty = np.ones((side, side), bool)
    empty[tuple(image.T)] = False
    free_sites = np.argwhere(empty)
    between = free_sites[np.arange(machine.hidden) * len(free_sites) // max(machine.hidden, 1)]
    return np.concatenate([image, between])


def distances(machine: Machine) -> NDArray[np.int16]:
    """Manhattan distance of every two units, (N, N)."""
    return np.add(*_offsets(machine), dtype=np.int16)


def _offsets(machine: Machine) -> list[NDArray[np.int16]]:
    """Rows and columns between every two units, (N, N) each."""
    places = sites(machine).astype(np.int16).T
    return [np.abs(np.subtract.outer(place, place)) for place in places]


def neighbours(visible: int) -> Pairs:
    """(i, j) with i < j of every two pixels side by side in an image, (E, 2)."""
    columns = isqrt(visible - 1) + 1
    pixel = np.arange(visible)
    right = pixel[(pixel % columns < columns - 1) & (pixel + 1 < visible)]
    above = pixel[pixel + columns < visible]
    return np.concatenate([np.stack([right, right + 1], 1), np.stack([above, above + columns], 1)])


@lru_cache(maxsize=8)
def adjacency(machine: Machine) -> NDArray[np.bool_]:
    """(N, N): which units are joined by a wire; symmetric, with an empty diagonal."""
    joined = _coupled(machine)
    if machine.topology == "grid":
        joined &= distances(machine) <= machine.radius
    elif machine.topology == "moore":
        joined &= np.maximum(*_offsets(machine)) <= machine.radius
    elif machine.topology == "random":
        joined = _drawn(machine, joined)
    elif machine.topology == "edges":
        joined = _listed(machine, joined)
    joined.setflags(write=False)
    return joined


def wires(machine: Machine) -> Pairs:
    """(i, j) with i < j of every wire, in order, (E, 2)."""
    return np.argwhere(np.triu(adjacency(machine)))


def _coupled(machine: Machine) -> NDArray[np.bool_]:
    """Pairs of the groups that the wiring couples."""
    joined = np.zeros((machine.units, machine.units), bool)
    for a, rows in machine.groups.items():
        for b, columns in machine.groups.items():
            joined[rows, columns] = machine.wired(f"{a}-{b}") or machine.wired(f"{b}-{a}")
    np.fill_diagonal(joined, False)
    return joined


def _from_pairs(machine: Machine, pairs: Pairs) -> NDArray[np.bool_]:
    """Symmetric table of wires from a list of pairs."""
    joined = np.zeros((machine.units, machine.units), bool)
    joined[tuple(pairs.T)] = joined[tuple(pairs.T[::-1])] = True
    return joined


def _drawn(machine: Machine, coupled: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """N·d/2 of the coupled pairs, drawn at random."""
    pairs = np.argwhere(np.triu(coupled))
    count = round(machine.units * machine.degree / 2)
    if count > len(pairs):
        raise UserError(
            f"machine.degree = {machine.degree}: the groups that are wired have {len(pairs)} pairs "
            f"of units, {2 * len(pairs) / machine.units:.4g} per unit; take fewer"
        )
    rng = np.random.default_rng(machine.topology_seed)
    return _from_pairs(machine, pairs[rng.choice(len(pairs), count, replace=False)])


def _listed(machine: Machine, coupled: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The pairs of ``machine.edges``; pairs that the wiring does not couple are refused."""
    pairs = pairs_of(machine.edges)
    if (largest := int(pairs.max())) >= machine.units:
        raise UserError(
            f"machine.edges: has unit {largest}; this machine has the units 0 to "
            f"{machine.units - 1}, visible ones first"
        )
    wrong = ~coupled[tuple(pairs.T)]
    if wrong.any():
        i, j = pairs[np.argmax(wrong)]
        wire = "-".join("visible" if unit < machine.visible else "hidden" for unit in (i, j))
        raise UserError(
            f"machine.edges: joins units {i} and {j}, a {wire} wire; add {wire} to machine.wiring, "
            "or take it out of the list"
        )
    return _from_pairs(machine, pairs)


# --- lists of wires as text -----------------------------------------------------------------------


def text_of(pairs: Iterable[Any] | NDArray[Any], what: str = "machine.edges") -> str:
    """A list of wires as one text, the same whatever the order of the pairs and of their ends.

    Wire (i, j), i < j, is number j(j − 1)/2 + i; the text has the gaps between rising numbers. So
    settings hold the list itself and are compared, hashed and saved like all others.
    """
    try:
        wires = np.asarray(pairs)
    except ValueError:
        raise UserError(f"{what}: every wire must be a pair of units, such as 3, 17") from None
    if wires.ndim != 2 or wires.shape[1] != 2 or not len(wires) or wires.dtype.kind not in "iu":
        raise UserError(
            f"{what}: a {wires.dtype} array of shape {wires.shape}; expected pairs of whole "
            "numbers, at least one"
        )
    ends = np.sort(wires.astype(np.int64), axis=1)
    for wrong, must in (
        (ends[:, 0] < 0, "units are counted from 0"),
        (ends[:, 1] >= 1 << 24, "too many units"),
        (ends[:, 0] == ends[:, 1], "no wire joins a unit to itself"),
    ):
        if wrong.any():
            i, j = wires[np.argmax(wrong)]
            raise UserError(f"{what}: wire {i}, {j}: {must}")
    numbers, counts = np.unique(ends[:, 1] * (ends[:, 1] - 1) // 2 + ends[:, 0], return_counts=True)
    if (counts > 1).any():
        i, j = _pairs(numbers[counts > 1][:1])[0]
        raise UserError(f"{what}: wire {i}, {j} is listed twice; list it once")
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


# --- what a wiring takes --------------------------------------------------------------------------


@dataclass(frozen=True)
class Wired:
    """Wires of a machine, and their lengths on the sheet in units of its pitch."""

    wires: int
    """Pairs of free units that are joined, once each, whatever the number of stages."""
    degree: float
    """Wires of a unit, mean."""
    length: int
    """Manhattan length of all wires together."""
    mean_length: float
    longest: int
    drive_lines: int
    """Biases and label couplings: what clamped units do to free ones."""


def measure(machine: Machine) -> Wired:
    """Count and length of the wires of a machine."""
    joined = adjacency(machine)
    apart = distances(machine)[np.triu(joined)]
    count = len(apart)
    drives = sum(
        machine.size_of(group)
        * ((group in machine.biases) + machine.wired(f"{group}-label") * machine.size_of("label"))
        for group in machine.groups
    )
    return Wired(
        wires=count,
        degree=2 * count / machine.units,
        length=int(apart.sum(dtype=np.int64)),
        mean_length=float(apart.mean()) if count else 0.0,
        longest=int(apart.max(initial=0)),
        drive_lines=drives,
    )
