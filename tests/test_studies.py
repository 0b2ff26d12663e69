"""Studies outside the package: a folder runs like a built-in one, and an edited one runs anew."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from thermoloom.cli.commands import app
from thermoloom.errors import UserError
from thermoloom.runs.execution import Resources
from thermoloom.studies.case import Case, Source
from thermoloom.studies.discovery import headings, names, study, write_skeleton
from thermoloom.studies.report import write_report
from thermoloom.studies.run import cases_of, compute, compute_share
from thermoloom.studies.schedule import tasks_of

TINY: dict[str, dict[str, Any]] = {
    "machine": {"visible": 49, "hidden": 6, "duration": 0.05},
    "patterns": {"resize": True},
    "training": {"cycles": 3},
    "generation": {"samples": 4},
}

TOY = '''
from dataclasses import dataclass

from thermoloom.studies.case import Case
from thermoloom.studies.gather import save_rows
from thermoloom.studies.study import Plan, Study

from .numbers import FACTOR


@dataclass(frozen=True)
class ToyPlan(Plan):
    seeds: tuple[int, ...] = (1, 2)
    sizes: tuple[int, ...] = (2, 3)


def square(job, size):
    """The size squared, and who computed it."""
    job.run.save_table("sizes", {"size": [size]})
    return {"square": FACTOR * size * size, "seed": job.settings.training.seed}


def cases(plan, folder):
    return [
        Case({"size": size, "seed": seed}, plan.settings.updated({"training": {"seed": seed}}),
             square, {"size": size})
        for seed in plan.seeds for size in plan.sizes
    ]


def summarize(plan, gathered, run):
    rows = gathered.rows()
    save_rows(run, "squares", [{k: row[k] for k in ("size", "seed", "square")} for row in rows])
    return {"sum": sum(row["square"] for row in rows)}


STUDY = Study(
    name="toy", title="Squares", question="What is a size squared?",
    presets={"full": ToyPlan(), "quick": ToyPlan(sizes=(2,))},
    cases=cases, summarize=summarize,
)
'''


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A study of two files in a folder of its own."""
    folder = tmp_path / "my_studies" / "toy"
    folder.mkdir(parents=True)
    (folder / "study.py").write_text(TOY)
    (folder / "numbers.py").write_text("FACTOR = 1\n")
    return folder


def run_toy(folder: Path, out: Path, workers: int = 1, preset: str = "full") -> Any:
    record = study(str(folder))
    return compute(record, record.plan(preset, TINY), out, Resources(workers))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_study_outside_the_package_runs_like_any_other(toy: Path, workers: int) -> None:
    out = toy.parent.parent / "results"
    done = run_toy(toy, out, workers)
    assert done.failures == []
    assert done.summary["sum"] == 2 * (4 + 9)
    assert (out / "toy" / "squares.csv").exists()
    page = write_report(out / "toy").path.read_text(encoding="utf-8")
    assert "What is a size squared?" in page
    assert "Wang and Deng" not in page  # it is compared with no paper
    together = write_report(out).path.read_text(encoding="utf-8")
    assert "Squares" in together
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/manifest.json")}
    assert len([path for path in before if path.parent.name.startswith("square-")]) == 4
    run_toy(toy, out, workers)  # all is there already
    assert {p: p.stat().st_mtime_ns for p in out.glob("runs/*/manifest.json")} == before


def test_an_edited_study_never_uses_old_results(toy: Path, tmp_path: Path) -> None:
    assert run_toy(toy, tmp_path, preset="quick").summary["sum"] == 8
    (toy / "numbers.py").write_text("FACTOR = 10\n")
    assert run_toy(toy, tmp_path, preset="quick").summary["sum"] == 80
    assert len(list(tmp_path.glob("runs/square-*"))) == 4
    # figures only read tables: editing them computes nothing again
    (toy / "figures.py").write_text("# nothing yet\n")
    assert run_toy(toy, tmp_path, preset="quick").summary["sum"] == 80
    assert len(list(tmp_path.glob("runs/square-*"))) == 4


def test_a_worker_that_does_not_see_the_folder_has_the_source(toy: Path, tmp_path: Path) -> None:
    """As on a cluster without a shared disk: another process, and the folder is gone."""
    record = study(str(toy))
    (task, *_) = tasks_of(cases_of(record, record.plan("quick", TINY), tmp_path), tmp_path, 1)
    order = {"function": task.function, "arguments": task.arguments, "name": task.name}
    for file in toy.iterdir():
        if file.is_file():
            file.unlink()
    code = (
        "import json, sys\nfrom pathlib import Path\n"
        "from thermoloom.runs.tasks import Task, execute\n"
        "task = Task(**json.loads(sys.stdin.read()))\n"
        "print(execute(task, Path(sys.argv[1]), lambda *_: None, 1))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "elsewhere")],
        input=json.dumps(order), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "state='done'" in done.stdout, done.stdout + done.stderr
    assert len(list((tmp_path / "elsewhere").glob("runs/square-*"))) == 1


def test_shares_of_a_study_outside_the_package(toy: Path, tmp_path: Path) -> None:
    record = study(str(toy))
    plan = record.plan("full", TINY)
    count = 0
    for number in (1, 2, 3):
        done = compute_share(record, plan, tmp_path, (number, 3), Resources(1))
        assert not done.failures
        count += done.summary["tasks"]
    assert count == 4
    assert compute(record, plan, tmp_path, Resources(1)).summary["sum"] == 26


def test_a_case_is_the_same_wherever_it_is_read(toy: Path) -> None:
    record = study(str(toy))
    for case in cases_of(record, record.plan("full", TINY), toy):
        again = Case.from_json(json.loads(json.dumps(case.as_json())))
        assert again.path == case.path
        assert again.measure is case.measure


def test_the_skeleton_runs_as_it_is(tmp_path: Path) -> None:
    """As a user types it, with small machines for the time's sake."""
    sets = [
        f"--set={section}.{key}={json.dumps(value)}"
        for section, entries in TINY.items()
        for key, value in entries.items()
    ]
    environment = os.environ | {"COLUMNS": "200"}
    thermoloom = [sys.executable, "-m", "thermoloom"]
    for words in (
        ["run", "--new", "my_study"],
        ["run", "./my_study", "--preset", "quick", "--workers", "2", *sets],
        ["run", "my_study", "--help"],
    ):
        done = subprocess.run(
            [*thermoloom, *words], cwd=tmp_path, capture_output=True, text=True, env=environment,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
    assert "Does a warmer computer release more heat?" in done.stdout
    assert "full, quick" in done.stdout
    page = (tmp_path / "results/quick/my_study/report.html").read_text(encoding="utf-8")
    assert "A warmer computer releases more heat." in page
    assert (tmp_path / "results/quick/my_study/heats.png").exists()


@pytest.mark.parametrize("inside", [False, True], ids=["absolute", "relative"])
def test_the_command_for_a_new_study_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = (Path() if inside else tmp_path) / "my studies" / "warmth"
    said = CliRunner().invoke(app, ["run", "--new", str(folder)]).output
    words = shlex.split(said.partition("run it with: ")[2])
    assert words[:2] == ["thermoloom", "run"]
    assert Path(words[2]).joinpath("study.py").exists()
    help_page = CliRunner().invoke(app, [*words[1:3], "--help"]).output
    assert "Does a warmer computer" in help_page
    assert "completion" not in help_page


def test_what_is_wrong_with_a_folder_is_said_in_one_line(toy: Path, tmp_path: Path) -> None:
    (toy / "study.py").write_text("import nowhere\n")
    with pytest.raises(UserError, match=r"study.py: line 1: ModuleNotFoundError: .*nowhere"):
        study(str(toy))
    (toy / "study.py").write_text("def f(:\n")
    with pytest.raises(UserError, match=r"study.py: line 1: SyntaxError"):
        study(str(toy))
    (toy / "study.py").write_text(TOY.replace('row["square"]', 'row["cube"]'))
    with pytest.raises(UserError, match=r"study.py: line \d+: KeyError: 'cube'"):
        run_toy(toy, tmp_path / "cube")
    (toy / "study.py").write_text("x = 1\n")
    with pytest.raises(UserError, match=r"must define STUDY = Study"):
        study(str(toy))
    (toy / "study.py").write_text(TOY.replace('name="toy"', 'name="noise"'))
    with pytest.raises(UserError, match="is taken"):
        study(str(toy))
    with pytest.raises(UserError, match="no such study"):
        study(str(tmp_path / "nowhere"))
    for name in (str(toy), str(tmp_path / "no-name"), str(tmp_path / "comparison")):
        with pytest.raises(UserError, match="--new"):
            write_skeleton(Path(name))
    with pytest.raises(UserError, match="cannot be written"):
        write_skeleton(Path("/proc/nowhere/warmth"))
    refused = CliRunner().invoke(app, ["run", str(tmp_path / "nowhere")])
    assert isinstance(refused.exception, UserError)


def test_a_measure_that_fails_is_reported_and_the_others_go_on(toy: Path, tmp_path: Path) -> None:
    text = TOY.replace(
        'return {"square"', "assert size != 3, 'three is out'\n    return {\"square\""
    )
    (toy / "study.py").write_text(text)
    done = run_toy(toy, tmp_path)
    assert len(done.failures) == 2
    assert re.search(r"study\.py: line \d+: AssertionError: three is out", done.failures[0])
    assert done.summary["sum"] == 8
    assert "left out" in done.summary["missing"][0]


def test_headings_are_those_of_the_records() -> None:
    """The command line reads them from the text, without loading a study."""
    for heading in headings():
        record = study(heading.name)
        assert (record.name, record.question) == (heading.name, heading.question)
        assert (record.order, record.together) == (heading.order, heading.together)
        assert record.figures
        assert {"quick"} < set(record.presets)
    assert len(names()) == len({heading.order for heading in headings()}) == 12


def test_the_source_of_a_study_is_its_files(toy: Path) -> None:
    source = Source.read(toy)
    assert [name for name, _ in source.files] == ["numbers", "study"]
    assert source.module("numbers").FACTOR == 1
