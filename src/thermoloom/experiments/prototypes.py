"""Fifteen prototypes: the same comparison with the first five images of classes 0, 1 and 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thermoloom.experiments.pair_tables import summed_up
from thermoloom.experiments.pairs import PairPlan, collect, complete_pairs, pair_tasks
from thermoloom.experiments.plan import Experiment, brief
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import PatternSettings, Settings

FIFTEEN = PatternSettings(per_digit=5)


def assemble(plan: PairPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """Tables of the complete pairs, and their summary."""
    pairs = collect(plan, folder)
    return summed_up(pairs, run) | {"pattern_count": len(pairs.patterns)}


EXPERIMENT = Experiment(
    name="prototypes",
    title="Fifteen prototypes",
    presets={
        "paper": PairPlan(
            settings=Settings(patterns=FIFTEEN), seeds=(101, 102, 103), paths_per_pattern=2
        ),
        "quick": PairPlan(
            settings=brief(60, 40, patterns=FIFTEEN), seeds=(101,), paths_per_pattern=2
        ),
    },
    models=lambda plan: plan.models,
    tasks=pair_tasks,
    assemble=assemble,
    ready=complete_pairs,
)
