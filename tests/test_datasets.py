"""Labelled data sets other than MNIST: read, thresholded, classified, learned on demand."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_digits import TOY

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.measures.quality import measure_quality
from thermoloom.patterns.datasets import binarized, labelled_images, load_dataset
from thermoloom.patterns.mnist import bundled_digits
from thermoloom.patterns.patterns import load_patterns
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import PatternSettings
from thermoloom.studies.case import carry_out
from thermoloom.studies.digits.study import DigitsPlan
from thermoloom.studies.discovery import study


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def stripes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes: horizontal stripes, vertical stripes, a frame; with noise."""
    rng = np.random.default_rng(seed)
    row, column = np.indices((28, 28))
    edge = (np.minimum(row, column) < 6) | (np.maximum(row, column) > 21)
    shapes = np.stack([row // 4 % 2, column // 4 % 2, edge])
    classes = np.arange(count) % 3
    grey = 160 * shapes[classes] + rng.integers(0, 90, (count, 28, 28))
    return grey.astype(np.uint8), classes.astype(np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training part in IDX files, one of them compressed, test part alike."""
    place = tmp_path_factory.mktemp("stripes")
    for prefix, count, seed in (("train", 240, 1), ("t10k", 60, 2)):
        images, classes = stripes(count, seed)
        (place / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (place / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(classes))
    return place


def source(folder: Path, **changes: object) -> PatternSettings:
    settings = PatternSettings("dataset", digits=(0, 1, 2), per_digit=0, path=str(folder))
    return replace(settings, **changes)


def test_idx_files_and_arrays_hold_the_same(folder: Path, tmp_path: Path) -> None:
    for part, name, count, seed in (("train", "train", 240, 1), ("test", "test", 60, 2)):
        images, classes = stripes(count, seed)
        np.save(tmp_path / f"{name}-images.npy", images)
        np.save(tmp_path / f"{name}-labels.npy", classes.astype(np.int64))
        for place in (folder, tmp_path):
            read_images, read_classes = load_dataset(place, part)
            np.testing.assert_array_equal(read_images, images)
            np.testing.assert_array_equal(read_classes, classes)


def test_threshold_is_strict_and_by_grey_value(folder: Path) -> None:
    grey = np.array([[[0, 25, 26, 128, 255]]], np.uint8)  # 0.1 · 255 = 25.5
    assert binarized(grey, 0.1).ravel().tolist() == [0, 0, 255, 255, 255]
    assert binarized(grey, 0.5).ravel().tolist() == [0, 0, 0, 255, 255]
    images, _ = labelled_images(source(folder, threshold=0.5))
    assert set(np.unique(images)) == {0, 255}
    patterns = load_patterns(source(folder, threshold=0.5), Machine())
    assert all(len(np.unique(row)) == 2 for row in patterns.patterns[:5])
    assert not patterns.digits
    assert patterns.targets == (0, 1, 2)


def test_what_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none of the files train-images-idx3.*train-images\.npy"):
        load_dataset(tmp_path)
    images, classes = stripes(6, 1)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images)[:-1])
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(classes))
    with pytest.raises(UserError, match="bytes, not those of its header"):
        load_dataset(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images[:5]))
    with pytest.raises(UserError, match="one whole number for each of 5 images"):
        load_dataset(tmp_path)
    for reason, changes in {
        "path.*must name a folder of IDX": {"path": ""},
        "threshold.*must be from 0 to 1": {"threshold": 1.5},
    }.items():
        with pytest.raises(UserError, match=reason):
            source(folder, **changes)
    with pytest.raises(UserError, match="class 3 has only 0 images; take fewer, or leave it out"):
        load_patterns(source(folder, digits=(0, 3)), Machine())
    values = {"patterns": {"source": "dataset", "path": str(folder)}}
    with pytest.raises(UserError, match="to train one: thermoloom classifier train --data"):
        study("digits").plan("quick", values)


def test_classifier_and_machine_of_another_data_set(folder: Path, tmp_path: Path) -> None:
    """A classifier is trained on it; the machine is judged by it and against test images."""
    pytest.importorskip("torch", reason="PyTorch is an extra")
    from thermoloom.measures.classifier_training import PAPER, train_classifier

    judge = str(tmp_path / "judge")
    record = train_classifier(source(folder), Path(judge), replace(PAPER, epochs=3, batch_size=16))
    assert record["test_accuracy_rescaled"] > 0.9
    assert record["training_data"]["set"] == folder.name
    values = TOY | {
        "machine": TOY["machine"] | {"labels": 3, "styles": 1},
        "patterns": {"source": "dataset", "path": str(folder), "digits": [0, 1, 2]},
        "measures": {"classifier": judge},
    }
    plan = study("digits").plan("quick", values)
    assert isinstance(plan, DigitsPlan)
    case = plan.machine_case
    carry_out(tmp_path, lambda *_: None, case.as_json())
    results = RunDirectory.open(tmp_path / case.path).results
    assert results["held_out"]
    assert results["data"]["clean_asked"] > 0.9
    assert len(results["confusion"]) == 10
    patterns = load_patterns(source(folder), Machine())
    few = patterns.patterns[:9]
    assert measure_quality(few, patterns).class_counts is None
    assert measure_quality(few, patterns, judge).class_counts[:3] == (3, 3, 3)


def test_digits_by_the_same_reader() -> None:
    images, classes = labelled_images(PatternSettings(threshold=0.5))
    pixels, labels = bundled_digits()
    np.testing.assert_array_equal(images > 0, pixels > 127)
    np.testing.assert_array_equal(classes, labels)
