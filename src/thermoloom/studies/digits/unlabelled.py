"""A machine without labels, which chooses a class itself: hidden units hold a word per class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import entropy

from thermoloom.generation import generate
from thermoloom.measures.class_accuracy import RequestedImages
from thermoloom.measures.classifier import CLASSES
from thermoloom.patterns.codes import cluster_words
from thermoloom.patterns.drive import drive_of
from thermoloom.studies.case import Job
from thermoloom.studies.digits.judged_samples import TOLERANCE, energies
from thermoloom.studies.first_patterns import first_patterns
from thermoloom.theory.solver import solve_optimum

SHEET = 100
"""Samples that are saved as images."""
SETTLED = 0.5
"""A sample has settled if its overlap with a word is at least this, and that with the next word at
most this part of it: a superposition resembles two words equally."""


def unlabelled_machine(job: Job, patterns: int) -> dict[str, Any]:
    """Solve and sample a machine without labels; compare words of hidden units with images.

    The correct class of a sample is that of the word which its hidden units resemble most.
    """
    learned, machine = first_patterns(job.patterns, patterns), job.settings.machine
    theta = solve_optimum(machine, drive_of(learned, machine), TOLERANCE).parameters
    generated = generate(theta, job.settings.generation.samples, job.settings.generation_seed)
    images, hidden = np.split(generated.final_states, [machine.visible], axis=1)
    targets = np.unique(learned.classes)
    words = cluster_words(machine, len(targets) * machine.code_clusters)
    overlaps = 1 - cdist(hidden, words, "cosine")
    classes = targets[overlaps.argmax(axis=1) // machine.code_clusters].astype(np.intp)
    samples = RequestedImages(images, classes, job.settings.measures.classifier)
    first, second = two_largest(overlaps)
    counts = np.bincount(classes, minlength=CLASSES)
    job.run.save_arrays("images", {"sheet": images[:SHEET]}, {"shape": job.patterns.shape})
    return (
        samples.class_measures(job.patterns)
        | energies(generated)
        | {
            "patterns": len(learned),
            "overlap": float(first.mean()),
            "second_overlap": float(second.mean()),
            "settled": float(settled(overlaps).mean()),
            "evenness": float(entropy(counts) / np.log(len(targets))),
            "confidence": float(samples.softmax.max(axis=1).mean()),
            "counts": counts.tolist(),
        }
    )


def two_largest(overlaps: NDArray[Any]) -> NDArray[Any]:
    """The largest and the second largest overlap of every sample, (2, samples)."""
    return np.sort(overlaps, axis=1)[:, :-3:-1].T


def settled(overlaps: NDArray[Any]) -> NDArray[np.bool_]:
    """Which samples have settled into one word, by their overlaps with all words."""
    first, second = two_largest(overlaps)
    alone: NDArray[np.bool_] = (first >= SETTLED) & (second <= SETTLED * first)
    return alone
