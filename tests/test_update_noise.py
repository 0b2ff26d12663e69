"""Update noise: the law against its definition, the learner against the brute-force loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from machines import MACHINES, path_of, relative_difference, trained
from scipy import stats

from thermoloom.engines import Diverged, Path, engine
from thermoloom.engines.compiled import noise_walk
from thermoloom.engines.compiled.learner import Learner
from thermoloom.engines.compiled.noise_walk import (
    BLOCK_STEPS,
    LEVELS,
    Draw,
    NoiseBlock,
    NoiseWalk,
    Walk,
    noise_blocks,
)
from thermoloom.engines.compiled.noising import noising_path
from thermoloom.engines.compiled.residual_errors import residual_errors
from thermoloom.engines.compiled.streams import flat_normals, normals, stream_key
from thermoloom.engines.compiled.update_noise import NoiseResponse
from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.drive import Drive
from thermoloom.settings import Imperfections, Settings, Training
from thermoloom.threads import threads
from thermoloom.training.trainer import Trainee, train


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads cost more than they give for computers this small."""
    with threads(1):
        yield


# The law, exactly: everything is linear in the normals, so its covariance is that of a matrix,
# whose columns are had by feeding one normal at a time.


def columns(run: Callable[[Callable[[int], Draw]], np.ndarray]) -> np.ndarray:
    """``run`` for each normal alone (1, the others 0), one a row.

    ``run`` gets a function block number → draw.
    """
    sizes: dict[tuple[int, int], int] = {}

    def source(chosen: tuple[int, int, int] | None) -> Callable[[int], Draw]:
        def of_block(block: int) -> Draw:
            def draw(level: int, count: int) -> np.ndarray:
                sizes[block, level] = count
                out = np.zeros(count, np.float32)
                if chosen and chosen[:2] == (block, level):
                    out[chosen[2]] = 1
                return out

            return draw

        return of_block

    nothing = run(source(None))
    each = [(*key, i) for key, size in list(sizes.items()) for i in range(size)]
    return np.array([run(source(chosen)) - nothing for chosen in each])


def parameters(walk: Walk | Parameters) -> np.ndarray:
    """One number a parameter: J_vh, the upper triangle of J_hh, b_h."""
    if isinstance(walk, Walk):
        n = len(walk.couplings) - len(walk.bias)
        visible_hidden, hidden_hidden, bias = walk.couplings[:n], walk.couplings[n:], walk.bias
    else:
        visible_hidden, hidden_hidden, bias = walk.of_stage(0).values()
    upper = np.triu_indices(len(bias), 1)
    parts = visible_hidden.ravel(), hidden_hidden[upper], bias
    return np.concatenate(parts).astype(float)


def force_matrix(machine: Machine, x: np.ndarray) -> np.ndarray:
    """F with W x = F · (parameters of W), from the definition of the force: (N, parameters)."""
    v, h = machine.visible, machine.hidden
    rows, cols = np.triu_indices(h, 1)
    out = np.zeros((v + h, v * h + len(rows) + h))
    for i in range(v):
        for a in range(h):
            out[i, i * h + a] = x[v + a]
            out[v + a, i * h + a] = x[i]
    for edge, (a, b) in enumerate(zip(rows, cols, strict=True)):
        out[v + a, v * h + edge] = x[v + b]
        out[v + b, v * h + edge] = x[v + a]
    out[v:, -h:] = np.eye(h)
    return out


class GivenNoise(NoiseWalk):
    """Normals as given, in place of the stream."""

    def __init__(self, machine: Machine, period: int, source: Callable[[int], Draw]) -> None:
        super().__init__(machine, 0, period)
        self._source = source

    def _normals(self, number: int, block: NoiseBlock) -> Draw:
        return self._source(block.number)


def states_of(machine: Machine, steps: int, spread: float = 0.2) -> np.ndarray:
    rng = np.random.default_rng(steps)
    walk = spread * np.cumsum(rng.normal(size=(steps, machine.units)), axis=0)
    return (rng.normal(size=machine.units) + walk).astype(np.float32)


@pytest.mark.parametrize(
    ("visible", "hidden", "groups", "period"),
    [
        (3, 14, 4, 1),  # few states among many units
        (5, 4, 8, 1),  # more states than units: dependent, every |A_a|² = 1
        (2, 9, 4, 1),  # some |A_a|² above ½
        (3, 5, 2, 2),  # an update every second step
        (3, 3, 1, 4),  # a single update: no bridge
        (1, 1, 4, 1),
        (5, 1, 4, 1),
    ],
)
def test_law_of_a_block(visible: int, hidden: int, groups: int, period: int) -> None:
    """Cov(W_k x_k, W_l x_l) = min(t_k, t_l) F_k F_lᵀ, t the updates' steps seen; and with W_B."""
    steps = groups * period
    machine = Machine(visible=visible, hidden=hidden, duration=0.001 * steps)
    assert noise_blocks(machine.steps, period) == [NoiseBlock(0, 0, steps, groups)]
    x = states_of(machine, steps)
    path = np.concatenate([x[:1], x])

    def run(source: Callable[[int], Draw]) -> np.ndarray:
        along, walk = GivenNoise(machine, period, source).along(path, 0)
        return np.concatenate([along.ravel().astype(float), parameters(walk)])

    found = columns(run)
    seen = [k // period * period for k in range(steps)] + [steps]
    forces = [force_matrix(machine, state) for state in x]
    forces.append(np.eye(forces[0].shape[1]))
    expected = np.block(
        [
            [min(t, s) * f @ g.T for s, g in zip(seen, forces, strict=True)]
            for t, f in zip(seen, forces, strict=True)
        ]
    )
    np.testing.assert_allclose(found.T @ found, expected, atol=2e-6 * np.abs(expected).max())


def test_law_with_equal_states() -> None:
    """A path that does not move is as dependent as can be; the law holds all the same."""
    machine = Machine(visible=2, hidden=3, duration=0.004)
    x = np.repeat(states_of(machine, 1), 4, axis=0)
    x[2] = 0
    path = np.concatenate([x[:1], x])

    def run(source: Callable[[int], Draw]) -> np.ndarray:
        return GivenNoise(machine, 1, source).along(path, 0)[0].ravel().astype(float)

    found = columns(run)
    forces = [force_matrix(machine, state) for state in x]
    expected = np.block([[min(k, m) * forces[k] @ forces[m].T for m in range(4)] for k in range(4)])
    np.testing.assert_allclose(found.T @ found, expected, atol=2e-6 * np.abs(expected).max())


# The learner, exactly: θ is linear in the noise too.

TINY = Machine(visible=3, hidden=4, duration=0.011)
RATE = 2.0
"""So large that noise feeds back through the residuals within a trajectory."""


def noisy(sigma: float, walk: NoiseWalk, path: Path, period: int = 1) -> np.ndarray:
    """θ⁰ + σ Δ after one path from θ = 0."""
    response = NoiseResponse(TINY, 0, period)
    response.walk = walk
    clean = Learner(TINY, RATE, period).learn(ZERO, path)
    return parameters(clean) + sigma * parameters(response.learn(ZERO, path, RATE))


def brute_force(path: np.ndarray, sigma: float, period: int, noise: np.ndarray) -> np.ndarray:
    """The plain loop in float64 on a vector of parameters; ``noise`` (K, parameters)."""
    c = TINY.residual_scale
    theta = np.zeros(noise.shape[1])
    pending = np.zeros_like(theta)
    x = path.astype(float)
    for k in range(TINY.steps):
        after = x[k + 1]
        forces = force_matrix(TINY, after)
        onsite = 2 * TINY.J2 * after + 4 * TINY.J4 * after**3
        r = (x[k] - after) / (2 * TINY.kT) + c * (onsite + forces @ theta)
        pending += forces.T @ r + sigma * noise[k]  # u_ij = r_i x_j + r_j x_i, u_a = r_a
        if (k + 1) % period == 0 or k + 1 == TINY.steps:
            theta -= RATE * pending
            pending[:] = 0
    return theta


ZERO = Parameters.zeros(TINY)


@pytest.fixture
def path() -> Path:
    field = np.random.default_rng(5).normal(size=TINY.units).astype(np.float32)
    return path_of(TINY, 3 * noising_path(TINY, field, 3, 0))


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_walk, "BLOCK_STEPS", 4)


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("period", [1, 2, 4, 11])
def test_law_of_the_learned_parameters(path: Path, period: int) -> None:
    """Mean and full covariance of θ after a trajectory of several blocks, against the loop."""
    sigma, count = 0.3, TINY.visible * 4 + 6 + 4

    def run(source: Callable[[int], Draw]) -> np.ndarray:
        return noisy(sigma, GivenNoise(TINY, period, source), path, period)

    silent = brute_force(path.states, sigma, period, np.zeros((TINY.steps, count)))
    zero = run(lambda _: lambda level, count: np.zeros(count, np.float32))
    np.testing.assert_allclose(zero, silent, atol=1e-5 * np.abs(silent).max())
    found = columns(run)
    unit = np.eye(TINY.steps * count).reshape(-1, TINY.steps, count)
    plain = np.array([brute_force(path.states, sigma, period, one) - silent for one in unit])
    expected = plain.T @ plain
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found.T @ found, expected, atol=1e-5 * scale)
    # Feedback is not a detail here: without it the covariance would be diagonal.
    if period < 11:
        off = expected - np.diag(np.diag(expected))
        assert np.abs(off).max() > 1e-2 * scale


def test_samples_follow_the_brute_force_distribution(path: Path) -> None:
    """The real stream against loops with NumPy's normals: KS, kurtosis, mean, covariance."""
    samples, sigma, count = 800, 0.3, TINY.visible * 4 + 6 + 4
    found = []
    walk = NoiseWalk(TINY, seed=11)
    for number in range(samples):
        found.append(noisy(sigma, walk, replace(path, number=number)))
    mine = np.array(found)
    rng = np.random.default_rng(1)
    silent = brute_force(path.states, sigma, 1, np.zeros((TINY.steps, count)))
    # The loop is linear: its response to each normal, then as many draws as one likes.
    unit = np.eye(TINY.steps * count).reshape(-1, TINY.steps, count)
    response = np.array([brute_force(path.states, sigma, 1, one) - silent for one in unit])
    plain = silent + rng.normal(size=(samples, len(response))) @ response
    covariance = response.T @ response
    for direction in (*np.eye(count)[::5], *rng.normal(size=(5, count))):
        mine_along = mine @ direction
        deviation = np.sqrt(direction @ covariance @ direction)
        standard = (mine_along - silent @ direction) / deviation
        assert stats.ks_2samp(mine_along, plain @ direction).pvalue > 1e-4
        assert stats.kstest(standard, "norm").pvalue > 1e-4
        assert abs(standard.mean()) < 4.5 / np.sqrt(samples)
        assert abs(standard.var() - 1) < 4.5 * np.sqrt(2 / samples)
        assert abs(stats.kurtosis(standard)) < 4.5 * np.sqrt(24 / samples)


def test_blocks_cover_the_trajectory_and_chain() -> None:
    for steps, period in ((100, 1), (2500, 1), (2500, 10), (2500, 100), (250, 250), (103, 10)):
        blocks = noise_blocks(steps, period)
        assert [block.number for block in blocks] == list(range(len(blocks)))
        assert [block.first for block in blocks] == [0] + [block.last for block in blocks[:-1]]
        assert blocks[-1].last == steps
        for block in blocks:
            assert block.steps == block.groups * block.period
            assert block.period == period or block == blocks[-1]
            assert block.groups.bit_count() == 1
            assert block.steps <= max(BLOCK_STEPS, period)
            assert block.groups.bit_length() <= LEVELS
    machine = Machine(visible=6, hidden=5, duration=0.1)
    noise = NoiseWalk(machine, seed=2)
    path = noising_path(machine, np.ones(11, np.float32), 3, 0)
    projected, walk = noise.along(path, 7)
    sofar = np.zeros_like(parameters(walk))
    for block in noise.blocks:
        expected = force_matrix(machine, path[block.first + 1]) @ sofar
        np.testing.assert_allclose(projected[block.first], expected, atol=1e-4)
        sofar += np.sqrt(block.steps) * in_order(machine, noise._normals(7, block)(0, sofar.size))
    np.testing.assert_allclose(parameters(walk), sofar, atol=1e-4)


def in_order(machine: Machine, normals: np.ndarray) -> np.ndarray:
    """One number a parameter as W has them, edges of J_hh row by row of its lower triangle."""
    v, h = machine.visible, machine.hidden
    matrix = np.zeros((h, h))
    matrix[np.tril_indices(h, -1)] = normals[v * h : -h]
    return np.concatenate([normals[: v * h], matrix.T[np.triu_indices(h, 1)], normals[-h:]])


def test_flat_normals_are_those_of_the_stream() -> None:
    key = stream_key(9, "update error")
    flat = flat_normals(key, 4, 0, 5000)
    assert np.array_equal(flat[:4096], normals(9, "update error", 4, 4, 1024).ravel())
    assert np.array_equal(flat[:50], flat_normals(key, 4, 0, 50))
    others = [flat_normals(key, 4, 1, 5000), flat_normals(key, 5, 0, 5000)]
    for other in others:
        assert abs(np.corrcoef(flat, other)[0, 1]) < 5 / np.sqrt(5000)
    assert stats.kstest(flat, "norm").pvalue > 1e-3


def test_bits_do_not_depend_on_threads() -> None:
    machine = Machine(visible=40, hidden=30, duration=0.3)
    path = noising_path(machine, np.ones(70, np.float32), 3, 0)
    results = []
    for count in (1, 2, 3):
        with threads(count):
            results.append(NoiseWalk(machine, seed=2).along(path, 0))
    for projected, walk in results[1:]:
        assert np.array_equal(projected, results[0][0])
        assert np.array_equal(walk.couplings, results[0][1].couplings)
        assert np.array_equal(walk.bias, results[0][1].bias)


# In training by settings


def settings(small: Machine, cycles: int = 3, **imperfections: float) -> Settings:
    return Settings(
        machine=small,
        training=Training(cycles=cycles, validation_every=1),
        imperfections=Imperfections(**imperfections),  # type: ignore[arg-type]
    )


def learned_directly(chosen: Settings, fields: np.ndarray) -> Parameters:
    """θ as by its definition: noise of strength σ in every residual of θ itself, no Δ.

    With the noise of ``NoiseWalk``, whose law is tested above.
    """
    machine, errors, rate = chosen.machine, chosen.imperfections, chosen.learning_rate
    walk, learner = NoiseWalk(machine, chosen.training.seed), Learner(machine, rate)
    theta = Parameters.zeros(machine)
    for cycle in range(chosen.training.cycles):
        path = engine().path(machine, fields[cycle % len(fields)], chosen.training.seed, cycle)
        along, whole = walk.along(path.states, cycle)
        scale = rate * errors.update_noise
        drawn = residual_errors(machine, errors, chosen.training.seed, cycle)
        felt = (0 if drawn is None else drawn) - scale * machine.residual_scale * along
        flat = np.concatenate([whole.couplings.ravel(), whole.bias])
        theta = learner.learn(theta, path, felt.astype(np.float32), -np.float32(scale) * flat)
    return theta


@pytest.mark.parametrize("other", [{}, {"residual_noise": 0.1, "residual_correlation": 0.5}])
def test_sum_of_clean_and_response_is_what_noise_makes(
    small: Machine, fields: np.ndarray, other: dict[str, float]
) -> None:
    """θ⁰ + σ Δ over several cycles, for amplitudes trained together, against θ itself."""
    chosen = [settings(small, 6, update_noise=sigma, **other) for sigma in (0.0, 0.1, 0.4)]
    trainees = [Trainee.new(each) for each in chosen]
    train(trainees, Drive(fields))
    for trainee, each in zip(trainees, chosen, strict=True):
        expected = learned_directly(each, fields)
        assert relative_difference(trainee.parameters, expected) < 5e-6
    assert relative_difference(trainees[2].parameters, trainees[0].parameters) > 0.1


def test_amplitudes_are_learned_once_and_as_if_alone(
    small: Machine, fields: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One clean training and one response for all; not a bit depends on who else is there."""
    calls = []
    learn = Learner.learn

    def counted(self: Learner, *args: Any, **named: Any) -> Parameters:
        calls.append(1)
        return learn(self, *args, **named)

    monkeypatch.setattr(Learner, "learn", counted)
    chosen = [settings(small, update_noise=sigma) for sigma in (0.0, 0.1, 0.2, 0.4)]
    trainees = [Trainee.new(each) for each in chosen]
    train(trainees, Drive(fields))
    assert len(calls) == 2 * 3
    for trainee, each in zip(trainees, chosen, strict=True):
        assert trainee.parameters.same_as(trained(each, fields).parameters)


def test_every_knob_changes_something_and_symmetry_is_kept(
    small: Machine, fields: np.ndarray
) -> None:
    found: list[Parameters] = []
    for variant in (
        {},
        {"update_noise": 0.1},
        {"update_noise": 0.2},
        {"update_noise": 0.1, "residual_noise": 0.1},
        {"update_noise": 0.1, "residual_offset": 0.1},
        {"update_noise": 0.1, "residual_noise": 0.1, "residual_correlation": 0.5},
    ):
        theta = trained(settings(small, **variant), fields).parameters
        theta.check()
        assert not any(theta.same_as(other) for other in found)
        found.append(theta)
    other_seed = settings(small, update_noise=0.1).updated({"training": {"seed": 5}})
    assert not trained(other_seed, fields).parameters.same_as(found[1])
    delayed = settings(small, update_noise=0.1).updated(
        {"training": {"rule": "delayed", "period": 7}}
    )
    trained(delayed, fields).parameters.check()


def test_interrupted_training_continues_to_the_bit(small: Machine, fields: np.ndarray) -> None:
    chosen = settings(small, update_noise=0.3)
    kept: list[tuple[int, dict[str, np.ndarray]]] = []
    whole = trained(
        chosen,
        fields,
        on_cycle=lambda present: kept.append((present[0].cycle, present[0].arrays())),
    )
    cycle, arrays = kept[0]
    alone = Trainee.restore(chosen, arrays, cycle)
    train([alone], Drive(fields))
    assert alone.parameters.same_as(whole.parameters)
    # In a sweep, beside another amplitude that is a cycle behind.
    behind = Trainee.new(settings(small, update_noise=0.1))
    shared = Trainee.restore(chosen, arrays, cycle)
    train([behind, shared], Drive(fields))
    assert shared.parameters.same_as(whole.parameters)
    assert behind.parameters.same_as(trained(behind.settings, fields).parameters)


def test_divergence_is_a_result(small: Machine, fields: np.ndarray) -> None:
    rate = {"training": {"learning_rate": 1e5}}
    with np.errstate(all="ignore"):
        wild = trained(settings(small, update_noise=0.1).updated(rate), fields)
    assert (wild.diverged, wild.cycle) == (True, 1)
    path, zero = engine().path(small, fields[0], 3, 0), Parameters.zeros(small)
    with np.errstate(all="ignore"), pytest.raises(Diverged):
        NoiseResponse(small, 1).learn(zero, path, 1e5)
    huge = zero.with_vector(np.full_like(zero.vector, 3e38))
    state = {"clean": huge.vector, "response": huge.vector}
    learner = engine().learner(settings(small, update_noise=0.5))
    with np.errstate(all="ignore"), pytest.raises(Diverged):
        learner.update(huge, state, path)


@pytest.mark.parametrize("name", [name for name in MACHINES if name != "paper"])
def test_wirings_without_update_noise_are_refused_in_one_line(name: str) -> None:
    """By the engine that is asked for it, and with a way out."""
    with pytest.raises(UserError, match=r"imperfections\.update_noise: .*residual_noise") as error:
        engine().learner(settings(MACHINES[name], update_noise=0.1))
    assert "\n" not in str(error.value)
