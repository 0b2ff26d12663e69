"""Python manners: progress, short texts, tables, help, unfinished runs, completion."""

from __future__ import annotations

import io
import pydoc
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import thermoloom as tl
from thermoloom.cli.commands import app
from thermoloom.computers.computer_files import latest_samples, samples_of
from thermoloom.computers.sample_archives import SampleRequest
from thermoloom.computers.training_runs import train_runs
from thermoloom.presentation import call_progress as module
from thermoloom.settings import Settings


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
        assert thing._repr_html_().startswith(("<table>", "<img"))
    for thing in (drawn.generated, computer.parameters, computer.patterns, tl.digits()):
        assert len(repr(thing)) < 100


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
    runner = CliRunner()
    done = runner.invoke(app, ["generate", str(run), "--samples=3"], catch_exceptions=False)
    assert done.stdout.startswith("unfinished: 4 of 6 cycles")
    assert runner.invoke(app, ["show", str(run)], catch_exceptions=False).exit_code == 0
    assert (tmp_path / "run-cycle-4.samples.png").exists()
    assert latest_samples(run) is not None
    early = samples_of(run, SampleRequest(3, settings.generation_seed)).heat
    train_runs([(run, settings)])
    assert tl.load(run).cycles_done is None
    assert latest_samples(run) is None
    late = samples_of(run, SampleRequest(3, settings.generation_seed)).heat
    assert (early != late).all()


def test_shells_complete_commands() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert "--install-completion" in shown
