"""θ* beside trained computers: solved once, sampled with the random numbers of every pair."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.experiments.pairs import PairPlan
from thermoloom.experiments.results import Model, trained_path
from thermoloom.measures.paired import number
from thermoloom.settings import Settings

RULE = "optimum"
STAGES = ("generation", "quality", "diagnostics")


def optimum_model(plan: PairPlan, seed: int) -> Settings:
    """The optimum as it is sampled beside the pair of this training seed.

    Solving does not depend on the seed, so there is one run for all of them: that of the first.
    """
    own = plan.model(RULE, plan.seeds[0])
    return own.updated({"generation": {"seed": plan.model("batch", seed).generation_seed}})


def optimum_models(plan: PairPlan) -> list[Settings]:
    """One training, sampled with the generation seed of every pair."""
    return [optimum_model(plan, seed) for seed in plan.seeds]


def optimum_path(plan: PairPlan, folder: Path = Path()) -> Path:
    """Run directory of θ*."""
    return trained_path(folder, plan.model(RULE, plan.seeds[0]))


def optimum_measures(plan: PairPlan, folder: Path, seeds: Sequence[int]) -> list[Model]:
    """θ* as it was measured for these seeds; empty if one of them is missing."""
    found = [Model.found(folder, optimum_model(plan, seed), plan.paths) for seed in seeds]
    models = [model for model in found if model is not None]
    return models if len(models) == len(seeds) else []


def with_optimum(summary: dict[str, Any], plan: PairPlan, folder: Path) -> dict[str, Any]:
    """The summary of pairs with what the optimum has in every row, mean over the pairs' seeds.

    An addition to the paper's two rules; left out where it was not measured.
    """
    models = optimum_measures(plan, folder, summary["seeds"])
    if not models:
        return summary | {"optimum": None}
    heats = [model.results["heat"] for model in models]
    solved = models[0].training.results
    spent = sum(model.results["timing"].get(stage, 0.0) for model in models for stage in STAGES)

    def mean(*keys: str) -> float | None:
        """Mean of a sum of results, such as ``quality.max_softmax``; None if one is missing."""
        found = [[number(model.results, key) for key in keys] for model in models]
        if any(value is None for row in found for value in row):
            return None
        return float(np.array(found, np.float64).sum(axis=1).mean())

    return summary | {
        "optimum": {"heat": float(np.mean([heat["mean"] for heat in heats])), **solved},
        "heat_rows": [
            row | {"optimum": heat["mean"], "optimum_sd": heat["sd"]}
            for row, heat in zip(summary["heat_rows"], heats, strict=True)
        ],
        **{
            table: [row | {"optimum": mean(f"{table}.{row['key']}")} for row in summary[table]]
            for table in ("quality", "norms", "paths")
        },
        "energies": [row | {"optimum": mean(*row["key"])} for row in summary["energies"]],
        "timing": summary["timing"] | {"optimum": solved["seconds"] + spent},
    }
