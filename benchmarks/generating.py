"""Generation of 200 samples: the rate of coupling forces relative to sgemm."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.harness import (
    Contestant,
    Options,
    Place,
    Result,
    Row,
    Share,
    all_threads,
    clocked,
    default_drive,
    force_flops,
    in_turns,
    present,
    sgemm,
    where_time_goes,
)
from thermoloom.engines import engine
from thermoloom.engines.compiled import sampling as kernels
from thermoloom.generation import generate
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.settings import Settings
from thermoloom.training.trainer import Trainee, train

SAMPLES = 200
SHORT = 0.25
"""Trajectory time, in units of t_f, that suffices to measure the rate."""


def shortened(machine: Machine, fraction: float = SHORT) -> Machine:
    """The same machine with a shorter duration, which also shortens the preparation."""
    return replace(machine, duration=fraction * machine.duration)


def trained(settings: Settings) -> Parameters:
    """θ after one cycle per pattern: realistic couplings instead of zeros."""
    short = settings.updated({"training": {"cycles": 3}})
    trainee = Trainee.new(short)
    train([trainee], default_drive(short))
    return trainee.parameters


def sampling(machine: Machine, theta: Parameters) -> Contestant:
    """Generation of 200 samples from reset states to heats, timed per step of one sample."""
    theta = Parameters(machine, theta.vector)
    return clocked(lambda: generate(theta, SAMPLES, 90101), SAMPLES * machine.steps)


def run(options: Options) -> Result:
    engine().warm_up()
    settings, cores = Settings(), all_threads()
    theta = trained(settings)
    machine = settings.machine if options.full else shortened(settings.machine)
    options.say(f"generation of {SAMPLES} samples for {machine.steps} steps")
    contestants = {"sgemm": sgemm(cores), "ours": sampling(machine, theta)}
    best = in_turns(contestants, 1 if options.full else max(3, options.rounds // 2))
    flops = force_flops(machine)
    note = "with preparation, normals and heats"
    if not options.full:
        note += f"; {machine.steps} of {settings.machine.steps} steps (--full for all)"
    row = Row(
        f"generation of {SAMPLES}, {flops / 1e6:.2f} MFLOP of forces",
        flops * best["sgemm"] / best["ours"],
        "of sgemm rate",
        "more",
        limit=1.0,
        bar=0.8,
        note=f"{flops / best['ours'] * 1e-9:.1f} of {1e-9 / best['sgemm']:.1f} GFLOP/s; {note}",
    )
    step = Row(
        "  a step of all samples",
        best["ours"] * SAMPLES * 1e6,
        "µs",
        limit=flops * best["sgemm"] * SAMPLES * 1e6,
    )
    whole = {"a step of generation": profile(Parameters(machine, theta.vector))}
    return Result([row, step], whole)


def profile(theta: Parameters) -> list[Share]:
    """Where the time of a step goes, from timers around the functions that generation calls."""
    workers = min(all_threads(), -(-SAMPLES // kernels.GROUP))
    places = present(
        Place(kernels, "_prepare", "preparation", workers),
        Place(kernels, "noise_block", "normals", workers),
        Place(getattr(kernels, "DenseForces", None), "__call__", "forces", workers),
        Place(getattr(kernels, "_Forces", None), "__call__", "forces", workers),
        Place(kernels, "coupled_step", "integration and heat", workers),
        Place(kernels, "energy_parts", "energies in float64", workers),
    )
    steps = theta.machine.steps
    return where_time_goes(places, lambda: generate(theta, SAMPLES, 90101), steps, 2)
