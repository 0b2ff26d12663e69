"""The published protocol for binarized images: Fréchet distance in features of a large network.

    pixel/255 > 0.1 → bilinear antialiased resize to 256 × 256 → three channels → 2x − 1
    → pool features of the network → mean and covariance → Fréchet distance from the training images

A distance depends on every step, so two known ones are measured first: test images, and training
images thresholded at 0.5. ``Gate`` refuses if they differ from the published values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.inputs import read_file
from thermoloom.measures.classifier import Network, classifier_in, standardize
from thermoloom.theory.generation_law import Gaussian, gelbrich
from thermoloom.threads import linear_algebra

INPUT_SIDE = 256
CONTRAST_THRESHOLD = 0.5
"""Training images thresholded here are the second known distance."""
NETWORK_BYTES = 1 << 30
BLOCK = 100
"""Images whose features are computed together."""

Bytes = NDArray[np.uint8]
Features = NDArray[np.float32]
Extract = Callable[[Bytes], Features]
"""``extract(images)``: features (n, d) of images (n, h, w) of bytes."""


def resize_matrix(size: int, target: int) -> NDArray[np.float64]:
    """Bilinear antialiased resize of ``size`` pixels to ``target`` as a matrix (target, size).

    Each target pixel is a mean with triangular weights, as wide as the step between target pixels
    but no narrower than the step between source pixels.
    """
    scale = size / target
    reach = max(scale, 1.0)
    centres = (np.arange(target) + 0.5) * scale
    offsets = np.arange(size) + 0.5 - centres[:, None]
    weights = np.maximum(0, 1 - np.abs(offsets) / reach)
    normalized: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return normalized


@linear_algebra()
def network_inputs(images: Bytes, side: int = INPUT_SIDE) -> NDArray[np.float32]:
    """Images (n, h, w) of bytes as the network takes them: (n, 3, side, side), from −1 to 1."""
    height, width = images.shape[1:]
    down, across = resize_matrix(height, side), resize_matrix(width, side)
    resized = down @ (images / 255) @ across.T
    grey = (2 * resized - 1).astype(np.float32)
    return np.repeat(grey[:, None], 3, axis=1)


def inception_features(path: Path) -> Extract:
    """Features from the first output of the network in a user's ONNX file."""
    network = Network(read_file(path, NETWORK_BYTES, "network"), str(path))

    def extract(images: Bytes) -> Features:
        try:
            features = network(network_inputs(images))
        except Exception as error:  # a foreign network can raise any error
            raise UserError(f"{path}: does not accept images (n, 3, 256, 256) ({error})") from None
        return features.reshape(len(images), -1)

    return extract


def classifier_features(folder: str) -> Extract:
    """Features from the classifier in a folder, which takes the images as they are."""
    judge = classifier_in(folder)
    return lambda images: judge.features(standardize(images / 255))


@linear_algebra()
def feature_law(images: Bytes, extract: Extract) -> Gaussian:
    """Mean and covariance of the features, summed block by block in float64."""
    if len(images) < 2:
        raise UserError(f"{len(images)} images: a covariance needs at least two")
    shift = extract(images[:BLOCK]).mean(axis=0, dtype=np.float64)
    total, squares = np.zeros(len(shift)), np.zeros((len(shift), len(shift)))
    for first in range(0, len(images), BLOCK):
        # about the first mean, so that large means do not cost digits of the covariance
        rows = extract(images[first : first + BLOCK]).astype(np.float64) - shift
        total += rows.sum(axis=0)
        squares += rows.T @ rows
    mean = total / len(images)
    covariance = (squares - len(images) * np.outer(mean, mean)) / (len(images) - 1)
    return Gaussian(shift + mean, covariance)


def frechet(samples: Gaussian, reference: Gaussian) -> float:
    """Fréchet distance of two distributions of features."""
    return float(gelbrich(samples, reference))


@dataclass(frozen=True)
class Gate:
    """Known distances that must be reproduced before any other distance is reported."""

    test_images: float = 2.1
    thresholded: float = 29.8
    """Training images thresholded at 0.5."""
    tolerance: float = 0.05
    """Relative deviation that is accepted."""

    def check(self, test_images: float, thresholded: float) -> None:
        """Refuse features in which the known distances differ from the published ones."""
        measured = {
            "test images": (test_images, self.test_images),
            "training images thresholded at 0.5": (thresholded, self.thresholded),
        }
        for name, (distance, published) in measured.items():
            if not abs(distance - published) <= self.tolerance * published:
                raise UserError(
                    f"study.protocol: {name} have a Fréchet distance of {distance:.2f} instead of "
                    f"{published:g}, so network, resize, threshold or reference differs from the "
                    "protocol; no distance is reported"
                )
