"""The user's own images: PNG files and .npy arrays, read strictly."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from thermoloom.errors import UserError
from thermoloom.feasibility import require_memory
from thermoloom.inputs import is_folder, read_file

PNG_BYTES = 1 << 28


def read_images(path: Path) -> tuple[list[NDArray[Any]], list[str], list[int]]:
    """The user's images, their names and, if they come in folders, their classes.

    A folder of PNG, by name; a folder of folders of PNG, one for each class, by name; or an .npy
    array.
    """
    if is_folder("patterns.path", path):
        return _read_folder(path)
    if not path.exists():
        raise UserError(f"patterns.path = {str(path)!r}: no such folder or .npy file")
    if path.suffix != ".npy":
        raise UserError(
            f"patterns.path = {str(path)!r}: must be a folder of PNG images or an .npy file"
        )
    return *_read_array(path), []


def _read_folder(folder: Path) -> tuple[list[NDArray[Any]], list[str], list[int]]:
    paths = _png_in(folder)
    if paths:
        return [read_png(path) for path in paths], [_label(path) for path in paths], []
    subfolders = [_png_in(entry) for entry in _entries(folder) if entry.is_dir()]
    by_class = [class_paths for class_paths in subfolders if class_paths]
    if not by_class:
        raise UserError(f"patterns.path = {str(folder)!r}: no PNG image in this folder")
    images, names, classes = [], [], []
    for number, class_paths in enumerate(by_class):
        images += [read_png(path) for path in class_paths]
        names += [f"{_label(path.parent)}/{_label(path)}" for path in class_paths]
        classes += [number] * len(class_paths)
    return images, names, classes


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"patterns.path = {str(folder)!r}: {error.strerror}") from None


def _png_in(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.suffix.lower() == ".png"]


def _label(path: Path) -> str:
    """The file's name as printable text, whatever bytes it contains."""
    stem = os.fsencode(path.stem).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in stem)


def read_png(path: Path) -> NDArray[Any]:
    """Grey values of a PNG image; colours are taken by their luminance."""
    content = read_file(path, PNG_BYTES, "PNG image")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
                image.load()
                if "A" in image.getbands() or "transparency" in image.info:
                    lowest, _ = image.convert("RGBA").getchannel("A").getextrema()
                    if lowest < 255:  # type: ignore[operator]
                        raise UserError(
                            f"{path}: is partly transparent, its grey values are undefined; "
                            "put it on a background"
                        )
                grey = image if image.mode.startswith(("I", "F")) else image.convert("L")
                return np.asarray(grey)  # 16-bit images (mode I;16) keep their depth
    except UserError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything in a decoder
        raise UserError(f"{path}: not a readable PNG image ({error})") from None


def _read_array(path: Path) -> tuple[list[NDArray[Any]], list[str]]:
    array = read_npy(path)
    if array.ndim not in (2, 3) or array.dtype.kind not in "biuf" or array.size == 0:
        raise UserError(
            f"{path}: {array.dtype} array of shape {array.shape}; expected real numbers of "
            "shape (n, h, w) or (n, machine.visible), n ≥ 1"
        )
    return list(array), [str(i) for i in range(len(array))]


def read_npy(path: Path) -> NDArray[Any]:
    """The array in an .npy file; a file whose length contradicts its header is refused."""
    head = read_file(path, 1 << 62, ".npy array", first=8)
    if head[:6] != b"\x93NUMPY":
        raise UserError(f"{path}: not a readable .npy array (an archive .npz, or no array at all)")
    try:
        # mapped, not read: a header that claims more than the file has allocates nothing
        with np.errstate(all="ignore"):
            mapped = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # headers are parsed as Python literals: nearly anything
        raise UserError(f"{path}: not a readable .npy array ({error})") from None
    if mapped.offset + mapped.nbytes != path.stat().st_size:
        raise UserError(f"{path}: not a readable .npy array (longer than its header says)")
    require_memory({f"{path}": 16 * mapped.size})
    return np.array(mapped)
