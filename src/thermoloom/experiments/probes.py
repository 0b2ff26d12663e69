"""Short measured runs that predictions are held against: rate scans, an offset, a grid of bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.config import Settings
from thermoloom.experiments.models import RUNS, patterns_input
from thermoloom.experiments.predicted import BLOCKS, shift_sizes
from thermoloom.experiments.theory_runs import Work
from thermoloom.computers.trained import train_runs, training_path
from thermoloom.runs.tasks import Report, Task
from thermoloom.theory.optimum import Layout
from thermoloom.training.learner import drive
from thermoloom.training.noising import noising_path
from thermoloom.machine.precision import QuantizedLearner
from thermoloom.training.trainer import Trainee, train_together

OFFSET, GRID = "offset-probe", "grid-probe"
STEPS = 12
"""Single steps of a path whose updates are rounded one by one."""


# --- learning rates -------------------------------------------------------------------------------


def scan_task(name: str, models: list[Settings]) -> Task:
    """Train computers that share their paths, without sampling them."""
    return Task(
        name=name,
        function="thermoloom.experiments.probes:train",
        arguments={"models": [model.as_dict() for model in models]},
        outputs=tuple(str(training_path(Path(RUNS), model)) for model in models),
        inputs=(patterns_input(models[0]),),
    )


def train(workdir: Path, report: Report, models: list[dict[str, Any]]) -> dict[str, Any]:
    """Train ``models`` on shared paths; one that diverges is recorded as such."""
    chosen = [Settings.from_dict(model) for model in models]
    cycles = max(settings.training.cycles for settings in chosen)
    # far beyond the critical rate everything overflows: that is the result
    with np.errstate(over="ignore", invalid="ignore"):
        train_runs(
            [(training_path(workdir / RUNS, settings), settings) for settings in chosen],
            lambda _, trainee: report(trainee.cycle, cycles, None),
        )
    return {}


# --- offset ---------------------------------------------------------------------------------------


def offset_work(settings: Settings, offset: float, offset_cycles: int) -> Work:
    return Work(OFFSET, settings, {"offset": offset, "offset_cycles": offset_cycles})


def train_with_offset(
    workdir: Path, report: Report, model: dict[str, Any], offset: float, offset_cycles: int
) -> dict[str, Any]:
    """θ trained with a residual offset minus θ trained without, on the same paths."""
    work = offset_work(Settings.from_dict(model), offset, offset_cycles)
    with work.begin(workdir) as pending:
        if pending is None:
            return {}
        settings = work.settings
        layout = Layout(settings.machine.visible, settings.machine.hidden)
        plain = settings.updated({"training": {"cycles": offset_cycles}})
        pair = [
            Trainee.new(plain.updated({"imperfections": {"residual_offset": mu}}))
            for mu in (0.0, offset)
        ]
        every, rows = settings.training.validation_every, []

        def shift() -> np.ndarray[Any, Any]:
            without, biased = (layout.flatten(trainee.computer) for trainee in pair)
            return biased - without

        rows.append({"cycle": 0} | shift_sizes(layout, shift()))
        for _ in train_together(pair, pending.fields):
            cycle = pair[0].cycle
            if cycle % every == 0 or cycle == offset_cycles:
                rows.append({"cycle": cycle} | shift_sizes(layout, shift()))
            report(cycle, offset_cycles, None)
        pending.run.save_table("offset", {key: [row[key] for row in rows] for key in rows[0]})
        pending.run.save_arrays("shift", layout.computer(shift(), np.float32).arrays)
    return {}


# --- bits -----------------------------------------------------------------------------------------


def grid_work(
    settings: Settings, ranges: list[float], bits: tuple[int, ...], grid_cycles: int
) -> Work:
    return Work(GRID, settings, {"ranges": ranges, "bits": list(bits), "grid_cycles": grid_cycles})


def train_on_grids(
    workdir: Path,
    report: Report,
    model: dict[str, Any],
    ranges: list[float],
    bits: list[int],
    grid_cycles: int,
) -> dict[str, Any]:
    """Fractions of updates that move a coupling from zero, and of couplings moved in a training."""
    work = grid_work(Settings.from_dict(model), ranges, tuple(bits), grid_cycles)
    with work.begin(workdir) as pending:
        if pending is None:
            return {}
        settings, machine = work.settings, work.settings.machine
        seed, spans = settings.training.seed, (ranges[0], ranges[1])

        def learner(depth: int) -> QuantizedLearner:
            return QuantizedLearner(machine, settings.learning_rate, depth, spans)

        trained = {depth: learner(depth) for depth in bits}
        chosen = [int((i + 0.5) * machine.steps / STEPS) for i in range(STEPS)]
        moved: dict[int, list[dict[str, float]]] = {depth: [] for depth in bits}
        for cycle in range(grid_cycles):
            path = noising_path(machine, pending.fields[cycle % len(pending.fields)], seed, cycle)
            drives = drive(machine, path)
            for depth in bits:
                trained[depth].learn(path, None, drives)
                for k in chosen:
                    single = learner(depth)
                    single.learn(path[k : k + 2], None, drives[k : k + 1])
                    moved[depth].append(single.nonzero_fraction)
            report(cycle + 1, grid_cycles, None)
        names = BLOCKS[:2]
        pending.run.save_table(
            "bits",
            {"bits": bits}
            | {
                f"surviving_{name}": [
                    float(np.mean([entry[name] for entry in moved[depth]])) for depth in bits
                ]
                for name in names
            }
            | {
                f"nonzero_{name}": [trained[depth].nonzero_fraction[name] for depth in bits]
                for name in names
            },
        )
    return {}
