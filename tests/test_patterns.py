"""Patterns: the right digits in the right order, honest fields, clear refusals."""

from __future__ import annotations

import gzip
import hashlib
import os
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from thermoloom.errors import DataWarning, UserError
from thermoloom.machine.machine import Machine
from thermoloom.patterns import mnist
from thermoloom.patterns.drive import drive_of, unit_fields
from thermoloom.patterns.mnist import bundled_digits, load_mnist
from thermoloom.patterns.patterns import (
    Patterns,
    from_images,
    in_turn,
    load_patterns,
)
from thermoloom.patterns.scale import normalized, sample_scale
from thermoloom.settings import PatternSettings

SMALL = Machine(visible=6, hidden=4)


@pytest.fixture
def mnist_folder() -> Path:
    default = Path(__file__).resolve().parents[2] / "shared" / "mnist"
    folder = Path(os.environ.get("THERMOLOOM_MNIST", default))
    if not folder.is_dir():
        pytest.skip("no MNIST at hand: set THERMOLOOM_MNIST to a folder of its IDX files")
    return folder


def one_line(error: pytest.ExceptionInfo[UserError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


# --- the bundled digits -------------------------------------------------------------------------


def test_bundle_is_the_first_ten_training_images_of_each_class(mnist_folder: Path) -> None:
    images, classes = load_mnist(mnist_folder)
    assert images.shape == (60000, 28, 28)
    with (files("thermoloom") / "data" / "mnist_prototypes.npz").open("rb") as stream:
        bundle = dict(np.load(stream, allow_pickle=False))
    for digit in range(10):
        # counted one by one, independently of the way the bundle was made
        found: list[int] = []
        position = 0
        while len(found) < 10:
            if classes[position] == digit:
                found.append(position)
            position += 1
        rows = slice(10 * digit, 10 * digit + 10)
        assert bundle["indices"][rows].tolist() == found
        assert np.array_equal(bundle["images"][rows], images[found])
        assert set(bundle["labels"][rows].tolist()) == {digit}


def test_bundle_indices_known_from_the_dataset_description() -> None:
    with (files("thermoloom") / "data" / "mnist_prototypes.npz").open("rb") as stream:
        indices = np.load(stream, allow_pickle=False)["indices"].reshape(10, 10)
    assert indices[0, :5].tolist() == [1, 21, 34, 37, 51]
    assert indices[1, :5].tolist() == [3, 6, 8, 14, 23]
    assert indices[2, :5].tolist() == [5, 16, 25, 28, 76]


def test_digits_take_turns() -> None:
    settings = PatternSettings(digits=(2, 0), per_digit=3)
    loaded = load_patterns(settings, Machine())
    assert loaded.labels == ("2", "0", "2", "0", "2", "0")
    assert loaded.targets == (2, 0)
    assert loaded.classes == (2, 0, 2, 0, 2, 0)
    assert loaded.digits
    assert loaded.shape == (28, 28)
    images, _ = bundled_digits()
    for pattern, index in zip(loaded.patterns, (20, 0, 21, 1, 22, 2), strict=True):
        correlation = np.corrcoef(pattern, images[index].ravel())[0, 1]
        assert correlation == pytest.approx(1, abs=1e-6)


def test_in_turn_worked_by_hand() -> None:
    classes = np.array([5, 0, 4, 1, 0, 1, 0], np.uint8)
    assert in_turn(classes, (0, 1), 2) == [1, 3, 4, 5]
    with pytest.raises(UserError, match="class 1 has only 2 images; use fewer per class"):
        in_turn(classes, (0, 1), 3)


def test_mnist_source_equals_the_bundle(mnist_folder: Path) -> None:
    bundled = load_patterns(PatternSettings(per_digit=10, digits=(7, 3)), Machine())
    full = load_patterns(
        PatternSettings(source="mnist", path=str(mnist_folder), per_digit=10, digits=(7, 3)),
        Machine(),
    )
    assert np.array_equal(bundled.patterns, full.patterns)
    assert bundled.labels == full.labels


# --- normalization and fields -------------------------------------------------------------------


def test_normalized_by_hand() -> None:
    # 1, 2, 3, 4: mean 2.5, population variance 1.25
    expected = (np.array([1, 2, 3, 4]) - 2.5) / 1.25**0.5
    result = normalized(np.array([[1, 2, 3, 4], [10, 20, 30, 40]]))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, [expected, expected], rtol=1e-7)


def test_bundled_patterns_have_zero_mean_and_unit_variance() -> None:
    patterns = load_patterns(PatternSettings(per_digit=10), Machine()).patterns
    wide = patterns.astype(np.float64)
    assert patterns.dtype == np.float32
    assert np.abs(wide.mean(axis=1)).max() < 1e-7
    assert np.abs(wide.var(axis=1) - 1).max() < 1e-6


@pytest.mark.parametrize("value", [0.0, 1.1, 255.0])
def test_constant_image_is_refused_by_name(value: float) -> None:
    # the mean of 784 numbers 1.1 is not exactly 1.1: a check of the variance alone lets it pass
    images = [np.eye(28), np.full((28, 28), value)]
    with pytest.raises(UserError, match="pattern flat: constant") as error:
        from_images(images, Machine(), ["eye", "flat"])
    one_line(error)


def test_values_that_are_not_finite_are_refused_by_name() -> None:
    images = np.ones((2, 6))
    images[1, 3] = np.nan
    images[0, 0] = 2
    with pytest.raises(UserError, match=r"pattern 1: .*not finite"):
        from_images(list(images), SMALL)


def test_fields_refuse_another_visible_layer() -> None:
    patterns = load_patterns(PatternSettings(), Machine())
    with pytest.raises(UserError, match=r"machine.visible = 6"):
        unit_fields(patterns, SMALL)


# --- classes and words --------------------------------------------------------------------------


def test_words_of_the_labels_are_those_of_the_classes() -> None:
    machine = Machine(labels=4, label_amplitude=1.5)
    patterns = load_patterns(PatternSettings(digits=(3, 0), per_digit=2), machine)
    words = drive_of(patterns, machine).words
    assert words is not None
    assert words.dtype == np.float32
    assert words.tolist() == [[0, 0, 0, 1.5], [1.5, 0, 0, 0]] * 2
    assert drive_of(patterns, Machine()).words is None


def test_labels_need_classes_and_enough_of_them() -> None:
    patterns = load_patterns(PatternSettings(digits=(3, 0)), Machine())
    with pytest.raises(UserError, match=r"classes up to 3; use machine\.labels = 4") as error:
        drive_of(patterns, Machine(labels=3))
    one_line(error)
    own_images = from_images([np.eye(2, 3), np.ones((2, 3)) - np.eye(2, 3)], SMALL)
    with pytest.raises(UserError, match=r"labels = 2: the patterns have no classes") as error:
        drive_of(own_images, Machine(visible=6, hidden=4, labels=2))
    one_line(error)


def test_classes_and_codes_that_do_not_fit_are_refused() -> None:
    rows = normalized(np.array([[0, 1, 2], [4, 0, 4]]))
    with pytest.raises(UserError, match="one for each of 2 patterns, or none; got 3"):
        Patterns(rows, ("a", "b"), classes=(0, 1, 2))
    with pytest.raises(UserError, match="must be whole numbers, none negative"):
        Patterns(rows, ("a", "b"), classes=(0, -1))
    with pytest.raises(UserError, match="0 to 9 for MNIST"):
        Patterns(rows, ("a", "b"), classes=(0, 10), digits=True)
    with pytest.raises(UserError, match=r"code of shape \(3, 4\) for 2 patterns"):
        Patterns(rows, ("a", "b"), code=np.zeros((3, 4), np.float32))


# --- full MNIST ---------------------------------------------------------------------------------


@pytest.fixture
def tiny_mnist(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Three images in the MNIST format, with their checksums in place of the real ones."""
    pixels = np.arange(3 * 784, dtype=np.uint32).astype(np.uint8)
    header = b"".join(n.to_bytes(4, "big") for n in (0x803, 3, 28, 28))
    content = {
        "train-images-idx3-ubyte": header + pixels.tobytes(),
        "train-labels-idx1-ubyte": bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 0, 1]),
    }
    checksums = {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    monkeypatch.setattr(mnist, "MNIST_SHA256", checksums)
    return content


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("spelling", ["-idx", ".idx"])
def test_idx_files_plain_and_gzip(
    tmp_path: Path, tiny_mnist: dict[str, bytes], packed: bool, spelling: str
) -> None:
    for name, data in tiny_mnist.items():
        stem = name.replace("-idx", spelling)
        path = tmp_path / (stem + ".gz" if packed else stem)
        path.write_bytes(gzip.compress(data) if packed else data)
    images, classes = load_mnist(tmp_path)
    assert images.shape == (3, 28, 28)
    assert images[1, 0, 0] == 784 % 256
    assert classes.tolist() == [1, 0, 1]


def test_wrong_mnist_file_is_refused(tmp_path: Path, tiny_mnist: dict[str, bytes]) -> None:
    for name, data in tiny_mnist.items():
        (tmp_path / name).write_bytes(data)
    damaged = bytearray(tiny_mnist["train-images-idx3-ubyte"])
    damaged[500] ^= 1
    (tmp_path / "train-images-idx3-ubyte").write_bytes(damaged)
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte: not the MNIST file") as error:
        load_mnist(tmp_path)
    one_line(error)


def test_truncated_gzip_is_refused(tmp_path: Path, tiny_mnist: dict[str, bytes]) -> None:
    name = "train-images-idx3-ubyte"
    (tmp_path / (name + ".gz")).write_bytes(gzip.compress(tiny_mnist[name])[:-20])
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte\.gz: cannot be read"):
        load_mnist(tmp_path)


def test_missing_mnist_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="train-images-idx3-ubyte"):
        load_mnist(tmp_path)
    with pytest.raises(UserError, match="must be train or test"):
        load_mnist(tmp_path, "validation")


def test_download_without_network_says_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pooch

    tried: list[str] = []

    def no_network(url: str, **_: object) -> str:
        tried.append(url)
        raise ConnectionError(url)

    monkeypatch.setattr(pooch, "retrieve", no_network)
    with pytest.raises(UserError, match=r"could not be downloaded.*patterns\.path") as error:
        load_patterns(PatternSettings(source="mnist"), Machine())
    one_line(error)
    assert len(tried) == len(mnist.MNIST_MIRRORS)


def test_downloaded_file_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_mnist: dict[str, bytes]
) -> None:
    import pooch

    def fetch(url: str, *, fname: str, **_: object) -> str:
        path = tmp_path / fname
        path.write_bytes(gzip.compress(tiny_mnist[fname.removesuffix(".gz")]))
        return str(path)

    monkeypatch.setattr(pooch, "retrieve", fetch)
    assert load_mnist()[1].tolist() == [1, 0, 1]
    tiny_mnist["train-labels-idx1-ubyte"] += b"\0"
    with pytest.raises(UserError, match="SHA-256 differs"):
        load_mnist()


# --- the user's own images ----------------------------------------------------------------------


def own(path: Path, resize: bool = False) -> PatternSettings:
    return PatternSettings(source="images", path=str(path), resize=resize)


def test_png_folder_sorted_by_name(tmp_path: Path) -> None:
    grey = np.array([[0, 50, 100], [150, 200, 250]], np.uint8)
    Image.fromarray(grey).save(tmp_path / "b.png")
    Image.fromarray(grey[::-1].copy()).convert("RGB").save(tmp_path / "a.PNG")
    (tmp_path / "notes.txt").write_text("not an image")
    loaded = load_patterns(own(tmp_path), SMALL)
    assert loaded.labels == ("a", "b")
    assert loaded.shape == (2, 3)
    assert loaded.targets == ()
    np.testing.assert_allclose(loaded.patterns[1], normalized(grey.reshape(1, 6))[0], atol=1e-6)
    np.testing.assert_allclose(loaded.patterns[0], normalized(grey[::-1].reshape(1, 6))[0])


def test_folders_are_classes(tmp_path: Path) -> None:
    """By name, from 0 on; they are the user's classes, not MNIST's."""
    grey = np.arange(6, dtype=np.uint8).reshape(2, 3)
    for name in ("zebra/b", "cat/c", "cat/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.roll(grey, ord(name[-1]))).save(tmp_path / f"{name}.png")
    (tmp_path / "empty").mkdir()
    loaded = load_patterns(own(tmp_path), SMALL)
    assert loaded.labels == ("cat/a", "cat/c", "zebra/b")
    assert loaded.classes == (0, 0, 1)
    assert not loaded.digits


def test_own_image_named_like_a_digit_is_no_mnist_class(tmp_path: Path) -> None:
    Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3)).save(tmp_path / "3.png")
    loaded = load_patterns(own(tmp_path), SMALL)
    assert loaded.labels == ("3",)
    assert loaded.targets == ()


def test_sixteen_bit_png_keeps_its_depth(tmp_path: Path) -> None:
    deep = np.array([[0, 1, 2], [3, 4, 60000]], np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    loaded = load_patterns(own(tmp_path), SMALL)
    np.testing.assert_allclose(loaded.patterns[0], normalized(deep.reshape(1, 6))[0], atol=1e-6)


def test_transparent_png_is_refused_opaque_is_not(tmp_path: Path) -> None:
    pixels = np.zeros((2, 3, 4), np.uint8)
    pixels[..., :3] = np.arange(6).reshape(2, 3, 1)
    pixels[..., 3] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert len(load_patterns(own(tmp_path), SMALL)) == 1
    pixels[0, 0, 3] = 0
    Image.fromarray(pixels).save(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"a\.png: is partly transparent"):
        load_patterns(own(tmp_path), SMALL)


def test_npy_images_and_flat_patterns(tmp_path: Path) -> None:
    values = np.arange(12.0)[::-1] ** 2
    np.save(tmp_path / "images.npy", values.reshape(2, 3, 2))
    np.save(tmp_path / "flat.npy", values.reshape(2, 6))
    images = load_patterns(own(tmp_path / "images.npy"), SMALL)
    with pytest.warns(DataWarning, match="row of 6 values"):
        flat = load_patterns(own(tmp_path / "flat.npy"), SMALL)
    assert (images.shape, flat.shape) == ((3, 2), None)
    assert images.labels == flat.labels == ("0", "1")
    assert np.array_equal(images.patterns, flat.patterns)


def test_wrong_size_names_the_size_and_the_way_out(tmp_path: Path) -> None:
    Image.fromarray(np.eye(4, 5, dtype=np.uint8)).save(tmp_path / "small.png")
    with pytest.raises(UserError, match=r"small: is 4 × 5 pixels.*resize=True or visible=20"):
        load_patterns(own(tmp_path), Machine())
    with pytest.raises(UserError, match=r"pattern 0: is 28 × 28 .*machine\.visible = 196"):
        load_patterns(PatternSettings(), Machine(visible=196))
    np.save(tmp_path / "flat.npy", np.arange(10.0).reshape(2, 5))
    with pytest.raises(UserError, match="has 5 values"):
        load_patterns(own(tmp_path / "flat.npy", resize=True), Machine(visible=4))


def test_resize_halves_a_picture_by_averaging(tmp_path: Path) -> None:
    # 2 × 2 blocks of equal pixels; bilinear halving weighs a row by 1, 3, 3, 1 (over 8)
    blocks = np.kron(np.array([[0, 200], [100, 40]], np.uint8), np.ones((2, 2), np.uint8))
    Image.fromarray(blocks).save(tmp_path / "a.png")
    loaded = load_patterns(own(tmp_path, resize=True), Machine(visible=4, hidden=2))
    weights = np.array([[3, 3, 1, 0], [0, 1, 3, 3]]) / 7  # the border has no outer neighbour
    expected = normalized((weights @ blocks @ weights.T).reshape(1, 4))
    np.testing.assert_allclose(loaded.patterns, expected, atol=1e-5)
    assert loaded.shape == (2, 2)


def test_resize_brings_different_shapes_together(tmp_path: Path) -> None:
    Image.fromarray(np.arange(16, dtype=np.uint8).reshape(4, 4)).save(tmp_path / "a.png")
    Image.fromarray(np.arange(16, dtype=np.uint8).reshape(2, 8)).save(tmp_path / "b.png")
    machine = Machine(visible=16, hidden=2)
    with pytest.raises(UserError, match="different shapes"):
        load_patterns(own(tmp_path), machine)
    assert load_patterns(own(tmp_path, resize=True), machine).shape == (4, 4)
    with pytest.raises(UserError, match=r"machine\.visible = 15.*square number, such as 9"):
        load_patterns(own(tmp_path, resize=True), Machine(visible=15, hidden=2))


def test_digits_on_a_smaller_visible_layer() -> None:
    loaded = load_patterns(PatternSettings(resize=True), Machine(visible=196))
    assert loaded.shape == (14, 14)
    assert loaded.targets == (0, 1, 2)


def test_unreadable_sources_are_named(tmp_path: Path) -> None:
    def message(path: Path) -> str:
        with pytest.raises(UserError) as error:
            load_patterns(own(path), SMALL)
        return one_line(error)

    assert "no picture and no IDX file in this folder" in message(tmp_path)
    assert "no such file or folder" in message(tmp_path / "absent")
    (tmp_path / "image.txt").write_text("x")
    assert "must be a picture, an IDX file, an .npy file or a folder" in message(
        tmp_path / "image.txt"
    )
    (tmp_path / "text.npy").write_text("x")
    assert "not a readable .npy array" in message(tmp_path / "text.npy")
    np.save(tmp_path / "object.npy", np.array([{}]), allow_pickle=True)
    assert "not a readable .npy array" in message(tmp_path / "object.npy")
    np.save(tmp_path / "none.npy", np.zeros((0, 6)))
    assert "n ≥ 1" in message(tmp_path / "none.npy")
    np.save(tmp_path / "complex.npy", np.ones((2, 6), complex))
    assert "real numbers" in message(tmp_path / "complex.npy")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    assert "broken.png: not a readable picture" in message(tmp_path)


def test_all_images_of_each_class_in_turn() -> None:
    classes = np.array([1, 0, 0, 2, 0, 1], np.uint8)
    assert in_turn(classes, (0, 1), 0) == [1, 0, 2, 5, 4]
    assert in_turn(classes, (2, 0), 0) == [3, 1, 2, 4]
    with pytest.raises(UserError, match="class 7 has only 0"):
        in_turn(classes, (7,), 0)
    everything = load_patterns(PatternSettings(digits=(4, 1), per_digit=0), Machine())
    assert everything.classes == (4, 1) * 10


def test_patterns_do_not_depend_on_how_many_are_normalized_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = bundled_digits()[0].reshape(100, -1)
    whole = normalized(rows)
    monkeypatch.setattr("thermoloom.patterns.scale.ROWS_AT_ONCE", 7)
    assert np.array_equal(normalized(rows), whole)
    again = sample_scale(rows).fields(rows)
    assert np.array_equal(again, whole)
