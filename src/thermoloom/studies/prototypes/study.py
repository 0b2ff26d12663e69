"""Fifteen prototypes: the same comparison with the first five images of classes 0, 1 and 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thermoloom.runs.store import RunDirectory
from thermoloom.settings import PatternSettings, Settings
from thermoloom.studies.case import Case
from thermoloom.studies.gather import Gathered
from thermoloom.studies.pair_tables import summarize_pairs
from thermoloom.studies.pairs import PairPlan, collect_pairs, complete_pairs
from thermoloom.studies.study import Figure, Study, brief

FIFTEEN = PatternSettings(per_digit=5)


def cases(plan: PairPlan, folder: Path) -> list[Case]:
    """The pairs alone; the paper replays only the pairs of the main comparison."""
    return plan.pair_cases


def summarize(plan: PairPlan, gathered: Gathered, run: RunDirectory) -> dict[str, Any]:
    """Tables of the complete pairs, and their summary."""
    pairs = collect_pairs(plan, gathered)
    return summarize_pairs(pairs, run) | {"pattern_count": len(pairs.patterns)}


STUDY = Study(
    name="prototypes",
    title="Fifteen prototypes",
    question="Fifteen prototypes: is online heat also lower with more patterns?",
    presets={
        "paper": PairPlan(
            settings=Settings(patterns=FIFTEEN), seeds=(101, 102, 103), paths_per_pattern=2
        ),
        "quick": PairPlan(
            settings=brief(60, 40, patterns=FIFTEEN), seeds=(101,), paths_per_pattern=2
        ),
    },
    cases=cases,
    summarize=summarize,
    figures=(
        Figure("pairs", "Batch and online training with more patterns", "draw_pairs"),
        Figure("samples", "Samples of more patterns", "draw_samples"),
    ),
    complete_seeds=complete_pairs,
    order=2,
    together=True,
)
