"""Wrong input of every kind: one line, exit code 2, nothing written, and the right one works."""

from __future__ import annotations

import inspect
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import call
from machines import random_parameters, trained
from PIL import Image

import thermoloom as tl
from thermoloom import feasibility
from thermoloom.cli.options import shell_word
from thermoloom.computers.training_runs import train_runs
from thermoloom.engines import engine
from thermoloom.engines.memory import measures_memory, training_memory
from thermoloom.errors import UserError
from thermoloom.export.coupling_tables import TITLE
from thermoloom.generation import generate
from thermoloom.inputs import parse_toml, read_file, real_number, shown, user_path, whole_number
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.classifier import classifier_in, classifier_sha256
from thermoloom.patterns.edge_lists import read_edges
from thermoloom.patterns.images import read_images
from thermoloom.patterns.patterns import from_images, load_patterns
from thermoloom.runs.execution import Resources
from thermoloom.runs.files import DamagedFileError, sha256
from thermoloom.runs.formats import decode_arrays, encode_arrays
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import (
    Imperfections,
    PatternSettings,
    Settings,
    Training,
    parse_assignment,
    settings_file,
)
from thermoloom.studies.discovery import names, study
from thermoloom.studies.run import check
from thermoloom.training.trainer import Trainee

SIXTEEN: dict[str, dict[str, Any]] = {
    "machine": {"visible": 16, "hidden": 4, "duration": 0.01},
    "patterns": {"resize": True},
}
SMALL = shlex.split("-s visible=49 -s hidden=8 -s resize=true -s duration=0.05")
GRID = shlex.split("-s bits=8 -s range_visible_hidden=1 -s range_hidden_hidden=1")
LONG = "x" * 5000


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path under a folder with its size and time of change."""
    found = ((path, path.lstat()) for path in folder.rglob("*"))
    return {str(path): (about.st_size, about.st_mtime_ns) for path, about in found}


def npy(path: Path, claims: str, data: bytes = b"") -> None:
    """An .npy file with a header of our own."""
    header = claims.encode().ljust(117) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Invalid input files, and one trained run."""
    folder = tmp_path_factory.mktemp("workshop")
    for name in ("pipe", "text", "folder", "cut", "empty"):
        (folder / name).mkdir()
    os.mkfifo(folder / "pipe" / "a.png")
    (folder / "text" / "a.png").write_text("no picture")
    (folder / "folder" / "a.png").mkdir()
    Image.fromarray(np.eye(7, dtype=np.uint8) * 255).save(folder / "cut" / "a.png")
    whole_file = (folder / "cut" / "a.png").read_bytes()
    (folder / "cut" / "a.png").write_bytes(whole_file[:50])
    os.mkfifo(folder / "pipe.toml")
    (folder / "digits.toml").write_text(f"[machine]\nkT = {'9' * 6000}\n")
    (folder / "deep.toml").write_text(f"[machine]\nkT = {'[' * 5000}\n")
    (folder / "dotted.toml").write_text(f"[machine]\nkT.{'a.' * 3000}b = 1\n")
    (folder / "latin.toml").write_bytes("# Größe\n".encode("latin-1"))
    (folder / "long.toml").write_bytes(b"#" * (1 << 20) + b"\n")
    (folder / "table.toml").write_text("machine = 3\n")
    (folder / "unknown.toml").write_text("[machine]\nhiden = 3\n")
    with open(folder / "archive.npy", "wb") as file:
        np.savez(file, images=np.eye(7)[None])
    npy(folder / "lie.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 7, 7)}")
    npy(folder / "big.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': (9**25, 7, 7)}")
    npy(folder / "wrap.npy", f"{{'descr': '|u1', 'fortran_order': False, 'shape': {(2**32,) * 3}}}")
    one = "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 7, 7)}"
    npy(folder / "more.npy", one, bytes(8 * 60))
    npy(folder / "words.npy", "import os", b"")
    np.save(folder / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.save(folder / "complex.npy", np.eye(7)[None] * 1j)
    np.save(folder / "huge.npy", np.eye(7)[None] * 1e300)
    np.save(folder / "nan.npy", np.full((1, 7, 7), np.nan))
    np.save(folder / "flat.npy", np.ones((1, 7, 7)))
    np.save(folder / "plain.npy", np.stack([np.eye(7), np.tri(7)]))
    np.save(folder / "image.npy", np.eye(7))
    np.save(folder / "mask.npy", np.tri(7))
    np.save(folder / "none.npy", np.zeros((7, 7)))
    np.save(folder / "big-image.npy", np.eye(8))
    (folder / "broken").mkdir()
    (folder / "broken" / "classifier.onnx").write_bytes(b"no network")
    (folder / "broken" / "classifier.json").write_text("[]")
    here = Path.cwd()
    os.chdir(folder)
    try:
        assert call("train", *SMALL, "--cycles", "2", "--out", "run") == 0
        assert call("solve", *SMALL, "--labels", "3", "--out", "labelled") == 0
        tl.load("run").save("cut.safetensors")
        os.truncate("cut.safetensors", 5000)
    finally:
        os.chdir(here)
    return folder


def images(path: str) -> list[str]:
    return ["train", *SMALL, "-s", "source=images", "-s", f"path={path}"]


WRONG: list[tuple[list[str] | str, str]] = [
    # sizes that do not fit
    ("train -s hidden=1000000", "machine.hidden"),
    ("solve -s hidden=1000000", "machine.hidden"),
    ("train -s visible=1000000 -s resize=true", "machine.visible"),
    ("train -s visible=1000000000000 -s resize=true", "machine.visible"),
    ("train -s dt=1e-40", "machine.dt"),
    ("train -s dt=1e-30", "machine.duration/dt"),
    ("train -s dt=1e-9", "machine.duration/dt"),
    ("train -s dt=1e-6", "machine.dt"),
    ("train -s duration=1e30", "machine.duration"),
    ("generate run --samples 30000000000", "generation.samples"),
    ("generate run --samples 999999999", "generation.samples"),
    ("run comparison -s generation.samples=30000000", "generation.samples"),
    ("run comparison -s hidden=1000000", "machine.hidden"),
    ("run comparison --seeds 1-99999999999", "--seeds"),
    ("run all -s hidden=1000000", "machine.hidden"),
    # numbers
    ("run comparison --seeds ²", "--seeds"),
    ("run comparison --seeds ٣", "--seeds"),
    (f"run comparison --seeds {'9' * 5000}", "--seeds"),
    ("run comparison --seeds 1,1", "study.seeds"),
    ("run comparison -s experiment.seeds=[1.5]", "study.seeds"),
    ("run comparison -s study.seeds=[]", "study.seeds"),
    ("run comparison -s study.paths_per_pattern=-1", "paths_per_pattern"),
    ("run theory -s experiment.heat_samples=0", "heat_samples"),
    ("run theory -s experiment.batch_scan=[]", "batch_scan"),
    ("train --seed 1.5", "--seed"),
    ("train --seed ²", "--seed"),
    ("train --seed -1", "training.seed"),
    (f"train --seed {'9' * 25}", "training.seed"),
    (f"train --seed {'9' * 5000}", "--seed"),
    ("train -s training.seed=1.5", "training.seed"),
    ("train -s kT=nan", "machine.kT"),
    ("train -s kT=inf", "machine.kT"),
    ("train -s kT=true", "machine.kT"),
    (f"train -s kT={'9' * 400}", "machine.kT"),
    (f"train -s kT={'9' * 6000}", "too many digits"),
    (f"train -s kT={'[' * 6000}", "nested"),
    ("train -s kT=1e-50", "float32"),
    ("train -s mobility=1e-37", "float32"),
    ("train -s learning_rate=1e-30 -s learning_rate_scale=1e-30", "float32"),
    ("train -s kT=2024-01-01", "machine.kT"),
    ("train -s hidden=1e3", "machine.hidden"),
    (["train", *GRID, "-s", "range_visible_hidden=inf"], "range_visible_hidden"),
    (["train", *GRID, "-s", "range_visible_hidden=nan"], "range_visible_hidden"),
    ("train -s range_visible_hidden=nan", "range_visible_hidden"),
    ("train -s range_hidden_hidden=-1", "range_hidden_hidden"),
    ("train --checkpoint-every -1", "--checkpoint-every"),
    ("show run --samples 0", "--samples"),
    # settings that do not go together
    ("train -s duration=2.5005", "2.5 and 2.501"),
    ("train -s dt=0.5 -s duration=5", "at most 0.062"),
    ("solve -s dt=0.1", "at most 0.062"),
    ("run comparison -s dt=0.1", "at most 0.062"),
    ("solve -s kT=1e-20", "machine.kT"),
    ("solve -s kT=1e-5", "machine.kT"),
    (["train", *GRID, "-s", "update_noise=0.1"], "update_noise"),
    ("train --rule optimum", "training.rule"),
    ("run comparison -s duration=0.001", "machine.duration"),
    ("run comparison -s rule=batch", "training.rule"),
    ("train -s source=images -s path=cut -s measures.classifier=broken", "measures.classifier"),
    ("run comparison -s measures.classifier=broken", "broken"),
    ("run comparison -s measures.classifier=nowhere", "nowhere"),
    # text that is no setting
    (["train", "-s", "kT=0.2\nJ2=3"], "line break"),
    (["train", "-s", "path=a\x07"], "control character"),
    (["train", "-s", ""], "--set"),
    (["train", "-s", "=3"], "--set"),
    (["train", "-s", f"{LONG}=3"], "no such setting"),
    ("train -c pipe.toml", "pipe.toml"),
    ("train -c digits.toml", "digits.toml"),
    ("train -c deep.toml", "deep.toml"),
    ("train -c dotted.toml", "machine.kT"),
    ("train -c latin.toml", "latin.toml"),
    ("train -c long.toml", "long.toml"),
    ("train -c table.toml", "machine"),
    ("train -c unknown.toml", "hiden"),
    ("train -c /dev/zero", "/dev/zero"),
    ("train -c text", "text"),
    ("run comparison -c deep.toml", "deep.toml"),
    # paths
    (["train", "--out", ""], "--out"),
    (["run", "comparison", "--out", ""], "--out"),
    (["train", "--out", LONG], "--out"),
    (["run", "comparison", "--out", LONG], "--out"),
    (["train", "--out", "deep.toml/run"], "--out"),
    (["train", "-c", LONG], "--config"),
    (["train", "-c", ""], "--config"),
    (["generate", ""], "RUN"),
    (["generate", LONG], "RUN"),
    (["report", LONG], "DIR"),
    (["runs", "--folder", LONG], "--folder"),
    (["runs", "--folder", ""], "--folder"),
    (images(LONG), "patterns.path"),
    (images("~nouser/x"), "nouser"),
    ("train -s source=mnist -s path=~nouser/x", "nouser"),
    ("run comparison -s source=images -s path=/typo", "/typo"),
    # images
    (images("pipe"), "a.png"),
    (images("text"), "a.png"),
    (images("folder"), "a.png"),
    (images("cut"), "a.png"),
    (images("empty"), "empty"),
    (images("pipe.toml"), "pipe.toml"),
    (images("archive.npy"), "archive.npy"),
    (images("lie.npy"), "lie.npy"),
    (images("big.npy"), "big.npy"),
    (images("wrap.npy"), "wrap.npy"),
    (images("more.npy"), "more.npy"),
    (images("words.npy"), "words.npy"),
    (images("objects.npy"), "objects.npy"),
    (images("complex.npy"), "complex.npy"),
    (images("huge.npy"), "pattern 0"),
    (images("nan.npy"), "pattern 0"),
    (images("flat.npy"), "pattern 0"),
    # resources
    ("run comparison --shared-disk", "--shared-disk"),
    (["run", "comparison", "--cluster", ""], "--cluster"),
    ("run comparison --workers 0", "--workers"),
    ("run comparison --preset nonsense", "--preset"),
    # commands
    ("trian", "trian"),
    ("run theroy", "did you mean theory?"),
    ("run run", "no such study"),
    (["run", LONG], "no such study"),
    ("train -s kt=0.2", "did you mean machine.kT?"),
    ("run theory -s path_seed=7", "study.KEY"),
    ("train -c .", "is a folder"),
    ("run comparison --seeds 5-1", "write 1-5"),
    ("train --nope", "--nope"),
    ("generate", "RUN"),
    ("generate nowhere", "nowhere"),
    # stages, labels, codes, classes, clamps
    ("train --stages 0", "machine.stages"),
    ("train --stages 3000", "machine.stages"),
    ("train --labels -1", "machine.labels"),
    ("train --labels 2", "machine.labels = 3"),
    ("solve --labels 2.5", "--labels"),
    ("solve --code morse", "machine.code"),
    ("solve --code given", "patterns.code"),
    ("solve --code given -s patterns.code=nowhere.npy", "nowhere.npy"),
    (["train", *SMALL, "-s", "source=images", "-s", "path=plain.npy", "--labels", "2"], "classes"),
    ("generate run --class 1", "machine.labels"),
    ("generate labelled --class 3", "class"),
    ("generate labelled --class 1,x", "--class"),
    (["generate", "labelled", "--class", ""], "--class"),
    ("generate labelled --class ²", "--class"),
    (f"generate labelled --class {'9' * 5000}", "--class"),
    ("generate run --clamp flat.npy", "--mask"),
    ("generate run --mask flat.npy", "--clamp"),
    ("generate run --hold", "--clamp"),
    ("generate run --clamp text/a.png --mask mask.npy", "a.png"),
    ("generate run --clamp pipe/a.png --mask mask.npy", "a.png"),
    ("generate run --clamp image.npy --mask text", "--mask"),
    ("generate run --clamp nowhere.png --mask mask.npy", "nowhere.png"),
    ("generate run --clamp complex.npy --mask mask.npy", "real numbers"),
    ("generate run --clamp image.npy --mask none.npy", "no pixel is known"),
    ("generate run --clamp big-image.npy --mask mask.npy", "8 × 8"),
    ("generate run --clamp image.npy --mask big-image.npy", "8 × 8"),
    ("generate mine.npy", "mine.npy"),
    ("generate cut.safetensors", "cut.safetensors"),
    ("show cut.safetensors", "cut.safetensors"),
    ("generate run/computer.safetensors", "contains no computer"),
    ("runs --folder nowhere prune --yes", "nowhere"),
    ("runs --folder nowhere verify", "nowhere"),
    ("runs --folder empty verify --folder text", "--folder"),
]


@pytest.mark.parametrize(
    ("command", "names"), WRONG, ids=[f"{i}-{shown(c)[:50]}" for i, (c, _) in enumerate(WRONG)]
)
def test_one_line_and_nothing_written(
    workshop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str] | str,
    names: str,
) -> None:
    monkeypatch.chdir(workshop)
    before = tree(workshop)
    code = call(*(shlex.split(command) if isinstance(command, str) else command))
    said = capsys.readouterr()
    assert code == 2, said.err
    assert names in said.err
    assert len(said.err.strip().splitlines()) == 1, said.err
    assert said.err.startswith("error: ")
    assert len(said.err) < 600
    assert said.out == ""
    assert tree(workshop) == before


def program(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", "from thermoloom.cli import main; main()", *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "comparison", "--cluster", "tcp://127.0.0.1:1"],
        ["run", "comparison", "--cluster", "nonsense"],
        ["train", "-s", "source=images", "-s", "path=pipe"],
        ["train", "-s", "kT=1e300"],
    ],
)
def test_a_process_of_its_own_says_no_more(tmp_path: Path, arguments: list[str]) -> None:
    """Also at its end, when objects of libraries are thrown away and may complain."""
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "x.png")
    done = program(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.decode().strip().splitlines()) == 1, done.stderr.decode()
    assert {path.name for path in tmp_path.iterdir()} == {"pipe"}


def test_settings_are_utf8_in_any_locale(tmp_path: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = program("settings", cwd=tmp_path, **plain)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode("utf-8").strip() == settings_file().strip()
    (tmp_path / "größe.toml").write_text("[machine]\nkT = 'warm'\n", encoding="utf-8")
    refused = program("train", "-c", "größe.toml", cwd=tmp_path, **plain)
    assert refused.returncode == 2
    assert len(refused.stderr.decode("utf-8").strip().splitlines()) == 1


# --- after a refusal, the corrected command works -------------------------------------------------


@pytest.mark.parametrize(
    ("command", "wrong", "right"),
    [
        ("train", ["-s", "source=images", "-s", "path=/typo"], []),
        ("train", [*GRID, "-s", "update_noise=0.1"], GRID),
        ("train", ["-s", "hidden=1000000"], []),
        ("train", ["-s", "dt=0.1", "-s", "duration=1"], []),
        ("solve", ["-s", "kT=1e-5"], []),
    ],
)
def test_the_corrected_command_works_in_the_same_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    wrong: list[str],
    right: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    cycles = ["--cycles", "1"] if command == "train" else []
    assert call(command, *SMALL, *cycles, *wrong, "--out", "place") == 2
    assert tree(tmp_path) == {}
    assert call(command, *SMALL, *cycles, *right, "--out", "place") == 0


def test_a_refused_experiment_does_not_block_the_corrected_one_and_can_be_rerun_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With images whose names are hard on formulas, and in a folder with a blank."""
    pictures = tmp_path / "my pictures"
    pictures.mkdir()
    for i, name in enumerate(["$x_{", "$^$", "{count}", "漢"]):
        picture = np.random.default_rng(i).integers(0, 255, (7, 7), np.uint8)
        Image.fromarray(picture).save(pictures / f"{name}.png")
    small = shlex.split("run comparison --preset quick --seeds 1,2 --workers 1 --out 'the results'")
    for setting in (
        "visible=49", "hidden=6", "duration=0.05", "training.cycles=4", "validation_every=1",
        "generation.samples=4", "source=images", "study.paths_per_pattern=1",
    ):  # fmt: skip
        small += ["-s", setting]
    monkeypatch.chdir(tmp_path)
    for wrong in (
        ["path=/typo"],
        ["path=my pictures", "hidden=1000000"],
        ["path=my pictures", "dt=0.05"],
    ):
        refused = [word for setting in wrong for word in ("-s", setting)]
        assert call(*small, *refused) == 2
        assert not (tmp_path / "the results").exists()
    assert call(*small, "-s", "path=my pictures") == 0
    summary = json.loads((tmp_path / "the results" / "comparison" / "summary.json").read_text())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert call(*shlex.split(summary["rerun"])[1:], "--workers", "1") == 0
    assert tree(elsewhere) == {}


@pytest.mark.parametrize("name", names())
def test_a_file_of_all_settings_is_good_for_every_experiment(name: str) -> None:
    everything = parse_toml(settings_file(), "all")
    chosen = study(name)
    preset = next(iter(chosen.presets))
    everything.pop("engine")  # commands choose it
    if name == "pbits":  # the default machine has hidden units, p-bits have none
        with pytest.raises(UserError, match=r"machine\.hidden = 512: .* use 0"):
            chosen.plan(preset, everything)
        return
    assert chosen.plan(preset, everything).settings.machine == Machine()
    changed = parse_toml(settings_file().replace('rule = "online"', 'rule = "batch"'), "changed")
    changed.pop("engine")
    with pytest.raises(UserError, match=r"training\.rule: set by the study itself"):
        chosen.plan(preset, changed)


# --- runs --folder --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["--folder", "mine", "prune"], ["prune", "--folder", "mine"]]
)
def test_prune_takes_the_folder_on_either_side(
    workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    for folder in ("mine", "results"):
        shutil.copytree(workshop / "run", tmp_path / folder / "run")
        (tmp_path / folder / "run" / ".x.01234567.tmp").write_text("left over")
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path / "results")
    assert call("runs", *arguments, "--yes") == 0
    assert tree(tmp_path / "results") == before
    assert not (tmp_path / "mine" / "run" / ".x.01234567.tmp").exists()


def test_verify_takes_the_folder_on_either_side(
    workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(workshop / "run", tmp_path / "mine" / "run")
    shutil.copytree(workshop / "run", tmp_path / "results" / "run")
    (tmp_path / "mine" / "run" / "curve.csv").write_text("damaged")
    monkeypatch.chdir(tmp_path)
    assert call("runs", "verify") == 0
    assert call("runs", "verify", "--folder", "mine") == 1
    assert call("runs", "--folder", "mine", "verify") == 1


# --- Python ---------------------------------------------------------------------------------------

SMALL_MACHINE = Machine(visible=12, hidden=8, duration=0.05)
pytestmark = pytest.mark.filterwarnings("ignore::thermoloom.errors.DataWarning")
FIELDS = np.random.default_rng(1).normal(size=(2, 20)).astype(np.float32)
BRIEF = Settings(machine=SMALL_MACHINE).updated({"training": {"cycles": 1}})


ZEROS = Parameters.zeros(SMALL_MACHINE)


def not_finite() -> Parameters:
    theta = random_parameters(SMALL_MACHINE, dtype=np.float32)
    theta["hidden_bias"][0, 3] = np.nan
    return theta


def bound() -> tl.Computer:
    """A computer of the Python interface."""
    return tl.Machine(visible=12, hidden=8, duration=0.05).train(FIELDS[:, :12], cycles=1)


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        (lambda: Machine(hidden=8.0), r"machine\.hidden"),
        (lambda: Machine(hidden=True), r"machine\.hidden"),
        (lambda: Machine(kT="warm"), r"machine\.kT"),
        (lambda: Machine(kT=np.nan), r"machine\.kT"),
        (lambda: Machine(duration=0.0105), r"0\.01 and 0\.011"),
        (lambda: Imperfections(range_visible_hidden=np.inf), "range_visible_hidden"),
        (lambda: Settings(machine=3), "machine"),
        (lambda: trained(BRIEF.updated({"training": {"rule": "optimum"}}), FIELDS), "optimum"),
        (lambda: trained(BRIEF, FIELDS[:0]), "at least one row"),
        (lambda: trained(BRIEF, FIELDS[0]), r"shape \(20,\)"),
        (lambda: trained(BRIEF, FIELDS[:, :-1]), r"shape \(2, 19\)"),
        (lambda: trained(BRIEF, np.where(FIELDS > 1, np.nan, FIELDS)), "finite"),
        (lambda: trained(BRIEF, FIELDS * 1j), "real"),
        (lambda: trained(BRIEF, 1e6 * FIELDS), r"machine\.dt"),
        (lambda: generate(not_finite(), 2, 1), "not finite"),
        (lambda: generate(ZEROS, 2.0, 1), "samples"),
        (lambda: generate(ZEROS, 2, 1.5), "seed"),
        (lambda: generate(ZEROS, 2, 1, snapshot_steps=[1.5]), "steps"),
        (lambda: generate(ZEROS, 2, 1, snapshot_samples=[True]), "samples"),
        (lambda: generate(ZEROS, 10**9, 1), "memory"),
        (lambda: engine().path(SMALL_MACHINE, FIELDS[0], 1.5, 0), "seed"),
        (lambda: load_patterns(PatternSettings(), Machine(hidden=10**6)), "memory"),
        (lambda: from_images([np.eye(7) * 1j], Machine(visible=49)), "real numbers"),
        (lambda: from_images([np.ma.masked_equal(np.eye(7), 0)], Machine(visible=49)), "masked"),
        (lambda: from_images([np.eye(7) * 1e300], Machine(visible=49)), "beyond"),
        (lambda: from_images([[[1, 2], [3]]], Machine(visible=3)), "lengths"),
        (lambda: from_images([np.eye(28)], Machine(), classes=[17], digits=True), "0 to 9"),
        (lambda: from_images([np.eye(7)], Machine(visible=49), labels=["a", "b"]), "labels"),
        (lambda: read_images(Path("/dev/zero")), "/dev/zero"),
        (lambda: tl.Machine(wiring=("visible-hidden", "up-down")), r"machine\.wiring"),
        (lambda: tl.Machine(stages=2, windows=(0.5, 0.4)), r"machine\.windows"),
        (lambda: tl.Machine(visible=12).train(np.ones(12)), r"shape \(12,\)"),
        (lambda: tl.Machine(visible=12).train(FIELDS[:, :11]), r"machine\.visible = 12"),
        (lambda: tl.Machine(visible=12).train([[1, 2], [3]]), "values"),
        (lambda: tl.Machine.for_data(np.zeros((4, 3, 8, 8))), r"\(n, h, w, c\): use np.moveaxis"),
        (lambda: tl.Machine.for_data(np.zeros((4, 1, 8, 8))), r"\(n, h, w, c\): use np.moveaxis"),
        (lambda: tl.Machine(visible=12, labels=2).train(FIELDS[:, :12]), "no classes"),
        (lambda: tl.Machine(visible=12, labels=2).train(FIELDS[:, :12], [0, 2]), "labels = 3"),
        (lambda: tl.Machine(visible=12, labels=2).solve(FIELDS[:, :12], [0]), "one for .* got 1"),
        (lambda: tl.Machine(visible=12, labels=2).solve(FIELDS[:, :12], [0.5, 1]), "classes"),
        (lambda: tl.Machine(visible=12).train(FIELDS[:, :12], cycls=3), "cycls"),
        (lambda: tl.Machine(visible=12).train(FIELDS[:, :12], rule="optimum"), "optimum"),
        (lambda: tl.Machine(visible=12, code="given").train(FIELDS[:, :12]), "given"),
        (lambda: tl.Machine(visible=12).train("nowhere"), "nowhere"),
        (lambda: tl.digits(10), "classes = 10: must be from 0 to 9"),
        (lambda: tl.digits(per_class=11), "per_class = 11: .* mnist=True"),
        (lambda: tl.images("nowhere"), "nowhere"),
        (lambda: tl.load("nowhere"), "nowhere"),
        (lambda: tl.load("pyproject.toml"), "pyproject.toml"),
        (lambda: bound().train(cycles=0), "cycles"),
        (lambda: bound().generate(0), "samples"),
        (lambda: bound().generate(2, classes=[1]), "no label units"),
        (lambda: bound().generate(2, mask=np.ones(12)), "clamp"),
        (lambda: bound().generate(2, hold=True), "clamp"),
        (lambda: bound().generate(2, clamp=np.ones(11)), "clamp: is 11, but the patterns are 12"),
        (lambda: bound().generate(2, clamp=np.ones(12), mask=np.ones(11)), "mask: is 11"),
        (lambda: bound().generate(2, clamp=np.ones(12), mask=np.zeros(12)), "no pixel is known"),
        (lambda: bound().generate(2, clamp=np.full(12, np.nan), mask=np.ones(12)), "finite"),
        (lambda: bound().generate(2, clamp=["a"] * 12), "real numbers"),
        (lambda: bound().generate(2).show(), "not an image"),
        (lambda: bound()["hidden_visible"], "visible_hidden"),
        (lambda: bound().save("mine.npz"), "safetensors"),
        (lambda: bound().save("/nowhere/mine.safetensors"), "/nowhere"),
    ],
)  # fmt: skip
def test_python_is_refused_the_same(wrong: Any, names: str) -> None:
    with pytest.raises(UserError, match=names) as caught:
        wrong()
    assert "\n" not in str(caught.value)


def test_numpy_integers_are_fine_everywhere() -> None:
    machine = Machine(visible=np.int32(12), hidden=np.int64(8), duration=np.float64(0.05))
    assert machine == SMALL_MACHINE
    assert Machine(duration=np.float32(0.05)).steps == 50
    assert type(machine.visible) is int
    json.dumps(Settings(machine=machine).as_dict())
    made = generate(
        ZEROS, np.int16(2), np.uint8(1), snapshot_steps=np.arange(2), snapshot_samples=np.arange(1)
    )
    assert np.array_equal(made.final_states, generate(ZEROS, 2, 1).final_states)


@pytest.mark.parametrize("value", [1.0, "1", None, True, np.float64(1), 2**31, -1, 1j])
def test_whole(value: object) -> None:
    with pytest.raises(UserError, match="count"):
        whole_number("count", value, 0)


@pytest.mark.parametrize("value", ["1", None, True, np.nan, -np.inf, 1e39, 10**400, 1e-39, 1j])
def test_real(value: object) -> None:
    with pytest.raises(UserError, match="size"):
        real_number("size", value)


def test_files_are_read_up_to_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"12345")
    assert read_file(file, 5) == b"12345"
    with pytest.raises(UserError, match="at most 4"):
        read_file(file, 4)
    for path in (tmp_path, tmp_path / "none", Path("/dev/zero"), Path("a\0b")):
        with pytest.raises(UserError):
            read_file(path, 5)
    with pytest.raises(UserError, match="empty"):
        user_path("--out", " ")


def test_errors_stay_one_printable_line() -> None:
    assert str(UserError("a\nb\tc\x1b[31m\udcff")) == "a b c\\x1b[31m\\udcff"


# --- what can be computed here --------------------------------------------------------------------


def test_the_stable_step_separates_paths_that_stay_from_paths_that_explode() -> None:
    """Below the bound, a path stays within the reach of the units; far above, it diverges."""
    field, base = np.full(400, 5.0, np.float32), Machine(visible=200, hidden=200)
    largest = feasibility.largest_stable_step(base, 5.0)
    reach = feasibility.farthest_state(base, 5.0)
    below, above = (Machine(200, 200, dt=f * largest, duration=400 * f * largest) for f in (0.9, 4))
    assert np.abs(engine().path(below, field, 1, 0).states).max() < 1.2 * reach
    assert not np.isfinite(engine().path(above, field, 1, 0).states).all()
    feasibility.check_step(below, 5.0)
    with pytest.raises(UserError, match=r"machine\.dt"):
        feasibility.check_step(above, 5.0)


def test_the_stable_step_of_a_harmonic_unit_is_that_of_the_linear_map() -> None:
    """1 − μΔt·2J₂ > −1."""
    harmonic = Machine(J2=3.0, J4=0.0, mobility=2.0)
    assert feasibility.largest_stable_step(harmonic, 1.0) == pytest.approx(1 / 6)


def test_memory_counts_for_every_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = study("comparison")
    plan = chosen.plan("paper", {"study": {"seeds": [1, 2]}})
    each = sum(measures_memory(Machine(), 200).values())
    monkeypatch.setattr(feasibility, "memory_bytes", lambda: 3 * each + 1)
    check(chosen, plan, tmp_path, Resources(3))
    with pytest.raises(UserError, match=r"--workers: 4 at a time .* use at most 3$"):
        check(chosen, plan, tmp_path, Resources(4))
    assert not list(tmp_path.iterdir())


def test_a_misspelt_setting_names_the_nearest_one() -> None:
    with pytest.raises(UserError, match=r"machine\.hiden: .* did you mean machine\.hidden\?$"):
        tl.Machine(hiden=3)
    with pytest.raises(UserError, match=r"did you mean training\.cycles"):
        Training(cycls=3)
    with pytest.raises(UserError, match=r"^kt: no such setting; did you mean machine\.kT\?$"):
        parse_assignment("kt=0.2")
    assert "hidden" in inspect.signature(tl.Machine).parameters


def test_memory_is_not_underestimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that just fits by the estimate needs no more than that."""
    import tracemalloc

    machine = Machine(visible=100, hidden=200, duration=1.0)
    settings = Settings(machine=machine).updated({"training": {"cycles": 1, "rule": "batch"}})
    fields = np.ones((1, machine.units), np.float32)
    trained(settings, fields)  # compiled
    tracemalloc.start()
    trained(settings, fields)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    estimate = sum(training_memory(machine).values())
    assert 0.2 * estimate < peak < estimate
    monkeypatch.setattr(feasibility, "memory_bytes", lambda: estimate - 1)
    with pytest.raises(UserError, match="memory"):
        trained(settings, fields)


# --- pictures and the classifier ------------------------------------------------------------------


def test_pictures_leave_the_backend_of_a_notebook_alone(tmp_path: Path) -> None:
    lines = (
        "import sys, matplotlib; matplotlib.use('svg')\n"
        "import importlib, pkgutil, thermoloom.presentation\n"
        "for found in pkgutil.iter_modules(thermoloom.presentation.__path__):\n"
        "    importlib.import_module(f'thermoloom.presentation.{found.name}')\n"
        "assert matplotlib.get_backend() == 'svg', matplotlib.get_backend()\n"
        "import numpy as np\n"
        "curve = {'cycle': np.arange(3), 'reduced_loss': np.arange(3)}\n"
        "from thermoloom.presentation.loss_curve import loss_curve\n"
        "assert loss_curve(curve, 'a $x_{ b$')[:4] == b'\\x89PNG'\n"
        "assert matplotlib.get_backend() == 'svg' and 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_a_classifier_of_ones_own(tmp_path: Path) -> None:
    """A copy of the bundled one under another hash is used and told apart."""
    import hashlib

    from thermoloom.measures import classifier

    bundled = Path(classifier.__file__).parent.parent / "data"
    for name in ("classifier.onnx", "classifier.json"):
        shutil.copy(bundled / name, tmp_path)
    own = str(tmp_path)
    assert classifier_sha256(own) == classifier_sha256() != ""
    network = (tmp_path / "classifier.onnx").read_bytes()
    images = np.random.default_rng(0).random((3, 784))
    same = classifier.classify(images, classifier_in(own))
    assert np.array_equal(same, classifier.classify(images))
    (tmp_path / "classifier.onnx").write_bytes(network[:-1])
    with pytest.raises(UserError, match="damaged"):
        classifier.load_classifier(tmp_path)
    record = json.loads((tmp_path / "classifier.json").read_text())
    record["sha256"] = hashlib.sha256(network[:-1]).hexdigest()
    (tmp_path / "classifier.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="ONNX"):
        classifier.load_classifier(tmp_path)


# --- surroundings ---------------------------------------------------------------------------------


def outside(*arguments: str, cwd: Path, **extra: Any) -> subprocess.CompletedProcess[str]:
    """``thermoloom ARGUMENTS`` in a process of its own."""
    code = "from thermoloom.cli import main; main()"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | extra
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=cwd, text=True, check=False, timeout=100,
        **pipes,
    )  # fmt: skip


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_standard_output_is_one_line(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        ended = outside("settings", cwd=tmp_path, stdout=full)
    assert ended.returncode == 2
    assert ended.stderr == "error: standard output cannot be written (No space left on device)\n"


def test_a_closed_standard_output_is_one_line_and_a_closed_pipe_is_none(tmp_path: Path) -> None:
    closed = outside("settings", cwd=tmp_path, stdout=None, preexec_fn=lambda: os.close(1))
    assert closed.returncode == 2
    assert closed.stderr.startswith("error: standard output is closed; ")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        ended = outside("settings", cwd=tmp_path, stdout=pipe)
    assert ended.returncode in (1, 141)  # the library ends a command at once
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("variable", "text"), [("NUMBA_DISABLE_JIT", "1"), ("THERMOLOOM_THREADS", "eight")]
)
def test_variables_of_the_environment_are_one_line(
    variable: str, text: str, tmp_path: Path
) -> None:
    ended = outside("train", *SMALL, cwd=tmp_path, env=os.environ | {variable: text})
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert f"{variable} = " in ended.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_named_like_a_run_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run")
    with pytest.raises(UserError, match="is not a regular file"):
        tl.load(tmp_path / "run")
    (tmp_path / "other").mkdir()
    os.mkfifo(tmp_path / "other" / "manifest.json")
    with pytest.raises(UserError, match="is not a regular file"):
        tl.load(tmp_path / "other")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_in_place_of_a_file_of_a_run_is_replaced(tmp_path: Path) -> None:
    settings = Settings.from_dict(SIXTEEN | {"training": {"cycles": 1}})
    train_runs([(tmp_path, settings)])
    theta = tl.load(tmp_path).parameters
    (tmp_path / "computer.safetensors").unlink()
    os.mkfifo(tmp_path / "computer.safetensors")

    def give_up(*_: object) -> None:
        raise TimeoutError("waits for a writer")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    try:
        train_runs([(tmp_path, settings)])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert tl.load(tmp_path).parameters.same_as(theta)


def test_a_byte_order_mark_is_named(tmp_path: Path) -> None:
    (tmp_path / "wires.txt").write_bytes(b"\xef\xbb\xbf0 1\n")
    with pytest.raises(UserError, match="byte-order mark"):
        read_edges(tmp_path / "wires.txt")


def test_paths_are_words_of_a_shell_in_one_line() -> None:
    for path in ("plain", "with blank", "a\nb", "it's\ta \\ path", "$HOME;x"):
        word = shell_word(Path(path))
        assert word.isprintable()
        said = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
        assert said.stdout.decode() == path


def test_advice_on_a_hostile_path_can_be_followed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / 'a "b"\nc.safetensors'
    machine = tl.Machine(visible=9, hidden=4, duration=0.05)
    machine.solve(tl.digits(0, 1), resize=True).save(file)

    def last_line(*arguments: str) -> str:
        assert call(*arguments) == 0
        return capsys.readouterr().out.splitlines()[-1]

    assert last_line("show", str(file)).endswith(f" {shell_word(file)}")
    table = last_line("export", str(file)).removeprefix("read it back: ")
    assert eval(table, {"tl": tl}).machine == machine
    netlist = last_line("export", str(file), "--format", "spice")
    assert f"ngspice -b {shell_word(file.with_suffix('.couplings.cir'))}, or" in netlist


def test_a_weight_of_heat_that_leaves_no_computer_is_refused_with_the_largest() -> None:
    machine = tl.Machine(visible=16, hidden=4, duration=0.01)
    for weight in (0.6, 1e3, 1e38):
        with pytest.raises(UserError, match=r"the largest useful weight here is 0\.47$"):
            machine.solve(tl.digits(0, 1), resize=True, heat_weight=weight)
    largest = machine.solve(tl.digits(0, 1), resize=True, heat_weight=0.47).solution
    assert largest is not None
    assert largest.expected_loss == pytest.approx(largest.initial_loss, rel=1e-5)


def test_samples_that_diverge_are_refused_by_what_made_them_diverge(tmp_path: Path) -> None:
    machine = tl.Machine(visible=16, hidden=4, duration=0.01)
    computer = machine.solve(tl.digits(0, 1), resize=True)
    theta = computer.parameters.with_vector(computer.parameters.vector * np.float32(1e12))
    with pytest.raises(UserError, match=r"samples diverged: couplings up to .* are too strong"):
        replace(computer, parameters=theta).generate(3)


def test_label_units_that_do_not_fit_into_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feasibility, "memory_bytes", lambda: 24 << 30)
    for learn in (tl.Machine.solve, tl.Machine.train):
        with pytest.raises(UserError, match=r"^machine\.labels, machine\.styles = 1000000, 1: too"):
            learn(tl.Machine(labels=1_000_000), tl.digits(0, 1))


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("theta.hidden_hidden", lambda a: a.astype(np.float16), "float16 numbers, not float32"),
        ("theta.hidden_bias", lambda a: a.astype(np.float64), "float64 numbers, not float32"),
        ("learned.mean", lambda a: a + np.nan, "mean: not finite"),
        ("learned.deviation", lambda a: a + np.inf, "deviation: not finite"),
        ("learned.deviation", lambda a: -a, "a deviation is negative"),
        ("learned.deviation", None, "either mean or deviation is missing"),
        (
            "learned.codes",
            lambda a: np.zeros((2, 4), np.float32),
            "codes is not an array of patterns",
        ),
    ],
)
def test_arrays_of_another_meaning_under_right_checksums(
    name: str, change: Callable[[np.ndarray], np.ndarray] | None, reason: str, tmp_path: Path
) -> None:
    """Without a check, a block of lower precision beside float32 blocks would be read silently."""
    file = tmp_path / "mine.safetensors"
    machine = tl.Machine(visible=16, hidden=4, duration=0.01)
    machine.solve(tl.digits(0, 1), resize=True).save(file)
    arrays, metadata = decode_arrays(file.read_bytes())
    array = arrays.pop(name, np.zeros(0))
    if change is not None:
        arrays[name] = change(array)
    file.write_bytes(encode_arrays(arrays, metadata))
    with pytest.raises(UserError, match=reason):
        tl.load(file)


def test_a_checkpoint_of_another_meaning_is_named(tmp_path: Path) -> None:
    """Also by commands that look at an unfinished training, not only by the one that continues."""
    settings = Settings.from_dict(SIXTEEN | {"training": {"cycles": 4}})

    def stop(_: Path, trainee: Trainee) -> None:
        if trainee.cycle == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_runs([(tmp_path / "run", settings)], stop)
    with RunDirectory.open(tmp_path / "run", write=True) as run:
        checkpoint = run.latest_checkpoint()
        assert checkpoint is not None
        curve = checkpoint.arrays["curve_loss"].astype(np.float32)
        run.save_checkpoint(checkpoint.cycle, checkpoint.arrays | {"curve_loss": curve})
    with pytest.raises(DamagedFileError, match="columns of the validation curve are not float64"):
        tl.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        (b"bits = 5", b"bits = 3", "code that does not fit 3 bits"),
        (b"bits = 5", b'bits = "x"', "bits"),
        (b"visible_hidden = [ ", b"visible_hidden = [ -", "0.0"),
        (b"hidden = 4\n", b"hidden = 100000\n", "memory|rows|ranges"),
        (b"# bits", b"# \xff", "utf-8"),
        (b"# bits = 5", b"# bits = " + b"[" * 100_000, "nested too deeply"),
        (b"\n1,hidden_hidden", b" 7\n1,hidden_hidden", "read to its end|rows of visible_hidden"),
    ],
)
def test_tables_of_couplings_that_contradict_themselves(
    before: bytes, after: bytes, names: str, tmp_path: Path
) -> None:
    machine = tl.Machine(visible=16, hidden=4, duration=0.01)
    file = tmp_path / "five.csv"
    machine.solve(tl.digits(0, 1), resize=True).export(file, bits=5)
    body = file.read_bytes().partition(b"\n")[2]
    for changed in (body.replace(before, after, 1), body + b"junk\n"):
        assert changed != body
        file.write_bytes(TITLE + sha256(changed).encode() + b"\n" + changed)
        with pytest.raises(UserError, match=names if changed != body + b"junk\n" else "follow"):
            tl.load(file)
