"""The command line as users type it, with valid and invalid arguments."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import thermoloom
from PIL import Image
from typer.testing import CliRunner

from thermoloom.cli.commands import app

SMALL = ["--set", "visible=196", "--set", "hidden=16", "--set", "duration=0.1", "-s", "resize=true"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    done = thermoloom("train", *SMALL, "--cycles", "12", "--out", "run", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["state"] == "done"
    assert results["cycles"] == 12
    return folder


def test_generate_and_show(trained: Path) -> None:
    done = thermoloom("generate", "run", "--samples", "6", "--seed", "5", "--json", cwd=trained)
    results = json.loads(done.stdout)
    assert results["samples"] == 6
    assert results["seed"] == 5
    assert np.isclose(results["mean_heat_kT"], 10 * results["mean_heat"])
    shown = thermoloom("show", "run", cwd=trained)
    assert shown.stdout.split() == ["run/loss.png", "run/samples.png"]
    for name in ("loss.png", "samples.png"):
        with Image.open(trained / "run" / name) as picture:
            assert np.asarray(picture.convert("L")).std() > 5


def test_progress_is_plain_lines_where_there_is_no_terminal(trained: Path) -> None:
    done = thermoloom("train", *SMALL, "--cycles", "5", "--out", "plain", cwd=trained)
    assert "5 of 5 cycles" in done.stderr
    assert "steps/s" in done.stderr
    assert "loss" in done.stderr
    assert "\x1b" not in done.stderr
    assert "validation loss" in done.stdout


def test_settings_from_toml_set_and_options(trained: Path) -> None:
    """Options win over --set, --set over the file."""
    (trained / "my.toml").write_text(
        "[machine]\nvisible = 196\nhidden = 16\nduration = 0.1\nkT = 0.3\n"
        "[patterns]\nresize = true\ndigits = [4, 7]\n[training]\ncycles = 2\nseed = 9\n"
    )
    done = thermoloom(
        *("train", "-c", "my.toml", "--set", "kT=0.2", "--seed", "8", "--rule", "delayed"),
        *("--period", "10", "--out", "toml"),
        cwd=trained,
    )
    assert done.returncode == 0, done.stderr
    settings = json.loads((trained / "toml" / "manifest.json").read_text())["settings"]
    assert settings["machine"]["kT"] == 0.2
    assert (
        settings["training"] | {"seed": 8, "rule": "delayed", "period": 10, "cycles": 2}
        == (settings["training"])
    )
    assert settings["patterns"]["digits"] == [4, 7]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["train", "--rule", "sometimes", "--out", "bad"], "training.rule"),
        (["train", "--period", "5", "--out", "bad"], "training.period"),
        (["train", "--cycles", "0", "--out", "bad"], "training.cycles"),
        (["train", "--set", "hiden=3", "--out", "bad"], "hiden"),
        (["train", "--set", "kT=warm", "--out", "bad"], "machine.kT"),
        (["train", "--set", "visible=100", "--out", "bad"], "resize"),
        (["train", "-c", "missing.toml", "--out", "bad"], "missing.toml"),
        (["train", "-s", "source=images", "-s", "path=nowhere", "--out", "bad"], "nowhere"),
        (["train", "-s", "source=mnist", "-s", "path=nowhere", "--out", "bad"], "nowhere"),
        (["train", *SMALL, "--cycles", "13", "--out", "run"], "training.cycles"),
        (["generate", "nowhere"], "nowhere"),
        (["generate", "run", "--samples", "0"], "generation.samples"),
        (["show", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_get_one_line_and_leave_nothing(
    trained: Path, arguments: list[str], names: str
) -> None:
    done = thermoloom(*arguments, cwd=trained)
    assert done.returncode == 2
    assert names in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""
    assert not (trained / "bad").exists()


def test_a_run_in_use_is_refused(trained: Path) -> None:
    from thermoloom.runs.store import RunDirectory

    with RunDirectory.open(trained / "run", write=True):
        done = thermoloom("train", *SMALL, "--cycles", "12", "--out", "run", cwd=trained)
    assert done.returncode == 2
    assert "in use by process" in done.stderr


def test_divergence_is_a_result_with_exit_code_one(trained: Path) -> None:
    wild = ["--set", "learning_rate=1e12", "--rule", "batch", "--out", "wild"]
    done = thermoloom("train", *SMALL, *wild, cwd=trained)
    assert done.returncode == 1
    assert "non-finite in cycle" in done.stdout


@pytest.mark.parametrize(("name", "own"), [("frontier", "demand"), ("devices", "ten")])
def test_help_names_the_presets_of_the_experiment(name: str, own: str) -> None:
    """From its own table: those of others are not offered."""
    shown = CliRunner().invoke(app, ["run", name, "--help"]).output
    found = {preset for preset in ("paper", "quick", "demand", "ten") if preset in shown}
    assert found == {"paper", "quick", own}
