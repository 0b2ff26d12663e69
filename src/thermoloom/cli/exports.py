"""On the way to a device: ``export`` (couplings, netlists) and ``units`` (joules, seconds)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thermoloom.cli.computers import ComputerPath
from thermoloom.cli.options import AsJson, compile_now, emit, path_of
from thermoloom.errors import UserError
from thermoloom.inputs import shown

if TYPE_CHECKING:
    from thermoloom.computers.circuits import Compared

Capacitance = Annotated[
    float | None, typer.Option(help="Capacitance C of a node, in farads.", metavar="F")
]
Conductance = Annotated[
    float | None,
    typer.Option(help="Conductance G of a node, in siemens: the mobility.", metavar="S"),
]
Temperature = Annotated[
    float | None,
    typer.Option(help="Temperature of the noise, in kelvin (default 300).", metavar="K"),
]
Energy = Annotated[
    float | None, typer.Option(help="E0 in joules, instead of a temperature.", metavar="J")
]
Voltage = Annotated[
    float | None, typer.Option(help="Voltage V0 of x = 1, instead of a temperature.", metavar="V")
]
TimeUnit = Annotated[
    float | None,
    typer.Option(help="Seconds per unit of time, instead of a conductance.", metavar="S"),
]


def export(
    run: ComputerPath,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="table (couplings as range and code) or spice (a netlist, up to 32 units).",
            metavar="FORMAT",
        ),
    ] = "table",
    bits: Annotated[
        int, typer.Option(help="Bits per coupling, 2 to 24; 32: unquantized float32.")
    ] = 32,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write (.csv, .cir); by default with the run.",
            metavar="FILE",
            parser=path_of("--out"),
        ),
    ] = None,
    chosen: Annotated[
        int | None, typer.Option("--class", help="Class that a netlist generates.", metavar="CLASS")
    ] = None,
    samples: Annotated[int, typer.Option(help="Samples that a netlist generates.")] = 100,
    seed: Annotated[int, typer.Option(help="Seed of a netlist's noise.")] = 1,
    capacitance: Capacitance = None,
    conductance: Conductance = None,
    temperature: Temperature = None,
    energy: Energy = None,
    voltage: Voltage = None,
    time_unit: TimeUnit = None,
    simulate: Annotated[
        bool, typer.Option("--run", help="Run the netlist with ngspice, beside our own engine.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the couplings of a computer for a device: a table, or a netlist for ngspice."""
    from thermoloom.computers.circuits import save_netlist, simulated
    from thermoloom.computers.computer_files import beside, open_computer, save_couplings

    if form not in ("table", "spice"):
        raise UserError(f"--format {shown(form)}: must be table or spice")
    device = _given(capacitance, conductance, temperature, energy, voltage, time_unit)
    kept = open_computer(run)
    name = "couplings" if bits == 32 else f"couplings-{bits}bit"
    path = out or beside(run, f"{name}.csv" if form == "table" else f"{name}.cir")
    found: dict[str, Any] = {"file": str(path), "format": form, "bits": bits}
    if form == "table":
        if device or simulate or chosen is not None:
            raise UserError("--format table: takes neither --run nor --class nor a device's units")
        save_couplings(path, kept, bits)
        emit(as_json, found, [str(path), f'read it back: tl.load("{path}")'])
        return
    netlist = save_netlist(path, kept, bits, chosen, samples, seed, device)
    lines = [str(path)]
    if simulate:
        compile_now([], learning=False)
        compared = simulated(netlist)
        found |= compared.summary()
        lines += _comparison(compared)
    else:
        lines.append(f"next: ngspice -b {path}, or this command with --run")
    emit(as_json, found, lines)


def _comparison(compared: Compared) -> list[str]:
    return [
        f"{row['what']:<22}{row['ngspice']:>10.4f} ± {row['sem']:.4f} by ngspice, "
        f"{row['engine']:.4f} ± {row['engine_sem']:.4f} by our engine"
        for row in compared.rows
    ] + [
        f"largest of {compared.count} differences of means and variances: "
        f"{compared.largest:.1f} standard errors"
    ]


def units(
    run: ComputerPath,
    capacitance: Capacitance = None,
    conductance: Conductance = None,
    temperature: Temperature = None,
    energy: Energy = None,
    voltage: Voltage = None,
    time_unit: TimeUnit = None,
    as_json: AsJson = False,
) -> None:
    """What E0, a unit of time and an image are on a device: joules, volts, seconds, watts."""
    from thermoloom.computers.computer_files import latest_samples, learning_at
    from thermoloom.machine.realization import realize

    machine = learning_at(run)[0].machine
    device = _given(capacitance, conductance, temperature, energy, voltage, time_unit)
    realization = realize(machine, **device)
    latest = latest_samples(run)
    heat = work = None
    if latest is not None:
        heat, work = (float(of.mean()) for of in (latest[1].heat, latest[1].work))
    found = realization.summary(heat, work if machine.stages > 1 else None)
    lines = realization.lines(found)
    lines += [] if latest else [f"no samples yet, so no heat: thermoloom generate {run}"]
    samples = None if latest is None else latest[0]
    emit(as_json, {"run": str(run), "samples": samples, **found}, lines)


def _given(*values: float | None) -> dict[str, float]:
    """The device's numbers that were given, by name."""
    names = ("capacitance", "conductance", "temperature", "energy", "voltage", "time_unit")
    return {k: v for k, v in zip(names, values, strict=True) if v is not None}
