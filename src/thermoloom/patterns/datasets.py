"""Labelled data sets: MNIST, or any other in IDX files or arrays, with a training and a test part.

train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-…, t10k-labels-…    plain or .gz
train-images.npy, train-labels.npy, test-images.npy, test-labels.npy
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.inputs import is_folder, user_path
from thermoloom.patterns.images import read_idx, read_npy
from thermoloom.patterns.mnist import MNIST_PARTS, bundled_digits, idx_path, load_mnist
from thermoloom.settings import PatternSettings

Bytes = NDArray[np.uint8]


def labelled_images(settings: PatternSettings, part: str = "train") -> tuple[Bytes, Bytes]:
    """Grey values (n, h, w) and classes (n,) of the data set that the settings name.

    With ``patterns.threshold`` pixels are black or white. The bundled digits have no test part.
    """
    if settings.source == "bundled":
        images, classes = bundled_digits()
    elif settings.source == "mnist":
        images, classes = load_mnist(settings.path or None, part)
    else:
        images, classes = load_dataset(user_path("patterns.path", settings.path), part)
    threshold = settings.threshold
    return (images if threshold is None else binarized(images, threshold)), classes


def binarized(images: Bytes, threshold: float) -> Bytes:
    """255 where pixel/255 exceeds the threshold, 0 elsewhere."""
    return np.where(images / np.float32(255) > threshold, 255, 0).astype(np.uint8)


def load_dataset(folder: Path, part: str = "train") -> tuple[Bytes, Bytes]:
    """Grey values (n, h, w) and classes (n,) of one part of a data set in a folder."""
    if not is_folder("patterns.path", folder):
        raise UserError(f"patterns.path = {str(folder)!r}: no such folder")
    arrays = [folder / f"{part}-{content}.npy" for content in ("images", "labels")]
    if all(path.is_file() for path in arrays):
        images, classes = (read_npy(path) for path in arrays)
    else:
        prefix = MNIST_PARTS[part]
        arrays = [
            idx_path(folder, f"{prefix}-{content}-ubyte", f"{part}-images.npy and -labels.npy")
            for content in ("images-idx3", "labels-idx1")
        ]
        images, classes = (read_idx(path) for path in arrays)
    if images.ndim != 3 or images.dtype != np.uint8:
        raise UserError(
            f"{arrays[0]}: {images.dtype} array of shape {images.shape}; expected bytes (n, h, w)"
        )
    if classes.shape != images.shape[:1] or classes.dtype.kind not in "iu" or not len(classes):
        raise UserError(f"{arrays[1]}: expected one whole number for each of {len(images)} images")
    if classes.min() < 0 or classes.max() > 255:
        raise UserError(f"{arrays[1]}: classes must be numbers from 0 to 255")
    return images, classes.astype(np.uint8)
