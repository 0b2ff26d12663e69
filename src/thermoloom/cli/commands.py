"""The application: every command of thermoloom, registered in one place."""

from __future__ import annotations

from typing import Any

import typer

from thermoloom.cli.classifier import classifier_app
from thermoloom.cli.computers import generate, settings, show, solve, train
from thermoloom.cli.demonstration import demo
from thermoloom.cli.exports import export, units
from thermoloom.cli.laboratory import lab
from thermoloom.cli.options import OneLineErrors, prepare_streams
from thermoloom.cli.runs import runs_app
from thermoloom.cli.studies import report, run_app
from thermoloom.interrupts import Interrupted


class _Commands(OneLineErrors):
    def invoke(self, ctx: Any) -> Any:
        """Keep the message of a KeyboardInterrupt, which Typer would turn into a bare exit."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interruption:
            raise Interrupted(str(interruption)) from None


app = typer.Typer(
    cls=_Commands,
    help="Simulate, train and measure generative thermodynamic computers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.callback()(prepare_streams)
for _command in (demo, lab, settings, train, generate, show, solve, export, units):
    app.command()(_command)
app.add_typer(run_app, name="run")
app.command()(report)
app.add_typer(runs_app, name="runs")
app.add_typer(classifier_app, name="classifier")
