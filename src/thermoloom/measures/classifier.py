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
from thermoloom.inputs import read_file, user_path

CLASSES = 10
FEATURES = 128
"""Units of the last layer before the classes."""
SIDE = 28
MEAN, DEVIATION = 0.1307, 0.3081
"""Mean and standard deviation of the MNIST training pixels in [0, 1]: the usual normalization."""
PERCENTILES = (2, 98)
CLASSIFIER_BYTES = 1 << 28
NUMBERS = ("test_accuracy", "test_images")
"""Numbers of a classifier's record that a report shows."""
CHUNK = 250  # images at once; bounds the memory of the convolutions


Layer = Callable[[NDArray[np.float32]], NDArray[np.float32]]


@dataclass(frozen=True)
class Classifier:
    """A network checked against its record: ``record`` is the content of classifier.json."""

    network: Network
    """Normalized images (S, 1, 28, 28) → logits (S, 10), and features (S, 128) on the way."""
    record: dict[str, Any]

    @property
    def classes(self) -> int:
        """Number of classes that it distinguishes: ten, unless its record says otherwise."""
        return int(self.record.get("classes", CLASSES))

    def probabilities(self, inputs: NDArray[np.float32]) -> NDArray[np.float64]:
        """Softmax probabilities (S, 10) of normalized images (S, 1, 28, 28)."""
        logits = _in_chunks(self.network, inputs, self.classes)
        probabilities: NDArray[np.float64] = softmax(logits.astype(np.float64), axis=1)
        return probabilities

    def features(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """States (S, 128) of the last layer before the classes, of normalized images."""
        return _in_chunks(self.network.features, inputs, FEATURES)


def _in_chunks(network: Layer, inputs: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    outputs = [network(inputs[i : i + CHUNK]) for i in range(0, len(inputs), CHUNK)]
    return np.concatenate([np.zeros((0, width), np.float32), *outputs])


def image_features(
    images: NDArray[Any], classifier: Classifier | None = None
) -> NDArray[np.float32]:
    """Features (S, 128) of images (S, 784) or (S, 28, 28), rescaled one by one."""
    judge = bundled_classifier() if classifier is None else classifier
    return judge.features(preprocess(images))


def classify(images: NDArray[Any], classifier: Classifier | None = None) -> NDArray[np.float64]:
    """Softmax probabilities (S, 10) of images (S, 784) or (S, 28, 28), rescaled one by one."""
    judge = bundled_classifier() if classifier is None else classifier
    return judge.probabilities(preprocess(images))


def preprocess(images: NDArray[Any]) -> NDArray[np.float32]:
    """clip((x − p₂)/(p₉₈ − p₂), 0, 1) of every image, then MNIST normalization: (S, 1, 28, 28).

    A constant sample (p₂ = p₉₈) becomes background, 0.
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
def classifier_in(folder: str = "") -> Classifier:
    """The classifier that ``measures.classifier`` names, loaded once; the bundled one if empty."""
    if not folder:
        return bundled_classifier()
    return load_classifier(user_path("measures.classifier", folder))


@cache
def classifier_record(folder: str = "") -> dict[str, Any]:
    """The record of this classifier, checked against its network file without loading it."""
    if folder:
        return _files(user_path("measures.classifier", folder))[1]
    with as_file(files("thermoloom") / "data") as bundled:
        return _files(bundled)[1]


@cache
def panel() -> dict[str, Classifier]:
    """The additional classifiers that come with the package, by name.

    They differ from the main one in padding and batch size, which the paper does not state.
    """
    with as_file(files("thermoloom") / "data" / "panel") as folder:
        return {name: load_classifier(folder / name) for name in panel_records()}


@cache
def panel_records() -> dict[str, dict[str, Any]]:
    """The records of the panel by name; no network is loaded."""
    with as_file(files("thermoloom") / "data" / "panel") as folder:
        members = sorted(entry for entry in folder.iterdir() if entry.is_dir())
        return {member.name: _files(member)[1] for member in members}


def panel_rows() -> list[dict[str, Any]]:
    """A row for each classifier of the panel: how it was trained, and its accuracy."""
    keys = ("padding", "batch_size", "epochs", "seed")
    return [
        {"name": name, "test_accuracy_percent": 100 * record["test_accuracy"]}
        | {key: record["recipe"][key] for key in keys}
        for name, record in panel_records().items()
    ]


def classifier_sha256(folder: str = "") -> str:
    """SHA-256 of the classifier that ``measures.classifier`` names; results depend on it."""
    return str(classifier_record(folder)["sha256"])


def _files(folder: Path) -> tuple[bytes, dict[str, Any]]:
    """classifier.onnx and the content of classifier.json, which must fit each other."""
    network, record = folder / "classifier.onnx", folder / "classifier.json"
    try:
        content = read_file(network, CLASSIFIER_BYTES, "classifier")
        description = json.loads(read_file(record, CLASSIFIER_BYTES, "classifier's record"))
        expected = description["sha256"]
        if not all(isinstance(description[key], (int, float)) for key in NUMBERS):
            raise ValueError(f"{', '.join(NUMBERS)} must be numbers")
    except (UserError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(
            f"{folder}: no readable classifier ({reason}); reinstall thermoloom or train one "
            "with 'thermoloom classifier train'"
        ) from None
    if hashlib.sha256(content).hexdigest() != expected:
        raise UserError(
            f"{network}: damaged, its SHA-256 is not the recorded one; reinstall thermoloom or "
            "train one with 'thermoloom classifier train'"
        )
    return content, description


def load_classifier(folder: Path) -> Classifier:
    """classifier.onnx and its record classifier.json from ``folder``, refused if damaged."""
    content, description = _files(folder)
    network = folder / "classifier.onnx"
    classifier = Classifier(Network(content, str(network)), description)
    try:
        shape = classifier.network(np.zeros((2, 1, SIDE, SIDE), np.float32)).shape
    except Exception as error:  # a foreign network can raise any error
        raise UserError(f"{network}: does not accept images of {SIDE} × {SIDE} ({error})") from None
    if shape != (2, classifier.classes):
        raise UserError(
            f"{network}: returns shape {shape} for two images, not a logit for each class"
        )
    return classifier


class Network:
    """The network in an ONNX file as a function of its one input, on one thread."""

    def __init__(self, content: bytes, name: str = "classifier.onnx") -> None:
        import onnxruntime  # heavy, so imported only to classify

        options = onnxruntime.SessionOptions()
        # one thread: the sums come out the same on any number of cores, and workers do not compete
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its exceptions have no common class
            reason = f"ONNX Runtime cannot read it ({error})"
            raise UserError(f"{name}: {reason}") from None
        self._name = name
        self._input = self._session.get_inputs()[0].name
        self._outputs = [output.name for output in self._session.get_outputs()]

    def __call__(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits, the first output of the network."""
        logits: NDArray[np.float32] = self._session.run(self._outputs[:1], {self._input: inputs})[0]
        return logits

    def features(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """States of the last layer before the classes."""
        if "features" not in self._outputs:
            raise UserError(
                f"{self._name}: has no output 'features' (written before 0.2); train it again "
                "with 'thermoloom classifier train'"
            )
        features: NDArray[np.float32] = self._session.run(["features"], {self._input: inputs})[0]
        return features


def _rows(images: NDArray[Any]) -> NDArray[np.float64]:
    """Images (S, 784) or (S, 28, 28) as float64 rows."""
    array = np.asarray(images)
    if array.shape[1:] not in ((SIDE * SIDE,), (SIDE, SIDE)):
        raise UserError(
            f"images of shape {array.shape}: the classifier takes (S, 784) or (S, 28, 28)"
        )
    return array.reshape(len(array), -1).astype(np.float64)
