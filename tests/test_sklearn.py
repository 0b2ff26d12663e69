"""The estimator of scikit-learn: its own checklist, likelihoods, samples by class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machines import MACHINES, random_parameters, some_fields
from scipy import integrate

import thermoloom as tl
from thermoloom.engines import engine
from thermoloom.machine.action import path_terms
from thermoloom.theory.generation_law import generation_law, imprinted_law
from thermoloom.theory.likelihood import log_likelihoods

pytest.importorskip("sklearn", reason="extra peers is not installed")

from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from thermoloom.sklearn import ThermodynamicGenerator


@pytest.fixture(scope="module")
def table() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal([[5, 100, 1]] * 60 + [[9, 20, 1]] * 60, [1, 9, 0.1])
    return X, np.array(["a"] * 60 + ["b"] * 60)


@pytest.fixture(autouse=True)
def _portable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which has nothing to compile."""
    monkeypatch.setenv("THERMOLOOM_ENGINE", "portable")


def test_scikit_learns_checklist() -> None:
    check_estimator(ThermodynamicGenerator(), on_skip=None)


def test_samples_have_the_requested_class(table: tuple[Any, Any]) -> None:
    X, y = table
    generator = ThermodynamicGenerator().fit(X, y)
    rows = generator.sample(50, y="b")
    assert abs(rows.mean(axis=0) - X[60:].mean(axis=0)).max() < 3
    mixed = generator.sample(4, y=["a", "b", "b", "a"])
    assert generator.predict(mixed).tolist() == ["a", "b", "b", "a"]
    assert (generator.predict(X) == y).mean() > 0.98
    with pytest.raises(tl.UserError, match="must be among the classes a, b"):
        generator.sample(2, y="c")


def test_scores_depend_on_no_other_row(table: tuple[Any, Any]) -> None:
    X, y = table
    generator = ThermodynamicGenerator().fit(X, y)
    every = generator.score_samples(X)
    alone = [generator.score_samples(X[i : i + 1])[0] for i in (0, 7, 99)]
    np.testing.assert_allclose(alone, every[[0, 7, 99]], rtol=1e-12)
    assert generator.score_samples([[5, 100, 1]]) > generator.score_samples([[30, 400, 5]])


def test_pipelines_and_searches(table: tuple[Any, Any]) -> None:
    X, y = table
    machine = tl.Machine(visible=3, hidden=0, labels=2, wiring=["visible-visible", "visible-label"],
                         biases=["visible"], J4=0.0, dt=0.01, scale="none")  # fmt: skip
    pipe = make_pipeline(StandardScaler(), ThermodynamicGenerator(machine))
    search = GridSearchCV(pipe, {"thermodynamicgenerator__kT": [0.1, 0.3]}, cv=2).fit(X, y)
    assert (search.predict(X) == y).mean() > 0.95
    assert "thermodynamicgenerator__rule" in pipe.get_params()
    trained = ThermodynamicGenerator(machine, rule="online", cycles=2)
    trained.fit(StandardScaler().fit_transform(X), y)
    assert trained.computer_.settings.training.cycles == 2


@pytest.mark.parametrize("name", ["paper", "all stages", "apart"])
def test_log_likelihoods_are_means_over_paths(name: str) -> None:
    """Of −V(x_K)/k_BT − N ln Z + KN/2 − L of simulated paths, with the word of each class."""
    machine = MACHINES[name]
    theta, fields = random_parameters(machine), some_fields(machine)[:2]
    expected = log_likelihoods(theta, fields)
    words = machine.label_amplitude * np.eye(machine.labels) if machine.labels else [None]
    Z = integrate.quad(lambda x: np.exp(-machine.potential.energy(x) / machine.kT), -3, 3)[0]
    at_rest = machine.units * (machine.steps / 2 - np.log(Z))
    for pattern, field in enumerate(fields):
        paths = [engine().path(machine, field, 5, n).states for n in range(300)]
        for label, word in enumerate(words):
            bounds = [
                at_rest
                - machine.potential.energy(x[-1].astype(float)).sum() / machine.kT
                - machine.steps * path_terms(theta, x, None, word).loss
                for x in paths
            ]
            error = np.std(bounds) / np.sqrt(len(bounds))
            assert abs(np.mean(bounds) - expected[pattern, label]) < 4.5 * error


def test_log_likelihoods_bound_the_density_of_the_samples() -> None:
    """Where it is known: states of harmonic units are Gaussian."""
    machine = tl.Machine(visible=3, hidden=0, wiring=["visible-visible"], biases=["visible"],
                         J4=0.0, dt=0.01, stages=4)  # fmt: skip
    rows = np.random.default_rng(0).normal(size=(400, 3)) @ [[1, 0.6, 0], [0, 0.8, 0], [0, 0, 0.5]]
    computer = machine.solve(rows, scale=None)
    law = generation_law(computer.parameters).laws[-1]
    prepared = imprinted_law(machine, rows)
    inverse = np.linalg.inv(law.covariance)
    distance = prepared.mean - law.mean
    exact = -0.5 * (
        np.einsum("pi,ij,pj->p", distance, inverse, distance)
        + np.trace(inverse @ prepared.covariance)
        + np.linalg.slogdet(2 * np.pi * law.covariance)[1]
    )
    bound = computer.log_likelihoods(rows)[:, 0]
    assert (bound < exact).all()
    assert np.corrcoef(bound, exact)[0, 1] > 0.9


def test_a_code_that_new_data_lacks_is_refused() -> None:
    machine = tl.Machine(visible=49, hidden=8, duration=0.05)

    def edges(patterns: Any) -> Any:
        return np.diff(patterns, axis=1)[:, :8]

    computer = machine.solve(tl.digits(0, 1), resize=True, code=edges)
    assert computer.machine.code == "given"
    np.testing.assert_allclose(computer.patterns.code, edges(computer.patterns.patterns))
    with pytest.raises(tl.UserError, match="new data has no fields for hidden units"):
        computer.log_likelihoods(computer.patterns.patterns)
    with pytest.raises(tl.UserError, match="fields of shape"):
        machine.solve(tl.digits(0, 1), resize=True, code=lambda patterns: patterns)
