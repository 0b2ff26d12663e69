"""Fifteen prototypes: the same comparison with the first five images of classes 0, 1 and 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thermoloom.config import GenerationSettings, PrototypeSettings, Settings, Training
from thermoloom.experiments.comparison import change, classifier_record, lower_heat, quantities
from thermoloom.experiments.pairs import PairPlan, base_summary, collect, save_tables, tasks
from thermoloom.experiments.plan import Experiment
from thermoloom.runs.store import RunDirectory

NAME = "prototypes"
FIFTEEN = PrototypeSettings(per_digit=5)


def assemble(plan: PairPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """Tables of the complete pairs, and the summary with its verdicts."""
    pairs = collect(plan, folder)
    save_tables(pairs, run)
    summary = base_summary(pairs) | {
        "prototype_count": len(pairs.prototypes),
        "classifier": classifier_record(pairs),
    }
    return summary | {
        "quantities": quantities(NAME, summary),
        "statements": [
            lower_heat(NAME, pairs),
            change(NAME, pairs, "softmax", "quality.max_softmax", 0),
            change(NAME, pairs, "target_fraction", "quality.target_fraction", 0),
            change(NAME, pairs, "diversity", "quality.pairwise_distance", -1),
            change(NAME, pairs, "prototype_distance", "quality.prototype_distance", +1),
        ],
    }


EXPERIMENT = Experiment(
    name=NAME,
    title="Fifteen prototypes",
    presets={
        "paper": PairPlan(
            settings=Settings(prototypes=FIFTEEN), seeds=(101, 102, 103), paths_per_prototype=2
        ),
        "quick": PairPlan(
            settings=Settings(
                prototypes=FIFTEEN,
                training=Training(cycles=60),
                generation=GenerationSettings(samples=40),
            ),
            seeds=(101,),
            paths_per_prototype=2,
        ),
    },
    tasks=tasks,
    assemble=assemble,
)
