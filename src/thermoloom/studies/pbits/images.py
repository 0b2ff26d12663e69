"""Black-and-white images drawn by either machine, judged alike and with their events counted.

Both machines have the same units, wires and label units, learn the same binarized images and draw
the same classes in the same styles. A Langevin unit is read as the sign of its state.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.generation import drawn_words, generate, requested_classes
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.wires import wires
from thermoloom.measures.class_accuracy import RequestedImages, reference_data
from thermoloom.measures.prices import event_counts
from thermoloom.measures.statistics import estimate_mean
from thermoloom.studies.case import Job
from thermoloom.studies.pbits.pbit_machine import PbitMachine
from thermoloom.theory.solver import solve_optimum

Spins = NDArray[np.int8]

TOLERANCE = 1e-3
"""Relative gradient at which the Langevin machine counts as solved; images no longer change."""
SHEET = 50
"""Samples that are saved as images: five of each class."""


def signs(states: NDArray[Any]) -> Spins:
    """−1 or 1 for each state."""
    return np.where(states > 0, 1, -1).astype(np.int8)


def learned_images(job: Job) -> Spins:
    """The binarized images that both machines learn."""
    if len(np.unique(job.patterns.patterns)) != 2:
        raise UserError(
            "patterns.threshold, machine.scale: p-bits learn black-and-white images; keep the "
            "threshold and the fixed scale of this study"
        )
    return signs(job.patterns.patterns)


def judged(job: Job, images: Spins, classes: NDArray[np.intp], data_samples: int) -> dict[str, Any]:
    """Correct class, distances and diversity of images, against binarized data."""
    # data of every image on its own scale: the sign is the same, whatever the scale
    machine = replace(job.settings.machine, scale="sample")
    reference = reference_data(job.patterns, job.settings.patterns, machine)
    data = signs(reference.patterns[:data_samples]).astype(np.float32)
    requested = RequestedImages(
        images.astype(np.float32), classes, job.settings.measures.classifier
    )
    return requested.all_measures(job.patterns, data) | {"held_out": reference.held_out}


def langevin_images(job: Job, data_samples: int) -> dict[str, Any]:
    """Solve the Langevin machine, sample it, judge the signs of its pixels."""
    settings, machine = job.settings, job.settings.machine
    learned_images(job)
    theta = solve_optimum(machine, job.drive, TOLERANCE).parameters
    theta = theta.with_styles_of(job.drive.words)
    samples = settings.generation.samples
    generated = generate(theta, samples, settings.generation_seed)
    images = signs(generated.final_states[:, : machine.visible])
    job.run.save_arrays("sheet", {"images": images[:SHEET]}, {"shape": job.patterns.shape})
    heat = estimate_mean(generated.heat / machine.kT)
    return judged(job, images, _classes(theta, samples), data_samples) | {
        "heat": heat.mean,
        "heat_sem": heat.sem,
    }


def pbit_images(
    job: Job,
    data_samples: int,
    overlap: float,
    updates: int,
    training_sweeps: int,
    sweeps: list[int],
) -> dict[str, Any]:
    """Train p-bits, draw images by growing numbers of sweeps, judge them."""
    settings, machine = job.settings, job.settings.machine
    images, words = learned_images(job), job.drive.words
    assert words is not None  # the plan refuses machines without labels
    pbits = PbitMachine(machine.units, wires(machine), machine.size_of("label"), overlap)
    seed, samples = settings.training.seed, settings.generation.samples
    report = partial(_report, job, updates)
    theta = pbits.train(images, words.argmax(axis=1), updates, training_sweeps, seed, report)
    # the same classes and styles as those of the Langevin machine
    blank = Parameters.zeros(machine).with_styles_of(words)
    requested = drawn_words(blank, samples, settings.generation_seed, None)
    assert requested is not None
    label = requested.argmax(axis=1)
    rng = np.random.default_rng([settings.generation_seed, 2])
    noise = signs(rng.random((samples, machine.units)) - 0.5)
    started = pbits.energy(theta, noise, noise, label)
    rows = []
    for count in sweeps:
        drawn = pbits.relaxed(theta, noise, noise, label, count, settings.generation_seed)
        heat = estimate_mean(started - pbits.energy(theta, drawn, noise, label))
        rows.append(
            {
                "sweeps": count,
                **judged(job, drawn, _classes(blank, samples), data_samples),
                "heat": heat.mean,
                "heat_sem": heat.sem,
            }
        )
        job.run.save_arrays(
            f"sheet-{count}", {"images": drawn[:SHEET]}, {"shape": job.patterns.shape}
        )
    return {"rows": rows, "wires": len(pbits.wires), "colours": int(pbits.colours.max()) + 1}


def pbit_counts(
    machine: Machine, sweeps: int, overlap: float, images_per_writing: float
) -> dict[str, float]:
    """Events of one image of p-bits on the machine's units and wires.

    The noisy image is held beside the label units, unless the step has no link to it.
    """
    counts = event_counts(machine, images_per_writing)
    del counts["relax"]
    counts["hold"] += machine.visible if overlap else 0
    return counts | {"update": float(machine.units * sweeps)}


def _classes(theta: Parameters, samples: int) -> NDArray[np.intp]:
    classes = requested_classes(theta, samples, None)
    assert classes is not None
    return classes.astype(np.intp)


def _report(job: Job, updates: int, done: int) -> None:
    job.report(done, updates, None)
