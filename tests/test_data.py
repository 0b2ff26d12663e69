"""Data of any kind: every scale and its way back, pictures, IDX files, tables, other libraries."""

from __future__ import annotations

import gzip
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import thermoloom as tl
from thermoloom.cli.commands import app
from thermoloom.machine.clamp import resting_states
from thermoloom.machine.presets import COOLING, SHARP

TABLE = np.random.default_rng(1).normal([5.0, -300.0, 0.02], [1.0, 40.0, 0.004], (60, 3))
LINEAR = tl.Machine(visible=3, hidden=0, wiring=("visible-visible",), biases=("visible",), J4=0.0)


# --- scales ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "numbers"),
    [
        ("feature", {}),
        ("fixed", {"mean": 10.0, "deviation": 50.0}),
        ("fixed", {"mean": TABLE.mean(axis=0), "deviation": TABLE.std(axis=0)}),
        (None, {}),
    ],
)
def test_data_at_rest_come_back_in_their_units(
    scale: str | None, numbers: dict[str, float], tmp_path: Path
) -> None:
    table = TABLE if numbers or scale else TABLE / [5, 300, 0.02]
    machine = tl.Machine(visible=3, hidden=2, J4=0.5, duration=0.05)
    computer = machine.train(table, cycles=1, scale=scale, **numbers)
    computer.save(tmp_path / "c.safetensors")
    for each in (computer, tl.load(tmp_path / "c.safetensors")):
        patterns = each.patterns
        assert each.machine.scale == ("none" if scale is None else scale)
        at_rest = resting_states(machine, patterns.patterns)
        again = patterns.scale.data(machine, at_rest)
        np.testing.assert_allclose(again, table, rtol=2e-5, atol=1e-6)


def test_one_image_comes_back_in_its_grey_values() -> None:
    image = np.random.default_rng(0).integers(0, 256, (1, 7, 7), np.uint8)
    patterns = tl.Machine(visible=49, hidden=2, duration=0.05).solve(image).patterns
    again = patterns.scale.data(LINEAR, patterns.patterns)
    np.testing.assert_allclose(again, image.reshape(1, -1), atol=1e-3)


def test_generated_rows_have_the_moments_of_the_table() -> None:
    """At k_BT = 2J₂ thermal noise alone has the unit variance of independent columns."""
    samples = replace(LINEAR, kT=2.0).solve(TABLE, scale="feature").generate(3000, seed=1).samples
    shift = (samples.mean(axis=0) - TABLE.mean(axis=0)) / TABLE.std(axis=0)
    np.testing.assert_allclose(shift, 0, atol=0.08)
    np.testing.assert_allclose(samples.std(axis=0), TABLE.std(axis=0), rtol=0.08)


def test_a_constant_column_stays_constant() -> None:
    table = np.c_[TABLE[:, :2], np.full(60, 7.5)]
    samples = LINEAR.solve(table, scale="feature").generate(5).samples
    assert (samples[:, 2] == 7.5).all()
    assert (samples[:, 0] != samples[0, 0]).any()


def test_rows_scaled_by_themselves_get_a_warning_unless_that_is_said() -> None:
    with pytest.warns(tl.DataWarning, match=r"row of 3 values .* scale='feature'"):
        LINEAR.solve(TABLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LINEAR.solve(TABLE, scale="sample")
        tl.Machine(visible=9, hidden=0, wiring=("visible-visible",)).solve(
            np.eye(9).reshape(9, 3, 3)
        )


def test_wrong_scales_are_refused() -> None:
    for arguments, message in (
        ({"scale": "row"}, "must be one of sample, feature"),
        ({"scale": "fixed"}, "needs mean and deviation"),
        ({"scale": "fixed", "mean": 0, "deviation": [1, 2]}, "deviation: must be one number"),
        ({"scale": "fixed", "mean": 0, "deviation": 0}, "must be positive"),
        ({"scale": "feature", "mean": 0}, "use scale='fixed'"),
    ):
        with pytest.raises(tl.UserError, match=message):
            LINEAR.solve(TABLE, **arguments)
    with pytest.raises(tl.UserError, match="no column varies"):
        LINEAR.solve(np.ones((4, 3)), scale="feature")


def test_more_training_keeps_the_scale() -> None:
    machine = tl.Machine(visible=3, hidden=2, duration=0.05)
    computer = machine.train(TABLE, cycles=1, scale="feature")
    further = computer.train(TABLE[:10] + 1, cycles=1)
    assert np.array_equal(further.patterns.scale.mean, computer.patterns.scale.mean)


def test_clamped_values_are_in_the_units_of_the_data() -> None:
    computer = LINEAR.solve(TABLE, scale="feature")
    known = np.array([5.5, np.nan, np.nan])
    drawn = computer.generate(4, clamp=known, hold=True)
    np.testing.assert_allclose(drawn.samples[:, 0], 5.5, rtol=1e-5)


@pytest.fixture(scope="module")
def completing() -> tl.Computer:
    return tl.Machine(visible=48, hidden=2, duration=0.05).solve(
        np.random.default_rng(2).random((2, 6, 8))
    )


def test_clamps_of_every_magnitude_and_masked_ones(completing: tl.Computer) -> None:
    image = np.random.default_rng(5).random((6, 8))
    known = np.arange(48).reshape(6, 8) % 3 > 0
    expected = completing.generate(2, clamp=image, mask=known).states
    masked = np.ma.MaskedArray(image, ~known)
    assert np.array_equal(completing.generate(2, clamp=masked).states, expected)
    for factor in (2.0**-660, 2.0**660):  # 1e±200
        again = completing.generate(2, clamp=image * factor, mask=known)
        assert np.array_equal(again.states, expected)


def test_misread_clamps_and_masks_are_refused(completing: tl.Computer) -> None:
    image = np.random.default_rng(5).random((6, 8))
    with pytest.raises(tl.UserError, match="clamp: is 2 × 3 × 16, but the patterns are 6 × 8"):
        completing.generate(2, clamp=np.stack([image, image]).reshape(2, 3, 16))
    with pytest.raises(tl.UserError, match="mask: has values that are not finite"):
        completing.generate(2, clamp=image, mask=np.where(image > 0.5, np.nan, 1.0))
    with pytest.raises(tl.UserError, match="known pixels that are masked or not finite"):
        completing.generate(2, clamp=np.ma.array(image, mask=image > 0.5), mask=image > 0.4)


# --- classes --------------------------------------------------------------------------------------


def test_classes_by_name(tmp_path: Path) -> None:
    machine = tl.Machine(visible=3, hidden=0, labels=2, J4=0.0, wiring=("visible-label",))
    names = np.where(TABLE[:, 0] > 5, "large", "small")
    machine.solve(TABLE, names, scale="feature").save(tmp_path / "c.safetensors")
    computer = tl.load(tmp_path / "c.safetensors")
    drawn = computer.generate(4, classes=["small", "large"])
    assert drawn.classes is not None
    assert drawn.classes.tolist() == [1, 0, 1, 0]
    assert drawn.class_names == ["small", "large"] * 2
    assert drawn.samples[::2, 0].max() < drawn.samples[1::2, 0].min()
    with pytest.raises(tl.UserError, match="class 'huge': no such class; known: large, small"):
        computer.generate(2, classes="huge")
    numbered = machine.solve(TABLE, (TABLE[:, 0] > 5).astype(int), scale="feature")
    with pytest.raises(tl.UserError, match=r"class 'huge': .*these classes have numbers, no names"):
        numbered.generate(2, classes="huge")
    with pytest.raises(tl.UserError, match="whole numbers or names"):
        machine.solve(TABLE, TABLE[:, 0], scale="feature")


# --- files ----------------------------------------------------------------------------------------

RGB = np.random.default_rng(3).integers(0, 256, (4, 5, 3), np.uint8)


def test_pictures_of_every_kind_in_folders_of_classes(tmp_path: Path) -> None:
    for kind, suffix in (("cat", "png"), ("cat", "webp"), ("dog", "bmp"), ("dog", "tiff")):
        (tmp_path / kind).mkdir(exist_ok=True)
        options = {"lossless": True} if suffix == "webp" else {}
        Image.fromarray(RGB).save(tmp_path / kind / f"{suffix}.{suffix}", **options)
    Image.fromarray(RGB[..., 0]).save(tmp_path / "dog" / "grey.png")
    images = tl.images(tmp_path)
    assert repr(images) == "Images(5 of 4 × 5 × 3, 2 classes)"
    assert images.class_names == ("cat", "dog")
    assert images.classes == (0, 0, 1, 1, 1)
    assert all(np.array_equal(images[i], RGB) for i in (0, 1, 2, 4))
    assert np.array_equal(images[3], np.repeat(RGB[..., :1], 3, axis=2))
    assert tl.images(tmp_path, grey=True)[0].shape == (4, 5)


def test_colours_are_never_dropped_without_a_word(tmp_path: Path) -> None:
    Image.fromarray(RGB).save(tmp_path / "a.png")
    machine = tl.Machine(visible=20, hidden=2, duration=0.05)
    with pytest.raises(tl.UserError, match=r"3 colours, 60 values; use visible=60, or grey=True"):
        machine.solve(tmp_path)
    frames = [Image.fromarray(RGB), Image.fromarray(255 - RGB)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(tl.UserError, match=r"a\.gif: has 2 frames"):
        tl.images(tmp_path / "a.gif")


def test_colour_images_in_and_out(tmp_path: Path) -> None:
    images = np.stack([RGB, 255 - RGB])
    machine = tl.Machine(visible=60, hidden=4, duration=0.05)
    drawn = machine.solve(images, scale="fixed", mean=128, deviation=64).generate(2)
    assert drawn.samples.shape == (2, 4, 5, 3)
    drawn.show().savefig(tmp_path / "sheet.png")
    small = tl.Machine(visible=12, hidden=2, duration=0.05).solve(images, resize=True)
    assert small.patterns.shape == (2, 2, 3)
    drawn.computer.export(tmp_path / "t.csv")
    assert tl.load(tmp_path / "t.csv").generate(2).samples.shape == (2, 4, 5, 3)


def idx(array: np.ndarray, kind: int) -> bytes:
    sizes = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return bytes([0, 0, kind, array.ndim]) + sizes + array.tobytes()


def test_idx_files_of_any_data_set(tmp_path: Path) -> None:
    images, labels = (
        np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2),
        np.array([7, 2, 7], np.uint8),
    )
    (tmp_path / "mine-images-idx3-ubyte").write_bytes(idx(images, 8))
    (tmp_path / "mine-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels, 8)))
    for source in (tmp_path, tmp_path / "mine-images-idx3-ubyte"):
        read = tl.images(source)
        assert np.array_equal(read.pixels, images)
        assert read.classes == (7, 2, 7)
    (tmp_path / "real.idx2").write_bytes(idx(np.arange(6, dtype=">f4").reshape(2, 3), 13))
    assert np.array_equal(tl.images(tmp_path / "real.idx2").pixels, [[0, 1, 2], [3, 4, 5]])
    (tmp_path / "short.idx2").write_bytes(idx(images, 8)[:-1])
    with pytest.raises(
        tl.UserError, match=r"short\.idx2: has 27 bytes, which contradicts its header"
    ):
        tl.images(tmp_path / "short.idx2")
    with pytest.raises(tl.UserError, match="3 labels for the 2 images"):
        tl.images(tmp_path / "real.idx2", labels=tmp_path / "mine-labels-idx1-ubyte.gz")


def test_the_command_line_scales_and_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    np.save("table.npy", TABLE)
    settings = ("source=images", "path=table.npy", "visible=3", "hidden=2", "duration=0.05")
    arguments = ["solve", *(word for pair in settings for word in ("--set", pair)), "--out"]
    result = CliRunner().invoke(app, [*arguments, "run"])
    assert result.exit_code == 0
    assert "warning: every row of 3 values" in result.stderr
    assert "--set machine.scale=feature" in result.stderr
    fixed = ["--set", "scale=fixed", "--set", "patterns.mean=-100", "--set", "deviation=150"]
    result = CliRunner().invoke(app, [*arguments, "fixed", *fixed])
    assert result.exit_code == 0, result.stderr
    assert "warning" not in result.stderr
    assert abs(tl.load("fixed").generate(200).samples.mean() - TABLE.mean()) < 60


# --- other libraries ------------------------------------------------------------------------------


def test_tables_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(TABLE, columns=["a", "b", "c"])
    drawn = LINEAR.solve(table, scale="feature").generate(5)
    assert drawn.to("pandas").columns.tolist() == ["a", "b", "c"]
    assert np.array_equal(drawn.to("pandas").to_numpy(), drawn.samples)
    with pytest.raises(tl.UserError, match="columns d: not numbers"):
        LINEAR.solve(table.assign(d="x"), scale="feature")
    with pytest.raises(tl.UserError, match="not finite"):
        LINEAR.solve(table.assign(a=np.nan), scale="feature")


def test_torch_and_jax_in_and_out() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    plain = LINEAR.solve(TABLE.astype(np.float32), scale="feature")
    for array in (torch.tensor(TABLE, dtype=torch.float32, requires_grad=True), jax.asarray(TABLE)):
        drawn = LINEAR.solve(array, scale="feature").generate(3)
        assert np.array_equal(drawn.states, plain.generate(3).states)
    for library in ("torch", "jax", "numpy"):
        np.testing.assert_allclose(np.asarray(drawn.to(library)), drawn.samples, rtol=1e-6)
    with pytest.raises(tl.UserError, match="as float32"):
        LINEAR.solve(torch.tensor(TABLE).to(torch.bfloat16))
    with pytest.raises(tl.UserError, match="must be numpy, torch"):
        drawn.to("cupy")


# --- a machine for data ---------------------------------------------------------------------------


def test_wine_in_its_own_units_with_the_machine_for_it() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    from sklearn.model_selection import train_test_split
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    wine = datasets.load_wine(as_frame=True)
    names = wine.target_names[wine.target]
    X, held_out, y, truth = train_test_split(wine.data, names, random_state=0, stratify=names)
    drawn = tl.Machine.for_data(X, y).solve(X, y).generate(300)
    # the judge has seen none of the rows that the machine has learned
    judge = make_pipeline(StandardScaler(), KNeighborsClassifier()).fit(held_out, truth)
    assert judge.score(drawn.to("pandas"), drawn.class_names) > 0.85
    spread = drawn.to("pandas").std() / X.std()
    assert ((spread > 0.8) & (spread < 1.25)).all()


def test_machines_for_data_of_every_kind() -> None:
    table = tl.Machine.for_data(TABLE)
    assert (table.visible, table.labels, table.styles, table.scale) == (3, 1, 10, "feature")
    assert tl.Machine.for_data(np.zeros((4, 5, 6, 3)), ["a", "b", "a", "b"]).labels == 2
    for wrong in (["a"] * 5, np.full(len(TABLE), -1)):
        with pytest.raises(tl.UserError, match=f"classes: .* for each of {len(TABLE)} samples"):
            tl.Machine.for_data(TABLE, wrong)
    with pytest.raises(tl.UserError, match="no samples given"):
        tl.Machine.for_data(TABLE[:0])
    assert tl.Machine.paper() == tl.Machine()
    assert not table.development
    (wells,) = tl.Machine.for_data(tl.digits(per_class=10)).development
    assert wells.J2 < 0 < wells.neighbours
    assert wells.centre == pytest.approx(SHARP.development[0].centre, abs=0.15)
    grey = np.random.default_rng(1).random((20, 8, 8))
    assert tl.Machine.for_data(grey).development == (COOLING,)
    (wide,) = tl.Machine.for_data((grey > 0.5)[:, :, :6]).development
    assert wide.neighbours == 0 > wide.J2  # springs need square images
    rows = tl.densities.ring(noise=0.2).sample(1200)
    radius = np.linalg.norm(tl.Machine.for_data(rows).solve(rows).generate(500).samples, axis=1)
    assert abs(np.median(radius) - 1) < 0.1  # one Gaussian of this covariance has 0.83
    assert np.mean(radius < 0.4) < 0.05  # and 11 % of its samples in the hole


def test_distance_from_the_optimum_falls_with_training() -> None:
    machine = tl.Machine(visible=49, hidden=8, duration=0.25)
    first, images = machine.train(tl.digits(0, 1), cycles=2, resize=True), tl.digits(0, 1)
    further = first.train(cycles=60)
    solved = machine.solve(images, resize=True)
    distances = [each.distance_from_optimum() for each in (first, further, solved)]
    assert 1 > distances[0] > distances[1] > abs(distances[2])
    assert abs(distances[2]) < 1e-5
    assert f"{100 * distances[1]:.2g} % from its optimum" in repr(further)


# --- densities ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        tl.densities.ring(1.2, 0.3),
        tl.densities.two_moons(0.3),
        tl.densities.mixture([(-1, 0), (1, 0.5)], [0.5, 0.8], [1, 3]),
    ],
    ids=repr,
)
def test_densities_integrate_to_one_and_match_their_samples(target: tl.densities.Density) -> None:
    grid = np.linspace(-5, 5, 121)
    points = np.stack(np.meshgrid(grid, grid), axis=-1)
    p = target.density(points) * (grid[1] - grid[0]) ** 2
    assert p.sum() == pytest.approx(1, abs=1e-6)
    mean, sample = (p[..., None] * points).sum(axis=(0, 1)), target.sample(20000, seed=3)
    np.testing.assert_allclose(sample.mean(axis=0), mean, atol=0.03)
    second = np.einsum("ij,ija,ijb->ab", p, points, points)
    np.testing.assert_allclose(sample.T @ sample / len(sample), second, atol=0.05)
    # Gibbs: the mean log density of its own samples is minus the entropy
    entropy = -(p * target.log_density(points)).sum()
    assert -target.log_density(sample).mean() == pytest.approx(entropy, abs=0.03)


def test_ring_against_quadrature_of_its_definition() -> None:
    angles = np.linspace(0, 2 * np.pi, 2000, endpoint=False)
    circle = 1.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = np.array([[0.0, 0.0], [1.4, 0.3], [-2.0, 1.0]])
    squares = np.square(points[:, None] - circle).sum(axis=2)
    truth = np.exp(-squares / 0.08).mean(axis=1) / (2 * np.pi * 0.04)
    np.testing.assert_allclose(tl.densities.ring(1.5, 0.2).density(points), truth, rtol=1e-9)


def test_a_machine_of_two_units_against_the_truth() -> None:
    """One Gaussian is within reach of harmonic units at k_BT = 2J₂: samples have its entropy."""
    target = tl.densities.mixture([(2.0, -1.0)], 0.7)
    machine = tl.Machine(
        visible=2, hidden=0, wiring=("visible-visible",), biases=("visible",), J4=0.0, kT=2.0
    )
    drawn = machine.solve(target.sample(2000), scale="feature").generate(3000)
    entropy = 1 + np.log(2 * np.pi * 0.7**2)
    assert -target.log_density(drawn.samples).mean() == pytest.approx(entropy, abs=0.1)
