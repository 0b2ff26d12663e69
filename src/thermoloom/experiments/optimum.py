"""θ* beside trained computers: solved once, sampled with the random numbers of every pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.config import Settings
from thermoloom.experiments.models import (
    RUNS,
    SAMPLE_IN_CYCLES,
    Clock,
    Paths,
    measure_model,
    measures_path,
    patterns_input,
)
from thermoloom.experiments.pairs import ENERGIES, PairPlan
from thermoloom.runs.jobs import solve_run, training_path
from thermoloom.runs.manifest import MANIFEST, flatten
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Report, Task

RULE = "optimum"
STAGES = ("generation", "quality", "diagnostics")


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
        inputs=(patterns_input(models[0]),),
    )


def solve_and_measure(
    workdir: Path, report: Report, models: list[dict[str, Any]], paths: list[dict[str, Any]]
) -> dict[str, Any]:
    """θ* of ``models[0]``, and its measures with the generation seed of every model.

    ``paths``: additional noising paths, for every model.
    """
    chosen = [Settings.from_dict(model) for model in models]
    total = round(SAMPLE_IN_CYCLES * sum(s.generation.samples for s in chosen))
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


# --- the third column of an experiment of pairs ---------------------------------------------------


def with_optimum(summary: dict[str, Any], plan: PairPlan, folder: Path) -> dict[str, Any]:
    """The summary of pairs with what the optimum has in every row, mean over the pairs' seeds.

    Ours, beside the paper's two rules; left out where it was not measured.
    """
    runs = optimum_measures(plan, folder, summary["seeds"])
    if not runs:
        return summary | {"optimum": None}
    heats = [run.results["heat"] for run in runs]
    solved = RunDirectory.open(folder / optimum_path(plan)).results
    spent = sum(run.results["timing"].get(stage, 0.0) for run in runs for stage in STAGES)
    return summary | {
        "optimum": {"heat": float(np.mean([heat["mean"] for heat in heats])), **solved},
        "heat_rows": [
            row | {"optimum": heat["mean"], "optimum_sd": heat["sd"]}
            for row, heat in zip(summary["heat_rows"], heats, strict=True)
        ],
        **{
            table: [
                row | {"optimum": _mean(runs, f"{table}.{row['key']}")} for row in summary[table]
            ]
            for table in ("quality", "norms", "paths")
        },
        "energies": [
            row | {"optimum": _mean(runs, *_energy_keys(row))} for row in summary["energies"]
        ],
        "timing": summary["timing"] | {"optimum": solved["seconds"] + spent},
    }


def _energy_keys(row: dict[str, Any]) -> list[str]:
    moment = {"start": "initial", "end": "final"}[row["moment"]]
    return [f"{moment}_energy.{part}" for part in ENERGIES[row["label"]]]


def _mean(runs: Sequence[RunDirectory], *keys: str) -> float | None:
    """Mean over those runs that have it of a sum of results, such as ``quality.max_softmax``."""
    values = []
    for run in runs:
        flat = flatten(run.results)
        parts = [flat.get(key) for key in keys]
        if None not in parts:
            values.append(sum(part for part in parts if part is not None))
    return float(np.mean(values)) if values else None
