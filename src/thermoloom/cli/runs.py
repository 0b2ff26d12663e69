"""Commands on a results folder: ``runs``, ``runs verify``, ``runs prune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thermoloom.cli.options import AsJson, emit, flag, path_option
from thermoloom.errors import UserError

runs_app = typer.Typer(
    help="List the runs in a results folder; verify or prune their files.",
    invoke_without_command=True,
)
Folder = Annotated[
    Path | None,
    path_option("--folder", "DIR", "Results folder; results by default."),
]


def _results_folder(context: typer.Context, folder: Path | None) -> Path:
    """The ``--folder`` before or after the subcommand; two different ones are refused."""
    before = context.parent.params.get("folder") if context.parent else None
    if before is not None and folder is not None and before != folder:
        raise UserError(f"--folder {before} and --folder {folder}: name only one")
    return before or folder or Path("results")


def _as_json(context: typer.Context, as_json: bool) -> bool:
    return as_json or bool(context.parent and context.parent.params.get("as_json"))


@runs_app.callback()
def list_runs(context: typer.Context, folder: Folder = None, as_json: AsJson = False) -> None:
    """List runs: id, kind, state, age, size and the settings in which they differ."""
    if context.invoked_subcommand:
        return
    folder = folder or Path("results")
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Table

    from thermoloom.runs import catalog

    runs = catalog.list_runs(folder)
    if as_json:
        emit(True, {"runs": [asdict(run) for run in runs]}, [])
        return
    table = Table("run", "kind", "state", "age", "size", "settings that differ", box=None)
    table.columns[0].no_wrap = True
    for run in runs:
        hashes = ("patterns.content", "classifier.sha256")
        readable = {k: v for k, v in run.settings.items() if k not in hashes}
        differing = ", ".join(f"{k.partition('.')[2]}={v}" for k, v in readable.items())
        age, size = catalog.readable_age(run.age), catalog.readable_bytes(run.bytes)
        name = str(run.path.relative_to(folder))
        table.add_row(name, run.kind, run.state, age, size, differing)
    Console().print(table if runs else f"{folder}: no runs")
    for run in runs:
        if run.state == "unreadable":
            typer.echo(run.reason, err=True)


@runs_app.command("verify")
def verify_runs(context: typer.Context, folder: Folder = None, as_json: AsJson = False) -> None:
    """Compare every array and file with its recorded SHA-256; exit code 1 if any is damaged."""
    from dataclasses import asdict

    from thermoloom.runs import catalog

    report = catalog.verify(_results_folder(context, folder))
    lines = [f"damaged: {damage.file}: {damage.what}" for damage in report.damaged]
    lines += [f"skipped: {line}" for line in report.skipped]
    size = catalog.readable_bytes(report.bytes)
    lines.append(f"{report.runs} runs, {report.files} files, {size}: {len(report.damaged)} damaged")
    emit(_as_json(context, as_json), asdict(report), lines)
    if report.damaged:
        raise typer.Exit(1)


@runs_app.command("prune")
def prune_runs(
    context: typer.Context,
    folder: Folder = None,
    yes: Annotated[bool, flag("--yes", "Delete without asking.")] = False,
) -> None:
    """Delete files that finished runs no longer need or killed runs left behind, after asking."""
    from thermoloom.runs import catalog

    if _as_json(context, False):
        raise UserError("--json: not available for runs prune")
    folder = _results_folder(context, folder)
    items = catalog.prunable(folder)
    if not items:
        print(f"{folder}: nothing to remove")
        return
    for item in items:
        print(f"{item.file}  {catalog.readable_bytes(item.bytes)}  {item.why}")
    total = catalog.readable_bytes(sum(item.bytes for item in items))
    if not yes and not typer.confirm(f"remove these {len(items)} files, {total}?"):
        print("nothing removed")
        return
    print(f"freed {catalog.readable_bytes(catalog.prune(items))}")
