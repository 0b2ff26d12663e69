"""Labelled data sets other than MNIST: read, thresholded, classified, learned on demand."""

from __future__ import annotations

import gzip
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_digits import TOY

from thermoloom.errors import UserError
from thermoloom.machine.machine import Machine
from thermoloom.measures.fidelity import frechet_distance
from thermoloom.measures.frechet_protocol import (
    classifier_features,
    feature_law,
    frechet,
    inception_features,
)
from thermoloom.measures.quality import measure_quality
from thermoloom.patterns.datasets import binarized, class_names, labelled_images, load_dataset
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


def test_folders_name_their_classes(tmp_path: Path) -> None:
    """Pictures of three classes in folders; the numbers are those of the training part."""
    for part, count, seed in (("train", 12, 1), ("test", 6, 2)):
        images, classes = stripes(count, seed)
        for number, (image, name) in enumerate(zip(images, classes, strict=True)):
            place = tmp_path / part / ("across", "down", "edge")[name]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{number:02}.png")
    settings = source(tmp_path)
    patterns = load_patterns(settings, Machine())
    assert patterns.class_names == ("across", "down", "edge")
    images, classes = stripes(12, 1)
    np.testing.assert_array_equal(patterns.pixels, images.reshape(12, -1))
    np.testing.assert_array_equal(patterns.classes, classes)
    test_images, test_classes = labelled_images(settings, "test")
    assert test_images.shape == (6, 28, 28)
    assert test_classes.tolist() == [0, 0, 1, 1, 2, 2]
    (tmp_path / "test" / "edge").rename(tmp_path / "test" / "corner")
    with pytest.raises(UserError, match="class 'corner' is not in"):
        labelled_images(settings, "test")


def test_a_list_names_the_classes_of_arrays(folder: Path, tmp_path: Path) -> None:
    assert class_names(source(folder)) == ()
    (tmp_path / "classes.txt").write_text("shirt\ntrousers\nbag\n", encoding="utf-8")
    assert class_names(source(tmp_path)) == ("shirt", "trousers", "bag")
    assert class_names(PatternSettings()) == ()


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
    with pytest.raises(UserError, match="bytes, which contradicts its header"):
        load_dataset(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images[:5]))
    with pytest.raises(UserError, match="one whole number for each of 5 images"):
        load_dataset(tmp_path)
    for reason, changes in {
        "path.*must name a folder of IDX": {"path": ""},
        "threshold.*must be at least 0 and less than 1": {"threshold": 1.5},
    }.items():
        with pytest.raises(UserError, match=reason):
            source(folder, **changes)
    with pytest.raises(UserError, match="class 3 has only 0 images; use fewer per class, or leave"):
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
    assert results["data"]["clean_correct_class"] > 0.9
    assert len(results["confusion"]) == 10
    patterns = load_patterns(source(folder), Machine())
    few = patterns.patterns[:9]
    assert measure_quality(few, patterns).class_counts is None
    assert measure_quality(few, patterns, judge).class_counts[:3] == (3, 3, 3)


TINY = {
    "machine": TOY["machine"] | {"labels": 3, "styles": 1},
    "study": TOY["study"] | {"protocol_samples": 3, "peers": ["gaussian", "paper"]},
}  # fmt: skip


def protocol(folder: Path, place: Path, options: dict) -> list[dict]:
    """Rows of the field's protocol on stripes: reference, then every model."""
    values = TINY | {
        "patterns": {"source": "dataset", "path": str(folder), "digits": [0, 1, 2],
                     "threshold": 0.1},
        "measures": {"classifier": str(place / "judge")},
    }  # fmt: skip
    plan = study("digits").plan("quick", values | {"study": TINY["study"] | options})
    assert isinstance(plan, DigitsPlan)
    run = []
    for case in [plan.machine_case, *plan.protocol_cases()]:
        carry_out(place, lambda *_: None, case.as_json())
        run.append(RunDirectory.open(place / case.path).results)
    return [*run[1]["rows"], *run[2:]]


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """A folder with the bundled classifier in place of one of stripes."""
    (tmp_path / "judge").mkdir()
    for name in ("classifier.onnx", "classifier.json"):
        content = (files("thermoloom") / "data" / name).read_bytes()
        (tmp_path / "judge" / name).write_bytes(content)
    return tmp_path


def test_protocol_by_the_classifier(folder: Path, judged: Path) -> None:
    rows = protocol(folder, judged, {"protocol": "classifier"})
    assert [row["model"] for row in rows] == [
        "test images", "training images thresholded at 0.5", "this machine, labels clamped",
        "this machine, labels free", "gaussian",
    ]  # fmt: skip
    assert [row["images"] for row in rows] == [60, 240, 9, 9, 9]
    images, _ = stripes(240, 1)
    test_images, _ = stripes(60, 2)
    extract = classifier_features(str(judged / "judge"))
    sets = [extract(binarized(each, 0.1)) for each in (test_images, images)]
    assert rows[0]["frechet"] == pytest.approx(frechet_distance(*sets), rel=1e-6)
    assert rows[2]["heat"]["mean"] != 0


def test_protocol_by_a_network_behind_its_gate(folder: Path, judged: Path, network: Path) -> None:
    """A small network stands in for Inception: refused until the known distances are its own."""
    with pytest.raises(UserError, match="no distance is reported"):
        protocol(folder, judged, {"protocol": str(network)})
    extract = inception_features(network)
    (images, _), (test_images, _) = stripes(240, 1), stripes(60, 2)
    law = feature_law(binarized(images, 0.1), extract)
    known = [
        frechet(feature_law(each, extract), law)
        for each in (binarized(test_images, 0.1), binarized(images, 0.5))
    ]
    rows = protocol(folder, judged, {"protocol": str(network), "gate": known})
    assert [row["frechet"] for row in rows[:2]] == pytest.approx(known)
    assert len(rows) == 5
    with pytest.raises(UserError, match=r"no\.onnx"):
        protocol(folder, judged, {"protocol": "no.onnx"})


def test_protocol_needs_black_and_white_images() -> None:
    with pytest.raises(UserError, match=r"protocol: compares black and white images"):
        study("digits").plan("quick", {"study": {"protocol": "classifier"}})


def test_digits_by_the_same_reader() -> None:
    images, classes = labelled_images(PatternSettings(threshold=0.5))
    pixels, labels = bundled_digits()
    np.testing.assert_array_equal(images > 0, pixels > 127)
    np.testing.assert_array_equal(classes, labels)
