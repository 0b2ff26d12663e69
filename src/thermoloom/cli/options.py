"""Shared by all commands: settings from files and options, output as text or JSON."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from thermoloom.errors import DataWarning, SpeedWarning, UserError, command_line, printable
from thermoloom.inputs import read_toml, shown, user_path
from thermoloom.interrupts import interrupts_wind_up

if TYPE_CHECKING:  # loads numpy; --help should not
    from thermoloom.settings import Settings

_PATHS = (("patterns", "path"), ("patterns", "code"), ("measures", "classifier"))
_Command = Callable[..., None]
Values = dict[str, dict[str, Any]]
"""``{section: {key: value}}``"""


def path_of(name: str) -> Callable[[str], Path]:
    """The parser for a path option or argument; Typer itself would read "" as "."."""
    return lambda text: user_path(name, text)


def option(kind: Any, help: str, metavar: str | None = None, *names: str) -> Any:
    """The type of an option that may be left out, for ``takes``; a path option needs its name."""
    parser = path_of(names[0]) if kind is Path else None
    return Annotated[kind | None, typer.Option(*names, help=help, metavar=metavar, parser=parser)]


def path_option(name: str, metavar: str, help: str, *short: str, **more: Any) -> Any:
    """An option that is a path."""
    return typer.Option(name, *short, help=help, metavar=metavar, parser=path_of(name), **more)


def flag(name: str, help: str) -> Any:
    """An option without a value; recent versions of Typer would show ``<bool>`` as its value."""
    return typer.Option(name, help=help, metavar="")


def takes(table: str, options: Mapping[str, Any]) -> Callable[[_Command], _Command]:
    """Add these options to a command; those that are set arrive in its argument ``table``."""

    def decorated(command: _Command) -> _Command:
        @wraps(command)
        def with_options(**arguments: Any) -> None:
            values = {name: arguments.pop(name) for name in options}
            values = {name: value for name, value in values.items() if value is not None}
            command(**arguments, **{table: values})

        parameters: list[Parameter] = []
        for parameter in signature(command, eval_str=True).parameters.values():
            parameters += (
                [parameter]
                if parameter.name != table
                else [
                    Parameter(name, parameter.kind, default=None, annotation=annotation)
                    for name, annotation in options.items()
                ]
            )
        with_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_options

    return decorated


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"thermoloom {version('thermoloom')}")
        raise typer.Exit


def prepare_streams(
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version.",
            is_eager=True,
            callback=_print_version,
            metavar="",
        ),
    ] = False,
) -> None:
    """Write UTF-8 whatever the locale is: settings and results contain symbols.

    Library warnings are switched off: they address programmers, and user errors take one line.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    for category in (DataWarning, SpeedWarning):
        warnings.filterwarnings("always", category=category)
    warnings.showwarning = _show_warning  # type: ignore[assignment]


def _show_warning(message: Warning | str, *_: Any) -> None:
    typer.echo(f"warning: {message}", err=True)


_ClickError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""Base class of command-line errors; typer uses click or bundles its own copy."""


def _shortened(text: str) -> str:
    """Cut the middle out of a long message that quotes the user; some versions of Typer do not."""
    return text if len(text) <= 400 else f"{text[:200]} … {text[-200:]}"


class OneLineErrors(TyperGroup):
    """Report wrong options and arguments like any user error: one line, exit code 2."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            with command_line():
                code = super().main(*args, **(extra | {"standalone_mode": False}))
        except _ClickError as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                error.show()
                sys.exit(error.exit_code)
            text = _shortened(error.format_message().strip().rstrip("."))
            if getattr(error, "ctx", None):
                text += (
                    f"{' See' if text.endswith('?') else '; see'} {error.ctx.command_path} --help"
                )
            raise UserError(text) from None
        except typer.Abort:
            say("stopped; nothing was changed")
            sys.exit(1)
        sys.exit(code or 0)


Config = Annotated[Path | None, path_option("--config", "FILE", "TOML file with settings.", "-c")]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        help="One setting, such as machine.kT=0.2; may be repeated.",
        metavar="KEY=VALUE",
    ),
]
_engine_option = ""
"""The engine chosen with ``--engine``, which takes precedence over a settings file."""


def _choose_engine(text: str | None) -> str | None:
    global _engine_option
    _engine_option = text or ""
    if text is not None:
        from thermoloom.engines.choice import engine

        engine(text)
    return text


EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="Engine: compiled (default), portable (such as portable:torch:cuda) or module:object.",
        metavar="ENGINE",
        callback=_choose_engine,
    ),
]
AsJson = Annotated[bool, flag("--json", "Print results as JSON.")]


def merged(
    config: Path | None, assignments: list[str] | None, overrides: Values, extra_section: str = ""
) -> Values:
    """Settings from the TOML file, then --set, then the options that are not None."""
    from thermoloom.settings import current_names, parse_assignment

    layers = [current_names(read_toml(config))] if config else []
    layers += [parse_assignment(text, extra_section) for text in assignments or []]
    layers.append({k: {n: v for n, v in e.items() if v is not None} for k, e in overrides.items()})
    values: Values = {}
    for layer in layers:
        for section, entries in layer.items():
            if not isinstance(entries, dict):
                raise UserError(f"{section}: expected a table [{section}] of settings")
            values.setdefault(section, {}).update(entries)
    for section, key in _PATHS:
        path = values.get(section, {}).get(key)
        if isinstance(path, str) and path.strip():  # stored settings must work from any folder
            values[section][key] = str(user_path(f"{section}.{key}", path).absolute())
    _read_edges(values.get("machine", {}))
    _use_engine(values.pop("engine", {}))
    return values


def _use_engine(table: dict[str, Any]) -> None:
    """Use the engine of ``[engine]`` or ``--set engine.…``, unless ``--engine`` has chosen one."""
    if table and not _engine_option:
        from thermoloom.engine_choice import EngineSettings
        from thermoloom.engines.choice import engine

        engine(EngineSettings(**table))


def _read_edges(machine: dict[str, Any]) -> None:
    """Read the file that ``machine.edges`` names: settings hold the list itself."""
    edges = machine.get("edges")
    if isinstance(edges, str) and edges.strip() and not edges.replace(" ", "").isdigit():
        from thermoloom.patterns.edge_lists import read_edges

        machine["edges"] = read_edges(user_path("machine.edges", edges))


def wired(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a machine; --radius, --degree and --edges each imply a topology."""
    topologies = {"radius": "grid", "degree": "random", "edges": "edges"}
    settings = {key: str(value) if key == "edges" else value for key, value in machine.items()}
    present = [key for key in topologies if key in settings]
    if len(present) > 1:
        named = " and ".join(f"--{key} {shown(settings[key])}" for key in present)
        raise UserError(
            f"{named}: a machine has one topology; use one of --radius (a grid), --degree (random "
            "wires) and --edges (a list)"
        )
    implied = {"topology": topologies[present[0]]} if present else {}
    return implied | settings


def compile_now(
    models: Iterable[Settings] | None = None, learning: bool = True, generating: bool = True
) -> None:
    """Compile or load the kernels that these computers need, before anything is timed."""
    from thermoloom.engines import engine
    from thermoloom.presentation.terminal import compiling

    with compiling():
        engine().warm_up(models, learning, generating)
    interrupts_wind_up()


def say(text: str) -> None:
    """Print a line on standard error."""
    from thermoloom.presentation.terminal import console

    console().print(text, highlight=False, soft_wrap=True, emoji=False)


def emit(as_json: bool, results: dict[str, Any], lines: list[str]) -> None:
    """Print results on standard output, as JSON or as lines."""
    from thermoloom.runs.formats import jsonable

    text = json.dumps(jsonable(results), indent=2) if as_json else "\n".join(map(printable, lines))
    print(text)


def shell_word(path: Path) -> str:
    """A path as a word of a shell command, in one line."""
    text = str(path)
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text.replace("\\", r"\\"))
    return "$'" + escaped.replace("'", r"\'") + "'"
