"""What the commands share: settings from files and options, results for people and machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from thermoloom.config import parse_assignment, read_toml
from thermoloom.errors import UserError
from thermoloom.interrupts import interrupts_wind_up

Values = dict[str, dict[str, Any]]
"""``{section: {key: value}}``"""

Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="TOML file with settings.", metavar="FILE")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", help="One setting, such as physics.kT=0.2.", metavar="KEY=VALUE"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]


def merged(
    config: Path | None, assignments: list[str] | None, overrides: Values, own_section: str = ""
) -> Values:
    """The TOML file, then --set, then options of their own where they are given."""
    layers = [read_toml(config)] if config else []
    layers += [parse_assignment(text, own_section) for text in assignments or []]
    layers.append({k: {n: v for n, v in e.items() if v is not None} for k, e in overrides.items()})
    values: Values = {}
    for layer in layers:
        for section, entries in layer.items():
            if not isinstance(entries, dict):
                raise UserError(f"{section}: expected a table [{section}] of settings")
            values.setdefault(section, {}).update(entries)
    return values


def compile_now() -> None:
    """Compile the kernels, or load them, before anything is timed or touched."""
    from thermoloom.kernels import compile_kernels
    from thermoloom.presentation.progress import compiling

    with compiling():
        compile_kernels()
    interrupts_wind_up()


def say(text: str) -> None:
    """A line for people, on standard error."""
    from thermoloom.presentation.progress import console

    console().print(text, highlight=False, soft_wrap=True)


def emit(as_json: bool, results: dict[str, Any], lines: list[str]) -> None:
    """Results on standard output: JSON for machines, or lines for people."""
    from thermoloom.runs.formats import jsonable

    text = json.dumps(jsonable(results), indent=2) if as_json else "\n".join(lines)
    print(text)
