"""Short runs that predictions are compared with: rate scans, an offset, a grid of bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.computers.training_runs import train_runs
from thermoloom.engines import engine
from thermoloom.experiments.results import patterns_input, save_rows, trained_path
from thermoloom.experiments.theory.predicted import COUPLINGS, shift_sizes
from thermoloom.experiments.works import Job
from thermoloom.machine.action import gradient_of_residuals, residuals
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.machine.quantization import levels, nonzero_fraction
from thermoloom.patterns.drive import Drive
from thermoloom.runs.tasks import Report, Task
from thermoloom.settings import Settings
from thermoloom.training import trainer
from thermoloom.training.trainer import Trainee

STEPS = 12
"""Single steps of a path whose updates are rounded one by one."""


def scan_task(name: str, models: list[Settings]) -> Task:
    """Train computers that share their paths, without sampling them."""
    return Task(
        name=name,
        function="thermoloom.experiments.theory.probes:train",
        arguments={"models": [model.as_dict() for model in models]},
        outputs=tuple(str(trained_path(Path(), model)) for model in models),
        inputs=(patterns_input(models[0]),),
    )


def train(workdir: Path, report: Report, models: list[dict[str, Any]]) -> dict[str, Any]:
    """Train ``models`` on shared paths; one that diverges is recorded as such."""
    chosen = [Settings.from_dict(model) for model in models]
    cycles = max(settings.training.cycles for settings in chosen)
    # far beyond the critical rate everything overflows: that is the result
    with np.errstate(over="ignore", invalid="ignore"):
        train_runs(
            [(trained_path(workdir, settings), settings) for settings in chosen],
            lambda _, trainee: report(trainee.cycle, cycles, None),
        )
    return {}


def train_with_offset(job: Job, offset: float, offset_cycles: int) -> dict[str, Any]:
    """θ trained with a residual offset minus θ trained without, on the same paths."""
    settings, form = job.settings, layout(job.settings.machine)
    plain = settings.updated({"training": {"cycles": offset_cycles}})
    pair = [
        Trainee.new(plain.updated({"imperfections": {"residual_offset": mu}}))
        for mu in (0.0, offset)
    ]
    every = settings.training.validation_every

    def shift() -> NDArray[np.float64]:
        without, biased = (t.parameters.vector[0].astype(np.float64) for t in pair)
        difference: NDArray[np.float64] = biased - without
        return difference

    rows = [{"cycle": 0} | shift_sizes(form, shift())]

    def after_cycle(_: list[Trainee]) -> None:
        cycle = pair[0].cycle
        if cycle % every == 0 or cycle == offset_cycles:
            rows.append({"cycle": cycle} | shift_sizes(form, shift()))
        job.report(cycle, offset_cycles, None)

    trainer.train(pair, Drive(job.fields), after_cycle)
    save_rows(job.run, "offset", rows)
    job.run.save_arrays("shift", job.parameters(shift()).arrays)
    return {}


def train_on_grids(
    job: Job, ranges: list[float], bits: list[int], grid_cycles: int
) -> dict[str, Any]:
    """Fractions of updates that move a coupling from zero, and of couplings moved in a training."""
    settings, machine, form = job.settings, job.settings.machine, layout(job.settings.machine)
    spans = dict(zip(COUPLINGS, ranges, strict=True))
    grid = {f"range_{name}": span for name, span in spans.items()}
    learners = {
        depth: engine().learner(settings.updated({"imperfections": {"bits": depth, **grid}}))
        for depth in bits
    }
    trained = {depth: Parameters.zeros(machine) for depth in bits}
    chosen = [int((i + 0.5) * machine.steps / STEPS) for i in range(STEPS)]
    moved: dict[tuple[str, int], list[float]] = {(n, b): [] for n in COUPLINGS for b in bits}
    for cycle in range(grid_cycles):
        field = job.fields[cycle % len(job.fields)]
        path = engine().path(machine, field, settings.training.seed, cycle)
        r = residuals(Parameters.zeros(machine), path.states)
        for k in chosen:
            step = slice(k, k + 1)
            update = gradient_of_residuals(machine, r[step], path.states[1:][step]).vector[0]
            for name, depth in moved:
                codes = levels(settings.learning_rate * form[name].of(update), depth, spans[name])
                edges = (2 if form[name].symmetric else 1) * form[name].edges
                moved[name, depth].append(np.count_nonzero(codes) / max(1, edges))
        for depth, learner in learners.items():
            trained[depth] = learner.learn(trained[depth], path)
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
