"""The equation J C + C J = X + diag(d) with a zero diagonal, and the optimum that it gives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import solve_sylvester

from thermoloom.machine.machine import Machine
from thermoloom.patterns.drive import Drive
from thermoloom.theory import lyapunov
from thermoloom.theory.expected_loss import expected_losses
from thermoloom.theory.lyapunov import Lyapunov
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.solver import solve_optimum

N, RANK = 60, 12


def constrained(C: np.ndarray, X: np.ndarray) -> np.ndarray:
    """J with J_ii = 0 by SciPy's solver, one solve for each unit force on the diagonal."""
    solutions = [solve_sylvester(C, C, np.diag(row)) for row in np.eye(len(C))]
    response = np.array([np.diagonal(J) for J in solutions]).T
    free = solve_sylvester(C, C, X)
    d = np.linalg.solve(response, -np.diagonal(free))
    return free + np.tensordot(d, np.array(solutions), axes=1)


@pytest.mark.parametrize("complete", [N, 0], ids=["all eigenvectors", "leading eigenvectors"])
def test_solution_with_zero_diagonal(complete: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lyapunov, "COMPLETE", complete)
    rng = np.random.default_rng(3)
    factor = rng.normal(size=(N, RANK)) * np.geomspace(5, 1, RANK)
    C = 2.0 * np.eye(N) + factor @ factor.T / 4
    X = rng.normal(size=(N, N))
    X += X.T
    solver = Lyapunov(C, 2.0, RANK)
    assert solver.vectors.shape[1] == (N if complete else RANK + 16)
    expected = constrained(C, X)
    J = solver.with_zero_diagonal(X.astype(np.float32))
    assert not np.diagonal(J).any()
    assert np.abs(J - expected).max() < 1e-3 * np.abs(expected).max()
    # striking out the diagonal instead is wrong
    struck = solve_sylvester(C, C, X)
    np.fill_diagonal(struck, 0)
    assert np.abs(struck - expected).max() > 0.02 * np.abs(expected).max()


@pytest.mark.parametrize("complete", [1024, 0], ids=["all eigenvectors", "leading eigenvectors"])
@pytest.mark.parametrize("quartic", [0.0, 1.0], ids=["harmonic", "quartic"])
def test_optimum_with_complete_wiring(
    quartic: float, complete: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lyapunov, "COMPLETE", complete)
    machine = Machine(
        visible=30, hidden=10, labels=2, stages=2, J4=quartic, duration=0.4, dt=0.01, code="given",
        wiring=("visible-visible", "visible-hidden", "hidden-hidden", "visible-label",
                "hidden-label"), biases=(),
    )  # fmt: skip
    rng = np.random.default_rng(5)
    fields = rng.normal(size=(6, machine.units)).astype(np.float32)
    words = np.eye(2, dtype=np.float32)[[0, 1, 0, 1, 0, 1]]
    solution = solve_optimum(machine, Drive(fields, words), tolerance=1e-6)
    assert solution.relative_gradient <= 1e-6
    assert solution.iterations <= 10
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    for stage, loss in enumerate(expected_losses(machine, fields, marginals, words)):
        form = loss.layout
        columns = []
        for block in form.blocks:
            for i, j in zip(*block.places, strict=True):
                direction = np.zeros(form.size)
                block.matrix(direction)[i, j] = 1
                if block.symmetric:
                    block.matrix(direction)[j, i] = 1
                columns.append(direction)
        basis = np.array(columns)
        images = np.array([loss.curvature(direction) for direction in basis])
        owner = [int(np.flatnonzero(direction)[0]) for direction in basis]
        exact = np.linalg.solve(images[:, owner].T, -loss.zero_gradient[owner])
        reached = solution.parameters.vector[stage][owner]
        assert np.abs(reached - exact).max() < 2e-5 * np.abs(exact).max()
