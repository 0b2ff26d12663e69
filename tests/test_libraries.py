"""A study in its quick preset and a training, generation and resumption on every array library."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from study_runs import run

import thermoloom as tl
from thermoloom.engine_choice import VARIABLE
from thermoloom.runs.manifest import read_manifest

INSTALLED = [name for name in ("numpy", "torch", "jax") if find_spec(name)]
TINY: dict[str, dict[str, Any]] = {
    "machine": {"visible": 49, "hidden": 6, "duration": 0.05},
    "patterns": {"resize": True},
    "training": {"cycles": 4, "validation_every": 2},
    "generation": {"samples": 4},
    "study": {"seeds": [1, 2], "paths_per_pattern": 1},
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "compiled")


@pytest.mark.parametrize("name", INSTALLED)
def test_a_study_runs_in_every_library(name: str, tmp_path: Path) -> None:
    with tl.engine(name="portable", library=name):
        done = run(tmp_path, TINY)
    assert done.failures == []
    assert done.summary["missing"] == []
    text = "portable" if name == "numpy" else f"portable:{name}"
    engines = {read_manifest(file.parent).engine for file in tmp_path.rglob("runs/*/manifest.json")}
    assert engines == {text}
    assert (done.path / "report.html").exists()


@pytest.mark.parametrize("name", INSTALLED)
def test_paths_do_not_depend_on_their_neighbours(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that trainings of other lengths, and resumed ones, have the same paths to the bit."""
    if name == "jax":
        pytest.skip("JAX compiles for every shape; groups of paths begin at fixed cycles instead")
    machine = tl.Machine(visible=49, hidden=6, duration=0.05)
    with tl.engine(name="portable", library=name):
        together = machine.train(tl.digits(0, 1), cycles=6, resize=True)
        monkeypatch.setattr("thermoloom.feasibility.PATHS_BYTES", 1)
        alone = machine.train(tl.digits(0, 1), cycles=6, resize=True)
    np.testing.assert_array_equal(together.parameters.vector, alone.parameters.vector)
