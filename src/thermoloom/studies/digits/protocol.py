"""The published protocol for binarized images: Fréchet distance from all training images.

    reference   law of the features of the training images; known distances, checked by the gate
    model       512 black-and-white images of each class, and their distance from that law

Continuous samples are thresholded at one level for all models: the midpoint between black and white
of a training pattern, averaged over the training images. Features are those of a user's network (an
ONNX file), or of the study's classifier, which gives another scale.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.generation import generate
from thermoloom.measures.frechet_protocol import (
    CONTRAST_THRESHOLD,
    Extract,
    Gate,
    classifier_features,
    feature_law,
    frechet,
    inception_features,
)
from thermoloom.patterns.datasets import labelled_images
from thermoloom.runs.store import RunDirectory
from thermoloom.studies.case import Job
from thermoloom.studies.digits.judged_samples import energies
from thermoloom.studies.digits.peers import DRAW
from thermoloom.theory.generation_law import Gaussian

CLASSIFIER = "classifier"
"""Value of ``study.protocol`` for features of the study's classifier."""
CLAMPED, DRAWN = "this machine, labels clamped", "this machine, labels free"
"""Each class equally often; classes drawn with their frequency, by a digital random number."""
LAW = "law"


class Mark(NamedTuple):
    """A published Fréchet distance under the protocol, in features of the Inception network."""

    model: str
    frechet: float
    joules: float | None
    """Energy of a sample, where it was published."""
    kind: str
    source: str


_SOURCE = "arXiv 2510.23972"
_DENOISING = "denoising thermodynamic model, "
MARKS = (
    Mark(f"{_DENOISING}8 steps", 24.9, 15.7e-9, "simulated", _SOURCE),
    Mark(f"{_DENOISING}4 steps", 28.5, None, "simulated", _SOURCE),
    Mark(f"{_DENOISING}2 steps", 32.6, None, "simulated", _SOURCE),
    Mark(f"{_DENOISING}1 step", 78.4, 2.0e-9, "simulated", _SOURCE),
    Mark("monolithic energy-based model", 33.5, None, "simulated", _SOURCE),
    Mark("DDPM", 12.2, 6.0, "digital", _SOURCE),
    Mark("VAE", 17.9, None, "digital", _SOURCE),
    Mark("GAN", 26.3, None, "digital", _SOURCE),
)
"""Published distances, shown beside ours; comparable only in features of the Inception network."""


def extractor(job: Job, network: str) -> Extract:
    """The features of ``study.protocol``."""
    if network == CLASSIFIER:
        return classifier_features(job.settings.measures.classifier)
    return inception_features(Path(network))


def protocol_reference(job: Job, network: str, sha256: str, gate: list[float]) -> dict[str, Any]:
    """Law of the features of all training images, and the known distances from it.

    With the Inception network, these distances must be those of the gate.
    """
    extract, source = extractor(job, network), job.settings.patterns
    law = feature_law(_grey(job, "train", source.threshold), extract)
    known = {
        "test images": _grey(job, "test", source.threshold),
        f"training images thresholded at {CONTRAST_THRESHOLD}": _grey(
            job, "train", CONTRAST_THRESHOLD
        ),
    }
    distances = {name: frechet(feature_law(i, extract), law) for name, i in known.items()}
    if network != CLASSIFIER:
        Gate(*gate).check(*distances.values())
    job.run.save_arrays(LAW, {"mean": law.mean, "covariance": law.covariance})
    return {"rows": [{"model": name, "frechet": d, "images": len(known[name])}
                     for name, d in distances.items()]}  # fmt: skip


def protocol_model(
    job: Job, model: str, reference: str, network: str, sha256: str, per_class: int
) -> dict[str, Any]:
    """Images of a model, black and white, and their distance from the training images."""
    arrays = RunDirectory.open(job.workdir / reference).load_arrays(LAW)
    law = Gaussian(arrays["mean"], arrays["covariance"])
    states, cost = _drawn(job, model, per_class)
    patterns = job.patterns.patterns
    level = float((patterns.min(axis=1) + patterns.max(axis=1)).mean() / 2)
    images = np.where(states > level, 255, 0).astype(np.uint8).reshape(len(states), *_shape(job))
    job.run.save_arrays("images", {"sheet": images[:100]})
    distance = frechet(feature_law(images, extractor(job, network)), law)
    return {"model": model, "frechet": distance, "images": len(images), **cost}


def _drawn(job: Job, model: str, per_class: int) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """States of the visible units of a model, with heat and work if the model is the machine."""
    settings, patterns = job.settings, job.patterns
    targets = np.array(patterns.targets, np.intp)
    classes = np.resize(targets, per_class * len(targets))
    if model not in (CLAMPED, DRAWN):
        return DRAW[model](patterns, classes, settings.machine.styles, settings.training.seed), {}
    if model == DRAWN:
        rng = np.random.default_rng(settings.generation_seed)
        classes = rng.choice(np.array(patterns.classes), len(classes))
    generated = generate(job.parameters(), len(classes), settings.generation_seed, classes.tolist())
    return generated.final_states[:, : settings.machine.visible], energies(generated)


def _grey(job: Job, part: str, threshold: float | None) -> NDArray[np.uint8]:
    """Thresholded images of the learned classes."""
    source = replace(job.settings.patterns, threshold=threshold)
    images, classes = labelled_images(source, part)
    return images[np.isin(classes, job.patterns.targets)]


def _shape(job: Job) -> tuple[int, ...]:
    shape = job.patterns.shape
    assert shape is not None  # the study learns images
    return shape
