"""The expected loss against simulated paths, finite differences and a dense solution."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.stats import chi2

from thermoloom.machine.definition import Machine
from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.machine.computer import Computer, energy_gradient
from thermoloom.theory.marginals import field_amplitude, solve_marginals
from thermoloom.theory.optimum import ExpectedLoss, solve_optimum

SMALL = Machine(visible=6, hidden=4, dt=0.02, duration=0.8)
BLOCKS = ("visible_hidden", "hidden_hidden", "hidden_bias")


def small_fields(prototypes=2, seed=3):
    return np.random.default_rng(seed).normal(0, 1.2, (prototypes, SMALL.units))


def random_computer(seed, size=0.5):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.normal(0, size, (SMALL.hidden, SMALL.hidden)), 1)
    return Computer(
        rng.normal(0, size, (SMALL.visible, SMALL.hidden)),
        upper + upper.T,
        rng.normal(0, size, SMALL.hidden),
    )


def moved(computer, direction, amount):
    pairs = zip(computer.arrays.values(), direction.arrays.values(), strict=True)
    return Computer(*(a + amount * b for a, b in pairs))


def inner(a, b):
    """Over independent parameters, written out."""
    upper = np.triu_indices(SMALL.hidden, 1)
    return (
        (a.visible_hidden * b.visible_hidden).sum()
        + (a.hidden_hidden[upper] * b.hidden_hidden[upper]).sum()
        + a.hidden_bias @ b.hidden_bias
    )


def simulated(computer, fields, samples, seed):
    """Loss and gradient of each of ``samples`` noising paths a prototype, step by step."""
    rng = np.random.default_rng(seed)
    p, free = SMALL, Computer.zeros(SMALL, np.float64)
    s = np.repeat(fields, samples, axis=0)
    x = np.zeros_like(s)
    rate = p.mobility * p.dt

    def kick():
        return p.noise_amplitude * rng.standard_normal(x.shape)

    for _ in range(p.steps):
        x = x + rate * (2 * s - energy_gradient(free, p, x)) + kick()
    loss = np.zeros(len(s))
    gradients = [np.zeros((len(s), *a.shape)) for a in computer.arrays.values()]
    for a in field_amplitude(p):
        new = x + rate * (a * s - energy_gradient(free, p, x)) + kick()
        miss = -(new - x) + rate * energy_gradient(computer, p, new)
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


def independent(computer):
    """The independent parameters (of one computer, or of a batch of gradients) side by side."""
    vh, hh, b = computer
    upper = np.triu_indices(SMALL.hidden, 1)
    return np.concatenate([vh.reshape(*b.shape[:-1], -1), hh[..., upper[0], upper[1]], b], axis=-1)


def test_value_and_every_gradient_entry_equal_the_average_over_paths():
    fields, computer, samples = small_fields(), random_computer(1), 20000
    expected = ExpectedLoss(SMALL, fields)
    loss, gradients = simulated(computer, fields, samples, seed=8)
    error = np.sqrt(loss[:samples].var() + loss[samples:].var()) / 2 / samples**0.5
    assert abs(loss.mean() - expected.value(computer)) < 4 * error
    assert expected.per_step(computer) * SMALL.steps == pytest.approx(expected.value(computer))
    predicted = expected.gradient(computer)
    assert not np.diagonal(predicted.hidden_hidden).any()
    measured = independent(gradients)
    # Entries share residuals and so are correlated: the joint test needs their covariance.
    covariance = sum(np.cov(half.T) for half in np.split(measured, 2)) / (4 * samples)
    difference = measured.mean(axis=0) - independent(predicted.arrays.values())
    assert np.abs(difference / np.sqrt(np.diagonal(covariance))).max() < 4.5
    distance = difference @ np.linalg.solve(covariance, difference)
    assert chi2.sf(distance, len(difference)) > 1e-4


@pytest.mark.parametrize("prototypes", [2, 40], ids=["factored", "dense"])
def test_gradient_and_hessian_are_derivatives_of_the_value(prototypes):
    loss = ExpectedLoss(SMALL, small_fields(prototypes))
    theta, direction = random_computer(1), random_computer(2)
    forward, here, back = (loss.value(moved(theta, direction, e)) for e in (1e-2, 0, -1e-2))
    slope = inner(loss.gradient(theta), direction)
    assert (forward - back) / 2e-2 == pytest.approx(slope, rel=1e-7)
    curvature = inner(loss.hessian_vector(direction), direction)
    assert (forward - 2 * here + back) / 1e-4 == pytest.approx(curvature, rel=1e-6)
    there = loss.gradient(moved(theta, direction, 1.0))
    product = loss.hessian_vector(direction)
    for name in BLOCKS:
        change = getattr(there, name) - getattr(loss.gradient(theta), name)
        np.testing.assert_allclose(change, getattr(product, name), atol=1e-10)


def test_many_prototypes_take_the_dense_way_to_the_same_numbers():
    fields, theta = small_fields(), random_computer(4)
    few, many = ExpectedLoss(SMALL, fields), ExpectedLoss(SMALL, np.tile(fields, (40, 1)))
    assert many.value(theta) == pytest.approx(few.value(theta), rel=1e-12)
    for name in BLOCKS:
        np.testing.assert_allclose(
            getattr(many.gradient(theta), name), getattr(few.gradient(theta), name), atol=1e-11
        )


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


def test_optimum_is_the_dense_solution():
    fields = small_fields()
    hessian, gradient, edges = dense_problem(fields)
    theta = np.linalg.solve(hessian, -gradient)
    seen = []
    optimum = solve_optimum(
        SMALL, fields, tolerance=1e-10, progress=lambda i, g: seen.append((i, g))
    )
    j = np.zeros((SMALL.units, SMALL.units))
    for (i, k), value in zip(edges, theta, strict=False):
        j[i, k] = j[k, i] = value
    v = SMALL.visible
    scale = np.abs(theta).max()
    np.testing.assert_allclose(optimum.computer.visible_hidden, j[:v, v:], atol=1e-6 * scale)
    np.testing.assert_allclose(optimum.computer.hidden_hidden, j[v:, v:], atol=1e-6 * scale)
    np.testing.assert_allclose(optimum.computer.hidden_bias, theta[len(edges) :], atol=1e-6 * scale)
    optimum.computer.check(SMALL)
    assert optimum.computer.hidden_bias.dtype == np.float32
    assert seen[-1][0] == optimum.iterations
    assert optimum.relative_gradient < 2e-10
    gain = -0.5 * gradient @ theta / SMALL.steps
    assert optimum.initial_loss - optimum.expected_loss == pytest.approx(gain, rel=1e-6)


def test_every_move_away_from_the_optimum_raises_the_expected_loss():
    fields = small_fields(3)
    optimum = solve_optimum(SMALL, fields).computer.astype(np.float64)
    loss = ExpectedLoss(SMALL, fields)
    lowest = loss.value(optimum)
    for seed in range(20):
        direction = random_computer(100 + seed)
        for amount in (1e-2, -1e-2):
            assert loss.value(moved(optimum, direction, amount)) > lowest


def test_windows_of_a_trajectory_add_up_to_it():
    fields, theta = small_fields(), random_computer(6)
    marginals = solve_marginals(SMALL, float(np.abs(fields).max()))
    whole = ExpectedLoss(SMALL, fields, marginals)
    cuts = [0, 1, 7, 31, SMALL.steps]
    parts = [ExpectedLoss(SMALL, fields, marginals, w) for w in pairwise(cuts)]
    assert sum(part.value(theta) for part in parts) == pytest.approx(whole.value(theta), rel=1e-12)
    total = sum(part.gradient(theta).visible_hidden for part in parts)
    np.testing.assert_allclose(total, whole.gradient(theta).visible_hidden, atol=1e-9)


def test_wrong_sizes_and_unreachable_tolerances_are_named():
    with pytest.raises(UserError, match=r"\(2, 9\).*machine\.visible"):
        ExpectedLoss(SMALL, np.ones((2, 9)))
    with pytest.raises(UserError, match="tolerance = 1e-06"):
        solve_optimum(SMALL, small_fields(), max_iterations=2)


def test_the_solved_computer_is_symmetric_to_the_bit_and_can_be_sampled():
    """Sums of matrix products are symmetric up to round-off only, from some size on."""
    machine = Machine(visible=40, hidden=512, dt=0.02, duration=0.2)
    fields = np.random.default_rng(4).normal(0, 1.2, (3, machine.units))
    computer = solve_optimum(machine, fields).computer
    computer.check(machine)
    assert np.isfinite(generate(machine, computer, 2, seed=1).heat).all()
