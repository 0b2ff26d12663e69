"""An experiment from plan to page: tasks, tables, summary, figures, report.

results/NAME/settings.toml   the plan, as a settings file
results/NAME/*.csv           tables
results/NAME/summary.json    every number of the page
results/NAME/*.png, *.pdf    figures
results/NAME/report.html     the page
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from thermoloom.config import Settings
from thermoloom.errors import UserError
from thermoloom.experiments.estimate import models_of
from thermoloom.experiments.models import RUNS, Clock
from thermoloom.experiments.paper import judged, verdict_counts
from thermoloom.experiments.plan import Experiment, Plan
from thermoloom.feasibility import check_learning, measures_memory, require_memory
from thermoloom.measures.classifier import classifier_in
from thermoloom.presentation.report import SUMMARY, write_report
from thermoloom.prototypes import load_prototypes, unit_fields
from thermoloom.runs.cluster import check_cluster
from thermoloom.runs.execution import LOCAL, Machines, run_tasks
from thermoloom.runs.formats import jsonable
from thermoloom.runs.patterns import identified, keep_patterns, named
from thermoloom.runs.progress import Progress
from thermoloom.runs.store import RunDirectory, refuse_claimed
from thermoloom.runs.tasks import failures


@dataclass(frozen=True)
class Performed:
    """What a run of an experiment leaves for the user."""

    path: Path
    """Directory of the experiment."""
    summary: dict[str, Any]
    """Empty where so many tasks failed that there is nothing to sum up."""
    failures: list[str]
    """``task: reason`` of tasks that failed for a reason of their own."""
    warnings: list[str] = field(default_factory=list)
    report: Path | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock time of the tasks together, of the tables, the figures and the report."""


def perform(
    experiment: Experiment,
    plan: Plan,
    folder: Path,
    machines: Machines = LOCAL,
    progress: Progress | None = None,
) -> Performed:
    """Run an experiment with its figures and report; what is there already is not done again."""
    done = compute(experiment, plan, folder, machines, progress)
    if not done.summary:
        return done
    written = write_report(done.path)
    return replace(done, report=written.path, seconds=done.seconds | written.seconds)


def compute(
    experiment: Experiment,
    plan: Plan,
    folder: Path,
    machines: Machines = LOCAL,
    progress: Progress | None = None,
) -> Performed:
    """Tasks, tables and summary of an experiment, without pictures."""
    clock = Clock()
    path = folder / experiment.name
    prototypes = load_prototypes(plan.settings.prototypes, plan.settings.physics)
    plan = replace(plan, settings=named(plan.settings, prototypes))
    check(experiment, plan, folder, machines)
    # claimed after all checks, so that a refused command leaves nothing, and before hours of work
    with RunDirectory.create(
        path, experiment.name, plan.as_dict(), defaults=plan.defaults()
    ) as run:
        keep_patterns(folder / RUNS, prototypes)
        with clock.measure("tasks"):
            outcomes = run_tasks(experiment.tasks(plan), folder, machines, progress)
            if experiment.later is not None:
                later = experiment.later(plan, folder)
                outcomes |= run_tasks(later, folder, machines, progress)
        failed = failures(outcomes)
        warnings = list(run.warnings)
        for outcome in outcomes.values():
            warnings += outcome.result.get("warnings", [])
        with clock.measure("tables"):
            try:
                found = experiment.assemble(plan, folder, run)
            except UserError as error:
                if not failed:
                    raise
                run.fail(str(error))
                return Performed(path, {}, failed, warnings, None, clock.seconds)
            lengths = plan.lengths() | {"seeds": len(found["seeds"])}
            for part in ("quantities", "statements"):
                found[part] = judged(experiment.name, found[part], lengths)
            summary: dict[str, Any] = jsonable(describe(experiment, plan, run) | found)
            summary["verdicts"] = verdict_counts(summary["statements"])
            _save_summary(run, summary)
            without = (*experiment.varied, "prototypes.content")
            run.save_bytes("settings.toml", plan.to_toml(without).encode())
            run.finish({"verdicts": summary["verdicts"]})
    return Performed(path, summary, failed, warnings, None, clock.seconds)


def check(experiment: Experiment, plan: Plan, folder: Path, machines: Machines) -> None:
    """Refuse all that can be known to fail, with nothing written yet."""
    plan = replace(plan, settings=identified(plan.settings))
    claimed = (experiment.name, plan.as_dict(), plan.defaults())
    refuse_claimed(folder / experiment.name, *claimed)
    _check_models(models_of(experiment, plan))
    _check_machines(machines, plan.settings)


def _check_models(models: Iterable[Settings]) -> None:
    """Computers that cannot be trained, sampled or measured here."""
    kinds = {
        (model.physics, model.prototypes, model.measures, model.generation): model
        for model in models
    }
    for model in kinds.values():
        require_memory(measures_memory(model.physics, model.generation.samples))
        prototypes = load_prototypes(model.prototypes, model.physics)
        check_learning(model, unit_fields(prototypes, model))
        if model.measures.classifier:
            classifier_in(model.measures.classifier)


def _check_machines(machines: Machines, settings: Settings) -> None:
    """A cluster that does not answer, or that cannot see what it needs."""
    if machines.cluster is None:
        return
    if settings.measures.classifier and not machines.shared:
        raise UserError(
            "measures.classifier: a cluster without --shared-disk does not see that folder; run "
            "here, or with --shared-disk"
        )
    check_cluster(machines.cluster)


def describe(experiment: Experiment, plan: Plan, run: RunDirectory) -> dict[str, Any]:
    """What was run, with what, where, and how to do it again."""
    settings = plan.as_dict()
    for name in experiment.varied:
        section, _, key = name.partition(".")
        settings[section].pop(key, None)
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "preset": experiment.preset_of(plan),
        "settings": settings,
        "rerun": experiment.rerun(plan, run.path),
        "date": run.manifest.created[:10],
        "versions": run.manifest.versions,
        "machine": run.manifest.machine,
    }


def _save_summary(run: RunDirectory, summary: dict[str, Any]) -> None:
    text = json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False)
    run.save_bytes(SUMMARY, text.encode() + b"\n")
