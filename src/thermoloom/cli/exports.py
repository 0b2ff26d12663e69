"""Commands for devices: ``export`` (couplings, netlists) and ``units`` (joules, seconds)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thermoloom.cli.computers import ComputerPath
from thermoloom.cli.options import (
    AsJson,
    EngineOption,
    compile_now,
    emit,
    flag,
    option,
    path_option,
    shell_word,
    takes,
)
from thermoloom.errors import UserError
from thermoloom.inputs import shown

if TYPE_CHECKING:
    from thermoloom.export.ngspice import NgspiceComparison

DEVICE = {
    "capacitance": option(float, "Capacitance C of a node, in farads.", "F"),
    "conductance": option(float, "Conductance G of a node, in siemens; it sets the mobility.", "S"),
    "temperature": option(float, "Temperature of the noise, in kelvin (default 300).", "K"),
    "energy": option(float, "E0 in joules, instead of a temperature.", "J"),
    "voltage": option(float, "Voltage V0 of x = 1, instead of a temperature.", "V"),
    "time_unit": option(float, "Seconds per unit of time, instead of a conductance.", "S"),
}
"""Properties of a device, in SI units."""


@takes("device", DEVICE)
def export(
    run: ComputerPath,
    *,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="table (CSV, one coupling per row) or spice (a netlist, up to 32 units).",
            metavar="FORMAT",
        ),
    ] = "table",
    bits: Annotated[
        int, typer.Option(help="Bits per coupling, 2 to 24; 32: unquantized float32.")
    ] = 32,
    out: Annotated[
        Path | None,
        path_option(
            "--out",
            "FILE",
            "File to write (.csv, .cir); by default in the run directory, or beside the file RUN.",
        ),
    ] = None,
    class_number: Annotated[
        int | None,
        typer.Option("--class", help="Class that the netlist generates.", metavar="CLASS"),
    ] = None,
    samples: Annotated[int, typer.Option(help="Samples that the netlist generates.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of the netlist's noise.")] = 1,
    device: dict[str, float],
    simulate: Annotated[
        bool,
        flag("--run", "Run the netlist with ngspice and compare it with the engine."),
    ] = False,
    engine: EngineOption = None,
    as_json: AsJson = False,
) -> None:
    """Write the couplings of a computer for a device: a table, or a netlist for ngspice."""
    from thermoloom.computers.computer_files import beside, open_computer, save_couplings
    from thermoloom.export.netlists import save_netlist
    from thermoloom.export.ngspice import compare_with_ngspice

    if form not in ("table", "spice"):
        raise UserError(f"--format {shown(form)}: must be table or spice")
    computer = open_computer(run)
    name = "couplings" if bits == 32 else f"couplings-{bits}bit"
    path = out or beside(run, f"{name}.csv" if form == "table" else f"{name}.cir")
    summary: dict[str, Any] = {"file": str(path), "format": form, "bits": bits}
    if form == "table":
        if device or simulate or class_number is not None:
            raise UserError(
                "--format table: takes no --run, no --class and no properties of a device; "
                "use --format spice"
            )
        save_couplings(path, computer, bits)
        emit(as_json, summary, [str(path), f"read it back: tl.load({str(path)!r})"])
        return
    theta = computer.parameters.on(computer.settings.built)
    netlist = save_netlist(path, theta, bits, class_number, samples, seed, device)
    lines = [str(path)]
    if simulate:
        compile_now([], learning=False)
        comparison = compare_with_ngspice(netlist)
        summary |= comparison.summary()
        lines += _comparison_lines(comparison)
    else:
        lines.append(f"next: ngspice -b {shell_word(path)}, or this command with --run")
    emit(as_json, summary, lines)


def _comparison_lines(comparison: NgspiceComparison) -> list[str]:
    return [
        f"{row['what']:<22}{row['ngspice']:>10.4f} ± {row['sem']:.4f} by ngspice, "
        f"{row['engine']:.4f} ± {row['engine_sem']:.4f} by the engine"
        for row in comparison.rows
    ] + [
        f"largest of {comparison.count} differences of means and variances: "
        f"{comparison.largest:.1f} standard errors"
    ]


@takes("device", DEVICE)
def units(run: ComputerPath, device: dict[str, float], as_json: AsJson = False) -> None:
    """Convert the units of energy (E0) and time, and the heat of an image, to SI units of a device.

    Give the unit of time by --time-unit, or by --capacitance and --conductance.
    """
    from thermoloom.computers.computer_files import latest_samples, learning_at
    from thermoloom.export.physical_units import realize

    machine = learning_at(run)[0].machine
    realization = realize(machine, **device)
    latest = latest_samples(run)
    heat = work = None
    if latest is not None:
        heat, work = float(latest[1].heat.mean()), float(latest[1].work.mean())
    summary = realization.summary(heat, work if machine.switches else None)
    lines = realization.lines(summary)
    if latest is None:
        lines.append(f"no samples yet, so no heat: thermoloom generate {shell_word(run)}")
    else:
        lines.append(f"{'samples':<36}{latest[0]}")
    samples = None if latest is None else latest[0]
    emit(as_json, {"run": str(run), "samples": samples, **summary}, lines)
