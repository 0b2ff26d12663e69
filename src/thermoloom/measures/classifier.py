"""The frozen MNIST classifier: image → probabilities of the ten classes.

    rescale by the 2nd and 98th percentile to [0, 1] → MNIST normalization → CNN → softmax

It plays no part in training the computer; its scores are auxiliary and not calibrated. It runs
in ONNX Runtime, so neither PyTorch nor MNIST is needed to use it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from thermoloom.errors import UserError

CLASSES = 10
SIDE = 28
MEAN, DEVIATION = 0.1307, 0.3081
"""Mean and standard deviation of the MNIST training pixels in [0, 1]: the usual normalization."""
PERCENTILES = (2, 98)
CHUNK = 250  # images at once; bounds the memory of the convolutions


@dataclass(frozen=True)
class Classifier:
    """A network checked against its record: ``record`` is the content of classifier.json."""

    network: Callable[[NDArray[np.float32]], NDArray[np.float32]]
    """Normalized images (S, 1, 28, 28) → logits (S, 10)."""
    record: dict[str, Any]

    def probabilities(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """Softmax probabilities (S, 10) of normalized images (S, 1, 28, 28)."""
        logits = [self.network(inputs[i : i + CHUNK]) for i in range(0, len(inputs), CHUNK)]
        stacked = np.concatenate([np.zeros((0, CLASSES), np.float32), *logits])
        result: NDArray[np.float64] = softmax(stacked.astype(np.float64), axis=1)
        return result


def classify(images: NDArray[Any], classifier: Classifier | None = None) -> NDArray[np.float64]:
    """Softmax probabilities (S, 10) of images (S, 784) or (S, 28, 28), rescaled one by one."""
    chosen = bundled_classifier() if classifier is None else classifier
    return chosen.probabilities(preprocess(images))


def preprocess(images: NDArray[Any]) -> NDArray[np.float32]:
    """clip((x − p₂)/(p₉₈ − p₂), 0, 1) of every image, then MNIST normalization: (S, 1, 28, 28).

    Where p₂ = p₉₈ (a constant sample) nothing can be rescaled: it becomes background, 0.
    """
    pixels = _rows(images)
    low, high = np.percentile(pixels, PERCENTILES, axis=1, keepdims=True)
    span = high - low
    unit = np.divide(pixels - low, span, out=np.zeros_like(pixels), where=span > 0)
    return standardize(np.clip(unit, 0, 1))


def standardize(unit: NDArray[Any]) -> NDArray[np.float32]:
    """(x − 0.1307)/0.3081 of pixels in [0, 1], shaped (S, 1, 28, 28) for the network."""
    scaled = (_rows(unit) - MEAN) / DEVIATION
    return scaled.astype(np.float32).reshape(-1, 1, SIDE, SIDE)


@cache
def bundled_classifier() -> Classifier:
    """The classifier that comes with the package, loaded and checked once."""
    with as_file(files("thermoloom") / "data") as folder:
        return load_classifier(folder)


@cache
def bundled_sha256() -> str:
    """SHA-256 of the network that comes with the package, by its record: nothing is loaded."""
    record = files("thermoloom") / "data" / "classifier.json"
    return str(json.loads(record.read_text(encoding="utf-8"))["sha256"])


def load_classifier(folder: Path) -> Classifier:
    """classifier.onnx and its record classifier.json from ``folder``, refused if damaged."""
    network, record = folder / "classifier.onnx", folder / "classifier.json"
    try:
        content = network.read_bytes()
        description = json.loads(record.read_text(encoding="utf-8"))
        expected = description["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder}: no readable classifier ({error!r}); reinstall thermoloom or train one "
            "with 'thermoloom classifier train'"
        ) from None
    if hashlib.sha256(content).hexdigest() != expected:
        raise UserError(
            f"{network}: damaged, its SHA-256 is not the recorded one; reinstall thermoloom or "
            "train one with 'thermoloom classifier train'"
        )
    return Classifier(onnx_network(content), description)


def onnx_network(content: bytes) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """The network in an ONNX file as a function of its one input, on one thread."""
    import onnxruntime  # heavy: only those who classify wait for it

    options = onnxruntime.SessionOptions()
    # one thread: the sums come out the same on any number of cores, and workers do not compete
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def network(inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = session.run(None, {name: inputs})[0]
        return logits

    return network


def _rows(images: NDArray[Any]) -> NDArray[np.float64]:
    """Images (S, 784) or (S, 28, 28) as float64 rows."""
    array = np.asarray(images)
    if array.shape[1:] not in ((SIDE * SIDE,), (SIDE, SIDE)):
        raise UserError(
            f"images of shape {array.shape}: the classifier takes (S, 784) or (S, 28, 28)"
        )
    return array.reshape(len(array), -1).astype(np.float64)
