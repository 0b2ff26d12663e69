"""What the README shows must work as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


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


def test_every_command_exists() -> None:
    """Each `thermoloom …` in the README is a command, and its options are options of it."""
    commands = set(re.findall(r"(?:^ {4}|`|bin/)thermoloom ((?:run )?\w+)", README, re.MULTILINE))
    assert {"train", "generate", "show", "solve", "run comparison"} <= commands
    for command in sorted(commands):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from thermoloom.cli import main; main()",
                *command.split(),
                "-h",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, command
        for line in re.findall(rf"thermoloom {command}([^\n`#]*)", README):
            for option in re.findall(r"--\w+", line):
                assert option in done.stdout, f"{command} {option}"


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (ROOT / page).parent.joinpath(target).exists(), target


def test_the_guides_python_lines_run(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    for lines in re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL):
        code = lines + "\nassert heat.shape == (10,)"
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
