"""Other models of the same images, drawn from and judged alike: their images get the thermal noise
of the machine, and all are seen by the same classifier.

    images     training images, drawn as they are: what no model can surpass
    gaussian   a Gaussian for each class
    mixture    a mixture of Gaussians with diagonal covariances for each class, as many as styles
    shared     the mean of each style and one covariance of what is left, the same for all styles:
               what the machine of harmonic units would draw if it were perfect
    rbm        a restricted Boltzmann machine with 512 hidden units for each class
    paper      the paper's machine on the same patterns: hidden units, one stage, no labels
    labelled   the same with a label unit for each class

Mixtures, the Boltzmann machines and the discriminants need scikit-learn (the extra ``peers``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.experiments.digits.parts import (
    TOLERANCE,
    asked_of,
    data_of,
    first_patterns,
    style_means,
    words_of,
)
from thermoloom.experiments.works import Job
from thermoloom.generation import generate
from thermoloom.machine.machine import Machine
from thermoloom.measures.class_accuracy import NOISE_SEED, Asked
from thermoloom.measures.fidelity import with_thermal_noise
from thermoloom.patterns.drive import Drive, unit_fields
from thermoloom.patterns.patterns import Patterns, normalized
from thermoloom.theory.solver import solve_optimum

Float32 = NDArray[np.float32]
Draw = Callable[[Patterns, NDArray[np.intp], int, int], Float32]
"""``draw(patterns, classes, styles, seed)``: a pattern of each of these classes."""

SCIKIT = ("mixture", "rbm")
LEARNING = ("images", "gaussian", "shared", *SCIKIT)
MACHINES = ("paper", "labelled")
PEERS = (*LEARNING, *MACHINES)
RIDGE = 1e-3
"""Added to the variance of every pixel, so that few images have a covariance of full rank."""
UNITS, ROUNDS, GIBBS = 512, 10, 200


def has_scikit() -> bool:
    """Whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


def available(peers: tuple[str, ...]) -> list[str]:
    """The peers that can be computed here."""
    return [peer for peer in peers if has_scikit() or peer not in SCIKIT]


def measure_peer(
    job: Job, peer: str, samples: int, data_samples: int, patterns: int
) -> dict[str, Any]:
    """Learn the patterns (machines with hidden units: the first ``patterns``), draw, judge."""
    settings, data = job.settings, data_of(job)
    if peer in MACHINES:
        learned, machine = first_patterns(job.patterns, patterns), settings.machine
        words = words_of(learned, machine)
        fields = unit_fields(learned, machine)
        theta = solve_optimum(machine, Drive(fields, words), TOLERANCE).parameters
        drawn = generate(theta, samples, settings.generation_seed)
        asked = asked_of(theta, drawn, settings.measures.classifier)
    else:
        learned = job.patterns
        classes = np.resize(np.array(learned.targets, np.intp), samples)
        images = DRAW[peer](learned, classes, settings.machine.styles, settings.training.seed)
        states = with_thermal_noise(settings.machine, images, NOISE_SEED + 1)
        asked = Asked(states, classes, settings.measures.classifier)
    job.run.save_arrays("images", {"sheet": asked.images[:100]})
    states = data.states(settings.machine, data_samples)
    return asked.many(learned, states) | {"patterns": len(learned)}


def _by_class(
    patterns: Patterns, classes: NDArray[np.intp], draw: Callable[[Float32, int, int], NDArray[Any]]
) -> Float32:
    """Images of each class from the images of that class, in the order requested."""
    own, drawn = np.array(patterns.classes), np.empty((len(classes), patterns.patterns.shape[1]))
    for asked in np.unique(classes):
        places = np.flatnonzero(classes == asked)
        drawn[places] = draw(patterns.patterns[own == asked], len(places), int(asked))
    return drawn.astype(np.float32)


def draw_images(patterns: Patterns, classes: NDArray[np.intp], styles: int, seed: int) -> Float32:
    """Training images of each class."""

    def draw(rows: Float32, count: int, asked: int) -> NDArray[Any]:
        return rows[np.random.default_rng([seed, asked]).integers(0, len(rows), count)]

    return _by_class(patterns, classes, draw)


def draw_gaussian(patterns: Patterns, classes: NDArray[np.intp], styles: int, seed: int) -> Float32:
    """Mean and covariance of each class."""

    def draw(rows: Float32, count: int, asked: int) -> NDArray[Any]:
        wide = rows.astype(np.float64)
        covariance = np.cov(wide, rowvar=False) + RIDGE * np.eye(wide.shape[1])
        normal = np.random.default_rng([seed, asked]).normal(size=(count, wide.shape[1]))
        found: NDArray[Any] = wide.mean(axis=0) + normal @ np.linalg.cholesky(covariance).T
        return found

    return _by_class(patterns, classes, draw)


def draw_shared(patterns: Patterns, classes: NDArray[np.intp], styles: int, seed: int) -> Float32:
    """The mean of a style, each as likely as it is frequent, and the pooled covariance."""
    own = np.array(patterns.classes)
    machine = Machine(
        visible=patterns.patterns.shape[1], labels=int(own.max()) + 1, styles=styles,
    )  # fmt: skip
    words = words_of(patterns, machine)
    assert words is not None
    unit, means = words.argmax(axis=1), style_means(patterns, words)
    rest = patterns.patterns - means[unit]
    covariance = rest.T @ rest / len(rest) + RIDGE * np.eye(rest.shape[1], dtype=np.float32)
    root = np.linalg.cholesky(covariance.astype(np.float64))
    rng = np.random.default_rng(seed)
    drawn = np.array([rng.choice(np.flatnonzero(own == c)) for c in classes])
    normal = rng.normal(size=(len(classes), rest.shape[1]))
    images: Float32 = (means[unit[drawn]] + normal @ root.T).astype(np.float32)
    return images


def draw_mixture(patterns: Patterns, classes: NDArray[np.intp], styles: int, seed: int) -> Float32:
    """A Gaussian mixture per class: as many components as styles, of ten images or more each."""
    from sklearn.mixture import GaussianMixture

    def draw(rows: Float32, count: int, asked: int) -> NDArray[Any]:
        components = max(1, min(styles, len(rows) // 10))
        model = GaussianMixture(
            components, covariance_type="diag", reg_covar=RIDGE, max_iter=20,
            random_state=seed + asked,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it could go on after so many rounds
            images: NDArray[Any] = model.fit(rows).sample(count)[0]
        # it gives them component by component: the order must not depend on the asked class
        return images[np.random.default_rng([seed, asked]).permutation(count)]

    return _by_class(patterns, classes, draw)


def draw_rbm(patterns: Patterns, classes: NDArray[np.intp], styles: int, seed: int) -> Float32:
    """Grey values as probabilities; Gibbs sampling from random images, the last mean is drawn."""
    from sklearn.neural_network import BernoulliRBM

    if patterns.pixels is None:
        raise ValueError("images of bytes are needed")
    grey = patterns.pixels.astype(np.float32) / 255

    def draw(rows: Float32, count: int, asked: int) -> NDArray[Any]:
        own = grey[np.array(patterns.classes) == asked]
        model = BernoulliRBM(
            UNITS, learning_rate=0.05, batch_size=50, n_iter=ROUNDS, random_state=seed + asked
        )
        model.fit(own)
        rng = np.random.default_rng([seed, asked])
        state = (rng.random((count, own.shape[1])) < own.mean(axis=0)).astype(np.float64)
        for _ in range(GIBBS):
            hidden = rng.random((count, UNITS)) < model.transform(state)
            mean = 1 / (1 + np.exp(-(hidden @ model.components_ + model.intercept_visible_)))
            state = (rng.random(mean.shape) < mean).astype(np.float64)
        return normalized(mean)

    return _by_class(patterns, classes, draw)


DRAW: dict[str, Draw] = {
    "images": draw_images,
    "gaussian": draw_gaussian,
    "mixture": draw_mixture,
    "shared": draw_shared,
    "rbm": draw_rbm,
}


def discriminants(
    patterns: Patterns, images: Float32, classes: NDArray[np.intp]
) -> list[dict[str, Any]]:
    """Logistic regression and linear discriminants on the same images; none without the library."""
    if not has_scikit():
        return []
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression

    own, rows = np.array(patterns.classes), []
    models = {
        "logistic regression": LogisticRegression(max_iter=100, C=0.01),
        "linear discriminants": LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.01),
    }
    for name, model in models.items():
        right = model.fit(patterns.patterns, own).predict(images) == classes
        row = {"classifier": name, "images": len(images), "accuracy": float(right.mean())}
        rows.append(row)
    return rows
