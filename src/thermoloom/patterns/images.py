"""The patterns to learn, and the fields they exert on the computer's units.

    visible field s (zero mean, unit variance)    hidden field Pᵀ s

Sources: the bundled MNIST prototypes, full MNIST, the user's own images.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from thermoloom.config import PrototypeSettings, Settings
from thermoloom.machine.definition import Machine
from thermoloom.errors import UserError
from thermoloom.feasibility import require_memory, size_memory
from thermoloom.inputs import LARGEST, is_folder, read_file, shown, user_path

Float32 = NDArray[np.float32]
Bytes = NDArray[np.uint8]

MNIST_SHAPE = (28, 28)

# SHA-256 of the decompressed bytes: the gzip wrapper differs between mirrors, these do not.
MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
MNIST_PARTS = {"train": "train", "test": "t10k"}
MNIST_MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
MNIST_BYTES = 1 << 26
"""More than the largest of the four files has, also decompressed."""
PNG_BYTES = 1 << 28


@dataclass(frozen=True, eq=False)
class Prototypes:
    """P patterns s, each of zero mean and unit variance, in training order."""

    patterns: Float32
    """s, shape (P, N_v)."""
    labels: tuple[str, ...]
    """One name a pattern: the digit (MNIST), the file name stem or the index (own images)."""
    shape: tuple[int, int] | None = None
    """Image shape for display; None where the visible layer is no image."""
    classes: tuple[int, ...] = ()
    """MNIST class, 0 to 9, of every pattern; empty for own images, whatever their names: the MNIST
    classifier knows nothing else and must not judge them."""

    def __post_init__(self) -> None:
        if self.patterns.ndim != 2 or len(self.patterns) != len(self.labels):
            raise UserError(
                f"prototypes: {len(self.labels)} labels do not fit patterns of shape "
                f"{self.patterns.shape}; give one label to each row"
            )
        if self.classes and len(self.classes) != len(self.labels):
            raise UserError(
                f"prototypes: {len(self.classes)} classes for {len(self.labels)} patterns; "
                "give one class to each pattern, or none"
            )
        if any(digit not in range(10) for digit in self.classes):
            raise UserError(
                f"prototypes: classes {shown(self.classes)} are not those of MNIST, 0 to 9; leave "
                "them out, other images are not judged by the MNIST classifier"
            )

    def __len__(self) -> int:
        return len(self.patterns)

    @property
    def targets(self) -> tuple[int, ...]:
        """The MNIST classes that are learned, each once, in training order."""
        return tuple(dict.fromkeys(self.classes))


def load_prototypes(settings: PrototypeSettings, machine: Machine) -> Prototypes:
    """The prototypes that the settings name, fitted to the visible layer of ``machine``."""
    require_memory(size_memory(machine))
    if settings.source == "images":
        images, labels = read_images(user_path("prototypes.path", settings.path))
        return from_images(images, machine, labels, resize=settings.resize)
    if settings.source == "bundled":
        digits, classes = bundled_digits()
    else:
        digits, classes = load_mnist(settings.path or None)
    chosen = in_turn(classes, settings.digits, settings.per_digit)
    return from_images(
        list(digits[chosen]),
        machine,
        labels=[str(classes[i]) for i in chosen],
        classes=[int(classes[i]) for i in chosen],
        resize=settings.resize,
    )


def from_images(
    images: Sequence[NDArray[Any]],
    machine: Machine,
    labels: Sequence[str] | None = None,
    *,
    classes: Sequence[int] = (),
    resize: bool = False,
) -> Prototypes:
    """Prototypes from arrays (h, w), or (N_v,) where the visible layer is no image.

    With ``resize`` images of another size are brought to the square visible layer;
    without it they are refused.
    """
    names = [str(i) for i in range(len(images))] if labels is None else list(labels)
    if not len(images):
        raise UserError("prototypes: no images given; at least one is needed")
    if len(names) != len(images):
        raise UserError(f"prototypes: {len(names)} labels for {len(images)} images; one each")
    named = zip(images, names, strict=True)
    fitted = [_fit(_checked(image, name), name, machine, resize) for image, name in named]
    shapes = {image.shape for image in fitted}
    if len(shapes) > 1:
        raise UserError(
            f"prototypes: images of different shapes {sorted(shapes)}; make them alike, or set "
            "prototypes.resize = true"
        )
    shape = fitted[0].shape
    return Prototypes(
        patterns=normalized(np.stack(fitted).reshape(len(fitted), -1), names),
        labels=tuple(names),
        shape=(shape[0], shape[1]) if len(shape) == 2 else None,
        classes=tuple(classes),
    )


def normalized(images: NDArray[Any], names: Sequence[str] | None = None) -> Float32:
    """(y − mean)/sd of every row (population sd), computed in float64, cast to float32.

    A row without contrast or with a value that is not finite is refused by its name.
    """
    rows = np.asarray(images, dtype=np.float64)
    rows = rows.reshape(len(rows), -1)
    for i, row in enumerate(rows):
        name = str(i) if names is None else names[i]
        if not np.isfinite(row).all():
            raise UserError(f"prototype {name}: has values that are not finite; remove the image")
        # min = max, not sd = 0: the mean of equal numbers may be off by round-off
        if row.min() == row.max() or not 0 < row.std() < math.inf:
            raise UserError(
                f"prototype {name}: constant image, it has no contrast to learn; remove it"
            )
    centred = rows - rows.mean(axis=1, keepdims=True)
    scaled: Float32 = (centred / rows.std(axis=1, keepdims=True)).astype(np.float32)
    return scaled


def projection(machine: Machine, seed: int = 42) -> Float32:
    """P_ia ~ 𝒩(0, 1/N_v), shape (N_v, N_h): the fixed projection of a pattern on hidden units."""
    if seed < 0:
        raise UserError(f"prototypes.projection_seed = {seed}: must not be negative")
    size = (machine.visible, machine.hidden)
    entries = np.random.default_rng(seed).normal(0, 1 / math.sqrt(machine.visible), size)
    return entries.astype(np.float32)


def unit_fields(prototypes: Prototypes, settings: Settings) -> Float32:
    """[s | Pᵀ s], shape (P, N): the fields of amplitude one on all units, visible units first.

    P is that of ``settings.prototypes.projection_seed``.
    """
    if not isinstance(settings, Settings):
        raise UserError(
            f"unit_fields: takes the Settings, which have the seed of the projection, not a "
            f"{type(settings).__name__}"
        )
    patterns, machine = prototypes.patterns, settings.machine
    if patterns.shape[1] != machine.visible:
        raise UserError(
            f"machine.visible = {machine.visible}: the prototypes have {patterns.shape[1]} values"
        )
    # float64 and no BLAS: the float32 result then depends on neither threads nor library
    hidden = np.einsum(
        "pi,ia->pa",
        patterns.astype(np.float64),
        projection(machine, settings.prototypes.projection_seed).astype(np.float64),
        optimize=False,
    )
    return np.concatenate([patterns, hidden.astype(np.float32)], axis=1)


def in_turn(classes: Bytes, digits: Sequence[int], per_digit: int) -> list[int]:
    """Indices of the first images of each class, digits in turn: 0, 1, 2, 0, 1, 2, …

    So consecutive cycles alternate between classes, and the first pattern is the first digit's.
    """
    found = {digit: np.flatnonzero(classes == digit)[:per_digit] for digit in digits}
    for digit, indices in found.items():
        if len(indices) < per_digit:
            raise UserError(
                f"prototypes.per_digit = {per_digit}: class {digit} has only {len(indices)} images"
            )
    return [int(found[digit][rank]) for rank in range(per_digit) for digit in digits]


def bundled_digits() -> tuple[Bytes, Bytes]:
    """Images (100, 28, 28) and classes of the first ten training images of each MNIST class."""
    bundle = files("thermoloom") / "data" / "mnist_prototypes.npz"
    with bundle.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return arrays["images"], arrays["labels"]


def load_mnist(folder: str | Path | None = None, part: str = "train") -> tuple[Bytes, Bytes]:
    """MNIST images (n, 28, 28) and classes (n,) of ``part`` (``train`` or ``test``).

    Read from a folder of IDX files (plain or .gz), or, without a folder, from the user's
    cache, where the files are downloaded once. The decompressed bytes are checked.
    """
    if part not in MNIST_PARTS:
        raise UserError(f"part = {part!r}: must be train or test")
    prefix = MNIST_PARTS[part]
    images = _mnist_bytes(folder, f"{prefix}-images-idx3-ubyte")
    classes = _mnist_bytes(folder, f"{prefix}-labels-idx1-ubyte")
    # the checksum fixes the content, so only the length of the IDX header has to be known
    return (
        np.frombuffer(images, np.uint8, offset=16).reshape(-1, *MNIST_SHAPE),
        np.frombuffer(classes, np.uint8, offset=8),
    )


def read_images(path: Path) -> tuple[list[NDArray[Any]], list[str]]:
    """The user's images and their names: a folder of PNG, by name, or an .npy array."""
    if is_folder("prototypes.path", path):
        return _read_png_folder(path)
    if not path.exists():
        raise UserError(f"prototypes.path = {str(path)!r}: no such folder or .npy file")
    if path.suffix != ".npy":
        raise UserError(
            f"prototypes.path = {str(path)!r}: must be a folder of PNG images or an .npy file"
        )
    return _read_array(path)


def _checked(image: NDArray[Any], name: str) -> NDArray[Any]:
    """An array of real numbers that float32 can hold, with nothing masked."""
    try:
        array = np.asanyarray(image)
    except ValueError:
        raise UserError(f"prototype {name}: its rows have different lengths") from None
    if array.dtype.kind not in "biuf":
        raise UserError(f"prototype {name}: has {array.dtype} values; expected real numbers")
    if np.ma.is_masked(array):
        raise UserError(f"prototype {name}: has masked values; fill them")
    plain = np.asarray(array)
    if plain.size and not np.isfinite(plain).all():
        raise UserError(f"prototype {name}: has values that are not finite; remove the image")
    if plain.size and max(abs(float(plain.min())), abs(float(plain.max()))) > LARGEST:
        raise UserError(f"prototype {name}: has values beyond ±{LARGEST:.2g}; scale the image")
    return plain


def _fit(image: NDArray[Any], name: str, machine: Machine, resize: bool) -> NDArray[Any]:
    """The image as it is where it has N_v values, else resized where that is asked for."""
    if resize and image.ndim == 2:
        return _resized(image, machine)
    if image.size == machine.visible:
        return image
    size = " × ".join(str(n) for n in image.shape)
    if image.ndim == 2:
        raise UserError(
            f"prototype {name}: is {size} pixels, machine.visible = {machine.visible}; "
            "set prototypes.resize = true, or change machine.visible"
        )
    raise UserError(
        f"prototype {name}: has {size} values, machine.visible = {machine.visible}; "
        "make them equal (only images (n, h, w) can be resized)"
    )


def _resized(image: NDArray[Any], machine: Machine) -> NDArray[Any]:
    """The image on the square visible layer."""
    side = math.isqrt(machine.visible)
    if side * side != machine.visible:
        raise UserError(
            f"machine.visible = {machine.visible}: prototypes.resize = true needs a square "
            f"number, such as {side * side}"
        )
    if image.shape == (side, side):
        return image
    require_memory({f"machine.visible = {machine.visible}": 16 * machine.visible})
    # bilinear: averages on shrinking (Pillow widens the filter) and never overshoots
    picture = Image.fromarray(np.asarray(image, dtype=np.float32))
    return np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR))


def _read_png_folder(folder: Path) -> tuple[list[NDArray[Any]], list[str]]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".png")
    except OSError as error:
        raise UserError(f"prototypes.path = {str(folder)!r}: {error.strerror}") from None
    if not paths:
        raise UserError(f"prototypes.path = {str(folder)!r}: no PNG image in this folder")
    return [_read_png(path) for path in paths], [_label(path) for path in paths]


def _label(path: Path) -> str:
    """The file's name as printable text, whatever bytes it is made of."""
    stem = os.fsencode(path.stem).decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in stem)


def _read_png(path: Path) -> NDArray[Any]:
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
    array = _npy(path)
    if array.ndim not in (2, 3) or array.dtype.kind not in "biuf" or array.size == 0:
        raise UserError(
            f"{path}: {array.dtype} array of shape {array.shape}; expected real numbers of "
            "shape (n, h, w) or (n, machine.visible), n ≥ 1"
        )
    return list(array), [str(i) for i in range(len(array))]


def _npy(path: Path) -> NDArray[Any]:
    """The array in an .npy file whose header tells its length truly."""
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


def _mnist_bytes(folder: str | Path | None, name: str) -> bytes:
    """Decompressed and verified bytes of one of the four MNIST files."""
    path = _download(name) if folder is None else _mnist_path(user_path("MNIST", folder), name)
    content = read_file(path, MNIST_BYTES, "MNIST file")
    try:
        if path.suffix == ".gz":
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MNIST_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error}); delete it and fetch it again") from None
    if hashlib.sha256(content).hexdigest() != MNIST_SHA256[name]:
        raise UserError(
            f"{path}: not the MNIST file {name} (SHA-256 differs); delete it and fetch it again"
        )
    return content


def _mnist_path(folder: Path, name: str) -> Path:
    # some distributions spell the files train-images.idx3-ubyte
    spellings = (name, name.replace("-idx", ".idx"))
    for candidate in (folder / (stem + end) for stem in spellings for end in ("", ".gz")):
        if candidate.is_file():
            return candidate
    raise UserError(f"{folder}: MNIST file {name} or {name}.gz is not in this folder")


def _download(name: str) -> Path:
    """The file in the user's cache, downloaded from a public mirror if it is not there yet."""
    import pooch  # only a user who asks for a download needs it

    pooch.get_logger().setLevel("WARNING")  # the content is checked by us, not by pooch
    cache = pooch.os_cache("thermoloom") / "mnist"
    failure: Exception | None = None
    for mirror in MNIST_MIRRORS:
        try:
            found = pooch.retrieve(
                mirror + name + ".gz", known_hash=None, fname=name + ".gz", path=cache
            )
            return Path(found)
        except (OSError, ValueError) as error:
            failure = error
    reason = type(failure).__name__
    raise UserError(
        f"MNIST {name}: could not be downloaded ({reason}); put the four IDX files into a folder "
        "and name it in prototypes.path"
    )
