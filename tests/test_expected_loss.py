"""The expected loss against simulated paths, finite differences and a dense solution."""

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from machines import every_machine, random_parameters, some_fields
from plain_rules import energy_gradient
from scipy.stats import chi2

from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.machine.energy import label_word
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.protocol import ramp
from thermoloom.patterns.drive import Drive
from thermoloom.theory import expected_loss
from thermoloom.theory.expected_loss import ExpectedLoss, TimeModes, dense_moments
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.solver import solve_optimum

SMALL = Machine(visible=6, hidden=4, dt=0.02, duration=0.8)


def small_fields(patterns=2, seed=3):
    return np.random.default_rng(seed).normal(0, 1.2, (patterns, SMALL.units))


def random_vector(seed, size=0.5):
    return random_parameters(SMALL, size, seed).vector[0]


def simulated(vector, fields, samples, seed):
    """Loss and gradient of each of ``samples`` noising paths a pattern, step by step."""
    rng = np.random.default_rng(seed)
    p, free, theta = SMALL, Parameters.zeros(SMALL, np.float64), Parameters(SMALL, vector[None])
    s = np.repeat(fields, samples, axis=0)
    x = np.zeros_like(s)
    rate = p.mobility * p.dt

    def kick():
        return p.noise_amplitude * rng.standard_normal(x.shape)

    for _ in range(p.steps):
        x = x + rate * (2 * s - energy_gradient(free, x)) + kick()
    loss = np.zeros(len(s))
    gradients = [np.zeros((len(s), *a[0].shape)) for a in theta.arrays.values()]
    for a in ramp(p):
        new = x + rate * (a * s - energy_gradient(free, x)) + kick()
        miss = -(new - x) + rate * energy_gradient(theta, new)
        loss += (miss**2).sum(1) / (4 * p.mobility * p.kT * p.dt)
        r = miss / (2 * p.kT)
        (rv, rh), (xv, xh) = np.split(r, [p.visible], 1), np.split(new, [p.visible], 1)
        gradients[0] += rv[:, :, None] * xh[:, None] + xv[:, :, None] * rh[:, None]
        pair = rh[:, :, None] * xh[:, None]
        gradients[1] += pair + pair.transpose(0, 2, 1)
        gradients[2] += rh
        x = new
    gradients[1][:, np.arange(p.hidden), np.arange(p.hidden)] = 0
    return loss, gradients


def independent(blocks):
    """The independent parameters (of one θ, or of a batch of gradients) side by side."""
    vh, hh, b = blocks
    upper = np.triu_indices(SMALL.hidden, 1)
    return np.concatenate([vh.reshape(*b.shape[:-1], -1), hh[..., upper[0], upper[1]], b], axis=-1)


def test_value_and_every_gradient_entry_equal_the_average_over_paths():
    fields, theta, samples = small_fields(), random_vector(1), 20000
    expected = ExpectedLoss(SMALL, fields)
    loss, gradients = simulated(theta, fields, samples, seed=8)
    error = np.sqrt(loss[:samples].var() + loss[samples:].var()) / 2 / samples**0.5
    assert abs(loss.mean() - expected.total(theta)) < 4 * error
    predicted = [block.of(expected.slope(theta)) for block in expected.layout.blocks]
    assert not np.diagonal(predicted[1]).any()
    measured = independent(gradients)
    # Entries share residuals and so are correlated: the joint test needs their covariance.
    covariance = sum(np.cov(half.T) for half in np.split(measured, 2)) / (4 * samples)
    difference = measured.mean(axis=0) - independent(predicted)
    assert np.abs(difference / np.sqrt(np.diagonal(covariance))).max() < 4.5
    distance = difference @ np.linalg.solve(covariance, difference)
    assert chi2.sf(distance, len(difference)) > 1e-4


@pytest.mark.parametrize("patterns", [2, 40], ids=["few", "many"])
@every_machine
def test_gradient_and_hessian_are_derivatives_of_the_value(machine, patterns):
    machine = replace(machine, dt=0.02, duration=0.8)
    words = label_word(machine, np.arange(patterns) % machine.labels) if machine.labels else None
    window = machine.stage_windows[-1]
    loss = ExpectedLoss(machine, some_fields(machine, patterns), None, window, words)
    inner = loss.layout.inner
    theta, direction = (random_parameters(machine, 0.5, s).vector[0] for s in (1, 2))
    forward, here, back = (loss.total(theta + e * direction) for e in (1e-2, 0, -1e-2))
    slope = inner(loss.slope(theta), direction)
    assert (forward - back) / 2e-2 == pytest.approx(slope, rel=1e-7)
    curvature = inner(loss.curvature(direction), direction)
    assert (forward - 2 * here + back) / 1e-4 == pytest.approx(curvature, rel=1e-6)
    change = loss.slope(theta + direction) - loss.slope(theta)
    np.testing.assert_allclose(change, loss.curvature(direction), atol=1e-10)


def test_many_patterns_take_the_dense_way_to_the_same_numbers():
    fields, theta = small_fields(), random_vector(4)
    few, many = ExpectedLoss(SMALL, fields), ExpectedLoss(SMALL, np.tile(fields, (40, 1)))
    assert many.total(theta) == pytest.approx(few.total(theta), rel=1e-12)
    np.testing.assert_allclose(many.slope(theta), few.slope(theta), atol=1e-11)


def dense_problem(fields):
    """H and g₀ over the independent parameters, from m, v, d at every single step."""
    p = SMALL
    marginals = solve_marginals(p, float(np.abs(fields).max()))
    hidden = range(p.visible, p.units)
    edges = [(i, a) for i in range(p.visible) for a in hidden] + list(combinations(hidden, 2))
    size = len(edges) + p.hidden
    hessian, gradient = np.zeros((size, size)), np.zeros(size)
    for s in fields:
        m, v, d = (marginals.at(n, s) for n in ("mean", "variance", "drift"))
        for k in range(p.steps):
            second = np.outer(m[k], m[k]) + np.diag(v[k])
            for unit in range(p.units):
                # h_unit = Σ features · θ: neighbour states, and 1 for a hidden unit's bias.
                partner = [
                    (n, j if i == unit else i) for n, (i, j) in enumerate(edges) if unit in (i, j)
                ]
                index, other = (np.array(q) for q in zip(*partner, strict=True))
                features = m[k][other]
                block = second[np.ix_(other, other)]
                if unit >= p.visible:
                    index = np.append(index, len(edges) + unit - p.visible)
                    block = np.block(
                        [[block, features[:, None]], [features[None], np.ones((1, 1))]]
                    )
                    features = np.append(features, 1.0)
                hessian[np.ix_(index, index)] += p.residual_scale * block / len(fields)
                gradient[index] += d[k, unit] * features / (2 * p.kT) / len(fields)
    return hessian, gradient, edges


def test_sums_of_a_large_machine_agree_to_the_error_of_the_marginals(monkeypatch):
    """Faint modes in float32, and several groups of patterns in one sum."""
    machine = replace(SMALL, stages=2)
    fields = np.random.default_rng(4).normal(0, 1.2, (300, machine.units))
    marginals = solve_marginals(machine, float(np.abs(fields).max()))
    modes = [TimeModes(marginals, *window) for window in machine.stage_windows]
    assert all(1 <= each.strong < len(each.one) for each in modes)
    small = dense_moments(machine, modes, fields, None)
    monkeypatch.setattr(expected_loss, "LARGE", 0)
    large = dense_moments(machine, modes, fields, None)
    for a, b in zip(small, large, strict=True):
        for name in ("second", "cross", "variance"):
            exact, sums = getattr(a, name), getattr(b, name)
            np.testing.assert_allclose(sums, exact, rtol=0, atol=1e-8 * np.abs(exact).max())
        assert b.square == pytest.approx(a.square, rel=1e-12)


def test_optimum_is_the_dense_solution():
    fields = small_fields()
    hessian, gradient, edges = dense_problem(fields)
    theta = np.linalg.solve(hessian, -gradient)
    seen = []
    optimum = solve_optimum(
        SMALL, Drive(fields), tolerance=1e-10, progress=lambda i, g: seen.append((i, g))
    )
    j = np.zeros((SMALL.units, SMALL.units))
    for (i, k), value in zip(edges, theta, strict=False):
        j[i, k] = j[k, i] = value
    v = SMALL.visible
    scale = np.abs(theta).max()
    found = optimum.parameters.of_stage(0)
    np.testing.assert_allclose(found["visible_hidden"], j[:v, v:], atol=1e-6 * scale)
    np.testing.assert_allclose(found["hidden_hidden"], j[v:, v:], atol=1e-6 * scale)
    np.testing.assert_allclose(found["hidden_bias"], theta[len(edges) :], atol=1e-6 * scale)
    optimum.parameters.check()
    assert optimum.parameters.vector.dtype == np.float32
    assert seen[-1][0] == optimum.iterations
    assert optimum.relative_gradient < 2e-10
    gain = -0.5 * gradient @ theta / SMALL.steps
    assert optimum.initial_loss - optimum.expected_loss == pytest.approx(gain, rel=1e-6)


def test_every_move_away_from_the_optimum_raises_the_expected_loss():
    fields = small_fields(3)
    optimum = solve_optimum(SMALL, Drive(fields)).parameters.vector[0].astype(np.float64)
    loss = ExpectedLoss(SMALL, fields)
    lowest = loss.total(optimum)
    for seed in range(20):
        direction = random_vector(100 + seed)
        for amount in (1e-2, -1e-2):
            assert loss.total(optimum + amount * direction) > lowest


def test_windows_of_a_trajectory_add_up_to_it():
    fields, theta = small_fields(), random_vector(6)
    marginals = solve_marginals(SMALL, float(np.abs(fields).max()))
    whole = ExpectedLoss(SMALL, fields, marginals)
    cuts = [0, 1, 7, 31, SMALL.steps]
    parts = [ExpectedLoss(SMALL, fields, marginals, w) for w in pairwise(cuts)]
    assert sum(part.total(theta) for part in parts) == pytest.approx(whole.total(theta), rel=1e-12)
    total = sum(part.slope(theta) for part in parts)
    np.testing.assert_allclose(total, whole.slope(theta), atol=1e-9)


def test_stages_have_an_optimum_each_and_their_losses_add_up():
    """θ of a stage is the optimum of its window; more stages never do worse."""
    fields = small_fields(3)
    staged = replace(SMALL, stages=3, windows=(0.1, 0.5, 1.0))
    one, many = (solve_optimum(machine, Drive(fields)) for machine in (SMALL, staged))
    assert many.initial_loss == pytest.approx(one.initial_loss, rel=1e-12)
    assert many.expected_loss < one.expected_loss
    marginals = solve_marginals(SMALL, float(np.abs(fields).max()))
    total = 0.0
    for theta, window in zip(many.parameters.vector, staged.stage_windows, strict=True):
        loss = ExpectedLoss(SMALL, fields, marginals, window)
        slope, zero = loss.slope(theta.astype(np.float64)), loss.zero_gradient
        assert np.abs(slope).max() < 1e-4 * np.abs(zero).max()
        total += loss.total(theta.astype(np.float64))
    assert many.expected_loss == pytest.approx(total / SMALL.steps, rel=1e-9)


def test_wrong_sizes_and_unreachable_tolerances_are_named():
    with pytest.raises(UserError, match=r"\(2, 9\).*machine\.visible"):
        ExpectedLoss(SMALL, np.ones((2, 9)))
    with pytest.raises(UserError, match=r"label words of shape None: .*\(2, 3\)"):
        ExpectedLoss(replace(SMALL, labels=3), small_fields())
    with pytest.raises(UserError, match="tolerance = 1e-06"):
        solve_optimum(SMALL, Drive(small_fields()), max_iterations=2)


def test_the_solved_computer_is_symmetric_to_the_bit_and_can_be_sampled():
    """Sums of matrix products are symmetric up to round-off only, from some size on."""
    machine = Machine(visible=40, hidden=512, dt=0.02, duration=0.2)
    fields = np.random.default_rng(4).normal(0, 1.2, (3, machine.units))
    theta = solve_optimum(machine, Drive(fields)).parameters
    theta.check()
    assert np.isfinite(generate(theta, 2, seed=1).heat).all()
