"""Inpainting: half of an image is known and its class is requested; the machine draws the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from thermoloom.computers.development_search import thermal_variance
from thermoloom.generation import generate
from thermoloom.measures.class_accuracy import RequestedImages
from thermoloom.patterns.clamps import clamp_of
from thermoloom.studies.case import Job
from thermoloom.studies.digits.judged_samples import reference_images
from thermoloom.studies.digits.styles import nearest_styles

SHOWN = 10
"""Images that are saved for the figure."""


def inpainting(job: Job, images: int) -> dict[str, Any]:
    """Complete this number of images, in a random style and in the one nearest to the known half.

    Errors are mean squared, in the hidden half, without the variance of thermal noise.
    """
    theta, machine = job.parameters(), job.settings.machine
    reference = reference_images(job)
    truth, classes = reference.patterns[:images], reference.classes[:images]
    side = round(machine.visible**0.5)
    row, column = np.divmod(np.arange(machine.visible), side)
    noise = thermal_variance(machine, truth)
    labels, learned = np.array(job.patterns.classes), job.patterns.patterns
    mean_image = learned.mean(axis=0)
    mean_of_class = {c: learned[labels == c].mean(axis=0) for c in job.patterns.targets}
    class_means = np.stack([mean_of_class[c] for c in classes])
    rows, pictures = [], {"truth": truth[:SHOWN]}
    for half, known in {"top": row < side // 2, "left": column < side // 2}.items():
        clamp = clamp_of(machine, job.patterns, truth, len(truth), known)
        nearest = nearest_styles(machine, job.patterns, truth, classes, known)
        hidden = ~known
        for style, styles in {"die": None, "nearest": nearest.tolist()}.items():
            generated = generate(
                theta,
                len(truth),
                job.settings.generation_seed,
                classes.tolist(),
                clamp,
                styles=styles,
            )
            drawn = generated.final_states[:, : machine.visible]
            completed = np.where(known, truth, drawn).astype(np.float32)
            judged = RequestedImages(completed, classes, job.settings.measures.classifier)
            error = float(np.square(drawn[:, hidden] - truth[:, hidden]).mean())
            rows.append(
                {
                    "known": half,
                    "style": style,
                    "images": len(truth),
                    "kept": float(np.mean(judged.recognized == classes)),
                    "error": error - noise,
                    "mean_image": float(np.square(mean_image[hidden] - truth[:, hidden]).mean()),
                    "class_mean": float(np.square((class_means - truth)[:, hidden]).mean()),
                    "heat": float(generated.heat.mean()),
                    "work": float(generated.work.mean()),
                }
            )
        pictures[half] = drawn[:SHOWN]  # in the nearest style
        pictures[f"{half}_known"] = known
    job.run.save_arrays("images", pictures, {"shape": job.patterns.shape})
    return {"rows": rows, "held_out": reference.held_out}
