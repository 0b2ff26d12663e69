"""Python manners: progress, short texts, tables, help, unfinished runs, completion."""

from __future__ import annotations

import io
import pydoc
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import thermoloom as tl
from thermoloom.cli.commands import app
from thermoloom.computers import computer as computer_module
from thermoloom.computers.computer_files import latest_samples, samples_of
from thermoloom.computers.sample_archives import SampleRequest
from thermoloom.computers.training_runs import train_runs
from thermoloom.lab import viewer
from thermoloom.presentation import call_progress as module
from thermoloom.settings import Settings
from thermoloom.threads import COMPILING


@pytest.fixture(autouse=True)
def _portable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERMOLOOM_ENGINE", "portable")


@pytest.fixture
def drawn() -> tl.Drawn:
    machine = tl.Machine(visible=49, hidden=0, J4=0.0, dt=0.01, stages=2,
                         wiring=["visible-visible"])  # fmt: skip
    return machine.solve(tl.digits(0, 1), resize=True).generate(6)


def test_everything_public_has_a_short_text_and_a_table(drawn: tl.Drawn) -> None:
    computer = drawn.computer
    shown: list[Any] = [
        computer.machine, computer, drawn, drawn.quality(), drawn.ledger(),
        computer.units(time_unit=1e-9), tl.Device(dead=0.1),
    ]  # fmt: skip
    for thing in shown:
        assert len(repr(thing)) < 800, thing
        assert thing._repr_html_().startswith(("<table>", "<figure "))
    for thing in (drawn.generated, computer.parameters, computer.patterns, tl.digits()):
        assert len(repr(thing)) < 100
    assert "49 visible" in computer.machine._repr_html_()
    assert "default" in tl.Device()._repr_html_()
    computer.distance_from_optimum()
    for text in (repr(computer), computer._repr_html_()):
        assert "0 % from its optimum" in text
    rows = np.random.default_rng(0).normal([755, 2], [300, 0.01], (90, 2))
    table = tl.Machine.for_data(rows).solve(rows).generate(50)
    spread = re.findall(r"(\d+) ± (\d+)<.*2\.0\d+ ± 0\.0\d+<", table._repr_html_())
    assert spread == [tuple(str(round(m(table.samples[:, 0]))) for m in (np.mean, np.std))]


def test_a_notebook_shows_an_error_at_the_line_of_the_user() -> None:
    with pytest.raises(tl.UserError) as caught:
        tl.Machine(kt=3)
    error, line = caught.value._render_traceback_()
    assert error == "UserError: machine.kt: no such setting; did you mean machine.kT?"
    assert line.endswith(": tl.Machine(kt=3)")


def test_help_explains_every_parameter() -> None:
    for section in (tl.Machine, tl.Device, tl.Well, tl.Development):
        text = pydoc.render_doc(section)
        assert text.count("Parameters:") == 1
        for entry in fields(section):
            assert f"{entry.name} = " in text


class Shell:
    """Stands in for IPython's; only its name counts."""


@pytest.mark.parametrize("place", ["terminal", "notebook", "neither"])
def test_a_long_call_shows_its_progress(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen, displayed = io.StringIO(), []
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(
        module, "console", lambda: Console(file=screen, force_terminal=place == "terminal")
    )
    if place == "notebook":
        shell = type("ZMQInteractiveShell", (Shell,), {})()
        handle = SimpleNamespace(update=displayed.append)
        display = SimpleNamespace(HTML=str, display=lambda *_, **__: handle)
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
        monkeypatch.setitem(sys.modules, "IPython.display", display)
    else:
        monkeypatch.delitem(sys.modules, "IPython", raising=False)

    def train() -> None:
        tl.Machine(visible=9, hidden=0, wiring=["visible-visible"], duration=0.05).train(
            tl.digits(0, 1), cycles=5, resize=True
        )

    train()
    assert ("training" in screen.getvalue()) == (place == "terminal")
    assert any("training: " in text for text in displayed) == (place == "notebook")
    if place == "notebook":
        assert displayed[-1] == "", "the bar goes when the call ends"
    tl.progress(False)
    try:
        before = screen.tell(), len(displayed)
        train()
        assert (screen.tell(), len(displayed)) == before
    finally:
        tl.progress(True)


def test_an_interrupted_run_can_be_looked_at(tmp_path: Path) -> None:
    machine = {"visible": 49, "hidden": 6, "duration": 0.05}
    settings = Settings.from_dict(
        {"machine": machine, "patterns": {"resize": True}, "training": {"cycles": 6}}
    )
    run = tmp_path / "run"

    def stop(_: Path, trainee: Any) -> None:
        if trainee.cycle == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_runs([(run, settings)], stop)
    computer = tl.load(run)
    assert "unfinished: 4 of 6 cycles" in repr(computer)
    assert viewer.description(computer)["unfinished"] == computer.unfinished
    further = computer.train(cycles=2)
    computer.save(tmp_path / "early.safetensors")
    assert "online, 4 cycles" in repr(tl.load(tmp_path / "early.safetensors"))
    runner = CliRunner()
    done = runner.invoke(app, ["generate", str(run), "--samples=3"], catch_exceptions=False)
    assert done.stdout.startswith("unfinished: 4 of 6 cycles")
    assert runner.invoke(app, ["show", str(run)], catch_exceptions=False).exit_code == 0
    assert (tmp_path / "run-cycle-4.samples.png").exists()
    assert latest_samples(run) is not None
    early = samples_of(run, SampleRequest(3, settings.generation_seed)).heat
    train_runs([(run, settings)])
    assert tl.load(run).unfinished == ""
    assert (tl.load(run)["visible_hidden"] == further["visible_hidden"]).all()
    assert latest_samples(run) is None
    late = samples_of(run, SampleRequest(3, settings.generation_seed)).heat
    assert (early != late).all()


def test_shells_complete_commands() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert "--install-completion" in shown


def test_a_call_that_does_not_report_shows_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(module, "console", lambda: Console(file=screen, force_terminal=True))
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    with module.call_progress("waiting", 10, "steps"):
        COMPILING.set()
        try:
            until = time.monotonic() + 20
            while "compiling" not in screen.getvalue() and time.monotonic() < until:
                time.sleep(0.01)
        finally:
            COMPILING.clear()
    assert "waiting" in screen.getvalue()
    assert "compiling kernels" in screen.getvalue()
    size = screen.tell()
    time.sleep(0.05)
    assert screen.tell() == size, "nothing is shown once the call has ended"


def test_every_long_call_of_a_computer_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: dict[str, list[float]] = {}

    @contextmanager
    def record(title: str, total: float, unit: str) -> Iterator[Callable[[float], None]]:
        parts = reported.setdefault(title, [])
        yield lambda done: parts.append(done / total)

    monkeypatch.setattr(module, "call_progress", record)
    monkeypatch.setattr(computer_module, "call_progress", record)
    machine = tl.Machine(
        visible=4, hidden=0, wiring=["visible-visible"], dt=0.01, duration=1.0, J4=0.0
    )
    computer = machine.solve([[1.0, 0.5, -1, 0], [-1, 0, 1, 0.5]], scale=None)
    computer.trajectories(2)
    computer.free_energy(samples=64, switches=2, rest=0.5)
    computer.distance_from_optimum()
    computer.log_likelihoods(np.ones((7, 4)))
    digits = tl.Machine(hidden=0, wiring=["visible-visible"], J4=0.0, duration=0.1, dt=0.01)
    digits.solve(tl.digits()).develop(tl.digits(), samples=20, evaluations=2)
    for title in (
        "generating 2 samples",
        "switching couplings",
        "solving",
        "comparing windows",
        "likelihoods",
    ):
        assert reported[title], title
        assert max(reported[title]) == pytest.approx(1.0), title
        assert min(reported[title]) >= 0.0, title


def test_training_continues_with_what_the_rule_remembers(tmp_path: Path) -> None:
    machine, images = tl.Machine(visible=16, hidden=4, duration=0.05), tl.digits(0, 1)
    learning: dict[str, Any] = {"resize": True, "rule": tl.Momentum(0.9)}
    without_break = machine.train(images, cycles=5, **learning)["visible_hidden"]
    first = machine.train(images, cycles=3, **learning)
    first.save(tmp_path / "first.safetensors")
    for computer in (first, tl.load(tmp_path / "first.safetensors")):
        assert (computer.train(cycles=2)["visible_hidden"] == without_break).all()
    forgetful = replace(first, memory={}).train(cycles=2)
    assert (forgetful["visible_hidden"] != without_break).any()
    assert first.train(cycles=2, rule="online").memory == {}
    with pytest.raises(tl.UserError, match="state of the learner"):
        replace(first, memory={"memory_00": np.zeros(3)}).train(cycles=2)


def test_a_warning_names_the_line_of_the_user() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 3))
    machine = tl.Machine(visible=3, hidden=0, wiring=["visible-visible"], duration=0.05)
    with pytest.warns(tl.DataWarning) as caught:
        machine.solve(rows)
    assert [Path(each.filename).name for each in caught] == ["test_manners.py"]
