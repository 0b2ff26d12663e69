"""The study of ten digits: its parts at toy size, what it refuses, peers by seed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from thermoloom.errors import UserError
from thermoloom.generation import drawn_styles, generate
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.class_accuracy import Data
from thermoloom.patterns.codes import cluster_words
from thermoloom.patterns.drive import Drive, drive_of
from thermoloom.patterns.patterns import load_patterns
from thermoloom.runs.execution import Resources
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Report
from thermoloom.settings import Settings
from thermoloom.studies import case
from thermoloom.studies.case import Job
from thermoloom.studies.digits import statements
from thermoloom.studies.digits.digit_machine import reference_loss
from thermoloom.studies.digits.online_learning import online_learning
from thermoloom.studies.digits.peers import DRAW, LEARNING, SCIKIT, available
from thermoloom.studies.digits.study import UNLABELLED, DigitsPlan, code_settings, energy_row
from thermoloom.studies.digits.styles import (
    drawn_style_means,
    label_words,
    labelled_drive,
    nearest_styles,
    style_means,
)
from thermoloom.studies.digits.unlabelled import settled, unlabelled_machine
from thermoloom.studies.discovery import study
from thermoloom.studies.first_patterns import first_patterns
from thermoloom.studies.report import write_report
from thermoloom.studies.run import compute
from thermoloom.studies.schedule import tasks_of
from thermoloom.studies.verdicts import DIFFERS, HOLDS, NOT_MEASURED, UNRESOLVED
from thermoloom.theory.solver import solve_optimum

DIGITS = study("digits")

TOY = {
    "machine": {
        "styles": 2, "stages": 2, "dt": 5e-3, "duration": 0.1, "wiring": ["visible-label"],
        "development": [{"J2": -1.4, "J4": 0.45, "centre": 0.9, "duration": 0.05}],
    },
    "generation": {"samples": 20},
    "study": {
        "data_samples": 30, "styles": [1], "stages": [1], "quartic": [0.0],
        "label_amplitude": [2.0], "per_class": [1], "duration": [0.05], "temperature": [0.2],
        "codes": ["clusters 1 2"], "hidden": [4], "window_grid": 2, "single_samples": 10,
        "without_labels": 0, "online_amplitudes": [1.0, 30.0], "online_samples": 10,
        "few_samples": 10, "quartic_patterns": 3, "peers": ["gaussian"],
        "inpainting_samples": 12, "classified_samples": 30, "online_cycles": [2, 5],
        "online_styles": 2,
    },
}  # fmt: skip
"""Images alone, without couplings between pixels: solved at once."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    performed = compute(DIGITS, DIGITS.plan("quick", TOY), folder, Resources(1))
    assert performed.failures == []
    write_report(performed.path)
    return performed.path


def summary_of(path: Path) -> dict:
    return json.loads((path / "summary.json").read_text(encoding="utf-8"))


def test_every_part_is_measured_and_drawn(done: Path) -> None:
    summary = summary_of(done)
    assert summary["missing"] == []
    assert {row["curve"] for row in summary["points"]} == {
        "styles", "stages", "quartic", "label amplitude", "patterns", "duration", "temperature",
        "code", "windows", "hidden",
    }  # fmt: skip
    assert [row["cycles"] for row in summary["online"]] == [2, 5]
    inpainted = [(row["known"], row["style"]) for row in summary["inpainting"]["rows"]]
    assert inpainted == [(half, style) for half in ("top", "left") for style in ("die", "nearest")]
    beside = ["… with the noise of the data", "… before development"]
    assert [row["model"] for row in summary["peers"]] == ["this machine", *beside, "gaussian"]
    assert len(summary["machine"]["panel"]) > 1
    assert summary["machine"]["measured"]["images"] == 20
    assert not summary["machine"]["held_out"]
    for name in (
        "sheet",
        "denoising",
        "confusion",
        "curves",
        "curve-energies",
        "online",
        "unlabelled",
    ):
        assert (done / f"{name}.png").stat().st_size > 1000
    page = (done / "report.html").read_text(encoding="utf-8")
    assert "mixture of Gaussians with shared covariance" in page
    assert "compared with the images that it has learned" in page


def test_the_rule_is_judged_beside_its_optimum() -> None:
    optimum = {"correct_class": 0.96, "images": 500, "frechet": 30.0}

    def verdict(correct_class: float | None, frechet: float) -> tuple[str, list[float]]:
        rows = [{"cycles": 2000, "correct_class": correct_class, "images": 500, "frechet": frechet}]
        row = statements._of_rule(rows, optimum)
        return row["verdict"], [criterion["value"] for criterion in row["criteria"]]

    assert verdict(0.96, 33.0) == (HOLDS, pytest.approx([0, 10]))
    assert verdict(0.94, 33.0) == (UNRESOLVED, pytest.approx([2, 10]))  # of 500 samples each
    assert verdict(0.96, 37.0)[0] == verdict(0.8, 33.0)[0] == DIFFERS
    assert verdict(None, 33.0)[0] == NOT_MEASURED
    assert statements._of_rule([], optimum)["verdict"] == NOT_MEASURED
    # Newcombe's example: 56/70 and 48/80 differ by 0.2, interval 0.0524 to 0.3339
    better = {"correct_class": 56 / 70, "images": 70}
    worse = {"correct_class": 48 / 80, "images": 80}
    points, interval = statements._points_below(worse, better)
    assert points == pytest.approx(20)
    assert interval == pytest.approx((5.24, 33.39), abs=0.01)


def test_confusion_counts_every_sample(done: Path) -> None:
    rows = np.loadtxt(done / "confusion.csv", delimiter=",", skiprows=1)
    assert rows[:, 1:].sum() == 20
    assert np.all(rows[:, 1:].sum(axis=1) == 2)  # all classes in turn
    correct_class = summary_of(done)["machine"]["measured"]["correct_class"]
    assert np.trace(rows[:, 1:]) / 20 == pytest.approx(correct_class)


def test_again_computes_nothing(done: Path) -> None:
    plan = DIGITS.plan("quick", TOY)
    runs = {p: p.stat().st_mtime_ns for p in (done.parent / "runs").glob("*/manifest.json")}
    before = summary_of(done)
    compute(DIGITS, plan, done.parent, Resources(1))
    assert {p: p.stat().st_mtime_ns for p in runs} == runs
    assert summary_of(done)["points"] == before["points"]


def test_heat_in_joules_by_hand() -> None:
    row = energy_row("heat", {"mean": 200.0, "sem": 1.0}, Machine())
    assert row["kT"] == 2000
    assert row["joules"] == pytest.approx(2000 * 4.1419e-21, rel=1e-4)


def test_presets_and_what_is_refused() -> None:
    assert DIGITS.preset_of(DIGITS.plan("full")) == "full"
    assert DIGITS.plan("paper") == DIGITS.plan("full")
    with pytest.raises(UserError, match="peers: gan: must be one of"):
        DigitsPlan(peers=("gan",))
    with pytest.raises(UserError, match="online_cycles: must be increasing"):
        DigitsPlan(online_cycles=(10, 5))
    refused = {"needs classes": {"labels": 0, "styles": 1}, "784": {"visible": 49}}
    for reason, machine in refused.items():
        plan = DIGITS.plan("quick", {"machine": machine})
        with pytest.raises(UserError, match=reason):
            DIGITS.cases(plan, Path())
    with pytest.raises(UserError, match="classes are needed"):
        DIGITS.plan("quick", {"patterns": {"source": "images", "path": "x.npy"}})


def test_peers_that_need_scikit_learn_are_left_out_without_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("thermoloom.studies.digits.peers.find_spec", lambda name: None)
    assert available(("gaussian", "mixture", "rbm", "paper")) == ["gaussian", "paper"]
    models = {case.labels.get("model") for case in DIGITS.cases(DIGITS.plan("quick"), tmp_path)}
    assert "gaussian" in models
    assert "rbm" not in models


def test_names_of_tasks_are_unique(tmp_path: Path) -> None:
    cases = DIGITS.cases(DIGITS.plan("quick"), tmp_path)
    names = [task.name for task in tasks_of(cases, tmp_path, 1)]
    assert len(set(names)) == len(names)


# --- peers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", LEARNING)
def test_peers_are_reproducible_by_seed(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = DRAW[peer]
    if peer in SCIKIT:
        pytest.importorskip("sklearn", reason="scikit-learn is an extra")
    for name, small in {"GIBBS": 5, "UNITS": 32, "ROUNDS": 5}.items():
        monkeypatch.setattr(f"thermoloom.studies.digits.peers.{name}", small)
    plan = DIGITS.plan("quick")
    patterns = first_patterns(load_patterns(plan.settings.patterns, plan.settings.machine), 40)
    classes = np.array([0, 1, 0, 1, 1])
    images = draw(patterns, classes, 2, 3)
    assert images.shape == (5, 784)
    assert np.isfinite(images).all()
    assert np.array_equal(images, draw(patterns, classes, 2, 3))
    assert not np.array_equal(images, draw(patterns, classes, 2, 4))
    # a sample is more like the mean of its class than like that of the other one
    labels = np.array(patterns.classes)
    means = np.stack([patterns.patterns[labels == c].mean(axis=0) for c in (0, 1)])
    assert np.array_equal((images @ means.T).argmax(axis=1), classes)


def test_means_of_the_styles_that_were_drawn() -> None:
    plan = DIGITS.plan("quick", {"machine": {"styles": 3}})
    machine = plan.settings.machine
    patterns = load_patterns(plan.settings.patterns, machine)
    words = label_words(patterns, machine)
    np.testing.assert_array_equal(words, drive_of(patterns, machine).words)
    np.testing.assert_array_equal(words, labelled_drive(patterns, machine).words)
    theta = Parameters.zeros(machine).with_styles_of(words)
    means = style_means(patterns, words)
    for unit in (0, 7, 29):
        rows = patterns.patterns[words[:, unit] > 0]
        np.testing.assert_allclose(means[unit], rows.mean(axis=0), rtol=1e-5, atol=1e-6)
    styles = drawn_styles(theta, np.arange(12) % 10, 5)
    drawn = drawn_style_means(patterns, theta, 12, 5)
    assert np.array_equal(drawn, means[3 * (np.arange(12) % 10) + styles])


def test_loss_of_the_images_that_were_learned() -> None:
    """The images themselves are nearest to their own styles, so their loss is that of learning."""
    plan = DIGITS.plan("quick", TOY | {"patterns": {"digits": [1, 4], "per_digit": 10}})
    machine = plan.settings.machine
    patterns = load_patterns(plan.settings.patterns, machine)
    optimum = solve_optimum(machine, drive_of(patterns, machine))
    data = Data(patterns.patterns, np.array(patterns.classes), held_out=True)
    loss = reference_loss(optimum.parameters, patterns, data)
    assert loss == pytest.approx(optimum.expected_loss, rel=1e-7)
    assert loss < optimum.initial_loss
    moved = Data(patterns.patterns[::-1].copy(), data.classes, held_out=True)  # of other classes
    assert reference_loss(optimum.parameters, patterns, moved) > optimum.initial_loss


def test_without_labels_the_class_is_that_of_the_word(tmp_path: Path) -> None:
    """Patterns of two classes, each with a word; time enough for hidden units to choose one."""
    small = {"labels": 0, "styles": 1, "hidden": 32, "code": "clusters", "code_clusters": 1,
             "stages": 1, "wiring": ["visible-hidden"], "biases": [], "J4": 1.0}  # fmt: skip
    settings = DIGITS.plan("quick", TOY).settings.updated(
        {
            "machine": small,
            "patterns": {"digits": [0, 1], "per_digit": 10},
            "generation": {"samples": 12},
        }
    )
    with RunDirectory.create(tmp_path / "run", "unlabelled-machine", {}) as run:
        job = Job(tmp_path, settings, run, lambda *_: None)
        results = unlabelled_machine(job, 0)
        run.finish({})
    assert sum(results["counts"]) == results["images"] == 12
    assert sum(results["counts"][:2]) == 12  # nothing else was learned
    assert 1 >= results["overlap"] > results["second_overlap"] >= -1
    assert results["patterns"] == 20
    share = np.array(results["counts"][:2]) / 12
    by_hand = -sum(p * np.log2(p) for p in share if p > 0)  # of two classes: in bits
    assert results["evenness"] == pytest.approx(by_hand)
    assert 0 <= results["settled"] <= 1
    overlaps = np.array([[0.1, 0.9, 0.0], [0.7, 0.1, 0.7], [0.01, 0.0, 0.05]])
    assert settled(overlaps).tolist() == [True, False, False]  # a superposition; no word at all


def test_visible_biases_hold_the_polarity_without_labels() -> None:
    """Four patterns with much in common: couplings alone cannot tell their mean from its negative.

    With biases a positive pattern is chosen every time, and each of the four in its turn.
    """
    rng = np.random.default_rng(1)
    rows = rng.choice([-1.0, 1.0], 48) + 0.6 * rng.normal(size=(4, 48))
    rows = (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)
    alone = UNLABELLED | {"visible": 48, "hidden": 32, "stages": 4, "duration": 8.0, "dt": 0.02}
    negative = {}
    for biases in (("hidden",), ("visible", "hidden")):
        changed = {"machine": alone | {"biases": biases}}
        machine = Settings().updated(changed).machine
        fields = np.concatenate([rows, cluster_words(machine, 4)], axis=1).astype(np.float32)
        theta = solve_optimum(machine, Drive(fields)).parameters
        drawn = generate(theta, 60, 3).final_states[:, :48]
        negative[biases] = float(np.mean(drawn @ rows.mean(axis=0) < 0))
    assert negative["visible", "hidden"] == 0 < 0.2 < negative[("hidden",)]
    alike = np.corrcoef(np.vstack([drawn, rows]))[:60, 60:]
    assert alike.max(axis=1).mean() > 0.9
    assert set(alike.argmax(axis=1)) == {0, 1, 2, 3}


def test_training_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit as if it had not been."""
    plan = DIGITS.plan("quick", TOY)
    assert isinstance(plan, DigitsPlan)
    monkeypatch.setattr("thermoloom.studies.digits.online_learning.SAVE_SECONDS", 0.0)

    class StoppedError(Exception):
        pass

    def stop(done: int, total: int, loss: float | None) -> None:
        if done == 3:
            raise StoppedError

    def learn(name: str, report: Report) -> dict[str, np.ndarray]:
        with RunDirectory.create(tmp_path / name, "online-learning", {}) as run:
            job = Job(tmp_path, plan.online_case(30.0, 5).settings, run, report)
            online_learning(job, "")
            return run.load_arrays("computer")

    with pytest.raises(StoppedError):
        learn("stopped", stop)
    assert RunDirectory.open(tmp_path / "stopped").load_metadata("computer")["cycle"] < 4
    seen: list[int] = []
    again = learn("stopped", lambda done, *_: seen.append(done))
    assert seen[0] > 1  # not from the beginning
    for key, array in learn("uninterrupted", lambda *_: None).items():
        assert np.array_equal(again[key], array), key


def test_codes_with_clusters_and_amplitude() -> None:
    assert code_settings("signs") == {"code": "signs"}
    assert code_settings("clusters 30 1.5") == {
        "code": "clusters", "code_clusters": 30, "code_amplitude": 1.5,
    }  # fmt: skip
    with pytest.raises(UserError, match="clusters ten: expected a code, or clusters with"):
        DigitsPlan(codes=("clusters ten",))
    with pytest.raises(UserError, match="window_grid = 3: must be at least"):
        DigitsPlan(window_grid=3)


def test_styles_nearest_in_the_known_pixels() -> None:
    plan = DIGITS.plan("quick", {"machine": {"styles": 3}})
    machine = plan.settings.machine
    patterns = load_patterns(plan.settings.patterns, machine)
    classes = np.array(patterns.classes)
    known = np.arange(784) < 400
    words = label_words(patterns, machine)
    styles = nearest_styles(machine, patterns, patterns.patterns, classes, known)
    for image, target, style in zip(patterns.patterns[:20], classes, styles, strict=False):
        means = [patterns.patterns[words[:, 3 * target + k] > 0].mean(axis=0) for k in range(3)]
        distances = [np.square(image - mean)[known].sum() for mean in means]
        assert style == np.argmin(distances)


def test_samples_of_another_seed_or_judge_are_other_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = DIGITS.plan("quick", TOY)
    other = DIGITS.plan("quick", TOY | {"generation": {"samples": 20, "seed": 5}})
    assert isinstance(plan, DigitsPlan)
    assert isinstance(other, DigitsPlan)
    paths = [case.path for case in plan.image_cases()]
    assert not {*paths} & {case.path for case in other.image_cases()}
    monkeypatch.setattr(case, "classifier_sha256", lambda _: "0" * 64)
    assert not {*paths} & {case.path for case in plan.image_cases()}
