"""``--task i/n``: shares of an experiment for job arrays, then the plain command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from study_runs import SMALL, two_pairs

from thermoloom.cli.studies import parse_share
from thermoloom.errors import UserError
from thermoloom.runs.execution import Resources
from thermoloom.runs.progress import Progress
from thermoloom.studies.discovery import names, study
from thermoloom.studies.run import cases_of, compute, compute_share
from thermoloom.studies.schedule import tasks_of


class Counted(Progress):
    """Tasks that were done before, and those that were not."""

    def __init__(self) -> None:
        self.before: list[str] = []
        self.now: list[str] = []

    def finished(self, name: str, at_once: bool = False) -> None:
        super().finished(name, at_once)
        (self.before if at_once else self.now).append(name)


def test_all_shares_and_the_plain_command_give_what_it_gives_alone(tmp_path: Path) -> None:
    chosen = study("comparison")
    plan = chosen.plan("quick", SMALL)
    count = 0
    for number in (2, 1, 3):  # in any order
        done = compute_share(chosen, plan, tmp_path, (number, 3), Resources(1))
        assert not done.failures
        assert not (tmp_path / "comparison").exists()
        count += done.summary["tasks"]
    assert count >= 3
    seen = Counted()
    performed = compute(chosen, plan, tmp_path, Resources(1), seen)
    assert seen.before
    assert all(name.startswith("replay") for name in seen.now)  # needs a computer of another share
    alone = two_pairs().path
    for table in ("models", "samples", "curves"):
        ours = (performed.path / f"{table}.csv").read_bytes()
        assert ours == (alone / f"{table}.csv").read_bytes()


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("count", [1, 4, 200])
def test_shares_are_all_tasks_once(
    name: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def take(tasks: list[Any], *_: Any) -> dict[str, Any]:
        done.extend(task.name for task in tasks)
        return {}

    monkeypatch.setattr("thermoloom.studies.run.run_tasks", take)
    monkeypatch.setattr("thermoloom.studies.run.check", lambda *_: 1)
    chosen = study(name)
    plan = chosen.plan("quick")
    for number in range(1, count + 1):
        if number in (1, 2, count // 2, count) or count < 10:
            compute_share(chosen, plan, tmp_path, (number, count))
    assert len(done) == len(set(done)) > 0
    if count < 10:
        from dataclasses import replace

        from thermoloom.computers.pattern_store import identified

        known = replace(plan, settings=identified(plan.settings))
        assert set(done) == {
            task.name
            for task in tasks_of(cases_of(chosen, known, tmp_path / "x"), tmp_path / "x", count)
        }


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/", "/2", "a/b", "1/2/3", "-1/2", "²/3", ""])
def test_a_wrong_share_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError, match="--task"):
        parse_share(text)


def test_shares_count_from_one() -> None:
    assert parse_share("1/1") == (1, 1)
    assert parse_share("5/5") == (5, 5)
