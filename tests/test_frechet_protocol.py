"""The field's protocol: resize, features, distance against other implementations; the gate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
from PIL import Image

from thermoloom.errors import UserError
from thermoloom.measures import frechet_protocol
from thermoloom.measures.frechet_protocol import (
    Gate,
    feature_law,
    frechet,
    inception_features,
    network_inputs,
    resize_matrix,
)
from thermoloom.patterns.datasets import binarized

Bytes = np.ndarray


def shapes(count: int, seed: int) -> Bytes:
    """Grey discs of random size, place and shade."""
    rng = np.random.default_rng(seed)
    row, column = np.indices((28, 28))
    centre, radius = rng.uniform(9, 18, (count, 2, 1, 1)), rng.uniform(4, 9, (count, 1, 1))
    distance = np.hypot(row - centre[:, 0], column - centre[:, 1])
    grey = 255 * np.clip((radius - distance) / radius, 0, 1) * rng.uniform(0.4, 1, (count, 1, 1))
    return grey.astype(np.uint8)


@pytest.mark.parametrize(("size", "target"), [(28, 256), (28, 9), (40, 28)])
def test_resize_is_that_of_pillow(size: int, target: int) -> None:
    image = np.random.default_rng(1).random((size, size)).astype(np.float32)
    matrix = resize_matrix(size, target)
    picture = Image.fromarray(image).resize((target, target), Image.Resampling.BILINEAR)
    np.testing.assert_allclose(matrix @ image @ matrix.T, np.asarray(picture), atol=1e-5)


def test_inputs_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    images = binarized(shapes(3, 1), 0.1)
    resized = torch.nn.functional.interpolate(
        torch.from_numpy(images / 255.0)[:, None], 256, mode="bilinear", antialias=True
    )
    expected = 2 * resized.expand(-1, 3, -1, -1).numpy() - 1
    np.testing.assert_allclose(network_inputs(images), expected, atol=1e-5)


def test_distance_is_that_of_a_matrix_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frechet_protocol, "BLOCK", 7)
    rng = np.random.default_rng(2)
    sets = [rng.normal(50, 1, (n, 12)) @ rng.normal(size=(12, 12)) for n in (40, 65)]
    laws = [feature_law(np.arange(len(x)), lambda index, x=x: x[index]) for x in sets]
    means = [x.mean(axis=0) for x in sets]
    covariances = [np.cov(x, rowvar=False) for x in sets]
    root = scipy.linalg.sqrtm(covariances[0] @ covariances[1]).real
    expected = np.sum((means[0] - means[1]) ** 2) + np.trace(sum(covariances) - 2 * root)
    assert frechet(*laws) == pytest.approx(expected, rel=1e-8)
    with pytest.raises(UserError, match="1 images: a covariance needs at least two"):
        feature_law(np.arange(1), lambda index: sets[0][index])


def known_distances(network: Path, threshold: float, reference: Bytes) -> tuple[float, float]:
    extract = inception_features(network)
    law = feature_law(binarized(reference, threshold), extract)
    sets = binarized(shapes(20, 5), threshold), binarized(shapes(30, 4), 0.5)
    first, second = (frechet(feature_law(images, extract), law) for images in sets)
    return first, second


def test_gate_refuses_another_resize_threshold_or_reference(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = shapes(30, 4)
    test_images, thresholded = known_distances(network, 0.1, training)
    assert 0 < test_images < thresholded
    gate = Gate(test_images, thresholded)
    gate.check(*known_distances(network, 0.1, training))
    refused = "no distance is reported"
    with pytest.raises(UserError, match=refused):
        gate.check(*known_distances(network, 0.2, training))
    with pytest.raises(UserError, match=refused):  # test images in place of training images
        gate.check(*known_distances(network, 0.1, shapes(30, 5)))

    def nearest(size: int, target: int) -> np.ndarray:
        return np.eye(size)[np.arange(target) * size // target]

    monkeypatch.setattr(frechet_protocol, "resize_matrix", nearest)
    with pytest.raises(UserError, match=refused):
        gate.check(*known_distances(network, 0.1, training))
    with pytest.raises(UserError, match=r"instead of 2\.1"):
        Gate().check(float("nan"), 29.8)


def test_network_that_takes_other_images_is_refused(network: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no network")
    with pytest.raises(UserError, match=r"broken\.onnx: ONNX Runtime cannot read it"):
        inception_features(broken)
