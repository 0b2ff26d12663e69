"""E[Q(θ)]: the heat that a noising path releases when it is run backwards, a linear function of θ.

    Q = Σ_t V_t(x_b) − V_t(x_a),      where the window of stage t begins at step a and ends at b

Generation goes from b to a, so this is the heat that it would release if it retraced noising
paths, which is the aim of training. Units of a noising path are independent, so for i ≠ j

    ∂E[Q]/∂J_ij = E[m_i(b) m_j(b) − m_i(a) m_j(a)]       mean over patterns, m = E[x | pattern]

and the onsite energy adds a constant that does not depend on θ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Layout, layout
from thermoloom.theory.expected_loss import Fields
from thermoloom.theory.marginals import Array64, Marginals
from thermoloom.threads import linear_algebra

_PATTERNS_AT_ONCE, _FIELDS_AT_ONCE = 128, 1 << 19
_GROUPS_AT_ONCE = 4
"""Groups of patterns whose products are summed together: each sum is a pass over all of q."""


@dataclass(frozen=True, eq=False)
class ExpectedHeat:
    """E[Q(θ)] = Q₀ + ⟨q, θ⟩ of one stage, in E₀; θ is its flat vector."""

    layout: Layout
    onsite: float
    """Q₀, of the onsite energy."""
    slope: Array64
    """q, flat, with undirected edges counted as in the expected loss."""

    def value(self, theta: Array64) -> float:
        """E[Q] of these parameters."""
        return self.onsite + self.layout.inner(self.slope, theta)


@linear_algebra()
def expected_heats(
    machine: Machine, fields: Fields, marginals: Marginals, words: Fields | None = None
) -> list[ExpectedHeat]:
    """The expected heat of every stage, in one pass over the patterns (P, N)."""
    edges = sorted({edge for window in machine.stage_windows for edge in window})
    means = np.concatenate([marginals.start, marginals.mean])[edges]
    form = layout(machine)
    products = np.zeros((len(edges), form.size))
    onsite = np.zeros((machine.stages, len(edges)))
    at_once = max(1, min(_PATTERNS_AT_ONCE, _FIELDS_AT_ONCE // machine.units))
    for begin in range(0, len(fields), _GROUPS_AT_ONCE * at_once):
        end = min(begin + _GROUPS_AT_ONCE * at_once, len(fields))
        clamped = {"one": np.ones((end - begin, 1))}
        if words is not None:
            clamped["label"] = words[begin:end].astype(np.float64)
        m = np.empty((len(edges), end - begin, machine.units))
        for first in range(begin, end, at_once):
            some = np.asarray(fields[first : min(first + at_once, end)], np.float64)
            of_some = marginals.interpolation(some, "mean") @ means.T
            m[:, first - begin : first - begin + len(some)] = np.moveaxis(of_some, -1, 0)
            for stage in range(machine.stages if marginals.generating else 1):
                onsite[stage] += _onsite_energies(marginals, some, stage, edges)
        for edge in range(len(edges)):
            states = clamped | {g: m[edge][:, where] for g, where in machine.groups.items()}
            for block in form.blocks:
                of_edge = block.outer(states[block.rows], states[block.columns])
                block.of(products[edge])[...] += of_edge
    products /= len(fields)
    onsite /= len(fields)
    if not marginals.generating:
        onsite[:] = onsite[0]
    for block in form.blocks:
        if block.doubled:
            for edge in range(len(edges)):
                np.fill_diagonal(block.of(products[edge]), 0)
    at = {edge: position for position, edge in enumerate(edges)}
    return [
        ExpectedHeat(form, float(V[at[b]] - V[at[a]]), products[at[b]] - products[at[a]])
        for V, (a, b) in zip(onsite, machine.stage_windows, strict=True)
    ]


def _onsite_energies(
    marginals: Marginals, fields: Array64, stage: int, edges: list[int]
) -> Array64:
    """E[V_onsite] of a stage after these numbers of steps, summed over patterns."""
    total = np.zeros(len(edges))
    parts = marginals.machine.groups.items() if marginals.generating else [("", slice(None))]
    for group, where in parts:
        under = marginals.under(group, stage) if group else marginals
        energies = under.energy[edges].T
        total += (under.interpolation(fields[:, where], "energy") @ energies).sum(axis=(0, 1))
    return total
