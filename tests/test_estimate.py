"""Estimates of time and disk space, and ``run all``."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from PIL import Image
from test_bad_input import call

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


def test_all_experiments_in_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Figures are drawn but not rendered, which the tests of each study do."""
    picture = io.BytesIO()
    Image.new("L", (2, 2)).save(picture, "PNG")
    monkeypatch.setattr("thermoloom.studies.drawing._bytes", lambda *_: picture.getvalue())
    monkeypatch.setattr("thermoloom.studies.ledger.study.REST", 0.5)
    sets = ["visible=16", "hidden=4", "resize=true", "duration=0.1"]
    command = ["run", "all", "--preset", "quick", "--out", str(tmp_path), "--workers", "1"]
    assert call(*command, *(word for text in sets for word in ("--set", text))) == 0
    assert re.search(
        r"to do: \d+ training runs and [\d,]+ samples, about \d+ min and", capsys.readouterr().err
    )
    for name in names(together=True):
        assert json.loads((tmp_path / name / "summary.json").read_text())["study"] == name
    page = (tmp_path / "report.html").read_text()
    assert page.count("<h2") >= len(names(together=True))
