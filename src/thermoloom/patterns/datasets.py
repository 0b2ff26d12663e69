"""Labelled data sets: MNIST, or any other folder with a training and a test part.

    train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-…, t10k-labels-…    plain or .gz
    train-images.npy, train-labels.npy, test-images.npy, test-labels.npy
    train/CLASS/*.png, test/CLASS/*.png                            pictures of one size, any format

Folders give classes their names. For the other two forms, ``classes.txt`` lists the names, one per
line, from class 0 on.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.inputs import is_folder, read_file, user_path
from thermoloom.patterns.images import printable_stem, read_idx, read_images, read_npy
from thermoloom.patterns.mnist import MNIST_PARTS, bundled_digits, idx_path, load_mnist
from thermoloom.settings import PatternSettings

Bytes = NDArray[np.uint8]

NAMES_FILE, NAMES_BYTES = "classes.txt", 1 << 16


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
    if (folder / part).is_dir():
        return _from_pictures(folder, part)
    paths = [folder / f"{part}-{content}.npy" for content in ("images", "labels")]
    if all(path.is_file() for path in paths):
        images, classes = (read_npy(path) for path in paths)
    else:
        prefix = MNIST_PARTS[part]
        alternatives = f"{part}-images.npy and -labels.npy, {part}/CLASS/*.png"
        paths = [
            idx_path(folder, f"{prefix}-{content}-ubyte", alternatives)
            for content in ("images-idx3", "labels-idx1")
        ]
        images, classes = (read_idx(path) for path in paths)
    if images.ndim != 3 or images.dtype != np.uint8:
        raise UserError(
            f"{paths[0]}: {images.dtype} array of shape {images.shape}; expected bytes (n, h, w)"
        )
    if classes.shape != images.shape[:1] or classes.dtype.kind not in "iu" or not len(classes):
        raise UserError(f"{paths[1]}: expected one whole number for each of {len(images)} images")
    if classes.min() < 0 or classes.max() > 255:
        raise UserError(f"{paths[1]}: classes must be numbers from 0 to 255")
    return images, classes.astype(np.uint8)


def _from_pictures(folder: Path, part: str) -> tuple[Bytes, Bytes]:
    """Pictures in one folder for each class; classes are numbered as in the training part."""
    images, names, labels = read_images(folder / part, grey=True)
    numbers = {name: number for number, name in enumerate(_folder_names(folder))}
    shapes = {(image.shape, image.dtype) for image in images}
    if len(shapes) > 1 or np.dtype(np.uint8) not in next(iter(shapes)):
        raise UserError(f"{folder / part}: pictures must have one size and one byte per pixel")
    if unknown := [name for name in labels if name not in numbers]:
        raise UserError(f"{folder / part}: class {unknown[0]!r} is not in {folder / 'train'}")
    if len(numbers) > 256 or len(labels) != len(names):
        raise UserError(f"{folder / part}: expected a folder for each class, at most 256")
    return np.stack(list(images)), np.array([numbers[str(name)] for name in labels], np.uint8)


def _folder_names(folder: Path) -> list[str]:
    return sorted(printable_stem(each) for each in (folder / "train").iterdir() if each.is_dir())


def class_names(settings: PatternSettings) -> tuple[str, ...]:
    """Names of the classes by number, from folders or ``classes.txt``; empty if there are none."""
    if settings.source != "dataset":
        return ()
    folder = user_path("patterns.path", settings.path)
    if (folder / "train").is_dir():
        return tuple(_folder_names(folder))
    file = folder / NAMES_FILE
    if not file.is_file():
        return ()
    text = read_file(file, NAMES_BYTES, "names of classes").decode("utf-8", "replace")
    return tuple(line.strip() for line in text.splitlines() if line.strip())
