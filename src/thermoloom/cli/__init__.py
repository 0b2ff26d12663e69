"""The command line: arguments in, calls to the rooms behind it, results out."""

from __future__ import annotations

import sys

import typer

from thermoloom.cli.classifier import classifier_app
from thermoloom.cli.computers import generate, settings, show, solve, train
from thermoloom.cli.experiments import report, run_app
from thermoloom.cli.options import OneLineErrors, prepare_streams, say
from thermoloom.cli.runs import runs_app
from thermoloom.errors import UserError

app = typer.Typer(
    cls=OneLineErrors,
    help="Simulate, train and measure generative thermodynamic computers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.callback()(prepare_streams)
for _command in (settings, train, generate, show, solve):
    app.command()(_command)
app.add_typer(run_app, name="run")
app.command()(report)
app.add_typer(runs_app, name="runs")
app.add_typer(classifier_app, name="classifier")


def main() -> None:
    """Entry point: user errors as one line and exit code 2, interruption as 130."""
    try:
        app()
    except UserError as error:
        say(f"[red]error:[/red] {_escaped(str(error))}")
        sys.exit(2)
    except KeyboardInterrupt as interruption:
        if str(interruption):
            say(_escaped(str(interruption)))
        sys.exit(130)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
