"""The machine that draws the requested digit: solved, sampled and judged by all measures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.computers.development_search import thermal_variance
from thermoloom.computers.sample_archives import generate_run
from thermoloom.computers.training_runs import solve_run
from thermoloom.generation import generate
from thermoloom.machine.energy import label_word
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.class_accuracy import NOISE_SEED, Data, RequestedImages
from thermoloom.measures.classifier import classify, image_features, panel
from thermoloom.measures.fidelity import (
    frechet_distance,
    nearest_images,
    with_thermal_noise,
)
from thermoloom.patterns.drive import unit_fields
from thermoloom.patterns.patterns import Patterns
from thermoloom.runs.store import RunDirectory
from thermoloom.studies.case import Job, trained_path
from thermoloom.studies.digits.judged_samples import energies, reference_images, requested_images
from thermoloom.studies.digits.styles import drawn_style_means, nearest_styles
from thermoloom.studies.gather import order_of
from thermoloom.theory.expected_loss import expected_losses
from thermoloom.theory.marginals import solve_marginals

SHEET_ROWS = 10
"""Samples of each class on the sheet."""
FRAMES = 8
"""Times of a denoising trajectory that are shown, both ends included."""


def digit_machine(job: Job, data_samples: int, noise: float | None = None) -> dict[str, Any]:
    """Solve the machine, sample it, and compare its samples with ``data_samples`` images."""
    settings, patterns, classifier = job.settings, job.patterns, job.settings.measures.classifier
    path = trained_path(job.workdir, settings)
    solve_run(path, settings, patterns=patterns)
    theta = job.parameters()
    generated = generate_run(path, order_of(settings))
    samples, reference = requested_images(theta, generated, classifier), reference_images(job)
    _save_images(job, theta, samples)
    noisy = reference.states(settings.machine, data_samples, noise)
    classes = reference.classes[: len(noisy)]
    clean = RequestedImages(reference.patterns[: len(noisy)], classes, classifier)
    means = drawn_style_means(patterns, theta, len(samples.images), settings.generation_seed)
    confusion = samples.confusion
    beside = _beside(job, theta, samples, noisy, noise) if settings.machine.development else {}
    assert confusion is not None  # the machine has labels
    return {
        "measured": samples.all_measures(patterns, noisy),
        "beside": beside,
        "panel": _judged_by_panel(samples, noisy, patterns.digits),
        "confusion": confusion.tolist(),
        "patterns": len(patterns),
        "held_out": reference.held_out,
        "data": RequestedImages(noisy, classes, classifier).class_measures(patterns)
        | {
            "clean_correct_class": clean.class_measures(patterns)["correct_class"],
            "nearest_correlation": float(
                nearest_images(noisy, patterns.patterns).correlation.mean()
            ),
        },
        "test_loss": reference_loss(theta, patterns, reference) if reference.held_out else None,
        "style_means": RequestedImages(means, samples.classes).class_measures(patterns),
        "solved": dict(RunDirectory.open(path).results),
        "first_law_error": generated.first_law_error,
        **energies(generated),
    }


def _beside(
    job: Job, theta: Parameters, samples: RequestedImages, states: NDArray[np.float32],
    noise: float | None,
) -> dict[str, Any]:  # fmt: skip
    """Measures of the same samples with the thermal noise of the data, and before development."""
    machine, classifier = theta.machine, job.settings.measures.classifier
    of_data = machine.kT / float(machine.potential.curvature(0.0)) if noise is None else noise
    missing = max(of_data - thermal_variance(machine, samples.images), 0.0)
    noisy = with_thermal_noise(machine, samples.images, NOISE_SEED, missing)
    raised = RequestedImages(noisy, samples.classes, classifier)
    plain = theta.on(replace(machine, development=()))
    generated = generate(plain, len(samples.images), job.settings.generation_seed)
    undeveloped = requested_images(plain, generated, classifier)
    return {
        "… with the noise of the data": raised.all_measures(job.patterns, states),
        "… before development": undeveloped.all_measures(job.patterns, states)
        | energies(generated),
    }


def _judged_by_panel(
    samples: RequestedImages, states: NDArray[np.float32], digits: bool
) -> dict[str, dict[str, float]]:
    """Rate of the correct class and Fréchet distance by every classifier of the panel of digits."""
    return {
        name: {
            "correct_class": float(
                np.mean(classify(samples.images, judge).argmax(1) == samples.classes)
            ),
            "frechet": frechet_distance(
                image_features(samples.images, judge), image_features(states, judge)
            ),
        }
        for name, judge in (panel() if digits else {}).items()
    }


def _save_images(job: Job, theta: Parameters, samples: RequestedImages) -> None:
    """The first samples of each class, and one trajectory of each class."""
    machine = theta.machine
    steps = [round(step) for step in np.linspace(0, machine.generation_steps, FRAMES)]
    trajectories = generate(
        theta,
        machine.labels,
        job.settings.generation_seed,
        snapshot_steps=steps,
        snapshot_samples=range(machine.labels),
    )
    job.run.save_arrays(
        "images",
        {
            "sheet": samples.images[: SHEET_ROWS * machine.labels],
            "frames": trajectories.snapshots[..., : machine.visible],
        },
        {
            "steps": steps,
            "last": machine.generation_steps,
            "shape": job.patterns.shape,
            "classes": job.patterns.names_of(range(machine.labels)),
        },
    )


def reference_loss(theta: Parameters, learned: Patterns, reference: Data) -> float:
    """E[L(θ)]/K of noising paths from data, each labelled by the nearest style of its class."""
    machine = theta.machine
    style = nearest_styles(machine, learned, reference.patterns, reference.classes)
    words = label_word(machine, reference.classes, style)
    fields = np.zeros((len(style), machine.units), np.float32)
    fields[:, : machine.visible] = reference.patterns
    largest = float(np.abs(unit_fields(learned, machine)).max())
    losses = expected_losses(machine, fields, solve_marginals(machine, largest), words)
    vectors = theta.vector.astype(np.float64)
    total = sum(loss.total(vector) for loss, vector in zip(losses, vectors, strict=True))
    return total / machine.steps
