"""Theory beside measurement: what the expected loss predicts, and where the heat comes from.

Nothing of a prediction is fitted: it is made from the fields of the prototypes alone. Measured are
the pairs of the main comparison, short trainings around the critical learning rates, with an
offset and on a grid of bits, and the heat of mixtures of θ*, batch and online computers.

Tables that it leaves behind (CSV, one row as named):

    scan     a short training near a critical learning rate
    curves   an evaluation of the validation loss, predicted and measured
    noise    a parameter block of a rule: spread around its mean
    offset   the shift that an offset has made after so many cycles
    bits     a bit depth: updates that survive, couplings that have moved
    origin   the heat of a mixture, with the random numbers of one pair
    norms    a parameter block of a rule: distance from θ*
    paths    a computer on an additional noising path, θ* among them
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thermoloom.config import GenerationSettings, Settings, Training
from thermoloom.experiments import heat_origin, paper
from thermoloom.experiments.heat_origin import CENTRES, LINES, NOISES, RULES
from thermoloom.experiments.models import RUNS, measuring_tasks
from thermoloom.experiments.optimum import RULE, optimum_path, optimum_task
from thermoloom.experiments.pairs import collect
from thermoloom.experiments.plan import Experiment
from thermoloom.experiments.probes import scan_task
from thermoloom.experiments.theory_plan import TheoryPlan
from thermoloom.experiments.theory_rows import TOPICS, Findings, Row, columns_of, is_done, scan_rows
from thermoloom.computers.trained import training_path
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task

NAME = "theory"


# --- tasks ----------------------------------------------------------------------------------------


def tasks(plan: TheoryPlan) -> list[Task]:
    """Predictions, the pairs (shared with the comparison), θ*, and the trainings with an offset."""
    models = [plan.model(rule, seed) for seed in plan.seeds for rule in RULES]
    return [
        plan.prediction("online").task("predict online", "predicted:predict_rule"),
        plan.prediction("batch").task("predict batch", "predicted:predict_rule"),
        plan.limits.task("predict limits", "predicted:predict_limits"),
        optimum_task(plan),
        *measuring_tasks(models, plan.paths),
        *(
            plan.offset_probe(rule).task(f"offset, {rule}", "probes:train_with_offset")
            for rule in RULES
        ),
    ]


def later(plan: TheoryPlan, folder: Path) -> list[Task]:
    """Probes around what was predicted, and the heat of mixtures of what was trained."""
    found = []
    trained = [
        training_path(Path(RUNS), plan.model(rule, seed)) for seed in plan.seeds for rule in RULES
    ]
    trained.append(optimum_path(plan))
    if all(is_done(folder / path) for path in trained):
        found += [
            plan.origin(seed).task(f"heat, seed {seed}", "heat_origin:measure_heats", trained)
            for seed in plan.seeds
        ]
    predictions = [plan.prediction(rule) for rule in RULES]
    if all(work.found(folder) for work in predictions):
        paths = [work.path for work in predictions]
        found.append(
            plan.predicted_heat.task("heat of E[θ]", "heat_origin:measure_predicted", paths)
        )
    limits = plan.limits.found(folder)
    if limits is not None:
        for rule in reversed(RULES):
            models = [settings for _, settings in plan.scan(rule, limits)]
            found.append(scan_task(f"learning rates, {rule}", models))
        found.append(plan.grid(limits).task("grids of bits", "probes:train_on_grids"))
    return found


def foreseen(plan: TheoryPlan) -> list[Settings]:
    """The mixtures whose heat is measured, as so many samples of a computer that is not trained."""
    counts = {
        seed: len(CENTRES) * len(NOISES)
        + len(plan.noise_sizes)
        + len(LINES) * max(0, plan.line_points_of(seed) - 2)
        + len(RULES)
        for seed in plan.seeds
    }
    return [
        plan.model(RULE, plan.seeds[0]).updated(
            {"generation": {"samples": count * plan.heat_samples, "seed": seed}}
        )
        for seed, count in counts.items()
    ]


# --- where the heat comes from --------------------------------------------------------------------


def origin_summary(found: Findings, run: RunDirectory) -> dict[str, Any] | None:
    """The split of the trained computers and of their heat; None where heats are missing."""
    if found.split is None or found.origin is None:
        return None
    norms = heat_origin.norm_rows(found.split)
    run.save_table("norms", columns_of(norms))
    run.save_table("origin", found.origin)
    accounts = heat_origin.accounts(found.origin)
    if found.predicted_heat is not None:
        accounts["predicted_mean"] = heat_origin.predicted_difference(found.predicted_heat)
    return {
        "norms": norms,
        "size": found.split.size,
        "accounts": accounts,
        "conclusion": heat_origin.conclusion(accounts),
        "curves": heat_origin.curves(found.origin),
        "samples": found.plan.heat_samples,
        "line_pairs": min(found.plan.line_pairs, len(found.plan.seeds)),
    }


# --- summary --------------------------------------------------------------------------------------


def assemble(plan: TheoryPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """Tables and summary: rows of predictions by topic, and the account of the heat."""
    found = Findings(plan, folder, collect(plan, folder))
    topics = {topic: rows(found, run) for topic, rows in TOPICS.items()}
    origin = origin_summary(found, run)
    missing = list(found.pairs.missing)
    if origin is None:
        missing.append("where the heat comes from is left out (heats of mixtures are missing)")
    summary = {
        "missing": missing,
        "pairs": len(found.pairs.seeds),
        "seeds": found.pairs.seeds,
        "samples": plan.settings.generation.samples,
        "cycles": plan.settings.training.cycles,
        "topics": [{"topic": topic, "rows": rows} for topic, rows in topics.items()],
        "scan": scan_table(found),
        "origin": origin,
        "timing": timing(found),
        "statements": [],  # the paper makes none about the optimum
    }
    return summary | {"quantities": quantities(summary)}


def scan_table(found: Findings) -> list[Row]:
    """The short trainings of both rules, for the page."""
    if found.limits is None or not found.predictions:
        return []
    return [entry for rule in RULES for entry in scan_rows(found, rule)]


def quantities(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The headline numbers."""
    judged = [r["verdict"] for topic in summary["topics"] for r in topic["rows"]]
    judged = [v for v in judged if v != paper.NOT_MEASURED]
    found = [
        paper.quantity(
            NAME,
            "predictions",
            f"predictions that hold, of {len(judged)} held against measurement",
            judged.count(paper.HOLDS),
            digits="d",
        )
    ]
    if summary["origin"] is None:
        return found
    accounts = summary["origin"]["accounts"]
    labels = {
        "optimum": "mean heat of the optimum",
        "difference": "heat difference, batch − online",
        "around_optimum": "… that noise around the optimum explains",
        "from_noise": "… from the noise of the computers around their means",
        "from_mean": "… from where their means lie",
        "predicted_mean": "… of the means that theory predicts",
    }
    return found + [
        paper.quantity(
            NAME,
            key,
            label,
            accounts[key]["mean"],
            interval=accounts[key]["interval"],
            unit="E₀",
        )
        for key, label in labels.items()
        if key in accounts
    ]


def timing(found: Findings) -> dict[str, float]:
    """Seconds of work by stage, whatever process did it and whenever it was done."""
    plan, folder = found.plan, found.folder
    works = {
        "predictions": [plan.limits, *(plan.prediction(rule) for rule in RULES)],
        "probes": [plan.offset_probe(rule) for rule in RULES],
        "heat of mixtures": [plan.predicted_heat, *(plan.origin(seed) for seed in plan.seeds)],
    }
    if found.limits is not None:
        works["probes"].append(plan.grid(found.limits))
    total = {
        stage: sum(run.results["seconds"] for work in own if (run := work.found(folder)))
        for stage, own in works.items()
    }
    measured = [m.results["timing"] for m in found.pairs.models.values()]
    measured += [run.results["timing"] for run in found.optimum]
    stages = ("training", "generation", "quality", "diagnostics")
    return total | {stage: sum(spent.get(stage, 0.0) for spent in measured) for stage in stages}


EXPERIMENT = Experiment(
    name=NAME,
    title="The exact optimum, and what it explains",
    presets={
        "paper": TheoryPlan(),
        "quick": TheoryPlan(
            settings=Settings(
                training=Training(cycles=20), generation=GenerationSettings(samples=10)
            ),
            seeds=(101, 102),
            paths_per_prototype=1,
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
    tasks=tasks,
    assemble=assemble,
    varied=(
        "training.rule",
        "training.period",
        "training.seed",
        "imperfections.residual_offset",
        "imperfections.bits",
    ),
    later=later,
    foreseen=foreseen,
)
