"""Distance of parameters from the optimum, in units of the expected loss.

    d(θ) = (E[L(θ)] − E[L(θ*)]) / (E[L(0)] − E[L(θ*)])

d is 0 at the optimum and 1 where nothing has been learned.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.drive import Drive
from thermoloom.theory.expected_loss import expected_losses
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.solver import solve_optimum
from thermoloom.threads import linear_algebra


@linear_algebra()
def distance_from_optimum(
    theta: Parameters, drive: Drive, progress: Callable[[int, float], None] | None = None
) -> float:
    """d(θ) for the patterns of this drive."""
    fields, words = drive
    machine = theta.machine
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    losses = expected_losses(machine, fields, marginals, words)
    vectors = theta.vector.astype(np.float64)
    reached = sum(loss.total(vector) for loss, vector in zip(losses, vectors, strict=True))
    optimum = solve_optimum(machine, drive, progress=progress)
    excess = reached / machine.steps - optimum.expected_loss
    return excess / (optimum.initial_loss - optimum.expected_loss)
