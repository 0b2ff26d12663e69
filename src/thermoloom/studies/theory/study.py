"""Theory beside measurement: what the expected loss predicts, and where the heat comes from.

No prediction is fitted: each follows from the fields of the patterns alone. The measurements are
the pairs of the main comparison, short trainings around the critical learning rates, with an
offset and on a grid of bits, and the heat of mixtures of θ*, batch and online computers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thermoloom.measures.paired import RULES
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings
from thermoloom.studies.case import STAGES, Case, finished
from thermoloom.studies.gather import Gathered
from thermoloom.studies.pairs import collect_pairs
from thermoloom.studies.study import VARIED, Figure, Study, brief
from thermoloom.studies.theory import tables
from thermoloom.studies.theory.mixtures import CENTRES, LINES, NOISES
from thermoloom.studies.theory.plan import TheoryPlan
from thermoloom.studies.theory.training_predictions import training_limits


def cases(plan: TheoryPlan, folder: Path) -> list[Case]:
    """Predictions, the pairs (shared with the comparison) and θ*; then what follows from them.

    Noise across seeds is that of the pairs that are complete.
    """
    done = [case.labels["seed"] for case in plan.pair_cases if finished(folder / case.path)]
    complete = [seed for seed in plan.seeds if done.count(seed) == len(RULES)]
    return [
        *reversed(plan.predictions),
        plan.limits,
        *plan.optimum_cases,
        *plan.pair_cases,
        *plan.offset_probes,
        *(case for seed in plan.seeds for case in plan.mixtures(seed)),
        plan.predicted_heats,
        *([plan.seed_noise(complete)] if len(complete) > 1 else []),
        *plan.rate_probes,
        plan.grid_probe,
    ]


def foreseen(plan: TheoryPlan) -> list[Settings]:
    """Pairs and θ*; mixtures count as samples of a computer that needs no training."""
    counts = {
        seed: len(CENTRES) * len(NOISES)
        + len(plan.noise_sizes)
        + len(LINES) * max(0, plan.line_points_of(seed) - 2)
        + len(RULES)
        for seed in plan.seeds
    }
    mixtures = [
        plan.optimum(seed).updated(
            {"generation": {"samples": count * plan.heat_samples, "seed": seed}}
        )
        for seed, count in counts.items()
    ]
    return [*(case.settings for case in (*plan.optimum_cases, *plan.pair_cases)), *mixtures]


def summarize(plan: TheoryPlan, gathered: Gathered, run: RunDirectory) -> dict[str, Any]:
    """Tables of predictions and measurements, and the account of the heat."""
    pairs, limits = collect_pairs(plan, gathered), gathered.of(training_limits).one()
    tables.save_curves(gathered, pairs, run)
    tables.save_bits(plan, gathered, run)
    origin = tables.save_origin(plan, gathered, run)
    missing = list(pairs.missing)
    if origin is None:
        missing.append("the origin of the heat is left out (heats of mixed parameters are missing)")
    seconds = {k: s for k, s in gathered.total_seconds.items() if k != pairs.displayed.case.kind}
    return {
        "missing": missing,
        "pairs": len(pairs.seeds),
        "seeds": pairs.seeds,
        "samples": plan.settings.generation.samples,
        "cycles": plan.settings.training.cycles,
        "limits": None if limits is None else limits.results,
        "solved": tables.save_paths(plan, gathered, pairs, run),
        "scan": tables.save_scan(gathered, run),
        "noise": tables.save_noise(plan, gathered, run),
        "offset": tables.save_offset(plan, gathered, run),
        "grid_cycles": plan.grid_cycles,
        "origin": origin,
        "timing": seconds | gathered.seconds(STAGES),
    }


STUDY = Study(
    name="theory",
    title="The exact optimum, and what it explains",
    question="Beyond the paper: what is the optimum, and what does it explain?",
    presets={
        "paper": TheoryPlan(),
        "quick": TheoryPlan(
            settings=brief(20, 10),
            seeds=(101, 102),
            paths_per_pattern=1,
            batch_scan=(0.9, 1.2),
            batch_scan_cycles=15,
            online_scan=(0.9, 1.1),
            online_scan_cycles=2,
            offset_cycles=5,
            bits=(8, 12, 16),
            heat_samples=10,
            line_points=2,
            line_pairs=1,
            noise_sizes=(1.4,),
        ),
    },
    cases=cases,
    summarize=summarize,
    figures=(
        Figure("training", "Training, predicted and measured", "draw_training"),
        Figure("limits", "Limits, predicted and measured", "draw_limits"),
        Figure("origin", "Where the heat comes from", "draw_origin"),
    ),
    foreseen=foreseen,
    varied=(*VARIED, "imperfections.residual_offset", "imperfections.bits"),
    order=6,
    together=True,
)
