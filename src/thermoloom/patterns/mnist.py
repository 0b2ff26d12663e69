"""MNIST: the bundled first images of each class, or the complete set from a folder or a mirror."""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.inputs import read_file, user_path

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
BUNDLED = 10
"""Images of each class that come with the package."""
MNIST_BYTES = 1 << 26
"""More than the size of the largest of the four files, even decompressed."""


def bundled_digits() -> tuple[Bytes, Bytes]:
    """Images (100, 28, 28) and classes of the first ten training images of each MNIST class."""
    bundle = files("thermoloom") / "data" / "mnist_prototypes.npz"
    with bundle.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return arrays["images"], arrays["labels"]


def load_mnist(folder: str | Path | None = None, part: str = "train") -> tuple[Bytes, Bytes]:
    """MNIST images (n, 28, 28) and classes (n,) of ``part`` (``train`` or ``test``).

    They are read from a folder of IDX files (plain or .gz), or, without a folder, from the user's
    cache, to which the files are downloaded once. The decompressed bytes are checked.
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


def _mnist_bytes(folder: str | Path | None, name: str) -> bytes:
    """Decompressed and verified bytes of one of the four MNIST files."""
    path = _download(name) if folder is None else idx_path(user_path("MNIST", folder), name)
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


def idx_path(folder: Path, name: str, alternative: str = "") -> Path:
    """The file of this name in a folder, plain or compressed, in either spelling."""
    # some distributions spell the files train-images.idx3-ubyte
    spellings = (name, name.replace("-idx", ".idx"))
    for candidate in (folder / (stem + end) for stem in spellings for end in ("", ".gz")):
        if candidate.is_file():
            return candidate
    names = ", ".join(filter(None, [name, f"{name}.gz", alternative]))
    raise UserError(f"{folder}: has none of the files {names}")


def _download(name: str) -> Path:
    """The file in the user's cache, downloaded from a public mirror if it is not there yet."""
    import pooch  # only a user who asks for a download needs it

    pooch.get_logger().setLevel("WARNING")  # the content is checked by us, not by pooch
    cache = pooch.os_cache("thermoloom") / "mnist"
    failure: Exception | None = None
    for mirror in MNIST_MIRRORS:
        try:
            cached = pooch.retrieve(
                mirror + name + ".gz", known_hash=None, fname=name + ".gz", path=cache
            )
            return Path(cached)
        except (OSError, ValueError) as error:
            failure = error
    reason = type(failure).__name__
    raise UserError(
        f"MNIST {name}: could not be downloaded ({reason}); put the four IDX files into a folder "
        "and name the folder (patterns.path; in Python mnist=FOLDER)"
    )
