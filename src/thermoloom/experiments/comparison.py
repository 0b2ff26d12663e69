"""The main comparison: online and batch training on the same noising paths, five pairs.

For every seed both rules see the same paths and are sampled with the same random numbers. What
is compared across seeds are seed-level means; the spread over trajectories is never replication.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thermoloom.experiments.optimum import optimum_models, with_optimum
from thermoloom.experiments.pair_tables import summed_up
from thermoloom.experiments.pairs import PairPlan, collect, complete_pairs, pair_tasks
from thermoloom.experiments.plan import Experiment, brief
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task


def tasks(plan: PairPlan, folder: Path, workers: int) -> list[Task]:
    """The optimum, and the pairs beside it."""
    return pair_tasks(plan, folder, workers, more=optimum_models(plan))


def assemble(plan: PairPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """Tables of the complete pairs, and their summary."""
    return with_optimum(summed_up(collect(plan, folder), run), plan, folder)


EXPERIMENT = Experiment(
    name="comparison",
    title="Online and batch training: heat and quality",
    presets={"paper": PairPlan(), "quick": PairPlan(settings=brief(60, 40), seeds=(101,))},
    models=lambda plan: [*optimum_models(plan), *plan.models],
    tasks=tasks,
    assemble=assemble,
    ready=complete_pairs,
)
