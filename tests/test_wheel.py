"""The wheel works alone: built, installed in an environment of its own, and run there.

It installs all dependencies, which takes minutes: only with ``--wheel`` or ``make wheel-test``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PIP = ("-m", "pip", "--disable-pip-version-check")


def run(command: list[str], cwd: Path) -> str:
    """Standard output; nothing of this environment's packages is seen."""
    alone = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=cwd, env=alone, capture_output=True, text=True, check=False, timeout=1200
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not request.config.getoption("--wheel"):
        pytest.skip("takes minutes: make wheel-test")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    run([sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", str(out), str(source)], out)
    (found,) = out.glob("thermoloom-*.whl")
    return found


def test_the_wheel_ships_types_data_and_templates(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src" / "thermoloom"
    wanted = [
        source / "py.typed",
        *source.rglob("*.py"),
        *(f for f in (source / "data").rglob("*") if f.is_file()),
    ]
    wanted += (source / "presentation" / "templates").iterdir()
    for file in wanted:
        assert file.relative_to(ROOT / "src").as_posix() in names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "soak"))]


def test_it_runs_alone_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    bin_ = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    run([str(bin_ / "python"), *PIP, "install", "--quiet", str(wheel)], tmp_path)
    where = run([str(bin_ / "python"), "-c", "import thermoloom as t; print(t.__file__)"], tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path)
    command = str(bin_ / "thermoloom")
    found: dict[str, Any] = json.loads(
        run([command, "demo", "--out", "d.html", "--json"], tmp_path)
    )
    assert found["correct_class"] >= 0.85 * found["samples"]
    assert (tmp_path / "d.html").stat().st_size > 500_000
    small = ["--set", "hidden=16", "--set", "duration=0.1", "--cycles", "6", "--out", "run"]
    run([command, "train", *small], tmp_path)
    drawn = json.loads(run([command, "generate", "run", "--samples", "4", "--json"], tmp_path))
    assert drawn["samples"] == 4
