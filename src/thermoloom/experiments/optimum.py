"""θ* beside trained computers: solved once, sampled with the random numbers of every pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from thermoloom.config import Settings
from thermoloom.experiments.models import RUNS, Clock, Paths, measure_model, measures_path
from thermoloom.experiments.pairs import PairPlan
from thermoloom.runs.execution import Report, Task
from thermoloom.runs.jobs import solve_run, training_path
from thermoloom.runs.store import MANIFEST, RunDirectory

RULE = "optimum"


def optimum_model(plan: PairPlan, seed: int) -> Settings:
    """The optimum as it is sampled beside the pair of this training seed.

    No seed has a part in solving, so there is one run for all of them: that of the first seed.
    """
    own = plan.model(RULE, plan.seeds[0])
    return own.updated({"generation": {"seed": plan.model("batch", seed).generation_seed}})


def _paths(plan: PairPlan, seed: int) -> Paths:
    """θ* is the same for all seeds, so it is compared on the additional paths only once."""
    return plan.paths if seed == plan.seeds[0] else replace(plan.paths, per_prototype=0)


def optimum_path(plan: PairPlan) -> Path:
    """Run directory of θ*, relative to the results folder."""
    return training_path(Path(RUNS), plan.model(RULE, plan.seeds[0]))


def optimum_task(plan: PairPlan) -> Task:
    """Solve, then sample and measure with the generation seed of every pair."""
    models = [optimum_model(plan, seed) for seed in plan.seeds]
    paths = [_paths(plan, seed) for seed in plan.seeds]
    measures = [measures_path(Path(), *each) for each in zip(models, paths, strict=True)]
    return Task(
        name="the optimum: solve, sample, measure",
        function="thermoloom.experiments.optimum:solve_and_measure",
        arguments={
            "models": [model.as_dict() for model in models],
            "paths": [asdict(each) for each in paths],
        },
        outputs=tuple(dict.fromkeys(str(path) for path in (optimum_path(plan), *measures))),
    )


def solve_and_measure(
    workdir: Path, report: Report, models: list[dict[str, Any]], paths: list[dict[str, Any]]
) -> dict[str, Any]:
    """θ* of ``models[0]``, and its measures with the generation seed of every model.

    ``paths``: additional noising paths, for every model.
    """
    chosen = [Settings.from_dict(model) for model in models]
    total = sum(settings.generation.samples for settings in chosen)
    done = 0.0

    def advance(cycles: float) -> None:
        nonlocal done
        done += cycles
        report(min(round(done), total), total, None)

    solve_run(training_path(workdir / RUNS, chosen[0]), chosen[0])
    for settings, on in zip(chosen, paths, strict=True):
        measure_model(workdir, settings, Paths(**on), Clock(), advance)
    return {}


def optimum_measures(plan: PairPlan, folder: Path, seeds: Sequence[int]) -> list[RunDirectory]:
    """Measures of θ* for these seeds; empty where one of them is not there."""
    paths = [measures_path(folder, optimum_model(plan, seed), _paths(plan, seed)) for seed in seeds]
    if not all((path / MANIFEST).exists() for path in paths):
        return []
    runs = [RunDirectory.open(path) for path in paths]
    return runs if all(run.state == "done" for run in runs) else []
