"""Interim results: available after the first pair, marked as interim, never half-written."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from study_runs import SMALL, two_pairs

from thermoloom.runs import catalog
from thermoloom.runs.execution import Resources, SweepInterruptedError
from thermoloom.runs.files import leftovers
from thermoloom.runs.store import RunDirectory
from thermoloom.studies.discovery import study
from thermoloom.studies.report import write_page, write_report
from thermoloom.studies.run import compute


def test_a_page_after_the_first_pair_says_that_it_is_not_final(tmp_path: Path) -> None:
    chosen, pages = study("comparison"), []
    plan = chosen.plan("quick", SMALL)

    def killed(run: RunDirectory, summary: dict[str, Any]) -> None:
        pages.append(write_page(run).path.read_text(encoding="utf-8"))
        assert summary["seeds"] == [1]
        raise KeyboardInterrupt

    with pytest.raises(SweepInterruptedError):
        compute(chosen, plan, tmp_path, Resources(1), on_interim=killed)
    assert "Not final: 1 of 2 pairs so far." in pages[0]
    assert 'http-equiv="refresh"' in pages[0]
    assert "is left out" not in pages[0]
    # what a kill leaves is whole: all checksums fit
    path = tmp_path / "comparison"
    assert not catalog.verify(tmp_path).damaged
    assert RunDirectory.open(path).state == "running"
    assert b"1 of 2 pairs" in RunDirectory.open(path).load_bytes("report.html")
    # the same command goes on, and ends as if it had never stopped
    done = compute(chosen, plan, tmp_path, Resources(1), on_interim=killed)
    page = write_report(path).path.read_text(encoding="utf-8")
    assert "Not final" not in page
    assert "refresh" not in page
    assert "interim" not in json.loads((path / "summary.json").read_bytes())
    assert done.summary["heat"] == two_pairs().summary["heat"]
    assert len(pages) == 1


def test_a_finished_experiment_never_shows_part_of_itself(tmp_path: Path) -> None:
    """Lost measures are computed again; until then the previous page stays."""
    folder = tmp_path / "results"
    shutil.copytree(two_pairs().path.parent, folder)
    lost = list((folder / "runs").glob("sampled-computer-*"))
    assert len(lost) >= 4
    for path in lost:
        shutil.rmtree(path)
    chosen = study("comparison")

    def never(*_: Any) -> None:
        raise AssertionError("an interim page of a finished experiment")

    compute(chosen, chosen.plan("quick", SMALL), folder, Resources(1), on_interim=never)
    assert RunDirectory.open(folder / "comparison").state == "done"


KILLED = """
import os, sys
from pathlib import Path

from study_runs import SMALL
from thermoloom.studies.discovery import study
from thermoloom.studies import drawing
from thermoloom.studies.report import write_page
from thermoloom.studies.run import compute
from thermoloom.runs.execution import Resources

folder, file, moment, number = sys.argv[1:]
replace = os.replace

def killing(temporary, place):
    if moment == "after":
        replace(temporary, place)
    if Path(place) == Path(folder) / "comparison" / file:
        os.kill(os.getpid(), int(number))
    if moment == "before":
        replace(temporary, place)

os.replace = killing
drawing.render = lambda name, *_: {f"{name}.png": b"drawn in no time"}
chosen = study("comparison")
plan = chosen.plan("quick", SMALL)
compute(chosen, plan, Path(folder), Resources(1), on_interim=lambda run, _: write_page(run))
"""
"""The process sends itself a signal just before or after a file of the interim page is in place."""


@pytest.mark.parametrize(
    ("file", "moment", "number"),
    [
        ("report.html", "after", signal.SIGKILL),
        ("figure-1.png", "before", signal.SIGINT),
    ],
)
def test_a_kill_while_the_interim_page_is_written_leaves_nothing_by_halves(
    tmp_path: Path, file: str, moment: str, number: signal.Signals
) -> None:
    folder = tmp_path / "results"
    shutil.copytree(two_pairs().path.parent, folder)
    shutil.rmtree(folder / "comparison")
    for path in (folder / "runs").glob("sampled-computer-*"):  # trained, and yet to be measured
        shutil.rmtree(path)
    command = [sys.executable, "-c", KILLED, str(folder), file, moment, str(int(number))]
    ended = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, check=False)
    if number == signal.SIGKILL:
        assert ended.returncode == -number, ended.stderr.decode()
    else:
        assert "run the same command again" in ended.stderr.decode()
    page = folder / "comparison" / "report.html"
    assert page.exists() == (file == "report.html")
    if page.exists():
        assert page.read_text(encoding="utf-8").rstrip().endswith("</html>")
    else:
        assert not leftovers(folder / "comparison")
    assert not catalog.verify(folder).damaged
    # the same command again ends as if nothing had happened
    chosen = study("comparison")
    done = compute(chosen, chosen.plan("quick", SMALL), folder, Resources(1))
    assert done.summary["heat"] == two_pairs().summary["heat"]
    assert "interim" not in json.loads((done.path / "summary.json").read_bytes())
    assert not catalog.verify(folder).damaged
