"""The Python interface: examples that run, computers that are saved, continued and completed."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from study_runs import two_pairs
from typer.testing import CliRunner

import thermoloom as tl
from thermoloom.cli.commands import app
from thermoloom.computers.training_runs import train_runs
from thermoloom.machine.clamp import resting_states
from thermoloom.patterns.clamps import known_fields
from thermoloom.settings import Settings

TINY = {"visible": 49, "hidden": 8, "duration": 0.05}


@pytest.fixture(scope="module")
def computer() -> tl.Computer:
    return tl.Machine(**TINY).train(tl.digits(0, 1, 2), cycles=5, resize=True)


@pytest.fixture(scope="module")
def labelled() -> tl.Computer:
    """Two stages, three labels, words of ±2."""
    machine = tl.Machine(**TINY, labels=3, stages=2, code="signs")
    return machine.solve(tl.digits(0, 1, 2), resize=True)


def command(*arguments: str) -> dict[str, Any]:
    """``thermoloom ARGUMENTS --json`` in this process."""
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.exception
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# --- documentation --------------------------------------------------------------------------------


def public() -> list[str]:
    """``Machine``, ``Machine.train``, …: everything that a user calls by name."""
    names = list(tl.__all__)
    for name in tl.__all__:
        found = getattr(tl, name)
        if name in ("Computer", "Drawn", "Results"):
            members = {key: each for key, each in vars(found).items() if not key.startswith("_")}
            names += [f"{name}.{key}" for key, each in members.items() if inspect.isfunction(each)]
    return [*names, "Machine.train", "Machine.solve"]


@pytest.mark.parametrize("name", public())
def test_every_public_name_has_an_example_that_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "esults" in name:
        shutil.copytree(two_pairs().path, tmp_path / "results" / "comparison")
    found: Any = tl
    for part in name.split("."):
        found = getattr(found, part)
    text = inspect.getdoc(found) or ""
    test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert test.examples, f"{name} has no example"
    said: list[str] = []
    doctest.DocTestRunner().run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import thermoloom", ("numpy", "scipy", "numba", "matplotlib", "typer")),
        ("import thermoloom as tl; tl.UserError", ("numpy", "scipy", "numba")),
        ("import sys; sys.argv = ['thermoloom', '--help']; from thermoloom.cli import main; main()",
         ("numpy", "scipy", "numba", "matplotlib", "onnxruntime")),
        ("import sys; sys.argv = ['thermoloom', 'train', '--help']; "
         "from thermoloom.cli import main; main()", ("numpy", "scipy", "numba", "matplotlib")),
    ],
)  # fmt: skip
def test_nothing_is_loaded_before_it_is_needed(code: str, absent: tuple[str, ...]) -> None:
    lines = (
        f"import atexit, sys, time\n"
        f"atexit.register(lambda: print(*[m for m in {absent} if m in sys.modules], sep=',',"
        f" file=sys.stderr))\n{code}\n"
    )
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == ""


def test_the_import_is_quick() -> None:
    """The best of five, as the machine may be busy; without the interpreter's own start."""
    lines = (
        "import time; t = time.perf_counter(); import thermoloom; print(time.perf_counter() - t)"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", lines], capture_output=True).stdout)
        for _ in range(5)
    ]
    assert min(times) < 0.2


def test_names_are_found_by_completion_and_others_refused() -> None:
    assert {"Machine", "digits", "load", "images"} <= set(dir(tl))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        importlib.import_module("thermoloom").nothing  # noqa: B018


# --- images ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::thermoloom.errors.DataWarning")
def test_images_from_everywhere_are_the_same(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 7, 7), np.uint8)
    (tmp_path / "pictures").mkdir()
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / "pictures" / f"{i}.png")
    np.save(tmp_path / "pictures.npy", pixels)
    machine = tl.Machine(**TINY)
    sources = [
        pixels, list(pixels), pixels.reshape(3, 49), tl.Images(pixels),
        tl.images(tmp_path / "pictures"), tmp_path / "pictures", str(tmp_path / "pictures.npy"),
    ]  # fmt: skip
    found = [machine.solve(source).parameters for source in sources]
    assert all(each.same_as(found[0]) for each in found)
    one = machine.solve(tmp_path / "pictures" / "1.png")
    assert one.patterns.labels == ("1",)
    assert one.parameters.same_as(machine.solve(pixels[1:2]).parameters)


def test_digits_of_ones_own_classes_are_not_judged_as_digits() -> None:
    machine = tl.Machine(**TINY, labels=2)
    assert machine.solve(tl.digits(0, 1), resize=True).patterns.digits
    own = machine.solve(tl.digits(7, 8), [1, 0], resize=True).patterns
    assert (own.digits, own.classes) == (False, (1, 0))


# --- computers ------------------------------------------------------------------------------------


def test_a_saved_computer_is_the_same(computer: tl.Computer, tmp_path: Path) -> None:
    computer.save(tmp_path / "mine.safetensors")
    again = tl.load(tmp_path / "mine.safetensors")
    assert repr(again) == repr(computer)
    assert again.parameters.same_as(computer.parameters)
    assert again.patterns.labels == computer.patterns.labels
    assert again.patterns.shape == (7, 7)
    assert again.settings == computer.settings
    for name, column in computer.curve.items():
        assert np.array_equal(again.curve[name], column)
    assert np.array_equal(again.generate(4).states, computer.generate(4).states)
    assert again.train(cycles=3).parameters.same_as(computer.train(cycles=3).parameters)


@pytest.mark.parametrize("position", [20, 3000, -20])
def test_a_damaged_file_is_refused(computer: tl.Computer, tmp_path: Path, position: int) -> None:
    file = tmp_path / "mine.safetensors"
    computer.save(file)
    data = bytearray(file.read_bytes())
    data[position] ^= 4
    file.write_bytes(data)
    with pytest.raises(tl.UserError, match=r"mine\.safetensors: .*damaged") as caught:
        tl.load(file)
    assert "\n" not in str(caught.value)


def test_a_run_of_the_command_line_is_a_computer(tmp_path: Path, computer: tl.Computer) -> None:
    values = {"machine": TINY, "patterns": {"resize": True}, "training": {"cycles": 5}}
    train_runs([(tmp_path / "run", Settings.from_dict(values))])
    loaded = tl.load(tmp_path / "run")
    assert loaded.parameters.same_as(computer.parameters)
    assert np.array_equal(loaded.curve["loss"], computer.curve["loss"])
    assert isinstance(loaded.machine, tl.Machine)
    assert loaded.train(cycles=2).parameters.same_as(computer.train(cycles=2).parameters)


def test_going_on_is_as_if_it_had_never_stopped() -> None:
    """Rule, rate, seed and errors stay; the trajectories are those that follow."""
    machine, images = tl.Machine(**TINY, labels=3), tl.digits(0, 1, 2)
    how = {"rule": "delayed", "period": 7, "seed": 5, "residual_noise": 0.1, "resize": True}
    whole = machine.train(images, cycles=9, **how)
    parts = machine.train(images, cycles=4, **how).train(cycles=2).train(cycles=3)
    assert parts.parameters.same_as(whole.parameters)
    assert parts.settings == whole.settings
    assert parts.curve["cycle"].tolist() == [0, 4, 6, 9]
    other = machine.train(images, cycles=4, **how).train(cycles=5, rule="online")
    assert not other.parameters.same_as(whole.parameters)
    assert other.settings.training.period is None


def test_training_goes_on_from_the_optimum(labelled: tl.Computer) -> None:
    """With other images, too, and online unless told otherwise."""
    trained = labelled.train(tl.digits(2, 1, 0), cycles=2, resize=True, learning_rate_scale=1e-9)
    assert trained.settings.training.rule == "online"
    assert trained.patterns.classes == (2, 1, 0)
    assert np.allclose(trained.parameters.vector, labelled.parameters.vector, atol=1e-6)
    assert trained.curve["cycle"].tolist() == [0, 2]


def test_divergence_is_an_error_of_one_line() -> None:
    with pytest.raises(tl.UserError, match=r"diverged in cycle \d+; try a smaller learning rate"):
        tl.Machine(**TINY).train(tl.digits(0), resize=True, rule="batch", learning_rate=1e12)


def test_progress_is_told() -> None:
    cycles: list[int] = []
    steps: list[int] = []
    machine = tl.Machine(visible=49, hidden=8, duration=0.2)
    made = machine.train(
        tl.digits(0), cycles=3, resize=True, on_cycle=lambda cycle, loss: cycles.append(cycle)
    )
    made.generate(5, on_progress=steps.append)
    assert cycles == [1, 2, 3]
    assert sum(steps) == 5 * machine.steps


# --- samples --------------------------------------------------------------------------------------


def test_what_is_drawn(labelled: tl.Computer) -> None:
    drawn = labelled.generate(7, seed=3, classes=[2, 0])
    assert drawn.classes is not None
    assert drawn.classes.tolist() == [2, 0, 2, 0, 2, 0, 2]
    assert drawn.images.shape == (7, 7, 7)
    assert np.array_equal(drawn.samples, drawn.images)
    in_grey_values = labelled.patterns.scale.data(labelled.machine, drawn.states[:, :49])
    assert np.array_equal(drawn.images.reshape(7, -1), in_grey_values)
    change = drawn.generated.final_energy.total - drawn.generated.initial_energy.total
    assert np.allclose(change, drawn.work - drawn.heat, rtol=0, atol=1e-9)
    assert np.abs(drawn.work).min() > 0
    in_turn = labelled.generate(5).classes
    assert in_turn is not None
    assert in_turn.tolist() == [0, 1, 2, 0, 1]
    assert drawn.quality().samples == 7
    with pytest.raises(tl.UserError, match="classifier: judges samples of 28 × 28 pixels"):
        drawn.quality("judge")
    assert f"heat {drawn.heat.mean():.1f}, work {drawn.work.mean():.1f}" in repr(drawn)


def test_a_figure_shows_itself_in_notebooks(labelled: tl.Computer) -> None:
    figure = labelled.generate(4, classes=[1]).show()
    assert figure._repr_png_()[:4] == b"\x89PNG"  # type: ignore[attr-defined]
    assert [axes.get_title() for axes in figure.axes] == ["1"] * 4


# --- completing -----------------------------------------------------------------------------------


def test_known_fields_are_those_of_patterns_when_all_is_known() -> None:
    rng = np.random.default_rng(3)
    pixels = rng.random((2, 49)) * 200
    normal = (pixels - pixels.mean(1, keepdims=True)) / pixels.std(1, keepdims=True)
    assert np.allclose(known_fields(pixels, normal), normal)
    assert np.allclose(known_fields(255 - 3 * pixels, normal), -normal)
    half = known_fields(pixels[:, :20], normal[:, :20])
    assert np.allclose(half.mean(), normal[:, :20].mean())
    flat = known_fields(np.full((1, 20), 7.0), normal[:, :20])
    assert np.allclose(flat, normal[:, :20].mean())


def test_held_pixels_stay_and_the_others_do_not_matter(computer: tl.Computer) -> None:
    image, mask = tl.digits(1)[0][::4, ::4].astype(float), np.tri(7).astype(bool)
    drawn = computer.generate(3, clamp=image, mask=mask, hold=True)
    learned = computer.patterns.patterns[:, mask.ravel()]
    fields = known_fields(image[mask][None], learned)[0]
    rest = resting_states(computer.machine, fields).astype(np.float32)
    visible = drawn.states[:, :49].reshape(3, 7, 7)
    assert np.array_equal(visible[:, mask], np.tile(rest, (3, 1)))
    assert visible[:, ~mask].std(axis=0).min() > 0
    other = np.where(mask, image, 1e6)
    again = computer.generate(3, clamp=other, mask=mask, hold=True)
    assert np.array_equal(again.states, drawn.states)
    unknown = np.where(mask, image, np.nan)
    assert np.array_equal(computer.generate(3, clamp=unknown, hold=True).states, drawn.states)


def test_a_full_clamp_gives_back_the_image() -> None:
    """By the reversed noising path, which ends where preparation ends: near 2s = V′(x)."""
    machine = tl.Machine(visible=49, hidden=8, kT=1e-4)
    computer = machine.train(tl.digits(0, 1), resize=True, cycles=1)
    shown = computer.patterns.patterns[1].reshape(7, 7)
    image = 40 + 100 * shown  # whatever its scale
    drawn = computer.generate(4, clamp=image)
    visible = drawn.states[:, :49].reshape(-1, 7, 7)
    assert np.abs(visible - resting_states(machine, shown)).max() < 0.05
    assert np.corrcoef(drawn.images[0].ravel(), shown.ravel())[0, 1] > 0.95


def test_several_images_are_completed_in_turn(computer: tl.Computer) -> None:
    images = np.random.default_rng(1).random((2, 7, 7))
    mask = np.zeros((7, 7), bool)
    mask[:3] = True
    drawn = computer.generate(5, clamp=images, mask=mask, hold=True).images[:, mask]
    assert np.array_equal(drawn[0], drawn[2])
    assert np.array_equal(drawn[1], drawn[3])
    assert not np.array_equal(drawn[0], drawn[1])


# --- the command line opens what save wrote -------------------------------------------------------


def test_the_command_line_samples_and_shows_a_saved_computer(
    labelled: tl.Computer, computer: tl.Computer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    labelled.save("my.safetensors")
    shown = command("show", "my.safetensors")
    assert shown["notes"] == ["no samples yet: thermoloom generate my.safetensors"]
    made = command("generate", "my.safetensors", "--samples", "6", "--class", "2,0", "--class", "1")
    drawn = labelled.generate(6, classes=[2, 0, 1])
    assert made["mean_heat"] == pytest.approx(drawn.heat.mean())
    assert made["mean_work"] == pytest.approx(drawn.work.mean())
    archive = Path(made["archive"])
    assert archive.name.startswith("my.samples-90101-6-")
    before = archive.stat().st_mtime_ns
    command("generate", "my.safetensors", "--samples", "6", "--class", "2,0,1")
    assert archive.stat().st_mtime_ns == before  # it was there
    shown = command("show", "my.safetensors")
    assert shown["pictures"] == ["my.samples.png"]  # of a solved computer, no loss curve
    again = command("generate", "my.safetensors", "--samples", "6")
    computer.save("my.safetensors")  # another one in its place
    assert command("show", "my.safetensors")["notes"]
    other = command("generate", "my.safetensors", "--samples", "6")
    assert other["archive"] == again["archive"]
    assert other["mean_heat"] == pytest.approx(computer.generate(6).heat.mean())


def test_the_command_line_completes_an_image(
    computer: tl.Computer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    computer.save("my.safetensors")
    pixels = np.random.default_rng(2).integers(0, 256, (7, 7), np.uint8)
    mask = np.tri(7).astype(bool)
    Image.fromarray(pixels).save("image.png")
    Image.fromarray((255 * mask).astype(np.uint8)).save("mask.png")
    np.save("image.npy", pixels)
    np.save("mask.npy", mask)
    heats = set()
    for kind in ("png", "npy"):
        clamp = ["--clamp", f"image.{kind}", "--mask", f"mask.{kind}"]
        made = command("generate", "my.safetensors", "--samples", "3", *clamp)
        assert made["mean_heat"] == computer.generate(3, clamp=pixels, mask=mask).heat.mean()
        heats.add(made["mean_heat"])
        held = command("generate", "my.safetensors", "--samples", "3", *clamp, "--hold")
        assert held["mean_work"] == 0
        assert held["mean_heat"] not in heats
    assert len(heats) == 1


# --- results --------------------------------------------------------------------------------------


def test_results_are_the_tables_of_the_experiment() -> None:
    path = two_pairs().path
    found = tl.results(path)
    assert set(found) == {file.stem for file in path.glob("*.csv")}
    assert len(found) == len(set(found)) >= 3
    models = found["models"]
    assert sorted(set(models["seed"].tolist())) == [1, 2]
    assert found.summary == json.loads((path / "summary.json").read_text(encoding="utf-8"))
    with pytest.raises(KeyError, match="models"):
        found["nothing"]
    with pytest.raises(tl.UserError):
        tl.results(path.parent)


def test_results_as_pandas() -> None:
    found = tl.results(two_pairs().path)
    pandas = pytest.importorskip("pandas")
    frame = found.frame("models")
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame) == list(found["models"])
    for name, column in found["models"].items():
        np.testing.assert_array_equal(frame[name].to_numpy(), column)


def test_results_as_xarray() -> None:
    xarray = pytest.importorskip("xarray")
    found = tl.results(two_pairs().path)
    models, columns = found.dataset("models", "rule", "seed"), found["models"]
    assert isinstance(models, xarray.Dataset)
    assert dict(models.sizes) == {"rule": 2, "seed": 2}
    for rule, seed, heat in zip(
        columns["rule"], columns["seed"], columns["heat.mean"], strict=True
    ):
        assert models["heat.mean"].sel(rule=rule, seed=seed) == heat
    rows = found.dataset("samples")
    np.testing.assert_array_equal(rows["heat"].to_numpy(), found["samples"]["heat"])
    with pytest.raises(tl.UserError, match="several rows"):
        found.dataset("samples", "rule", "seed")
    with pytest.raises(tl.UserError, match="no such column"):
        found.dataset("models", "sed")


def test_without_xarray_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(tl.UserError, match="pip install xarray"):
        tl.results(two_pairs().path).dataset("models")


def test_without_pandas_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(tl.UserError, match="pip install pandas"):
        tl.results(two_pairs().path).frame("models")
