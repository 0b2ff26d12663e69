"""The user's own data in files: pictures, folders of them, IDX files and .npy arrays."""

from __future__ import annotations

import gzip
import io
import math
import os
import re
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from thermoloom.errors import UserError, warnings_become
from thermoloom.feasibility import require_memory
from thermoloom.inputs import is_folder, read_file

PICTURE_BYTES = 1 << 28
IDX_BYTES = 1 << 33
IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

Array = NDArray[Any]
Labelled = tuple[list[Array] | Array, list[str], list[str] | list[int]]
"""Data, a name for each sample, and a class for each (a number or a name), or []."""


def read_images(path: Path, grey: bool = False, labels: Path | None = None) -> Labelled:
    """Data at a path, with names and classes.

    ``path``: a picture, a folder of pictures, a folder of such folders (one for each class), an IDX
    file whose labels are beside it or in the file ``labels``, a folder of IDX files, or an .npy
    array. ``grey``: colours are reduced to their luminance.
    """
    if is_folder("patterns.path", path):
        return _read_folder(path, grey, labels)
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    if path.suffix == ".npy":
        return *_read_array(path), []
    if _is_idx(path):
        return _read_idx_pair(path, labels)
    if path.suffix.lower() in _picture_suffixes():
        return [read_picture(path, grey)], [printable_stem(path)], []
    raise UserError(f"{path}: must be a picture, an IDX file, an .npy file or a folder")


def _read_folder(folder: Path, grey: bool, labels: Path | None) -> Labelled:
    paths = _pictures_in(folder)
    if paths:
        return _alike([read_picture(path, grey) for path in paths]), _labels(paths), []
    by_class = {}
    for entry in _entries(folder):
        if entry.is_dir() and (class_paths := _pictures_in(entry)):
            by_class[entry] = class_paths
    if not by_class:
        return _read_idx_pair(_idx_in(folder), labels)
    images, names, classes = [], [], []
    for entry, class_paths in by_class.items():
        images += [read_picture(path, grey) for path in class_paths]
        names += [f"{printable_stem(entry)}/{name}" for name in _labels(class_paths)]
        classes += [printable_stem(entry)] * len(class_paths)
    return _alike(images), names, classes


def _alike(images: list[Array]) -> list[Array]:
    """Give grey pictures three equal colours if others are coloured."""
    if len({image.ndim for image in images}) == 1:
        return images
    return [np.stack([image] * 3, axis=2) if image.ndim == 2 else image for image in images]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"{folder}: {error.strerror}") from None


def _pictures_in(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.suffix.lower() in _picture_suffixes()]


@cache
def _picture_suffixes() -> frozenset[str]:
    """Suffixes of all formats that Pillow reads."""
    return frozenset(
        suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN
    )


def _labels(paths: list[Path]) -> list[str]:
    return [printable_stem(path) for path in paths]


def printable_stem(path: Path) -> str:
    """The file's name as printable text, whatever bytes it contains."""
    stem = os.fsencode(path.stem).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in stem)


# --- pictures -------------------------------------------------------------------------------------


def read_picture(path: Path, grey: bool = False) -> Array:
    """Values of a picture in any format of Pillow: (h, w), or (h, w, 3) if it has colours."""
    content = read_file(path, PICTURE_BYTES, "picture")
    try:
        with (
            warnings_become("error", Image.DecompressionBombWarning),
            Image.open(io.BytesIO(content)) as image,
        ):
            image.load()
            return _values(path, image, grey)
    except UserError:
        raise
    except UnidentifiedImageError:  # its message names an address in memory
        raise UserError(f"{path}: not a readable picture") from None
    except Exception as error:  # a damaged file can raise nearly anything in a decoder
        raise UserError(f"{path}: not a readable picture ({error})") from None


def _values(path: Path, image: Image.Image, grey: bool) -> Array:
    if getattr(image, "n_frames", 1) > 1:
        raise UserError(f"{path}: has {image.n_frames} frames; save one of them as a picture")  # type: ignore[attr-defined]
    if "A" in image.getbands() or "transparency" in image.info:
        lowest, _ = image.convert("RGBA").getchannel("A").getextrema()
        if lowest < 255:  # type: ignore[operator]
            raise UserError(
                f"{path}: is partly transparent, so its values are undefined; give it a background"
            )
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith(("I", "F")):
        return np.asarray(upright)  # 16-bit images (mode I;16) keep their depth
    if grey or upright.mode in ("L", "LA", "1"):
        return np.asarray(upright.convert("L"))
    colours = np.asarray(upright.convert("RGB"))
    has_colour = (colours != colours[..., :1]).any()
    return colours if has_colour else colours[..., 0].copy()


# --- IDX ------------------------------------------------------------------------------------------


def read_idx(path: Path) -> Array:
    """The array of an IDX file, plain or .gz; a length that contradicts its header is refused."""
    content = read_file(path, IDX_BYTES, "IDX file")
    try:
        if path.suffix == ".gz":
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(IDX_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error}); fetch it again") from None
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in IDX_TYPES:
        raise UserError(f"{path}: not an IDX file")
    dtype, offset = np.dtype(IDX_TYPES[content[2]]), 4 + 4 * content[3]
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, offset, 4)]
    if len(content) != offset + math.prod(shape) * dtype.itemsize:
        raise UserError(f"{path}: has {len(content):,} bytes, which contradicts its header")
    numbers = np.frombuffer(content, dtype, offset=offset).reshape(shape)
    return numbers.astype(dtype.newbyteorder("="), copy=False)


def _is_idx(path: Path) -> bool:
    return re.search(r"idx\d|ubyte", path.name) is not None


def _idx_in(folder: Path) -> Path:
    """The IDX file of images in a folder: the only one, or the one for training."""
    files = [entry for entry in _entries(folder) if _is_idx(entry) and "images" in entry.name]
    training = [file for file in files if "train" in file.name]
    if len(files) == 1 or len(training) == 1:
        return (training or files)[0]
    if files:
        names = ", ".join(file.name for file in files)
        raise UserError(f"{folder}: name one of its files: {names}")
    raise UserError(f"{folder}: no picture and no IDX file in this folder")


def _read_idx_pair(path: Path, labels: Path | None) -> Labelled:
    images = read_idx(path)
    if images.ndim < 2 or not len(images):
        raise UserError(
            f"{path}: contains numbers of shape {images.shape}, not images; name the file of images"
        )
    file = _labels_beside(path) if labels is None else labels
    classes = [] if file is None else read_idx(file).tolist()
    if classes and len(classes) != len(images):
        raise UserError(f"{file}: {len(classes)} labels for the {len(images)} images of {path}")
    names = [str(number) for number in (classes or range(len(images)))]
    return images, names, classes


def _labels_beside(path: Path) -> Path | None:
    stem = re.sub(r"idx\d", "idx1", path.name.removesuffix(".gz").replace("images", "labels"))
    beside = [path.with_name(stem + end) for end in ("", ".gz")]
    return next((file for file in beside if file.name != path.name and file.is_file()), None)


# --- .npy -----------------------------------------------------------------------------------------


def _read_array(path: Path) -> tuple[list[Array], list[str]]:
    array = read_npy(path)
    if array.ndim not in (2, 3, 4) or array.dtype.kind not in "biuf" or array.size == 0:
        raise UserError(
            f"{path}: {array.dtype} array of shape {array.shape}; expected real numbers of "
            "shape (n, h, w), (n, h, w, c) or (n, machine.visible), n ≥ 1"
        )
    refuse_colours_first(str(path), array.shape)
    return list(array), [str(i) for i in range(len(array))]


def refuse_colours_first(name: str, shape: tuple[int, ...]) -> None:
    """Refuse images (n, c, h, w), as in PyTorch: read as (n, h, w, c) they would be three rows."""
    if len(shape) == 4 and shape[1] in (1, 3) and shape[3] > 4:
        raise UserError(
            f"{name}: an array of shape {shape}; expected colours in the last axis, (n, h, w, c): "
            "use np.moveaxis(images, 1, -1)"
        )


def read_npy(path: Path) -> Array:
    """The array in an .npy file; a file whose length contradicts its header is refused."""
    head = read_file(path, 1 << 62, ".npy array", first=8)
    if head[:6] != b"\x93NUMPY":
        raise UserError(f"{path}: not a readable .npy array (an .npz archive, or no array)")
    try:
        # mapped, not read: a header that claims more than the file has allocates nothing
        with np.errstate(all="ignore"):
            mapped = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # headers are parsed as Python literals, which raise nearly anything
        raise UserError(f"{path}: not a readable .npy array ({error})") from None
    if mapped.offset + mapped.nbytes != path.stat().st_size:
        raise UserError(f"{path}: not a readable .npy array (longer than its header says)")
    require_memory({f"{path}": 16 * mapped.size})
    return np.array(mapped)
