"""The bundled classifier: what its record says, and inputs that could break it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pytest

from thermoloom.errors import UserError
from thermoloom.measures.classifier import (
    Network,
    bundled_classifier,
    classify,
    image_features,
    load_classifier,
    panel,
    panel_records,
    preprocess,
    standardize,
)
from thermoloom.measures.classifier_training import PAPER
from thermoloom.patterns.mnist import bundled_digits, load_mnist

Bytes = np.ndarray


@pytest.fixture(scope="module")
def mnist_test_set() -> tuple[Bytes, Bytes]:
    default = Path(__file__).resolve().parents[2] / "shared" / "mnist"
    folder = Path(os.environ.get("THERMOLOOM_MNIST", default))
    if not folder.is_dir():
        pytest.skip("no MNIST at hand: set THERMOLOOM_MNIST to a folder of its IDX files")
    return load_mnist(folder, "test")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    with as_file(files("thermoloom") / "data") as folder:
        for name in ("classifier.onnx", "classifier.json"):
            shutil.copy(folder / name, tmp_path / name)
    return tmp_path


def test_recorded_accuracy_is_reproduced(mnist_test_set: tuple[Bytes, Bytes]) -> None:
    images, classes = mnist_test_set
    network = bundled_classifier()
    assert network.record["test_images"] == len(images) == 10000
    found = network.probabilities(standardize(images / 255)).argmax(axis=1)
    # another processor's rounding may turn an image that lies on a border: one in ten thousand
    assert np.mean(found == classes) == pytest.approx(network.record["test_accuracy"], abs=1.5e-4)


@pytest.mark.parametrize("name", sorted(panel_records()))
def test_members_of_the_panel_reproduce_their_recorded_accuracy(name: str) -> None:
    """On the digits of the package; each member is the paper's network, small and near it."""
    images, classes = bundled_digits()
    member = panel()[name]
    predicted = classify(images, member).argmax(axis=1)
    assert np.mean(predicted == classes) == member.record["bundled_accuracy"]
    assert 0.983 <= member.record["test_accuracy"] <= 0.991
    assert member.record["network"] == bundled_classifier().record["network"]
    recipe = member.record["recipe"]
    assert name == f"padding-{recipe['padding']}-batch-{recipe['batch_size']}"
    with as_file(files("thermoloom") / "data" / "panel" / name) as folder:
        assert (folder / "classifier.onnx").stat().st_size < 1_000_000


def test_one_member_of_the_panel_is_as_accurate_as_the_papers_classifier() -> None:
    accuracies = [record["test_accuracy"] for record in panel_records().values()]
    assert min(abs(accuracy - 0.987) for accuracy in accuracies) <= 0.002
    assert len(accuracies) == 5


@pytest.mark.parametrize("wrong", [{"padding": 2}, {"batch_size": 0}, {"epochs": 0}])
def test_a_recipe_that_cannot_be_trained_is_refused(wrong: dict[str, int]) -> None:
    (name,) = wrong
    with pytest.raises(UserError, match=f"{name} = "):
        replace(PAPER, **wrong)  # type: ignore[arg-type]


def test_recorded_accuracy_with_rescaling_is_reproduced(
    mnist_test_set: tuple[Bytes, Bytes],
) -> None:
    images, classes = mnist_test_set
    found = classify(images).argmax(axis=1)
    recorded = bundled_classifier().record["test_accuracy_rescaled"]
    assert np.mean(found == classes) == pytest.approx(recorded, abs=1.5e-4)


def test_record_is_complete_and_the_file_small(copied: Path) -> None:
    content = (copied / "classifier.onnx").read_bytes()
    record = json.loads((copied / "classifier.json").read_text(encoding="utf-8"))
    assert record["sha256"] == hashlib.sha256(content).hexdigest()
    recipe = record["recipe"]
    assert (recipe["optimizer"], recipe["learning_rate"]) == ("Adam", 1e-3)
    assert (recipe["epochs"], recipe["seed"]) == (5, 42)
    assert {"batch_size", "padding"} <= set(recipe)
    # weights and biases of the paper's network with this padding, four bytes each, little else
    side = (((28 + 2 * recipe["padding"] - 2) // 2) + 2 * recipe["padding"] - 2) // 2
    parameters = 16 * 10 + 32 * (16 * 9 + 1) + 128 * (32 * side**2 + 1) + 10 * 129
    assert 0 < len(content) - 4 * parameters < 2000
    assert len(content) < 2_000_000


def test_probabilities_and_shapes() -> None:
    images, classes = bundled_digits()
    square = classify(images.astype(np.float32))
    assert square.shape == (100, 10)
    np.testing.assert_allclose(square.sum(axis=1), 1, rtol=1e-12)
    assert np.array_equal(square, classify(images.reshape(100, 784).astype(np.float32)))
    assert np.mean(square.argmax(axis=1) == classes) > 0.95


def test_preprocess_by_hand() -> None:
    pixels = np.random.default_rng(1).normal(-3, 2, 784).astype(np.float32)
    ordered = np.sort(pixels.astype(np.float64))
    # linear interpolation: 2 % of 783 intervals is position 15.66, 98 % is 767.34
    low = ordered[15] + 0.66 * (ordered[16] - ordered[15])
    high = ordered[767] + 0.34 * (ordered[768] - ordered[767])
    unit = np.minimum(np.maximum((pixels - low) / (high - low), 0), 1)
    result = preprocess(pixels[None])
    assert result.shape == (1, 1, 28, 28)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result.ravel(), (unit - 0.1307) / 0.3081, atol=1e-6)


def test_score_does_not_depend_on_scale_offset_or_company() -> None:
    images = bundled_digits()[0][:30].astype(np.float32)
    scores = classify(images)
    np.testing.assert_allclose(classify(0.01 * images - 4), scores, atol=1e-4)
    np.testing.assert_allclose(classify(images[7:8]), scores[7:8], atol=1e-6)
    many = classify(np.concatenate([images] * 10))  # more than the network takes at once
    np.testing.assert_allclose(many, np.concatenate([scores] * 10), atol=1e-6)


@pytest.mark.parametrize("value", [0.0, -2.5, 0.1])
def test_constant_sample_does_not_divide_by_zero(value: float) -> None:
    sample = np.full((2, 784), value, np.float32)
    sample[1, 300] += 1  # almost constant: both percentiles are still equal
    with np.errstate(all="raise"):
        prepared = preprocess(sample)
        scores = classify(sample)
    np.testing.assert_allclose(prepared, -0.1307 / 0.3081, rtol=1e-6)
    assert np.isfinite(scores).all()


def test_no_samples_give_no_scores() -> None:
    assert bundled_classifier().probabilities(np.zeros((0, 1, 28, 28), np.float32)).shape == (
        0,
        10,
    )


def test_wrong_shape_is_refused() -> None:
    with pytest.raises(UserError, match=r"shape \(3, 196\)"):
        classify(np.zeros((3, 196), np.float32))


def test_damaged_file_is_refused(copied: Path) -> None:
    load_classifier(copied)
    content = bytearray((copied / "classifier.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (copied / "classifier.onnx").write_bytes(content)
    with pytest.raises(UserError, match=r"classifier\.onnx: damaged") as error:
        load_classifier(copied)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["classifier.onnx", "classifier.json"])
def test_missing_file_is_refused(copied: Path, name: str) -> None:
    (copied / name).unlink()
    with pytest.raises(UserError, match="no readable classifier"):
        load_classifier(copied)


def test_record_without_checksum_is_refused(copied: Path) -> None:
    (copied / "classifier.json").write_text("{}")
    with pytest.raises(UserError, match="no readable classifier"):
        load_classifier(copied)


def test_training_without_pytorch_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from thermoloom.measures.classifier_training import train_classifier
    from thermoloom.settings import PatternSettings

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"pip install 'thermoloom\[train-classifier\]'"):
        train_classifier(PatternSettings(source="mnist", path=str(tmp_path)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_training_and_export_where_pytorch_is_at_hand() -> None:
    pytest.importorskip("torch", reason="PyTorch is an extra")
    pytest.importorskip("onnx", reason="onnx is an extra")
    from thermoloom.measures.classifier import Classifier
    from thermoloom.measures.classifier_training import Recipe, onnx_file, train

    images, classes = bundled_digits()
    recipe = Recipe(epochs=12, batch_size=10, padding=0)
    losses: list[float] = []
    model = train(images, classes, recipe, lambda _, loss: losses.append(loss))
    assert losses[-1] < 0.1 * losses[0]
    content = onnx_file(model, recipe)
    assert content == onnx_file(train(images, classes, recipe), recipe)  # the same bits again
    scores = Classifier(Network(content), {}).probabilities(standardize(images / 255))
    assert np.mean(scores.argmax(axis=1) == classes) > 0.95


def test_logits_are_a_linear_function_of_the_features(copied: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is an extra")
    graph = onnx.load(copied / "classifier.onnx").graph
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
    inputs = preprocess(bundled_digits()[0])
    network = load_classifier(copied)
    features = network.features(inputs)
    assert features.shape == (100, 128)
    assert features.min() == 0  # after ReLU
    logits = features @ weights["9.weight"].T + weights["9.bias"]
    np.testing.assert_allclose(network.network(inputs), logits, rtol=1e-4, atol=1e-4)
    assert np.array_equal(image_features(bundled_digits()[0], network), features)


def test_features_of_no_images_and_of_an_older_network(copied: Path) -> None:
    assert bundled_classifier().features(np.zeros((0, 1, 28, 28), np.float32)).shape == (0, 128)
    onnx = pytest.importorskip("onnx", reason="onnx is an extra")
    model = onnx.load(copied / "classifier.onnx")
    del model.graph.output[1]
    older = Network(model.SerializeToString())
    inputs = preprocess(bundled_digits()[0][:3])
    assert np.array_equal(older(inputs), bundled_classifier().network(inputs))
    with pytest.raises(UserError, match="no output 'features'"):
        older.features(inputs)
