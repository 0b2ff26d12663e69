"""The choice of the engine: settings, option, Python, environment; run ids and workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import thermoloom as tl
from thermoloom.cli.commands import app
from thermoloom.computers.computer import SampleRequest
from thermoloom.engine_choice import VARIABLE, EngineSettings, engine_in_use
from thermoloom.engines import compiled, engine
from thermoloom.engines.portable import PortableEngine
from thermoloom.runs.manifest import read_manifest, run_identity
from thermoloom.settings import settings_file

SMALL = ["visible=49", "hidden=6", "duration=0.05", "patterns.resize=true", "cycles=3"]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the choice of the engine after each test."""
    monkeypatch.setenv(VARIABLE, "compiled")


@pytest.mark.parametrize(
    ("text", "shortest", "identity"),
    [
        ("compiled", "compiled", "compiled"),
        ("portable:numpy:cpu:float32", "portable", "portable"),
        ("portable:torch", "portable:torch", "portable:torch"),
        ("portable:jax:cuda:1:float64", "portable:jax:cuda:1:float64", "portable:jax:cuda:float64"),
        ("portable:jax:cuda:0", "portable:jax:cuda:0", "portable:jax:cuda"),
        ("portable:numpy:float64", "portable:numpy:cpu:float64", "portable:numpy:cpu:float64"),
    ],
)  # fmt: skip
def test_texts(text: str, shortest: str, identity: str) -> None:
    choice = EngineSettings.from_text(text)
    assert (choice.text, choice.identity) == (shortest, identity)
    assert EngineSettings.from_text(shortest) == choice


def test_a_block_of_python() -> None:
    with tl.engine(name="portable", precision="float64") as portable:
        assert isinstance(portable, PortableEngine)
        assert engine() == portable
        with tl.engine("compiled"):
            assert engine() is compiled  # type: ignore[comparison-overlap]
        assert engine_in_use().text == "portable:numpy:cpu:float64"
    assert engine_in_use() == EngineSettings()
    tl.engine("portable")
    assert engine_in_use().text == "portable"


def test_a_choice_that_fails_changes_nothing() -> None:
    for choice in (
        "portable:fortran",
        "portable:numpy:cuda",
        "steam",
        object(),
        "no_module:Engine",
    ):
        with pytest.raises(tl.UserError):
            tl.engine(choice)
        assert engine_in_use() == EngineSettings()
    with pytest.raises(tl.UserError, match="not an engine; it needs path and learner"):
        tl.engine(object())


class Recorder:
    """The compiled engine, with a record of what is sampled."""

    def __init__(self) -> None:
        self.sampled: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(compiled, name)

    def generate(self, theta: Any, samples: int, *arguments: Any, **options: Any) -> Any:
        self.sampled.append(samples)
        return compiled.generate(theta, samples, *arguments, **options)


def test_an_engine_of_ones_own() -> None:
    """The object itself computes, and its runs have ids of their own."""
    recorder = Recorder()
    identity = run_identity("training", {})
    with tl.engine(recorder) as chosen:
        assert chosen is recorder
        machine = tl.Machine(visible=49, hidden=6, duration=0.05)
        drawn = machine.train(tl.digits(0, 1), cycles=2, resize=True).generate(5)
        assert run_identity("training", {}) != identity
    assert recorder.sampled == [5]
    computer = machine.train(tl.digits(0, 1), cycles=2, resize=True)
    np.testing.assert_array_equal(computer.generate(5).heat, drawn.heat)


def test_workers_refuse_an_engine_of_a_notebook() -> None:
    script = "import multiprocessing as m; m.parent_process = lambda: 1\n" + (
        "import thermoloom as tl\nfrom thermoloom.engines import engine\n"
        "try: engine()\nexcept tl.UserError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True,
        env=os.environ | {VARIABLE: "__main__:Mine()@0123456789ab"},
    )  # fmt: skip
    assert "exists only in the process that made it" in done.stdout


def arguments(*more: str) -> list[str]:
    return ["train", *(f"--set={each}" for each in SMALL), "--json", *more]


def trained(folder: Path, *more: str) -> Path:
    done = CliRunner().invoke(app, arguments("--out", str(folder), *more))
    assert done.exit_code == 0, done.output
    return Path(json.loads(done.stdout)["run"])


def test_option_settings_file_and_assignment(tmp_path: Path) -> None:
    """The option precedes ``--set``, which precedes the file, which precedes the environment."""
    file = tmp_path / "my.toml"
    file.write_text('[engine]\nname = "portable"\nprecision = "float64"\n', encoding="utf-8")
    for number, (more, expected) in enumerate(
        (
            ((), "compiled"),
            (("--config", str(file)), "portable:numpy:cpu:float64"),
            (("--config", str(file), "--set=engine.precision=float32"), "portable"),
            (("--config", str(file), "--engine", "compiled"), "compiled"),
            (("--engine", "portable"), "portable"),
        )
    ):
        tl.engine("compiled")
        run = trained(tmp_path / str(number), *more)
        assert read_manifest(run).engine == expected
    tables = settings_file()
    assert "[engine]" in tables
    assert 'library = "numpy"' in tables
    refused = CliRunner().invoke(app, arguments("--engine", "portable:cobol"))
    assert "must be one of numpy, torch, jax" in str(refused.exception)


def test_a_run_of_one_engine_is_not_continued_by_another(tmp_path: Path) -> None:
    trained(tmp_path / "run", "--engine", "portable")
    tl.engine("compiled")
    refused = CliRunner().invoke(app, arguments("--out", str(tmp_path / "run")))
    assert "continue it with --engine portable" in str(refused.exception)
    by_compiled = SampleRequest(5, 1).archive
    with tl.engine("portable"):
        assert SampleRequest(5, 1).archive != by_compiled


def test_workers_inherit_the_choice(tmp_path: Path) -> None:
    study = tmp_path / "my_study"
    assert CliRunner().invoke(app, ["run", "--new", str(study)]).exit_code == 0
    small = (
        "machine.visible=49",
        "machine.hidden=6",
        "machine.duration=0.05",
        "patterns.resize=true",
    )
    done = subprocess.run(
        [sys.executable, "-m", "thermoloom", "run", "./my_study", "--preset", "quick", "--workers",
         "2", "--engine", "portable", *(f"--set={each}" for each in small)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    engines = {read_manifest(each.parent).engine for each in tmp_path.rglob("runs/*/manifest.json")}
    assert engines == {"portable"}
