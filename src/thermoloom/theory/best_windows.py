"""The best windows: those whose optima minimize the total expected loss.

    min Σ_t L*(e_{t−1}, e_t)   over 0 = e₀ < e₁ < … < e_T = K

L*(a, b) is the expected loss at the optimum of a stage that learns from the steps a … b alone. The
total is a sum over windows, so dynamic programming finds the best edges on a grid exactly, from the
G(G + 1)/2 optima of a grid of G pieces.
"""

from __future__ import annotations

import numpy as np

from thermoloom.machine.machine import Machine
from thermoloom.patterns.drive import Drive
from thermoloom.theory.expected_loss import expected_losses
from thermoloom.theory.marginals import Array64, solve_marginals
from thermoloom.theory.solver import conjugate_gradients
from thermoloom.threads import linear_algebra


@linear_algebra()
def window_losses(machine: Machine, drive: Drive, pieces: int, tolerance: float = 1e-3) -> Array64:
    """L* of the window from piece i up to piece j, (G + 1, G + 1); infinite where j ≤ i."""
    edges = [round(i * machine.steps / pieces) for i in range(pieces + 1)]
    fields, words = drive
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    optimal = np.full((pieces + 1, pieces + 1), np.inf)
    for i, start in enumerate(edges[:-1]):
        windows = [(start, stop) for stop in edges[i + 1 :]]
        losses = expected_losses(machine, fields, marginals, words, windows)
        for j, loss in enumerate(losses, i + 1):
            # the error of the loss is of second order in the remaining gradient
            optimal[i, j] = loss.total(conjugate_gradients(loss, tolerance)[0])
    return optimal


def best_edges(losses: Array64, stages: int) -> list[int]:
    """Ends of the windows, in pieces, that minimize the sum of losses."""
    pieces = len(losses) - 1
    least, before = losses[0], []
    for _ in range(1, stages):
        through = least[:, None] + losses
        before.append(through.argmin(axis=0))
        least = through.min(axis=0)
    ends = [pieces]
    for came_from in reversed(before):
        ends.insert(0, int(came_from[ends[0]]))
    return ends


def best_windows(machine: Machine, drive: Drive, pieces: int) -> tuple[float, ...]:
    """The best ``machine.windows``, with edges on a grid of equal pieces."""
    ends = best_edges(window_losses(machine, drive, pieces), machine.stages)
    return tuple(end / pieces for end in ends)
