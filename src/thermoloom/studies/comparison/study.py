"""The main comparison: online and batch training on the same noising paths, five pairs.

For every seed both rules see the same paths and are sampled with the same random numbers. Seeds are
compared by their means; the spread over trajectories never counts as replication.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thermoloom.runs.store import RunDirectory
from thermoloom.studies.case import Case
from thermoloom.studies.gather import Gathered
from thermoloom.studies.pair_tables import summarize_pairs
from thermoloom.studies.pairs import (
    PairPlan,
    collect_pairs,
    complete_pairs,
    optimum_records,
    with_optimum,
)
from thermoloom.studies.study import Figure, Study, brief


def cases(plan: PairPlan, folder: Path) -> list[Case]:
    """The optimum, the pairs, and replays of the archives of the pairs."""
    return [*plan.optimum_cases, *plan.pair_cases, *plan.replay_cases]


def summarize(plan: PairPlan, gathered: Gathered, run: RunDirectory) -> dict[str, Any]:
    """Tables of the complete pairs, and their summary."""
    summary = summarize_pairs(collect_pairs(plan, gathered), run)
    return with_optimum(summary, optimum_records(gathered, summary["seeds"]))


STUDY = Study(
    name="comparison",
    title="Online and batch training: heat and quality",
    question="Figures 1-3: do online-trained computers release less heat?",
    presets={
        "paper": PairPlan(),
        "twenty": PairPlan(seeds=tuple(range(101, 121))),
        "quick": PairPlan(settings=brief(60, 40), seeds=(101,)),
    },
    cases=cases,
    summarize=summarize,
    figures=(
        Figure("figure-1", "From noise to digits", "draw_trajectories"),
        Figure("figure-2", "Online and batch training in pairs", "draw_pairs"),
        Figure("figure-3", "Samples and their quality", "draw_samples"),
        Figure("figure-energies", "Where the heat differs", "draw_energies"),
    ),
    complete_seeds=complete_pairs,
    order=1,
    together=True,
)
