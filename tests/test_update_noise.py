"""Update noise: the law against its definition, the learner against the brute-force loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from machines import MACHINES, path_of, relative_difference, trained
from scipy import stats

from thermoloom.engines import Diverged, Path, engine
from thermoloom.engines.compiled.learner import Learner
from thermoloom.engines.compiled.noising import noising_path
from thermoloom.engines.compiled.residual_errors import residual_errors
from thermoloom.engines.compiled.streams import flat_normals
from thermoloom.engines.compiled.update_noise import NoiseResponse
from thermoloom.engines.library import library
from thermoloom.engines.portable import select, update_noise
from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.drive import Drive
from thermoloom.settings import Imperfections, Settings, Training
from thermoloom.streams import Stream, draw_normals, stream_key
from thermoloom.threads import threads
from thermoloom.training.trainer import Trainee, train


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads cost more than they give for computers this small."""
    with threads(1):
        yield


# The law of the walk is tested in test_portable, which has the method. Here the learner, exactly: θ
# is linear in the noise, so its covariance is that of a matrix, whose columns are had by feeding
# one normal at a time.


def parameters(theta: Parameters) -> np.ndarray:
    """One number a parameter: J_vh, the upper triangle of J_hh, b_h."""
    visible_hidden, hidden_hidden, bias = theta.of_stage(0).values()
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


def states_of(machine: Machine, steps: int, spread: float = 0.2) -> np.ndarray:
    rng = np.random.default_rng(steps)
    walk = spread * np.cumsum(rng.normal(size=(steps, machine.units)), axis=0)
    return (rng.normal(size=machine.units) + walk).astype(np.float32)


TINY = Machine(visible=3, hidden=4, duration=0.011)
RATE = 2.0
"""So large that noise feeds back through the residuals within a trajectory."""


def noisy(sigma: float, path: Path, period: int = 1) -> np.ndarray:
    """θ⁰ + σ Δ after one path from θ = 0."""
    rule = {"rule": "delayed", "period": period} if period > 1 else {}
    response = NoiseResponse(settings(TINY).updated({"training": {"learning_rate": RATE} | rule}))
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


@pytest.mark.parametrize("period", [1, 2, 4, 11])
def test_law_of_the_learned_parameters(
    path: Path, period: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mean and full covariance of θ after a trajectory of several spans, against the loop."""
    sigma, count, sizes = 0.3, TINY.visible * 4 + 6 + 4, list[int]()

    def run(draw: int, position: int) -> np.ndarray:
        """θ where one normal is 1 and all others are 0."""
        calls = iter(range(1000))

        def unit(library: Any, shape: Any, *rest: Any) -> np.ndarray:
            z, number = np.zeros(4 * shape[1], np.float32), next(calls)
            if draw < 0:
                sizes.append(z.size)
            elif number == draw:
                z[position] = 1
            return z

        monkeypatch.setattr(update_noise, "draw_normals", unit)
        return noisy(sigma, path, period)

    silent = brute_force(path.states, sigma, period, np.zeros((TINY.steps, count)))
    zero = run(-1, 0)
    np.testing.assert_allclose(zero, silent, atol=1e-5 * np.abs(silent).max())
    each = [(draw, i) for draw, size in enumerate(list(sizes)) for i in range(size)]
    found = np.array([run(*one) - zero for one in each])
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
    samples, sigma, count = 200, 0.3, TINY.visible * 4 + 6 + 4
    mine = np.array([noisy(sigma, replace(path, number=number)) for number in range(samples)])
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


def test_normals_are_those_of_the_portable_engine() -> None:
    numpy, key = library("numpy", "cpu", "float32"), stream_key(9, "update error")
    keys, trajectory = Stream(numpy, 9, "update error").keys, np.array([4])
    expected = draw_normals(numpy, (2, 3000), keys, trajectory, np.int64(7))
    np.testing.assert_allclose(flat_normals(key, 4, 7, 2, 3000), expected, atol=2e-6)


def test_both_engines_have_the_same_noise() -> None:
    machine = Machine(visible=40, hidden=200, duration=0.07)
    chosen = settings(machine, update_noise=0.1)
    path = engine().path(machine, np.ones(machine.units, np.float32), 3, 0)
    zero = Parameters.zeros(machine)
    ours, theirs = (
        each.learner(chosen).update(zero, each.learner(chosen).init(zero), path)[0]
        for each in (engine(), select())
    )
    response: Any = select().learner(chosen)
    assert response.response.updates(path.states[1:]) > 2  # with bridges
    assert relative_difference(ours, theirs) < 1e-5


def test_bits_do_not_depend_on_threads() -> None:
    machine = Machine(visible=40, hidden=30, duration=0.3)
    path = engine().path(machine, np.ones(70, np.float32), 3, 0)
    response, learned = NoiseResponse(settings(machine)), []
    for count in (1, 2, 3):
        with threads(count):
            learned.append(response.learn(Parameters.zeros(machine), path, 0.01))
    assert all(theta.same_as(learned[0]) for theta in learned[1:])


# In training by settings


def settings(small: Machine, cycles: int = 3, **imperfections: float) -> Settings:
    return Settings(
        machine=small,
        training=Training(cycles=cycles, validation_every=1),
        imperfections=Imperfections(**imperfections),  # type: ignore[arg-type]
    )


def learned_directly(chosen: Settings, fields: np.ndarray) -> Parameters:
    """θ as by its definition: noise of strength σ in every residual of θ itself, no Δ."""
    machine, errors, rate = chosen.machine, chosen.imperfections, chosen.learning_rate
    noise, learner = NoiseResponse(chosen).noise, Learner(machine, rate)
    theta = Parameters.zeros(machine)
    for cycle in range(chosen.training.cycles):
        path = engine().path(machine, fields[cycle % len(fields)], chosen.training.seed, cycle)
        along, change = noise.lesson(path)
        drawn = residual_errors(machine, errors, chosen.training.seed, cycle)
        felt = (0 if drawn is None else drawn) + errors.update_noise * along
        change = (errors.update_noise * change).astype(np.float32)
        theta = learner.learn(theta, path, felt.astype(np.float32), change)
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
        NoiseResponse(settings(small)).learn(zero, path, 1e5)
    huge = zero.with_vector(np.full_like(zero.vector, 3e38))
    state = {"clean": huge.vector, "response": huge.vector}
    learner = engine().learner(settings(small, update_noise=0.5))
    with np.errstate(all="ignore"), pytest.raises(Diverged):
        learner.update(huge, state, path)


def test_sparse_wirings_with_update_noise_are_refused_in_one_line() -> None:
    """The engine that is used refuses them, and its message names an alternative."""
    sparse = Machine(visible=12, hidden=8, topology="random", degree=3, duration=0.1)
    with pytest.raises(UserError, match=r"imperfections\.update_noise: .*residual_noise") as error:
        engine().learner(settings(sparse, update_noise=0.1))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["all stages", "labels"])
def test_every_complete_wiring_has_update_noise(name: str) -> None:
    """As the portable engine learns it."""
    machine = MACHINES[name]
    chosen = settings(machine, update_noise=0.1)
    word = np.ones(machine.labels, np.float32) if machine.labels else None
    path = engine().path(machine, np.ones(machine.units, np.float32), 3, 0, word)
    zero = Parameters.zeros(machine)
    learned = [
        each.learner(chosen).update(zero, each.learner(chosen).init(zero), path)[0]
        for each in (engine(), select())
    ]
    assert relative_difference(*learned) < 1e-5
