"""Images requested by class: correct class, diversity, distance to data, nearest training image.

Data receive the thermal noise of the machine before samples are compared with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.measures.classifier import classifier_in, classify, image_features
from thermoloom.measures.fidelity import (
    class_diversity,
    confusion,
    frechet_distance,
    kernel_distance,
    nearest_images,
    precision_recall,
    with_thermal_noise,
)
from thermoloom.measures.quality import strongest_correlation
from thermoloom.patterns.datasets import labelled_images
from thermoloom.patterns.patterns import Patterns, from_images
from thermoloom.settings import PatternSettings

NOISE_SEED = 555002
"""Seed of the thermal noise added to data and peers."""


@dataclass(frozen=True, eq=False)
class Data:
    """Images that samples are compared with, as patterns s."""

    patterns: NDArray[np.float32]
    classes: NDArray[np.intp]
    held_out: bool
    """Whether the images were left out of learning."""

    def states(
        self, machine: Machine, count: int, noise: float | None = None
    ) -> NDArray[np.float32]:
        """The first ``count`` images with thermal noise of a machine, or of variance ``noise``."""
        return with_thermal_noise(machine, self.patterns[:count], NOISE_SEED, noise)


def reference_data(patterns: Patterns, source: PatternSettings, machine: Machine) -> Data:
    """Test images of the learned classes; for the bundled digits, the learned patterns."""
    if not patterns.classes or patterns.shape is None:
        raise UserError("patterns: this measure needs images with classes")
    if source.source == "bundled":
        return Data(patterns.patterns, np.array(patterns.classes, np.intp), held_out=False)
    images, classes = labelled_images(source, "test")
    known = np.isin(classes, patterns.targets)
    rows = from_images(images[known], machine, resize=source.resize).patterns
    return Data(rows, classes[known].astype(np.intp), held_out=True)


@dataclass(frozen=True, eq=False)
class RequestedImages:
    """Images (S, 784) with their requested classes, judged by the classifier."""

    images: NDArray[np.float32]
    classes: NDArray[np.intp] | None
    """None where a machine has no labels."""
    classifier: str = ""
    """Folder of the classifier; the bundled one if empty."""

    @cached_property
    def softmax(self) -> NDArray[np.float64]:
        """Class probabilities of each image, (S, 10)."""
        return classify(self.images, classifier_in(self.classifier))

    @cached_property
    def recognized(self) -> NDArray[np.intp]:
        """Most probable class of each image, (S,)."""
        predicted_class: NDArray[np.intp] = self.softmax.argmax(axis=1)
        return predicted_class

    @property
    def confusion(self) -> NDArray[np.int64] | None:
        """Counts of requested classes (rows) by recognized classes (columns)."""
        classes = self.classes
        return (
            None if classes is None else confusion(classes, self.recognized, self.softmax.shape[1])
        )

    def class_measures(self, patterns: Patterns) -> dict[str, Any]:
        """Measures that few images suffice for: rate of the correct class, diversity, fraction of
        negatives (images whose strongest correlation with a class mean is negative).
        """
        classes = self.recognized if self.classes is None else self.classes
        images = patterns.patterns
        labels = np.array(patterns.classes)
        means = np.stack([images[labels == c].mean(axis=0) for c in patterns.targets])
        strongest = strongest_correlation(self.images.astype(np.float64), means.astype(np.float64))
        rate = None if self.classes is None else float(np.mean(self.recognized == classes))
        counts = np.bincount(classes)
        return {
            "images": len(self.images),
            "correct_class": rate,
            "diversity": class_diversity(self.images, classes) if counts.max() > 1 else None,
            "negatives": float(np.mean(strongest < 0)),
        }

    def all_measures(self, patterns: Patterns, states: NDArray[np.float32]) -> dict[str, Any]:
        """All measures; distances to the ``states`` of data are in the classifier's features."""
        judge = classifier_in(self.classifier)
        samples, data = image_features(self.images, judge), image_features(states, judge)
        kernel = kernel_distance(samples, data)
        manifold = precision_recall(samples, data)
        near = nearest_images(self.images, patterns.patterns)
        return self.class_measures(patterns) | {
            "data": len(states),
            "frechet": frechet_distance(samples, data),
            "kid": kernel.mean,
            "kid_error": kernel.error,
            "precision": manifold.precision,
            "recall": manifold.recall,
            "nearest_correlation": float(near.correlation.mean()),
        }
