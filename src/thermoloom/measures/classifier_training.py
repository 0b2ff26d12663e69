"""Training of a classifier on a labelled data set, with the paper's network and optimizer.

    conv 3×3, 16 → ReLU → max pool 2×2 → conv 3×3, 32 → ReLU → max pool 2×2
    → 128 units → ReLU → 10 classes

The only module that needs PyTorch and onnx (the extra ``train-classifier``).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from thermoloom.errors import UserError
from thermoloom.measures.classifier import (
    CLASSES,
    DEVIATION,
    FEATURES,
    MEAN,
    PERCENTILES,
    SIDE,
    Classifier,
    Network,
    classify,
    standardize,
)
from thermoloom.patterns.datasets import labelled_images
from thermoloom.patterns.mnist import bundled_digits
from thermoloom.settings import PatternSettings

OPSET, IR_VERSION = 17, 8  # old enough for every supported ONNX Runtime

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Recipe:
    """How the classifier is trained; the defaults are the paper's where it states them."""

    optimizer: str = "Adam"
    learning_rate: float = 1e-3
    epochs: int = 5
    seed: int = 42
    """Seeds the initialization (PyTorch's default for each layer) and the order of the images."""
    batch_size: int = 64
    """Images per step; not stated in the paper."""
    padding: int = 1
    """Zeros around an image before each convolution; not stated in the paper. With 1 the
    convolutions keep the size: 28 → 14 → 7."""
    loss: str = "cross entropy"

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name} = {getattr(self, name)}: must be at least {least}")
        if self.padding not in (0, 1):
            raise UserError(f"padding = {self.padding}: must be 0 or 1")


PAPER = Recipe()


def train_classifier(
    data: PatternSettings,
    out: Path,
    recipe: Recipe = PAPER,
    progress: Callable[[int, float], None] | None = None,
) -> dict[str, Any]:
    """Train on all of a labelled data set, write both files into ``out``, return the record.

    ``progress(epoch, mean_loss)`` is called after every epoch, counted from 1.
    """
    torch, onnx = _libraries()
    images, classes = _images(data, "train")
    test_images, test_classes = _images(data, "test")
    count = max(CLASSES, int(classes.max()) + 1)
    model = train(images, classes, recipe, progress)
    content = onnx_file(model, recipe)
    network = Classifier(Network(content), {"classes": count})
    _check_export(model, network, test_images[:200])
    record = {
        "file": "classifier.onnx",
        "sha256": hashlib.sha256(content).hexdigest(),
        "network": [
            "convolution 3×3, 16 channels",
            "ReLU",
            "max pooling 2×2",
            "convolution 3×3, 32 channels",
            "ReLU",
            "max pooling 2×2",
            "fully connected, 128 units",
            "ReLU",
            f"fully connected, {count} classes",
        ],
        "outputs": {
            "logits": f"of the {count} classes",
            "features": f"of the {FEATURES} units, after ReLU",
        },
        "recipe": asdict(recipe),
        "not_in_the_paper": ["batch_size", "padding", "loss", "ReLU after the 128 units"],
        "training_data": {
            "set": "MNIST" if data.are_digits else Path(data.path).name,
            "images": len(images),
            "threshold": data.threshold,
            "normalization": f"(pixel/255 − {MEAN})/{DEVIATION}",
            "sha256": hashlib.sha256(images.tobytes()).hexdigest(),
        },
        "classes": count,
        "test_images": len(test_images),
        "test_accuracy": accuracy(
            network.probabilities(standardize(test_images / 255)), test_classes
        ),
        "test_accuracy_rescaled": accuracy(classify(test_images, network), test_classes),
        "bundled_accuracy": _bundled_accuracy(network) if data.are_digits else None,
        "rescaling": f"each image clipped to its percentiles {PERCENTILES} and brought to [0, 1], "
        "as generated samples are",
        "onnx": {"opset": OPSET, "ir_version": IR_VERSION},
        "versions": {"torch": str(torch.__version__), "onnx": str(onnx.__version__)},
    }
    _write(out / "classifier.onnx", content)
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    _write(out / "classifier.json", text.encode())
    return record


def train(
    images: Bytes,
    classes: Bytes,
    recipe: Recipe = PAPER,
    progress: Callable[[int, float], None] | None = None,
) -> Any:
    """The trained PyTorch model, on one thread, so that a rerun is bit-identical."""
    torch, _ = _libraries()
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    model = build_model(recipe, max(CLASSES, int(classes.max()) + 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.learning_rate)
    inputs = torch.from_numpy(standardize(images / 255))
    targets = torch.from_numpy(classes.astype(np.int64))
    for epoch in range(1, recipe.epochs + 1):
        total = 0.0
        for batch in torch.randperm(len(inputs)).split(recipe.batch_size):
            loss = torch.nn.functional.cross_entropy(model(inputs[batch]), targets[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        if progress is not None:
            progress(epoch, total / len(inputs))
    return model


def build_model(recipe: Recipe, classes: int = CLASSES) -> Any:
    """The paper's network with PyTorch's default initialization."""
    nn = _libraries()[0].nn
    features = 32 * _side_after(recipe.padding) ** 2
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=recipe.padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=recipe.padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(features, FEATURES),
        nn.ReLU(),
        nn.Linear(FEATURES, classes),
    )


def onnx_file(model: Any, recipe: Recipe) -> bytes:
    """The model as an ONNX file: images (S, 1, 28, 28) → logits (S, classes), features (S, 128).

    It is written node by node, because the output of an exporter would change with its version.
    """
    _, onnx = _libraries()
    node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    pads = [recipe.padding] * 4
    weights = {name: array.detach().numpy() for name, array in model.state_dict().items()}
    nodes = [
        node("Conv", ["image", "0.weight", "0.bias"], ["a"], kernel_shape=[3, 3], pads=pads),
        node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["c", "3.weight", "3.bias"], ["d"], kernel_shape=[3, 3], pads=pads),
        node("Relu", ["d"], ["e"]),
        node("MaxPool", ["e"], ["f"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["f"], ["g"]),
        node("Gemm", ["g", "7.weight", "7.bias"], ["h"], transB=1),
        node("Relu", ["h"], ["features"]),
        node("Gemm", ["features", "9.weight", "9.bias"], ["logits"], transB=1),
    ]
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "mnist-classifier",
        [value("image", float32, ["samples", 1, SIDE, SIDE])],
        [
            value("logits", float32, ["samples", len(weights["9.bias"])]),
            value("features", float32, ["samples", FEATURES]),
        ],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = onnx.helper.make_opsetid("", OPSET)
    file = onnx.helper.make_model(
        graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="thermoloom"
    )
    onnx.checker.check_model(file, full_check=True)
    content: bytes = file.SerializeToString()
    return content


def _images(data: PatternSettings, part: str) -> tuple[Bytes, Bytes]:
    """Images of 28 × 28 pixels, resized if necessary, and their classes."""
    images, classes = labelled_images(data, part)
    if images.shape[1:] != (SIDE, SIDE):
        pictures = (Image.fromarray(image).resize((SIDE, SIDE)) for image in images)
        images = np.stack([np.asarray(picture) for picture in pictures])
    return images, classes


def _bundled_accuracy(network: Classifier) -> float:
    digits, classes = bundled_digits()
    return accuracy(classify(digits, network), classes)


def accuracy(probabilities: NDArray[np.float64], classes: Bytes) -> float:
    """Fraction of images whose most probable class is correct."""
    return float(np.mean(probabilities.argmax(axis=1) == classes))


def _side_after(padding: int) -> int:
    """Side of the image after both convolutions and poolings."""
    side = SIDE
    for _ in range(2):
        side = (side + 2 * padding - 2) // 2
    return side


def _check_export(model: Any, network: Classifier, images: Bytes) -> None:
    """Refuse an exported file whose logits differ from those of the trained model."""
    torch, _ = _libraries()
    inputs = standardize(images / 255)
    with torch.no_grad():
        expected = model(torch.from_numpy(inputs)).numpy()
    worst = float(np.abs(network.network(inputs) - expected).max())
    if worst > 1e-3:
        raise RuntimeError(f"exported classifier differs from the trained one: logits by {worst}")


def _write(path: Path, content: bytes) -> None:
    """Write a file completely or not at all: an interruption leaves the previous file."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error})") from None


def _libraries() -> tuple[Any, Any]:
    try:
        import onnx
        import torch
    except ImportError as error:
        raise UserError(
            f"training the classifier needs PyTorch and onnx ({error.name} is missing): "
            "pip install 'thermoloom[train-classifier]'"
        ) from None
    return torch, onnx
