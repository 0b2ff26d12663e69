"""Judge samples, for all measures of this study: correct class, diversity, heat and work."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from thermoloom.generation import generate, requested_classes
from thermoloom.machine.generated import Generated
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.class_accuracy import Data, RequestedImages, reference_data
from thermoloom.measures.classifier import classifier_in, image_features
from thermoloom.measures.fidelity import frechet_distance
from thermoloom.measures.statistics import estimate_mean
from thermoloom.studies.case import Job

TOLERANCE = 1e-4
"""Relative gradient at which a machine that is only compared counts as solved; the error of its
loss is of the order of the square."""


def reference_images(job: Job) -> Data:
    """The images that samples are compared with: test images, or the bundled digits."""
    return reference_data(job.patterns, job.settings.patterns, job.settings.machine)


def requested_images(theta: Parameters, generated: Generated, classifier: str) -> RequestedImages:
    """Images of a generation in which all classes were requested in turn."""
    images = generated.final_states[:, : theta.machine.visible]
    classes = requested_classes(theta, len(images), None)
    return RequestedImages(images, None if classes is None else classes.astype(np.intp), classifier)


def energies(generated: Generated) -> dict[str, Any]:
    """Heat and work of a sample, in E₀."""
    heat, work = estimate_mean(generated.heat), estimate_mean(generated.work)
    return {"heat": asdict(heat), "work": asdict(work)}


def judged_samples(job: Job, theta: Parameters, noise: float | None = None) -> dict[str, Any]:
    """Rate of the correct class, diversity, negatives, heat and work, beside the data's diversity.

    Samples that are not finite count as diverged.
    """
    samples, classifier = job.settings.generation.samples, job.settings.measures.classifier
    with np.errstate(over="ignore", invalid="ignore"):
        generated = generate(theta, samples, job.settings.generation_seed)
    if not np.isfinite(generated.final_states).all():
        return {"diverged": True}
    reference = reference_images(job)
    states = reference.states(theta.machine, samples, noise)
    reference_judged = RequestedImages(
        states, reference.classes[: len(states)], classifier
    ).class_measures(job.patterns)
    drawn, judge = requested_images(theta, generated, classifier), classifier_in(classifier)
    features = [image_features(images, judge) for images in (drawn.images, states)]
    return (
        drawn.class_measures(job.patterns)
        | energies(generated)
        | {
            "diverged": False,
            "data_diversity": reference_judged["diversity"],
            "frechet": frechet_distance(*features),
        }
    )
