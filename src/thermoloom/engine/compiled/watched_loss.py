"""The loss of one path for many θ: a quadratic form, summed over the path once.

    r = r⁰ + c J̃x̃,   x̃ = (x′, 1),   J̃ = [J | b_i + Σ_l J_il x_l]
    L(θ) = L(0) + ⟨J̃, Σ_k r⁰x̃ᵀ⟩ + μΔt/(4k_BT) ⟨J̃, J̃ Σ_k x̃x̃ᵀ⟩

The matrix of the form is symmetric, so only what lies on and below its diagonal is kept, in panels
of some columns. Cost for 784 + 512 units and 2500 steps: 10 GFLOP once and 1.3 GFLOP per θ,
where forces along the path would take 5.2. Products are in float32, sums of them in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.engine import Path
from thermoloom.engine.compiled.compiling import fast_jit
from thermoloom.engine.compiled.noising import start_of
from thermoloom.engine.compiled.path_terms import path_terms
from thermoloom.engine.compiled.sparse_forces import few_wires
from thermoloom.machine.action import PathLoss
from thermoloom.machine.definition import Machine
from thermoloom.machine.device import Built
from thermoloom.machine.energy import effective_bias
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.threads import in_threads, unit_ranges

Float32 = NDArray[np.float32]
_Couplings = dict[str, list[tuple[slice, Float32]]]

PANEL = 180
"""Most columns in a panel: narrower ones need less work, but make flatter matrices."""


def worth_a_form(machine: Machine) -> bool:
    """Whether the form is cheaper than forces along the path: in windows longer than states."""
    shortest = min(last - first for first, last in machine.stage_windows)
    return not (isinstance(machine, Built) or few_wires(machine)) and machine.units <= shortest


class _Panel(NamedTuple):
    """Columns first … last of the form of one stage."""

    stage: int
    first: int
    last: int
    slopes: dict[str, Float32]
    """Σ_k r⁰x̃ᵀ for the units of every group that is coupled to these columns, (N_g, width)."""
    curvature: Float32
    """μΔt/(4k_BT) Σ_k x̃x̃ᵀ from row ``first`` on; below the diagonal block for its mirror, too."""


class WatchedLoss:
    """θ → L/K on one path."""

    def __init__(self, path: Path) -> None:
        machine, states = path.machine, path.states
        self._machine, self._word, self._steps = machine, path.word, len(states) - 1
        self._at_zero = path_terms(Parameters.zeros(machine), states, word=path.word)
        drives = start_of(path)
        windows = [
            (stage, states[first + 1 : last + 1], drives[first:last], *columns)
            for stage, (first, last) in enumerate(machine.stage_windows)
            for columns in _columns(machine)
        ]
        self._panels = in_threads(partial(_panel, machine), windows)

    def __call__(self, theta: Parameters) -> PathLoss:
        """L/K, and without its θ-independent term."""
        more = 0.0
        if theta.vector.any():
            stages = [self._couplings(theta, stage) for stage in range(theta.machine.stages)]
            each = in_threads(_term, [(panel, stages[panel.stage]) for panel in self._panels])
            more = sum(each) / self._steps
        return PathLoss(self._at_zero.loss + more, self._at_zero.reduced_loss + more)

    def _couplings(self, theta: Parameters, stage: int) -> _Couplings:
        """J̃ in blocks: for each group, columns and what is in them, (N_g, width)."""
        groups, found = self._machine.groups, {}
        bias = effective_bias(theta, stage, self._word).astype(np.float32)[:, None]
        clamped = slice(self._machine.units, self._machine.units + 1)
        for group, where in groups.items():
            found[group] = [(clamped, bias[where])]
            for block, turned in theta.layout.partners(group):
                other = block.rows if turned else block.columns
                if other in groups:
                    own = block.matrix(theta.vector[stage]).astype(np.float32, copy=False)
                    found[group].append((groups[other], own.T if turned else own))
        return found


def _columns(machine: Machine) -> Iterator[tuple[int, int, list[str]]]:
    """Where panels begin and end, and which groups are coupled to their columns."""
    for group, where in machine.groups.items():
        partners = layout(machine).partners(group)
        others = {block.rows if turned else block.columns for block, turned in partners}
        coupled = [other for other in machine.groups if other in others]
        size = where.stop - where.start
        for low, high in unit_ranges(size, -(-size // PANEL)):
            yield where.start + low, where.start + high, coupled
    yield machine.units, machine.units + 1, list(machine.groups)


def _panel(
    machine: Machine,
    stage: int,
    x: Float32,
    r: Float32,
    first: int,
    last: int,
    coupled: list[str],
) -> _Panel:
    """Sums over the steps of a window."""
    own = x[:, first:last] if last <= machine.units else np.ones((len(x), 1), np.float32)
    curvature = np.empty((machine.units + 1 - first, last - first), np.float32)
    np.matmul(x[:, first:].T, own, out=curvature[:-1])
    curvature[-1] = own.sum(axis=0, dtype=np.float64)
    curvature *= np.float32(machine.drift / (4 * machine.kT))
    curvature[last - first :] *= 2
    slopes = {group: r[:, machine.groups[group]].T @ own for group in coupled}
    return _Panel(stage, first, last, slopes, curvature)


@fast_jit
def _inner(a, b):  # type: ignore[no-untyped-def]
    """⟨a, b⟩ in float64."""
    total = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            total += np.float64(a[i, j] * b[i, j])
    return total


def _term(panel: _Panel, couplings: _Couplings) -> float:
    """⟨J̃, slope + J̃ curvature⟩ over the columns of a panel."""
    first, last, total = panel.first, panel.last, 0.0
    for group, slope in panel.slopes.items():
        for where, J in couplings[group]:
            begin = max(where.start, first)
            if begin < where.stop:
                rows = slice(begin - first, where.stop - first)
                slope = slope + J[:, begin - where.start :] @ panel.curvature[rows]
            if where.start <= first < where.stop:
                own = J[:, first - where.start : last - where.start]
        total += _inner(own, slope)
    return total
