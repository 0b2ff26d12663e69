"""Classification: the class whose labels make the noising path of an image most likely."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import engine
from thermoloom.machine.protocol import noising_heat
from thermoloom.measures.statistics import estimate_mean
from thermoloom.patterns.drive import unit_fields
from thermoloom.patterns.patterns import Patterns
from thermoloom.studies.case import Job
from thermoloom.studies.digits.judged_samples import reference_images
from thermoloom.studies.digits.peers import has_scikit
from thermoloom.theory.likelihood import class_log_likelihoods, expected_residuals, path_residuals
from thermoloom.theory.marginals import solve_marginals

SAMPLED_PATHS = 200
"""Images that are also classified by one sampled path."""

Float32 = NDArray[np.float32]
Indices = NDArray[np.intp]


def classification(job: Job, images: int) -> dict[str, Any]:
    """Accuracy of the machine by the expected path and one sampled path, and of linear models."""
    theta, machine, reference = job.parameters(), job.settings.machine, reference_images(job)
    visible, classes = reference.patterns[:images], reference.classes[:images]
    fields = np.concatenate([visible, np.zeros((len(visible), machine.hidden), np.float32)], axis=1)
    largest = float(np.abs(unit_fields(job.patterns, machine)).max())
    residuals = expected_residuals(theta, fields, solve_marginals(machine, largest))
    sampled = fields[:SAMPLED_PATHS]
    seed = job.settings.training.validation_seed
    paths = [
        engine().path(machine, field, seed, number, purpose="validation")
        for number, field in enumerate(sampled)
    ]
    path_sums = np.stack([path_residuals(theta, path) for path in paths])
    heat = [noising_heat(machine, f, path.states) for f, path in zip(sampled, paths, strict=True)]
    predicted = {
        "the machine, expected path": class_log_likelihoods(theta, residuals).argmax(axis=1),
        "the machine, one sampled path": class_log_likelihoods(theta, path_sums).argmax(axis=1),
        **linear_classifiers(job.patterns, visible),
    }
    rows = [
        {
            "classifier": name,
            "images": len(guesses),
            "accuracy": float((guesses == classes[: len(guesses)]).mean()),
        }
        for name, guesses in predicted.items()
    ]
    return {
        "rows": rows,
        "held_out": reference.held_out,
        "steps": machine.steps,
        "heat": asdict(estimate_mean(np.array(heat))),
    }


def linear_classifiers(patterns: Patterns, images: Float32) -> dict[str, Indices]:
    """Classes of images by linear models of the same patterns; empty without scikit-learn."""
    if not has_scikit():
        return {}
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression

    classes = np.array(patterns.classes)
    models = {
        "logistic regression": LogisticRegression(max_iter=100, C=0.01),
        "linear discriminants": LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.01),
    }
    return {
        name: model.fit(patterns.patterns, classes).predict(images)
        for name, model in models.items()
    }
