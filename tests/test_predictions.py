"""Predictions against dense linear algebra and simulated training of a small computer."""

from itertools import pairwise

import numpy as np
import pytest

from thermoloom.machine.machine import Machine
from thermoloom.machine.protocol import ramp
from thermoloom.theory.expected_loss import ExpectedLoss
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.predictions import (
    MeanRule,
    batch_stability,
    gradient_noise,
    largest_curvature,
    mean_parameters,
    mean_rule,
    offset_bias_law,
    offset_gradient,
    offset_rate,
    offset_response,
    online_stability,
    parameter_scatter,
    round_growth,
    sampled_deviations,
    scatter_edge,
    stationary_variance,
    step_curvature,
    surviving_fraction,
    update_size,
    vanishing_bits,
)
from thermoloom.theory.solver import conjugate_gradients

SMALL = Machine(visible=6, hidden=4, dt=0.02, duration=0.8)
FIELDS = np.random.default_rng(3).normal(0, 1.2, (3, SMALL.units))
MARGINALS = solve_marginals(SMALL, float(np.abs(FIELDS).max()))
LOSS = ExpectedLoss(SMALL, FIELDS, MARGINALS)
LAYOUT = LOSS.layout
UPPER = np.triu_indices(SMALL.hidden, 1)


def blocks(vector):
    """J_vh, J_hh and b_h of a flat vector, as views."""
    return [block.of(vector) for block in LAYOUT.blocks]


def independent(vector):
    """The independent parameters of a flat vector (or of a batch of them)."""
    first = SMALL.visible * SMALL.hidden
    second = first + SMALL.hidden**2
    hh = vector[..., first:second].reshape(*vector.shape[:-1], SMALL.hidden, SMALL.hidden)
    parts = [vector[..., :first], hh[..., UPPER[0], UPPER[1]], vector[..., second:]]
    return np.concatenate(parts, axis=-1)


def flat(parameters):
    """The inverse of ``independent``."""
    vector = np.zeros(LAYOUT.size)
    vh, hh, b = blocks(vector)
    edges = len(UPPER[0])
    vh[...] = parameters[: vh.size].reshape(vh.shape)
    hh[UPPER] = parameters[vh.size : vh.size + edges]
    hh += hh.T
    b[:] = parameters[vh.size + edges :]
    return vector


SIZE = len(independent(np.zeros(LAYOUT.size)))


def dense(loss):
    """H over the independent parameters."""
    return np.array([independent(loss.curvature(flat(row))) for row in np.eye(SIZE)]).T


def simulated_paths(machine, field, replicas, rng):
    """States x_0 … x_K of ``replicas`` noising paths, (K + 1, replicas, N)."""
    rate = machine.mobility * machine.dt

    def moved(x, amplitude):
        force = amplitude * field - 2 * machine.J2 * x - 4 * machine.J4 * x**3
        return x + rate * force + machine.noise_amplitude * rng.standard_normal(x.shape)

    x = np.zeros((replicas, machine.units))
    for _ in range(machine.steps):
        x = moved(x, 2.0)
    path = [x]
    for a in ramp(machine):
        path.append(moved(path[-1], a))
    return np.array(path)


def residuals(machine, j, b, before, after):
    """r for a batch of couplings (replicas, N, N) and biases (replicas, N)."""
    force = 2 * machine.J2 * after + 4 * machine.J4 * after**3
    force = force + b + np.einsum("rij,rj->ri", j, after)
    return (before - after + machine.mobility * machine.dt * force) / (2 * machine.kT)


MASK = np.ones((SMALL.units, SMALL.units))
MASK[: SMALL.visible, : SMALL.visible] = 0
np.fill_diagonal(MASK, 0)


def simulated_training(machine, fields, rate, period, cycles, replicas, seed, offset=0.0):
    """Independent parameters of ``replicas`` computers, each trained on its own paths."""
    rng = np.random.default_rng(seed)
    v, n = machine.visible, machine.units
    j, b = np.zeros((replicas, n, n)), np.zeros((replicas, n))
    for cycle in range(cycles):
        path = simulated_paths(machine, fields[cycle % len(fields)], replicas, rng)
        pending_j, pending_b = np.zeros_like(j), np.zeros_like(b)
        for k in range(machine.steps):
            x = path[k + 1]
            r = residuals(machine, j, b, path[k], x) + offset
            pair = r[:, :, None] * x[:, None]
            pending_j += (pair + pair.transpose(0, 2, 1)) * MASK
            pending_b[:, v:] += r[:, v:]
            if (k + 1) % period == 0 or k + 1 == machine.steps:
                j -= rate * pending_j
                b -= rate * pending_b
                pending_j[:], pending_b[:] = 0, 0
    return np.concatenate(
        [
            j[:, :v, v:].reshape(replicas, -1),
            j[:, v:, v:][:, UPPER[0], UPPER[1]],
            b[:, v:],
        ],
        axis=1,
    )


# -- The mean of a rule -----------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 0.3])
def test_batch_training_follows_the_mean_recursion_exactly(offset):
    rate, cycles = 0.1, 5
    rule = mean_rule(SMALL, FIELDS, MARGINALS, rate, SMALL.steps)
    expected = dict(mean_parameters(rule, cycles, every=2, offset=offset))
    assert list(expected) == [0, 2, 4, 5]
    runs = simulated_training(SMALL, FIELDS, rate, SMALL.steps, cycles, 2500, seed=1, offset=offset)
    error = runs.std(axis=0) / len(runs) ** 0.5
    deviation = (runs.mean(axis=0) - independent(expected[cycles])) / error
    assert np.abs(deviation).max() < 4.5


def test_online_training_follows_its_mean_recursion_and_not_that_of_batch_training():
    rate, cycles = 0.1, 5
    runs = simulated_training(SMALL, FIELDS, rate, 1, cycles, 2500, seed=2)
    error = runs.std(axis=0) / len(runs) ** 0.5

    def deviation(period):
        rule = mean_rule(SMALL, FIELDS, MARGINALS, rate, period, windows=8)
        *_, (_, theta) = mean_parameters(rule, cycles)
        difference = runs.mean(axis=0) - independent(theta)
        return np.abs(difference / error).max(), np.linalg.norm(difference) / np.linalg.norm(theta)

    online, batch = deviation(1), deviation(SMALL.steps)
    assert batch[0] > 20
    # What is left are correlations between the updates of one path, which the mean leaves out.
    assert online[1] < 0.02
    assert online[1] < 0.2 * batch[1]


def test_windows_converge_to_the_product_over_single_steps():
    rate = 0.1
    exact = mean_rule(SMALL, FIELDS, MARGINALS, rate, 1, windows=SMALL.steps)
    assert all(w.updates == 1 for windows in exact.patterns for w in windows)
    *_, (_, single) = mean_parameters(exact, 4)
    errors = []
    for windows in (3, 6, 12):
        *_, (_, theta) = mean_parameters(mean_rule(SMALL, FIELDS, MARGINALS, rate, 1, windows), 4)
        errors.append(np.linalg.norm(theta - single) / np.linalg.norm(single))
    assert errors[0] < 0.01
    assert errors[2] < errors[1] / 2 < errors[0] / 4


# -- Stability --------------------------------------------------------------------------------


def test_largest_curvature_is_the_dense_eigenvalue():
    assert largest_curvature(LOSS, 1e-8) == pytest.approx(np.linalg.eigvalsh(dense(LOSS))[-1])


def test_batch_becomes_unstable_where_the_round_has_spectral_radius_one():
    stability = batch_stability(SMALL, FIELDS, MARGINALS, tolerance=1e-3)
    singles = [dense(ExpectedLoss(SMALL, FIELDS[p : p + 1], MARGINALS)) for p in range(3)]
    steepest = [np.linalg.eigvalsh(h)[-1] for h in singles]
    assert stability.curvatures == pytest.approx(steepest, rel=1e-3)
    assert stability.averaged_rate == pytest.approx(2 / stability.curvature)

    def radius(rate):
        product = np.eye(SIZE)
        for h in singles:
            product = (np.eye(SIZE) - rate * h) @ product
        return np.abs(np.linalg.eigvals(product)).max()

    assert radius(0.99 * stability.critical_rate) < 1 < radius(1.01 * stability.critical_rate)
    rule = mean_rule(SMALL, FIELDS, MARGINALS, 1.2 * stability.critical_rate, SMALL.steps)
    assert round_growth(rule) == pytest.approx(radius(rule.learning_rate), rel=1e-3)


def test_one_steps_curvature_is_that_of_its_hessian():
    x = np.random.default_rng(7).normal(0, 1, SMALL.units)
    v = SMALL.visible
    edges = [(i, a) for i in range(v) for a in range(v, SMALL.units)]
    edges += [(v + a, v + b) for a, b in zip(*UPPER, strict=True)]
    features = np.zeros((SMALL.units, SIZE))  # ∂h_i/∂θ
    for n, (i, k) in enumerate(edges):
        features[i, n], features[k, n] = x[k], x[i]
    features[v:, len(edges) :] = np.eye(SMALL.hidden)
    largest = np.linalg.eigvalsh(SMALL.residual_scale * features.T @ features)[-1]
    assert step_curvature(SMALL, x) == pytest.approx(largest, rel=1e-6)


def test_online_training_survives_below_and_fails_above_its_critical_rate():
    stability = online_stability(SMALL, FIELDS, MARGINALS)
    assert stability.safe_rate == pytest.approx(2 / stability.curvature)
    below = simulated_training(SMALL, FIELDS, 0.5 * stability.safe_rate, 1, 6, 40, seed=4)
    with np.errstate(over="ignore", invalid="ignore"):
        above = simulated_training(SMALL, FIELDS, 2 * stability.critical_rate, 1, 6, 40, seed=4)
    assert np.abs(below).max() < 100
    assert not np.abs(above).max() < 1e6


# -- Noise ------------------------------------------------------------------------------------


def test_gradient_noise_has_the_hessian_as_covariance():
    rng = np.random.default_rng(5)
    samples = np.array([independent(gradient_noise(LOSS, rng)) for _ in range(8000)])
    hessian = dense(LOSS)
    spread = np.sqrt(np.diagonal(hessian))
    error = (np.cov(samples.T) - hessian) / np.outer(spread, spread)
    assert np.abs(error).max() < 5 * np.sqrt(2 / len(samples))


def dense_covariance(rule, cycles):
    """Σ ← (1 − αH/B) Σ (1 − αH/B) + α² H/B for each of the B updates of every window."""
    rate, covariance = rule.learning_rate, np.zeros((SIZE, SIZE))
    hessians = [[(dense(w.loss) / w.updates, w.updates) for w in ws] for ws in rule.patterns]
    for cycle in range(cycles):
        for hessian, updates in hessians[cycle % len(hessians)]:
            keep = np.eye(SIZE) - rate * hessian
            for _ in range(updates):
                covariance = keep @ covariance @ keep + rate**2 * hessian
    return covariance


@pytest.mark.parametrize("period", [SMALL.steps, 10, 1])
def test_sampled_deviations_have_the_covariance_of_the_recursion(period):
    rule = mean_rule(SMALL, FIELDS, MARGINALS, 0.08, period)
    covariance = dense_covariance(rule, 4)
    deviations = []
    for seed in range(300):
        *_, (cycle, deviation) = sampled_deviations(rule, 4, seed=seed)
        deviations.append(independent(deviation))
    assert cycle == 4
    samples = np.array(deviations)
    # Whitened by the exact covariance, all entries are independent and of unit variance.
    white = np.linalg.solve(np.linalg.cholesky(covariance), samples.T)
    assert np.abs(white @ white.T / len(samples) - np.eye(SIZE)).max() < 5 * (2 / 300) ** 0.5
    assert (white**2).mean() == pytest.approx(1, abs=4 * (2 / white.size) ** 0.5)


def test_spread_is_the_mean_square_by_block_and_the_excess_of_the_loss():
    theta, _ = conjugate_gradients(LOSS, 1e-10)
    deviation = flat(np.random.default_rng(8).normal(size=SIZE))
    result = parameter_scatter(LOSS, deviation)
    expected = [(part**2).mean() for part in np.split(independent(deviation), [24, 30])]
    assert list(result.blocks.values()) == pytest.approx(expected)
    excess = (LOSS.total(theta + deviation) - LOSS.total(theta)) / SMALL.steps
    assert result.excess_loss == pytest.approx(excess, rel=1e-8)


def test_stationary_variance_solves_the_recursion_along_an_eigenvector():
    rate, curvature = 0.3, 2.5
    variance = stationary_variance(rate, curvature)
    assert (1 - rate * curvature) ** 2 * variance + rate**2 * curvature == pytest.approx(variance)
    assert stationary_variance(rate) == rate / 2


@pytest.mark.parametrize("period", [1, 100])
def test_trained_computers_spread_as_predicted(period):
    """Free units are their own time reversal: θ* = 0 without misfit, and Γ = H holds.

    What is left are Δt and the fluctuation of a path's own Hessian, both of some per cent.
    """
    machine = Machine(visible=6, hidden=4, dt=0.02, duration=2.0)
    free = np.zeros((1, machine.units))
    marginals = solve_marginals(machine, 0.0)
    rate, cycles = 0.01, 40
    rule = mean_rule(machine, free, marginals, rate, period)
    predicted = np.diagonal(dense_covariance(rule, cycles))
    runs = simulated_training(machine, free, rate, period, cycles, replicas=300, seed=9)
    measured = (runs**2).mean(axis=0)
    cuts = [machine.visible * machine.hidden, SIZE - machine.hidden]
    for one, other in zip(np.split(measured, cuts), np.split(predicted, cuts), strict=True):
        assert one.mean() == pytest.approx(other.mean(), rel=0.1)


# -- Offset -----------------------------------------------------------------------------------


def test_offset_gradient_is_the_sum_of_mean_states():
    means = np.array([MARGINALS.at("mean", s).sum(axis=0) for s in FIELDS]).mean(axis=0)
    vh, hh, b = blocks(offset_gradient(LOSS))
    v = SMALL.visible
    assert vh[2, 1] == pytest.approx(means[2] + means[v + 1])
    assert hh[3, 0] == pytest.approx(means[v + 3] + means[v])
    assert not np.diagonal(hh).any()
    assert b == pytest.approx(SMALL.steps, rel=1e-13)


def test_offset_moves_the_optimum_by_the_response():
    response = independent(offset_response(LOSS, 1e-10))
    expected = -np.linalg.solve(dense(LOSS), independent(offset_gradient(LOSS)))
    np.testing.assert_allclose(response, expected, rtol=1e-6, atol=1e-6)
    shifted, _ = conjugate_gradients(
        LOSS, 1e-10, linear_term=LOSS.zero_gradient + 0.01 * offset_gradient(LOSS)
    )
    plain, _ = conjugate_gradients(LOSS, 1e-10)
    np.testing.assert_allclose(independent(shifted - plain), 0.01 * expected, atol=1e-7)


def test_without_fields_only_the_biases_answer_an_offset_by_the_law():
    nothing = np.zeros((1, SMALL.units))
    loss = ExpectedLoss(SMALL, nothing)
    vh, _, b = blocks(offset_response(loss))
    assert b == pytest.approx(offset_bias_law(SMALL), rel=1e-6)
    assert np.abs(vh).max() < 1e-4 * abs(offset_bias_law(SMALL))
    rate = 0.5 / (SMALL.steps * SMALL.residual_scale)
    rule = mean_rule(SMALL, nothing, solve_marginals(SMALL, 0.0), rate, SMALL.steps)
    *_, (_, theta) = mean_parameters(rule, 3, offset=0.1)
    assert offset_rate(SMALL, rate) == pytest.approx(0.5)
    relaxed = 1 - (1 - offset_rate(SMALL, rate)) ** 3
    assert blocks(theta)[2] == pytest.approx(0.1 * offset_bias_law(SMALL) * relaxed, rel=1e-6)


# -- Precision --------------------------------------------------------------------------------


def test_bits_at_which_half_a_spacing_equals_the_update():
    assert vanishing_bits(1.0, 0.5 / 127) == pytest.approx(8)
    assert vanishing_bits(0.3, 0.3 / 2 / 32767) == pytest.approx(16)


def test_update_size_and_surviving_fraction_agree_with_simulated_updates():
    rng = np.random.default_rng(11)
    updates = []
    zero = np.zeros((600, SMALL.units, SMALL.units)), np.zeros((600, SMALL.units))
    for field in FIELDS:
        path = simulated_paths(SMALL, field, 600, rng)
        for before, x in pairwise(path):
            r = residuals(SMALL, *zero, before, x)
            pair = r[:, :, None] * x[:, None]
            updates.append(pair + pair.transpose(0, 2, 1))
    all_updates = np.array(updates)
    v = SMALL.visible
    vh = all_updates[:, :, :v, v:]
    hh = all_updates[:, :, v:, v:][:, :, UPPER[0], UPPER[1]]
    size = update_size(SMALL, FIELDS, MARGINALS)
    assert size.visible_hidden == pytest.approx(np.sqrt((vh**2).mean()), rel=0.02)
    assert size.hidden_hidden == pytest.approx(np.sqrt((hh**2).mean()), rel=0.05)
    rate, largest = 0.03, 1.0
    for bits in (5, 6, 8):
        half = largest / (2 ** (bits - 1) - 1) / 2
        measured = (np.abs(rate * vh) > half).mean()
        predicted = surviving_fraction(SMALL, FIELDS, MARGINALS, rate, largest, bits)
        assert predicted == pytest.approx(measured, rel=0.05)


def test_rules_share_windows_at_another_rate():
    rule = mean_rule(SMALL, FIELDS, MARGINALS, 0.1, SMALL.steps)
    slower = MeanRule(0.01, rule.patterns)
    first = dict(mean_parameters(slower, 1))[1]
    np.testing.assert_allclose(first * 10, dict(mean_parameters(rule, 1))[1])


def test_scatter_at_its_edge_is_as_strong_as_the_units_are_stiff():
    """Random symmetric couplings of variance α/2 have the spectrum of a semicircle."""
    machine = Machine(visible=400, hidden=0, wiring=("visible-visible",), biases=(), J2=0.7)
    rng = np.random.default_rng(5)
    J = rng.normal(0, np.sqrt(scatter_edge(machine) / 2), (400, 400))
    J = np.tril(J, -1) + np.tril(J, -1).T
    stiffness = 2 * machine.J2
    assert np.linalg.eigvalsh(J)[-1] == pytest.approx(stiffness, rel=0.03)
