"""Other models of the same images, sampled and judged in the same way.

    images     training images, drawn unchanged: no model can surpass them
    gaussian   a Gaussian for each class
    rank-R     … with the R leading directions of its covariance only
    mixture    a mixture of Gaussians with diagonal covariances for each class, as many as styles
    shared     the mean of each style, and one covariance of the deviations for all styles: what
               the machine of harmonic units would draw if it were perfect
    means      the mean of each style alone, without fluctuations
    rbm        a restricted Boltzmann machine with 512 hidden units for each class
    paper      the paper's machine on the same patterns: hidden units, one stage, no labels
    labelled   the same with a label unit for each class

Their images get the thermal noise of the machine, and the same classifier judges all of them.
Mixtures and Boltzmann machines need scikit-learn (the extra ``peers``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from thermoloom.errors import UserError, warnings_become
from thermoloom.generation import generate
from thermoloom.machine.machine import Machine
from thermoloom.measures.class_accuracy import NOISE_SEED, RequestedImages
from thermoloom.measures.fidelity import with_thermal_noise
from thermoloom.patterns.patterns import Patterns
from thermoloom.patterns.scale import normalized
from thermoloom.studies.case import Job
from thermoloom.studies.digits.judged_samples import TOLERANCE, reference_images, requested_images
from thermoloom.studies.digits.styles import label_words, labelled_drive, style_means
from thermoloom.studies.first_patterns import first_patterns
from thermoloom.theory.solver import solve_optimum

Float32 = NDArray[np.float32]
Indices = NDArray[np.intp]
Draw = Callable[[Patterns, Indices, int, int], Float32]
"""``draw(patterns, classes, styles, seed)``: an image of each of these classes."""
DrawClass = Callable[[Float32, int, int], NDArray[Any]]
"""``draw(images, count, target)``: images of a class from the training images of that class."""

SCIKIT = ("mixture", "rbm")
RANKS = (2, 5, 10, 25, 50, 100)
LEARNING = ("images", "gaussian", *(f"rank-{rank}" for rank in RANKS), "shared", "means", *SCIKIT)
MACHINES = ("paper", "labelled")
PEERS = (*LEARNING, *MACHINES)
RIDGE = 1e-3
"""Added to the variance of every pixel: the covariance of few images then has full rank."""
UNITS, ROUNDS, GIBBS = 512, 10, 200
"""Hidden units, passes through the images and Gibbs steps of the Boltzmann machines."""
SHEET = 100
"""Samples that are saved as images."""


def has_scikit() -> bool:
    """Whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


def available(peers: tuple[str, ...]) -> list[str]:
    """The peers that can be computed with the packages installed here."""
    return [peer for peer in peers if has_scikit() or peer not in SCIKIT]


def peer_model(
    job: Job, peer: str, data_samples: int, patterns: int, noise: float | None = None
) -> dict[str, Any]:
    """Learn the patterns, draw and judge; machines learn only the first ``patterns``."""
    if peer in MACHINES:
        learned = first_patterns(job.patterns, patterns)
        samples = _machine_samples(job, learned)
    else:
        learned = job.patterns
        samples = _model_samples(job, DRAW[peer], noise)
    job.run.save_arrays("images", {"sheet": samples.images[:SHEET]})
    states = reference_images(job).states(job.settings.machine, data_samples, noise)
    return samples.all_measures(learned, states) | {"patterns": len(learned)}


def _machine_samples(job: Job, learned: Patterns) -> RequestedImages:
    settings, machine = job.settings, job.settings.machine
    theta = solve_optimum(machine, labelled_drive(learned, machine), TOLERANCE).parameters
    generated = generate(theta, settings.generation.samples, settings.generation_seed)
    return requested_images(theta, generated, settings.measures.classifier)


def _model_samples(job: Job, draw: Draw, noise: float | None) -> RequestedImages:
    """Images of all classes in turn, with the thermal noise of the machine."""
    settings, machine = job.settings, job.settings.machine
    targets = np.array(job.patterns.targets, np.intp)
    classes = np.resize(targets, settings.generation.samples)
    images = draw(job.patterns, classes, machine.styles, settings.training.seed)
    states = with_thermal_noise(machine, images, NOISE_SEED + 1, noise)
    return RequestedImages(states, classes, settings.measures.classifier)


def _by_class(patterns: Patterns, classes: Indices, draw: DrawClass) -> Float32:
    """Images of the requested classes, in the order requested."""
    labels = np.array(patterns.classes)
    drawn = np.empty((len(classes), patterns.patterns.shape[1]))
    for target in np.unique(classes):
        places = np.flatnonzero(classes == target)
        drawn[places] = draw(patterns.patterns[labels == target], len(places), int(target))
    return drawn.astype(np.float32)


def draw_images(patterns: Patterns, classes: Indices, styles: int, seed: int) -> Float32:
    """Training images of each class."""

    def draw(images: Float32, count: int, target: int) -> NDArray[Any]:
        return images[np.random.default_rng([seed, target]).integers(0, len(images), count)]

    return _by_class(patterns, classes, draw)


def draw_gaussian(patterns: Patterns, classes: Indices, styles: int, seed: int) -> Float32:
    """Images from a Gaussian with the mean and covariance of each class."""

    def draw(images: Float32, count: int, target: int) -> NDArray[Any]:
        wide = images.astype(np.float64)
        covariance = np.cov(wide, rowvar=False) + RIDGE * np.eye(wide.shape[1])
        normal = np.random.default_rng([seed, target]).normal(size=(count, wide.shape[1]))
        drawn: NDArray[Any] = wide.mean(axis=0) + normal @ np.linalg.cholesky(covariance).T
        return drawn

    return _by_class(patterns, classes, draw)


def draw_rank(patterns: Patterns, classes: Indices, styles: int, seed: int, rank: int) -> Float32:
    """Images from a Gaussian with the leading directions of the covariance of each class."""

    def draw(images: Float32, count: int, target: int) -> NDArray[Any]:
        wide = images.astype(np.float64)
        width = wide.shape[1]
        leading = (max(0, width - rank), width - 1)
        variances, directions = eigh(np.cov(wide, rowvar=False), subset_by_index=leading)
        normal = np.random.default_rng([seed, target]).normal(size=(count, len(variances)))
        spread = normal * np.sqrt(np.maximum(variances, 0))
        drawn: NDArray[Any] = wide.mean(axis=0) + spread @ directions.T
        return drawn

    return _by_class(patterns, classes, draw)


def _drawn_means(
    patterns: Patterns, classes: Indices, styles: int, rng: np.random.Generator
) -> tuple[Float32, Float32]:
    """The mean of each pattern's style, and means of styles drawn as often as they occur."""
    labels = np.array(patterns.classes)
    machine = Machine(
        visible=patterns.patterns.shape[1], labels=int(labels.max()) + 1, styles=styles
    )
    words = label_words(patterns, machine)
    of_each = style_means(patterns, words)[words.argmax(axis=1)]
    drawn = np.array([rng.choice(np.flatnonzero(labels == target)) for target in classes])
    return of_each, of_each[drawn]


def draw_means(patterns: Patterns, classes: Indices, styles: int, seed: int) -> Float32:
    """The means of styles, each drawn as often as it occurs."""
    return _drawn_means(patterns, classes, styles, np.random.default_rng(seed))[1]


def draw_shared(patterns: Patterns, classes: Indices, styles: int, seed: int) -> Float32:
    """Images from Gaussians around the means of styles, with one covariance for all styles."""
    rng = np.random.default_rng(seed)
    of_each, drawn = _drawn_means(patterns, classes, styles, rng)
    deviations = patterns.patterns - of_each
    covariance = deviations.T @ deviations / len(deviations)
    covariance += RIDGE * np.eye(len(covariance), dtype=np.float32)
    root = np.linalg.cholesky(covariance.astype(np.float64))
    normal = rng.normal(size=(len(classes), len(covariance)))
    images: Float32 = (drawn + normal @ root.T).astype(np.float32)
    return images


def draw_mixture(patterns: Patterns, classes: Indices, styles: int, seed: int) -> Float32:
    """Images from a Gaussian mixture per class: a component per style, or one per ten images."""
    from sklearn.mixture import GaussianMixture

    def draw(images: Float32, count: int, target: int) -> NDArray[Any]:
        components = max(1, min(styles, len(images) // 10))
        model = GaussianMixture(
            components,
            covariance_type="diag",
            reg_covar=RIDGE,
            max_iter=20,
            random_state=seed + target,
        )
        with warnings_become("ignore"):  # the fit may not converge in so few rounds
            drawn: NDArray[Any] = model.fit(images).sample(count)[0]
        # drawn component by component; shuffled, so that the order does not reveal the component
        return drawn[np.random.default_rng([seed, target]).permutation(count)]

    return _by_class(patterns, classes, draw)


def draw_rbm(patterns: Patterns, classes: Indices, styles: int, seed: int) -> Float32:
    """Images from Boltzmann machines that learn grey values: means after the last Gibbs step."""
    from sklearn.neural_network import BernoulliRBM

    if patterns.pixels is None:
        raise UserError("study.peers: rbm needs images of 8-bit grey values; leave it out")
    grey, labels = patterns.pixels.astype(np.float32) / 255, np.array(patterns.classes)

    def draw(images: Float32, count: int, target: int) -> NDArray[Any]:
        images = grey[labels == target]
        model = BernoulliRBM(
            UNITS, learning_rate=0.05, batch_size=50, n_iter=ROUNDS, random_state=seed + target
        )
        model.fit(images)
        rng = np.random.default_rng([seed, target])
        state = (rng.random((count, images.shape[1])) < images.mean(axis=0)).astype(np.float64)
        for _ in range(GIBBS):
            hidden = rng.random((count, UNITS)) < model.transform(state)
            mean = 1 / (1 + np.exp(-(hidden @ model.components_ + model.intercept_visible_)))
            state = (rng.random(mean.shape) < mean).astype(np.float64)
        return normalized(mean)

    return _by_class(patterns, classes, draw)


DRAW: dict[str, Draw] = {
    "images": draw_images,
    "gaussian": draw_gaussian,
    **{f"rank-{rank}": partial(draw_rank, rank=rank) for rank in RANKS},
    "mixture": draw_mixture,
    "shared": draw_shared,
    "means": draw_means,
    "rbm": draw_rbm,
}
