"""Styles: groups of similar patterns within a class, each with its own label unit.

A class is requested by one of its styles. The mean of a style is the image without fluctuations.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from thermoloom.generation import drawn_styles, requested_classes
from thermoloom.machine.energy import label_word
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.drive import Drive, check_labels, styles_of, unit_fields
from thermoloom.patterns.patterns import Patterns

Float32 = NDArray[np.float32]
Indices = NDArray[np.intp]


def labelled_drive(patterns: Patterns, machine: Machine) -> Drive:
    """The drive of these patterns, as ``drive_of``; the cases of a process group them once."""
    fields = unit_fields(patterns, machine)
    return Drive(fields, label_words(patterns, machine)) if machine.labels else Drive(fields)


def label_words(patterns: Patterns, machine: Machine) -> Float32:
    """States of the label units for each pattern, (patterns, label units)."""
    check_labels(patterns, machine)
    grouping = Machine(
        visible=machine.visible,
        labels=machine.labels,
        styles=machine.styles,
        code_seed=machine.code_seed,
    )
    words = label_word(machine, np.array(patterns.classes), _styles(patterns, grouping))
    assert words is not None  # the machine has labels
    return words


@lru_cache(maxsize=2)
def _styles(patterns: Patterns, grouping: Machine) -> Indices:
    """The style of each pattern, cached: grouping 60,000 images takes longer than most measures."""
    return styles_of(patterns, grouping)


def style_means(patterns: Patterns, words: Float32) -> Float32:
    """Mean of the patterns of every style, (label units, N_v); 0 where a style has none."""
    unit = words.argmax(axis=1)
    counts = np.bincount(unit, minlength=words.shape[1])
    sums = np.zeros((words.shape[1], patterns.patterns.shape[1]))
    np.add.at(sums, unit, patterns.patterns)
    means: Float32 = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
    return means


def nearest_styles(
    machine: Machine,
    learned: Patterns,
    images: Float32,
    classes: Indices,
    known: NDArray[np.bool_] | slice = slice(None),
) -> Indices:
    """For each image, the style of its class whose mean is nearest in the known pixels."""
    words = label_words(learned, machine)
    means = style_means(learned, words).reshape(machine.labels, machine.styles, -1)
    used = (words > 0).any(axis=0).reshape(machine.labels, machine.styles)
    style = np.empty(len(classes), np.intp)
    for target in learned.targets:
        rows = classes == target
        distance = cdist(images[rows][:, known], means[target][:, known])
        style[rows] = np.where(used[target], distance, np.inf).argmin(axis=1)
    return style


def drawn_style_means(patterns: Patterns, theta: Parameters, count: int, seed: int) -> Float32:
    """The mean of the style that is drawn for each sample: images without fluctuations."""
    requested = requested_classes(theta, count, None)
    assert requested is not None  # the machine has labels
    unit = requested * theta.machine.styles + drawn_styles(theta, requested, seed)
    means: Float32 = style_means(patterns, label_words(patterns, theta.machine))[unit]
    return means
