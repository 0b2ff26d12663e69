"""The recipes of docs/extending.md are executed, and the table of docs/architecture.md is true.

A section of the page is a recipe. Its blocks with a title are files, its ``diff`` blocks change
files of the package, and all other Python blocks are scripts that must run with both.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import thermoloom

ROOT = Path(__file__).parent.parent
SOURCE = Path(thermoloom.__file__).parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w[^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MOST_FILES = 2

PRELUDE = """
import json, sys
from importlib.util import spec_from_file_location

class Changed:
    files = json.loads({files!r})

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return spec_from_file_location(name, cls.files[name]) if name in cls.files else None

sys.meta_path.insert(0, Changed)
sys.path.insert(0, "")
"""
"""Modules of the package that a recipe changes are imported from the changed files."""


@dataclass
class Recipe:
    """One section of the page."""

    files: dict[str, str] = field(default_factory=dict)
    """Files of the user, by name."""
    changed: dict[str, str] = field(default_factory=dict)
    """Files of the package, by their path below src, with their new text."""
    scripts: list[str] = field(default_factory=list)


def recipes() -> dict[str, Recipe]:
    """The recipes of the page by their headings."""
    by_heading = {}
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        recipe = Recipe()
        for info, text in BLOCK.findall(section):
            if title := re.search(r'title="(.+)"', info):
                recipe.files[title[1]] = text
            elif info == "diff":
                recipe.changed |= changed_files(text)
            else:
                assert info == "python", info
                recipe.scripts.append(text)
        by_heading[section.partition("\n")[0]] = recipe
    return by_heading


def changed_files(diff: str) -> dict[str, str]:
    """The files of a diff with its hunks applied; each hunk must fit in exactly one place."""
    texts = {}
    for part in re.split(r"^--- src/", diff, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        text = (SOURCE / name).read_text(encoding="utf-8")
        for hunk in re.split(r"^@@\n", body, flags=re.MULTILINE):
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] != "+")
            after = "".join(line[1:] for line in lines if line[0] != "-")
            assert text.count(before) == 1, f"{name}: {text.count(before)} places for\n{before}"
            text = text.replace(before, after)
        texts[name] = text
    return texts


def table_of_changes() -> dict[str, list[str]]:
    """The change of every row of the architecture's table, with the files that it touches."""
    section = ARCHITECTURE.partition("## Ten changes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \[(.+?)\]\(extending\.md#\S+\) \| (.+?) \|", section, re.MULTILINE)
    return {change: re.findall(r"`([\w/…]+(?:\.py|/))`", files) for change, files in rows}


RECIPES = recipes()
CHANGES = table_of_changes()


def test_every_change_has_a_recipe_and_touches_two_files_at_most() -> None:
    assert list(CHANGES) == list(RECIPES)
    assert len(CHANGES) == 10
    for change, files in CHANGES.items():
        assert 1 <= len(files) <= MOST_FILES, change
        for name in files:
            assert "…" in name or (SOURCE / "thermoloom" / name).exists(), name
        changed = {name.removeprefix("thermoloom/") for name in RECIPES[change].changed}
        assert changed <= set(files), change


@pytest.mark.parametrize("heading", RECIPES)
def test_the_recipe_works(heading: str, tmp_path: Path) -> None:
    recipe = RECIPES[heading]
    assert recipe.scripts
    for name, text in recipe.files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    modules = {}
    for name, text in recipe.changed.items():
        path = tmp_path / name.replace("/", "-")
        path.write_text(text, encoding="utf-8")
        modules[name.removesuffix(".py").replace("/", ".")] = str(path)
    for number, script in enumerate(recipe.scripts):
        path = tmp_path / f"script_{number}.py"
        path.write_text(PRELUDE.format(files=json.dumps(modules)) + script, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, path.name], cwd=tmp_path, capture_output=True, text=True, check=False,
            env=os.environ | {"PYTHONPATH": str(SOURCE)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]


def test_the_commands_of_the_study_run(tmp_path: Path) -> None:
    """As they stand on the page, with small machines for the time's sake."""
    small = "machine.visible=49 machine.hidden=6 machine.duration=0.05 patterns.resize=true"
    lines = re.findall(r"^    thermoloom (run .*)$", PAGE, flags=re.MULTILINE)
    assert len(lines) == 3
    for line in lines[:2]:
        words = line.split()
        sets = [] if "--new" in words else [f"--set={entry}" for entry in small.split()]
        done = subprocess.run(
            [sys.executable, "-m", "thermoloom", *words, *sets], cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
    written = {path.name for path in (tmp_path / "my_study").iterdir() if path.is_file()}
    section = PAGE.partition("## A study with a figure")[2].partition("\n## ")[0]
    listed = re.findall(r"^- (`.+?):", section, flags=re.MULTILINE)
    assert written == {name for row in listed for name in re.findall(r"`(.+?)`", row)}
    assert (tmp_path / "results/quick/my_study/report.html").exists()
