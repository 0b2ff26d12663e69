"""The expected heat of the reverse path, and the optimum that weighs it beside the loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from machines import MACHINES, every_machine, random_parameters, some_fields, some_word

from thermoloom.engines import engine
from thermoloom.errors import UserError
from thermoloom.machine.energy import energy
from thermoloom.machine.machine import Machine
from thermoloom.patterns.drive import Drive
from thermoloom.settings import Settings
from thermoloom.theory.expected_heat import ExpectedHeat, expected_heats
from thermoloom.theory.expected_loss import ExpectedLoss
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.solver import solve_optimum

SMALL = Machine(visible=6, hidden=4, dt=0.02, duration=0.8)
FIELDS = np.random.default_rng(3).normal(0, 1.2, (2, SMALL.units))


def words_of(machine: Machine, patterns: int) -> np.ndarray | None:
    return None if machine.labels == 0 else np.tile(some_word(machine), (patterns, 1))


def heats_of(machine: Machine, fields: np.ndarray) -> list[ExpectedHeat]:
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    return expected_heats(machine, fields, marginals, words_of(machine, len(fields)))


@every_machine
@pytest.mark.parametrize("J4", [1.0, 0.0])
def test_expected_heat_is_that_of_noising_paths(machine: Machine, J4: float) -> None:
    """Within four standard errors of simulated paths, run backwards through the stages."""
    machine = replace(machine, J4=J4, dt=0.02, duration=1.0)
    theta, fields = random_parameters(machine, 0.1), some_fields(machine, 2)
    found = heats_of(machine, fields)
    for vector, heat in zip(theta.vector, found, strict=True):  # so that couplings give off heat
        vector += heat.slope / np.abs(heat.slope).max()
    heats = []
    for number in range(600):
        field = fields[number % 2]
        path = engine().path(machine, field, 5, number, some_word(machine)).states
        heats.append(
            sum(
                energy(theta, path[b], stage, some_word(machine))
                - energy(theta, path[a], stage, some_word(machine))
                for stage, (a, b) in enumerate(machine.stage_windows)
            )
        )
    expected = sum(heat.value(v) for heat, v in zip(found, theta.vector, strict=True))
    error = np.std(heats) / np.sqrt(len(heats))
    assert abs(np.mean(heats) - expected) < 4 * error
    assert abs(np.mean(heats) - sum(heat.onsite for heat in found)) > 5 * error


def dense(loss: ExpectedLoss) -> np.ndarray:
    """H on independent parameters: a symmetric pair is one, moved together."""
    columns = []
    for k in range(loss.layout.size):
        unit = np.zeros(loss.layout.size)
        unit[k] = 1
        columns.append(loss.curvature(unit))
    return np.array(columns).T


def minimum(heat_weight: float, ridge: float = 0.0) -> np.ndarray:
    """The optimum by a dense solver, each undirected edge one unknown."""
    loss = ExpectedLoss(SMALL, FIELDS)
    slope = loss.zero_gradient + heat_weight / SMALL.kT * heats_of(SMALL, FIELDS)[0].slope
    block = loss.layout["hidden_hidden"]
    basis, free = [], np.ones(loss.layout.size, bool)
    free[block.start : block.start + block.size] = False
    basis += [np.eye(loss.layout.size)[k] for k in np.flatnonzero(free)]
    for i in range(SMALL.hidden):
        for j in range(i):
            edge = np.zeros(loss.layout.size)
            block.of(edge)[i, j] = block.of(edge)[j, i] = 1
            basis.append(edge)
    B = np.array(basis)
    inner = loss.layout.inner
    H = np.array([[inner(a, loss.curvature(b) + ridge * b) for b in B] for a in B])
    theta: np.ndarray = -np.linalg.solve(H, [inner(a, slope) for a in B]) @ B
    return theta


@pytest.mark.parametrize(("weight", "ridge"), [(0.0, 0.0), (0.05, 0.0), (0.0, 20.0), (0.1, 5.0)])
def test_weighted_optimum_is_that_of_a_dense_solver(weight: float, ridge: float) -> None:
    found = solve_optimum(SMALL, Drive(FIELDS), tolerance=1e-10, heat_weight=weight, ridge=ridge)
    expected = minimum(weight, ridge)
    np.testing.assert_allclose(
        found.parameters.vector[0], expected, atol=2e-6 * np.abs(expected).max()
    )
    assert found.relative_gradient < 1e-9


def test_many_patterns_are_weighed_like_few() -> None:
    """Where moments are formed, the equations are preconditioned: the same optimum."""
    fields = np.tile(FIELDS, (40, 1))
    few, many = (
        solve_optimum(
            SMALL, Drive(own), tolerance=1e-10, heat_weight=0.1, ridge=3.0
        ).parameters.vector
        for own in (FIELDS, fields)
    )
    np.testing.assert_allclose(many, few, atol=1e-5 * np.abs(few).max())


def test_without_weights_the_optimum_is_the_same_to_the_bit() -> None:
    machine = MACHINES["all stages"]
    fields, words = some_fields(machine), words_of(machine, 3)
    plain = solve_optimum(machine, Drive(fields, words))
    weighed = solve_optimum(machine, Drive(fields, words), heat_weight=0.0, ridge=0.0)
    assert weighed.parameters.same_as(plain.parameters)
    assert not solve_optimum(machine, Drive(fields, words), heat_weight=1e-3).parameters.same_as(
        plain.parameters
    )


def test_heat_falls_along_the_weight_at_the_rate_of_the_closed_form() -> None:
    """dE[Q]/dλ = −⟨q, H⁻¹q⟩/k_BT by finite differences; E[L] rises by λ²⟨q, H⁻¹q⟩/2(k_BT)²."""
    heat = heats_of(SMALL, FIELDS)[0]
    direction = minimum(1.0) - minimum(0.0)
    rate = heat.layout.inner(heat.slope, direction)
    assert rate < 0
    step = 0.01
    at = {
        weight: solve_optimum(SMALL, Drive(FIELDS), tolerance=1e-11, heat_weight=weight)
        for weight in (0.0, 0.1 - step, 0.1 + step)
    }
    low, high = at[0.1 - step], at[0.1 + step]
    assert (high.expected_heat - low.expected_heat) / (2 * step) == pytest.approx(rate, rel=1e-5)
    rise = (high.expected_loss - at[0.0].expected_loss) * SMALL.steps
    assert rise == pytest.approx(-((0.1 + step) ** 2) * rate / (2 * SMALL.kT), rel=1e-4)


def test_only_a_solver_weighs_heat() -> None:
    assert Settings().updated({"training": {"heat_weight": 0.1}}).solved
    with pytest.raises(UserError, match=r"solver\.ridge = -1\.0: must not be negative"):
        Settings().updated({"training": {"rule": "optimum", "ridge": -1.0}})
