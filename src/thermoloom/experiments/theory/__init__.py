"""Theory beside measurement: what the expected loss predicts, and where the heat comes from.

Nothing of a prediction is fitted: it is made from the fields of the patterns alone. Measured are
the pairs of the main comparison, short trainings around the critical learning rates, with an
offset and on a grid of bits, and the heat of mixtures of θ*, batch and online computers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thermoloom.experiments.cutting import cut
from thermoloom.experiments.optimum import RULE, optimum_models, optimum_path
from thermoloom.experiments.pairs import collect, pair_tasks
from thermoloom.experiments.plan import VARIED, Experiment, brief
from thermoloom.experiments.results import Model, finished, seconds_by_stage, trained_path
from thermoloom.experiments.screens import STAGES
from thermoloom.experiments.theory import findings
from thermoloom.experiments.theory.findings import Findings
from thermoloom.experiments.theory.mixtures import CENTRES, LINES, NOISES
from thermoloom.experiments.theory.probes import scan_task
from thermoloom.experiments.theory.scope import TheoryPlan
from thermoloom.measures.paired import RULES
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task
from thermoloom.settings import Settings

# --- tasks ----------------------------------------------------------------------------------------


def tasks(plan: TheoryPlan, folder: Path, workers: int) -> list[Task]:
    """Predictions, the pairs (shared with the comparison) and θ*; then what follows from them."""
    return [
        plan.prediction("online").task("predict online"),
        plan.prediction("batch").task("predict batch"),
        plan.limits.task("predict limits"),
        *pair_tasks(plan, folder, workers, replay=False, more=optimum_models(plan)),
        *(plan.offset_probe(rule).task(f"offset, {rule}") for rule in RULES),
        *_mixture_tasks(plan, folder),
        *_probe_tasks(plan, folder, workers),
    ]


def _mixture_tasks(plan: TheoryPlan, folder: Path) -> list[Task]:
    """Heat of mixtures of what was trained, and of what was predicted."""
    found = []
    solved = optimum_path(plan)
    paths = [trained_path(Path(), model) for model in plan.models]
    if all(finished(folder / path) for path in (*paths, solved)):
        found += [
            work.task(f"heat, seed {seed}, {work.more['part']}", [*paths, solved])
            for seed in plan.seeds
            for work in plan.origin(seed)
        ]
    predictions = [plan.prediction(rule) for rule in RULES]
    if not all(work.found(folder) for work in predictions):
        return found
    inputs = [work.path for work in predictions]
    found.append(plan.predicted_heat.task("heat of E[θ]", inputs))
    complete = [
        seed
        for seed in plan.seeds
        if all(Model.found(folder, plan.model(rule, seed), plan.paths) for rule in RULES)
    ]
    if len(complete) > 1 and finished(folder / solved):
        own = [trained_path(Path(), plan.model(r, s)) for s in complete for r in RULES]
        name = f"noise across {len(complete)} seeds"
        found.append(plan.spread(complete).task(name, [*inputs, *own, solved]))
    return found


def _probe_tasks(plan: TheoryPlan, folder: Path, workers: int) -> list[Task]:
    """Short trainings around what was predicted."""
    limits = plan.limits.found(folder)
    if limits is None:
        return []
    scans = {
        (f"learning rates, {rule}", plan.seeds[0]): [[s] for _, s in plan.scan(rule, limits)]
        for rule in reversed(RULES)
    }
    found = []
    for (name, _), piece in cut(scans, workers):
        scales = ", ".join(f"{model.training.learning_rate_scale:g}" for model in piece)
        found.append(scan_task(f"{name}: {scales}", piece))
    return [*found, plan.grid(limits).task("grids of bits")]


def models(plan: TheoryPlan) -> list[Settings]:
    """Pairs and θ*; mixtures as so many samples of a computer that is not trained."""
    counts = {
        seed: len(CENTRES) * len(NOISES)
        + len(plan.noise_sizes)
        + len(LINES) * max(0, plan.line_points_of(seed) - 2)
        + len(RULES)
        for seed in plan.seeds
    }
    mixtures = [
        plan.model(RULE, plan.seeds[0]).updated(
            {"generation": {"samples": count * plan.heat_samples, "seed": seed}}
        )
        for seed, count in counts.items()
    ]
    return [*optimum_models(plan), *plan.models, *mixtures]


# --- tables and summary ---------------------------------------------------------------------------


def assemble(plan: TheoryPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """Tables of what was predicted and measured, and the account of the heat."""
    found = Findings(plan, folder, collect(plan, folder))
    findings.save_curves(found, run)
    findings.save_bits(found, run)
    origin = findings.save_origin(found, run)
    missing = list(found.pairs.missing)
    if origin is None:
        missing.append("where the heat comes from is left out (heats of mixtures are missing)")
    return {
        "missing": missing,
        "pairs": len(found.pairs.seeds),
        "seeds": found.pairs.seeds,
        "samples": plan.settings.generation.samples,
        "cycles": plan.settings.training.cycles,
        "limits": None if found.limits is None else found.limits.results,
        "solved": findings.save_paths(found, run),
        "scan": findings.save_scan(found, run),
        "noise": findings.save_noise(found, run),
        "offset": findings.save_offset(found, run),
        "grid_cycles": plan.grid_cycles,
        "origin": origin,
        "timing": timing(found),
    }


def timing(found: Findings) -> dict[str, float]:
    """Seconds of work by stage, over all processes."""
    plan = found.plan
    works = {
        "predictions": [plan.limits, *(plan.prediction(rule) for rule in RULES)],
        "probes": [plan.offset_probe(rule) for rule in RULES],
        "heat of mixtures": [
            plan.predicted_heat,
            plan.spread(found.pairs.seeds),
            *(work for seed in plan.seeds for work in plan.origin(seed)),
        ],
    }
    if found.limits is not None:
        works["probes"].append(plan.grid(found.limits))
    models = (*found.pairs.models.values(), *found.optimum)
    own = {stage: found.seconds(own) for stage, own in works.items()}
    return own | seconds_by_stage(models, (*STAGES, "diagnostics"))


EXPERIMENT = Experiment(
    name="theory",
    title="The exact optimum, and what it explains",
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
    models=models,
    tasks=tasks,
    assemble=assemble,
    varied=(*VARIED, "imperfections.residual_offset", "imperfections.bits"),
)
