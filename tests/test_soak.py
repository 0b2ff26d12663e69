"""The judgements of ``make soak``: it must detect the defects that it looks for."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path

import pytest

pytest.importorskip("hypothesis", reason="needs the extra 'dev'")

from soak import cases, files, inputs, interrupts, signed, surroundings
from soak.cases import Ended, Tally
from soak.interrupting import End

ONE_LINE = Ended(2, "", "error: machine.kT = -1: must be positive\n")
TRACEBACK = Ended(1, "", "Traceback (most recent call last):\n  …\nValueError: x\n")


def test_generated_inputs_are_the_same_for_the_same_seed() -> None:
    first = inputs.generated(80, seed=1)
    assert len(first) == 80
    assert inputs.generated(80, seed=1) == first
    assert inputs.generated(80, seed=2) != first
    assert sum(case.wrong for case in first) > 40


def verdict(
    monkeypatch: pytest.MonkeyPatch, folder: Path, case: inputs.Case, ended: Ended, left: str = ""
) -> str:
    """The judgement of a call that ends like this and leaves a file."""

    def call(arguments: list[str], folder: Path) -> Ended:
        if left:
            (folder / "manifest.json").write_text(left)
        return ended

    monkeypatch.setattr(inputs, "call", call)
    tally = Tally(lambda text: None)
    inputs.judge(case, folder, tally)
    return next(iter(tally.counts[case.kind]))


def test_verdicts_on_wrong_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = inputs.Case("x", ["train"], "", True, "machine.kT", "-1")
    odd = inputs.Case("x", ["train"], "", False, "machine.kT", "0.25")
    held = json.dumps({"settings": {"machine": {"kT": 0.25}}})
    other = json.dumps({"settings": {"machine": {"kT": 0.5}}})
    worse = {"expected_loss": 2.0, "initial_expected_loss": 1.0}
    useless = json.dumps(json.loads(held) | {"results": worse})
    fine = Ended(0, "done", "")
    for case, ended, left, expected in (
        (wrong, ONE_LINE, "", "one line"),
        (wrong, Ended(2, "", "two\nlines\n"), "", "more lines"),
        (wrong, TRACEBACK, "", "traceback"),
        (wrong, Ended(-9, "", "", hung=True), "", "hang"),
        (wrong, fine, "", "silently wrong"),
        (wrong, Ended(130, "", "", busy=True), "", "silently wrong"),
        (odd, Ended(130, "", "", busy=True), "", "fine"),
        (odd, fine, held, "fine"),
        (odd, fine, other, "silently wrong"),
        (odd, fine, useless, "silently wrong"),
        (wrong, ONE_LINE, held, "silently wrong"),
    ):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        assert verdict(monkeypatch, folder, case, ended, left) == expected


def test_damages_damage() -> None:
    rng = random.Random(1)
    page = json.dumps({"schema": 1, "settings": {"machine": {"kT": 0.1}}, "files": {}}).encode()
    for name, damage in files.DAMAGES.items():
        damaged = [damage(page, rng) for _ in range(40)]
        assert sum(data != page for data in damaged) > 30, name
    assert all(len(files.truncated(page, rng)) < len(page) for _ in range(40))


def test_another_result_after_damage_is_silently_wrong(tmp_path: Path) -> None:
    good = files.Good(tmp_path, {"generate": ("mean heat 5", {}), "verify": ("2 runs", {})})

    def think(command: str, ended: Ended, target: str = "done/manifest.json") -> str:
        return files.judge(command, target, ended, tmp_path, good)[0]

    assert think("generate", Ended(0, "mean heat 5\n", "")) == "fine"
    assert think("generate", Ended(0, "mean heat 6\n", "")) == "silently wrong"
    assert think("generate", ONE_LINE) == "one line"
    assert think("verify", Ended(1, "damaged: x", "")) == "one line"
    assert think("verify", Ended(0, "2 runs\n", ""), "done/curve.csv") == "silently wrong"
    assert think("runs", Ended(0, "done only", "")) == "silently wrong"


def test_verdicts_on_surroundings() -> None:
    progress = "1 of 4 cycles\nerror: standard output cannot be written (x)\n"
    for ended, expected in (
        (ONE_LINE, "one line"),
        (Ended(2, "", progress), "one line"),
        (Ended(2, "", "two\nlines\n"), "more lines"),
        (TRACEBACK, "traceback"),
        (Ended(-9, "", "", hung=True), "hang"),
        (Ended(130, "", "OpenBLAS blas_thread_init: …\n"), "one line"),
        (Ended(0, "", ""), None),
    ):
        assert surroundings.end_of(ended) == expected


def test_verdicts_on_interrupts() -> None:
    def think(code: int | None, stderr: str = "stopped") -> str:
        return interrupts.verdict_of(End(signal.SIGINT, 1.0, code, 0.1, "", stderr))

    assert [think(code) for code in (130, -2)] == ["one line"] * 2
    assert [think(code) for code in (1, 143, -9)] == ["more lines"] * 3
    assert think(130, TRACEBACK.err) == "traceback"
    assert think(None) == "hang"
    assert cases.BAD == ("more lines", "traceback", "hang", "silently wrong")


def test_changed_files_with_right_checksums_are_refused_or_harmless() -> None:
    tally = Tally(lambda text: None)
    signed.soak(150, 3, tally, lambda text: None)
    assert tally.examples == []
    assert sum(counts["one line"] for counts in tally.counts.values()) > 50
