"""What experiments will take, and doing all of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from thermoloom.computers.sample_archives import generate_run
from thermoloom.computers.training_runs import train_runs
from thermoloom.settings import Settings
from thermoloom.studies.case import trained_path
from thermoloom.studies.discovery import names, study
from thermoloom.studies.estimate import OVERHEAD, estimate
from thermoloom.studies.gather import order_of

TINY = {
    "machine": {"visible": 196, "hidden": 16, "duration": 0.1},
    "patterns": {"resize": True},
}


def test_work_that_is_done_does_not_count(tmp_path: Path) -> None:
    comparison = study("comparison")
    plan = comparison.plan("quick", TINY | {"training": {"cycles": 3}})
    before = estimate([(comparison, plan)], tmp_path, workers=1)
    models = [m for m in comparison.computers(plan, tmp_path) if not m.solved]
    assert {m.training.rule for m in models} == {"batch", "online"}
    longer = comparison.plan("quick", TINY | {"training": {"cycles": 30_000}})
    spent = estimate([(comparison, longer)], tmp_path, workers=1).seconds - OVERHEAD
    assert spent > 20 * (before.seconds - OVERHEAD) > 0
    first: Settings = models[0]
    path = trained_path(tmp_path, first)
    train_runs([(path, first)])
    generate_run(path, order_of(first))
    after = estimate([(comparison, plan)], tmp_path, workers=1)
    assert after.trainings == before.trainings - 1
    assert after.samples == before.samples - first.generation.samples
    assert after.bytes < before.bytes


def test_shared_trainings_count_once(tmp_path: Path) -> None:
    """The stored checkpoint of the precision screen is a computer of the comparison."""
    pair = [(study(name), study(name).plan("paper", TINY)) for name in ("comparison", "precision")]
    together = estimate(pair, tmp_path, workers=1)
    alone = [estimate([one], tmp_path, workers=1) for one in pair]
    assert together.trainings == sum(one.trainings for one in alone) - 1


def test_all_experiments_in_one_command(tmp_path: Path) -> None:
    sets = ["visible=16", "hidden=4", "resize=true"]
    command = ["run", "all", "--preset", "quick", "--out", "all", "--workers", "1"]
    command += [word for text in sets for word in ("--set", text)]
    done = subprocess.run(
        [sys.executable, "-c", "from thermoloom.cli import main; main()", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert re.search(r"to do: \d+ trainings and [\d,]+ samples, about \d+ min and", done.stderr)
    for name in names(together=True):
        assert json.loads((tmp_path / "all" / name / "summary.json").read_text())["study"] == name
    page = (tmp_path / "all" / "report.html").read_text()
    assert page.count("<h2") >= len(names(together=True))
