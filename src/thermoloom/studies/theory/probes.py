"""Short trainings that predictions are compared with: rate scans, an offset, a grid of bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from thermoloom.engines import engine
from thermoloom.machine.action import gradient_of_residuals, residuals
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.machine.quantization import levels, nonzero_fraction
from thermoloom.runs.store import RunDirectory
from thermoloom.studies.case import Job
from thermoloom.studies.gather import save_rows
from thermoloom.studies.theory.expectation import Vector
from thermoloom.studies.theory.training_predictions import COUPLINGS, shift_sizes
from thermoloom.training.trainer import Trainee, train

STEPS = 12
"""Single steps of a path whose updates are rounded one by one."""


def rate_probe(job: Job, limits: str, factor: float) -> dict[str, Any]:
    """A short training at ``factor`` times the critical learning rate of ``limits``.

    Far beyond the critical rate everything overflows; that is a result, not an error.
    """
    predicted = RunDirectory.open(job.workdir / limits).results
    training = job.settings.training
    critical = predicted[training.rule]["critical_rate"] / predicted["learning_rate"]
    scale = float(f"{training.learning_rate_scale * factor * critical:.5g}")
    every = len(job.drive.fields) if training.rule == "batch" else 1
    rate = {"learning_rate_scale": scale, "validation_every": every}
    trainee = Trainee.new(job.settings.updated({"training": rate}))
    with np.errstate(over="ignore", invalid="ignore"):
        train([trainee], job.drive, lambda _: job.report(trainee.cycle, training.cycles, None))
    job.run.save_table("curve", trainee.curve_columns())
    return {"scale": scale, "diverged_in": trainee.cycle if trainee.diverged else None}


def offset_probe(job: Job, offset: float, offset_cycles: int) -> dict[str, Any]:
    """θ trained with a residual offset minus θ trained without, on the same paths."""
    settings, form = job.settings, layout(job.settings.machine)
    plain = settings.updated({"training": {"cycles": offset_cycles}})
    pair = [
        Trainee.new(plain.updated({"imperfections": {"residual_offset": mu}}))
        for mu in (0.0, offset)
    ]
    every = settings.training.validation_every

    def shift() -> dict[str, Any]:
        vectors: list[Vector] = [t.parameters.vector[0].astype(np.float64) for t in pair]
        return {"cycle": pair[0].cycle} | shift_sizes(form, vectors[1] - vectors[0])

    rows = [shift()]

    def after_cycle(_: list[Trainee]) -> None:
        cycle = pair[0].cycle
        if cycle % every == 0 or cycle == offset_cycles:
            rows.append(shift())
        job.report(cycle, offset_cycles, None)

    train(pair, job.drive, after_cycle)
    save_rows(job.run, "offset", rows)
    return {}


def grid_probe(job: Job, limits: str, bits: list[int], grid_cycles: int) -> dict[str, Any]:
    """Fractions of updates that move a coupling from zero, and of couplings moved in a training.

    The grid of each block spans the couplings of θ*, as in ``limits``.
    """
    settings, machine, form = job.settings, job.settings.machine, layout(job.settings.machine)
    ranges = RunDirectory.open(job.workdir / limits).results["ranges"]
    spans = dict(zip(COUPLINGS, ranges, strict=True))
    grid = {f"range_{name}": span for name, span in spans.items()}
    learners = {
        depth: engine().learner(settings.updated({"imperfections": {"bits": depth, **grid}}))
        for depth in bits
    }
    trained = {depth: Parameters.zeros(machine) for depth in bits}
    rounded_steps = [int((i + 0.5) * machine.steps / STEPS) for i in range(STEPS)]
    moved: dict[tuple[str, int], list[float]] = {(n, b): [] for n in COUPLINGS for b in bits}
    fields = job.drive.fields
    for cycle in range(grid_cycles):
        field = fields[cycle % len(fields)]
        path = engine().path(machine, field, settings.training.seed, cycle)
        r = residuals(Parameters.zeros(machine), path.states)
        for k in rounded_steps:
            step = slice(k, k + 1)
            update = gradient_of_residuals(machine, r[step], path.states[1:][step]).vector[0]
            for name, depth in moved:
                codes = levels(settings.learning_rate * form[name].of(update), depth, spans[name])
                edges = (2 if form[name].symmetric else 1) * form[name].edges
                moved[name, depth].append(np.count_nonzero(codes) / max(1, edges))
        for depth, learner in learners.items():
            trained[depth], _ = learner.update(trained[depth], {}, path)
        job.report(cycle + 1, grid_cycles, None)
    nonzero = {depth: nonzero_fraction(theta) for depth, theta in trained.items()}
    job.run.save_table(
        "bits",
        {
            "bits": bits,
            **{f"surviving_{n}": [float(np.mean(moved[n, b])) for b in bits] for n in COUPLINGS},
            **{f"nonzero_{n}": [nonzero[b][n] for b in bits] for n in COUPLINGS},
        },
    )
    return {}
