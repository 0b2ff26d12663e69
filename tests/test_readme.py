"""Everything that the README shows must work as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

from thermoloom.cli.commands import app
from thermoloom.settings import parse_assignment
from thermoloom.studies.discovery import names, study

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ["README.md", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md")))]


def test_the_python_lines_run(tmp_path: Path) -> None:
    (lines,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in lines.splitlines() if line.strip()]) == 8
    check = "assert drawn.images.shape == (20, 28, 28)\nprint(drawn.quality().class_counts)"
    done = subprocess.run(
        [sys.executable, "-c", f"{lines}\n{check}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, counts = done.stdout.splitlines()
    heat, work = (float(number) for number in re.findall(r"(-?\d+) E0", said))
    assert heat > 100
    assert abs(work) > 1
    found = [int(count) for count in counts.strip("()").split(",")]
    assert min(found[3], found[7]) >= 7, "ten of each were asked for"
    assert (tmp_path / "drawn.png").stat().st_size > 10_000
    assert (tmp_path / "my.safetensors").exists()


@pytest.mark.parametrize("page", PAGES)
def test_every_command_exists(page: str) -> None:
    """Each `thermoloom …` is a command, and its options are options of it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = re.findall(r"(?:^ {4,}|`|bin/)thermoloom ([a-z][^\n`#|)'…]*)", text, re.MULTILINE)
    assert lines or page != "README.md"
    for line in lines:
        command, words = get_command(app), line.replace("NAME", "comparison").split()
        while hasattr(command, "commands") and words and not words[0].startswith("--"):
            if words[0].startswith("./"):  # a study of the user's takes the options of any other
                words[0] = "comparison"
            subcommand = command.get_command(None, words.pop(0))
            assert subcommand is not None, f"thermoloom {line}: no such command"
            command = subcommand
        known = {name for entry in command.params for name in entry.opts}
        for word in words:
            assert not word.startswith("-") or word in known, f"thermoloom {line}: {word}"


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_exists(page: str) -> None:
    """Each `--set KEY=…` names a setting, and `study.…` one of a study."""
    plans = [preset for name in names() for preset in study(name).presets.values()]
    of_studies = {entry.name for plan in plans for entry in fields(plan)}
    for key in re.findall(r"--set [\"']?([\w.]+)=", (ROOT / page).read_text(encoding="utf-8")):
        section, _, name = key.rpartition(".")
        if section != "study":
            parse_assignment(f"{key}=0")
        elif page != "docs/extending.md":  # its example has a plan of its own
            assert name in of_studies, f"{page}: {key}"


def test_the_citation_names_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"\nversion: {project['version']}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (ROOT / page).parent.joinpath(target).exists(), target


def test_the_documentation_stays_short() -> None:
    """Words as `wc -w` counts them, code and tables included; without the API reference."""
    assert len(README.splitlines()) <= 120
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name != "api.md"]
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 18_000


START = sorted(path.stem for path in (ROOT / "docs" / "start").glob("*.md"))


@pytest.mark.parametrize("page", START)
def test_the_examples_for_readers_run(page: str, tmp_path: Path) -> None:
    """Each has at most ten lines; here they are smaller."""
    text = (ROOT / "docs" / "start" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks or page == "students"
    for block in blocks:
        statements = re.sub(r"\(\n|,\n *", "", block)
        assert len([line for line in statements.splitlines() if line.strip()]) <= 10
    rng = np.random.default_rng(0)
    np.save(tmp_path / "five.npy", rng.random((5, 4, 4)))
    (tmp_path / "photos").mkdir()
    for number in range(4):
        pixels = rng.integers(0, 256, (6, 6, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
    quick = "\n".join(blocks).replace("100_000", "600").replace("cycles=300", "cycles=30")
    quick = quick.replace("free_energy()", "free_energy(samples=60, rest=0.5)")
    quick = quick.replace("hidden=0, wiring", "hidden=0, visible=49, duration=0.1, wiring")
    quick = quick.replace("tl.digits(0, 1, 2)", "tl.digits(0, 1, 2), resize=True")
    done = subprocess.run(
        [sys.executable, "-c", quick],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"THERMOLOOM_ENGINE": "portable"},
    )
    assert done.returncode == 0, done.stderr
    if page == "learners":
        right, *_, shape, classes = done.stdout.splitlines()
        assert float(right) > 0.85
        assert (shape, classes) == ("(10, 6, 6, 3)", "[0 0 0]")
    if page == "physicists":
        assert "Crooks" in done.stdout


def test_the_guides_python_lines_run(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    for lines in re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL):
        code = lines + "\nassert heat.shape == (10,)"
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
