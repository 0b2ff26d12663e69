"""An experiment from plan to tables: tasks, tables, summary.

results/NAME/settings.toml   the plan, as a settings file
results/NAME/*.csv           tables
results/NAME/summary.json    every number of the page

What the paper says of it is judged in ``reproduction``; pictures are drawn in ``presentation``.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

from thermoloom.computers.pattern_store import identified, keep_patterns, named
from thermoloom.errors import UserError
from thermoloom.experiments import NAMES
from thermoloom.experiments.models import Clock
from thermoloom.experiments.plan import Experiment, Plan
from thermoloom.experiments.results import RUNS
from thermoloom.feasibility import measures_memory, require_memory
from thermoloom.measures.classifier import classifier_in
from thermoloom.patterns.drive import Drive, check_labels, unit_fields
from thermoloom.patterns.patterns import load_patterns
from thermoloom.runs.cluster import check_cluster
from thermoloom.runs.execution import LOCAL, Resources, run_tasks
from thermoloom.runs.formats import jsonable
from thermoloom.runs.progress import Progress
from thermoloom.runs.store import RunDirectory, refuse_claimed
from thermoloom.runs.study_tables import SUMMARY
from thermoloom.runs.tasks import Outcome, failures
from thermoloom.settings import Settings
from thermoloom.training.checks import check_learning

OnInterim = Callable[[RunDirectory, dict[str, Any]], None]


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
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock time of the tasks together, and of the tables."""


def compute(
    experiment: Experiment,
    plan: Plan,
    folder: Path,
    resources: Resources = LOCAL,
    progress: Progress | None = None,
    on_interim: OnInterim | None = None,
) -> Performed:
    """Tasks, tables and summary of an experiment; what is there already is not done again.

    ``on_interim(run, summary)`` is called with the results so far while more seeds are computed.
    """
    clock = Clock()
    path = folder / experiment.name
    patterns = load_patterns(plan.settings.patterns, plan.settings.machine)
    plan = replace(plan, settings=named(plan.settings, patterns))
    workers = check(experiment, plan, folder, resources)
    # claimed after all checks, so that a refused command leaves nothing, and before hours of work
    with RunDirectory.create(
        path, experiment.name, plan.as_dict(), defaults=plan.defaults()
    ) as run:
        keep_patterns(folder / RUNS, patterns)
        interim = _Interim(experiment, plan, folder, run, on_interim)
        with clock.measure("tasks"):
            outcomes: dict[str, Outcome] = {}
            while tasks := [
                task
                for task in experiment.tasks(plan, folder, workers)
                if task.name not in outcomes
            ]:
                outcomes |= run_tasks(tasks, folder, resources, progress, interim.renew)
        failed = failures(outcomes)
        warnings = list(run.warnings)
        for outcome in outcomes.values():
            warnings += outcome.result.get("warnings", [])
        with clock.measure("tables"):
            try:
                summary = summarized(experiment, plan, folder, run)
            except UserError as error:
                if not failed:
                    raise
                run.fail(str(error))
                return Performed(path, {}, failed, warnings, clock.seconds)
            save_summary(run, summary)
            without = (*experiment.varied, "patterns.content")
            run.save_bytes("settings.toml", plan.to_toml(without).encode())
            run.finish({})
    return Performed(path, summary, failed, warnings, clock.seconds)


def summarized(
    experiment: Experiment, plan: Plan, folder: Path, run: RunDirectory
) -> dict[str, Any]:
    """Tables of what is done in the results folder, saved in the run, and what they come to."""
    found = experiment.assemble(plan, folder, run)
    summary: dict[str, Any] = jsonable(describe(experiment, plan, run) | found)
    summary["lengths"] = plan.lengths() | {"seeds": len(found["seeds"])}
    return summary


@dataclass
class _Interim:
    """Results so far: with the first complete seed, then as more come in.

    Made between two tasks by the process that holds the experiment's run, with files that are
    written whole, so a kill leaves the results before it. It takes a thirtieth of the time at most:
    all cores are busy with tasks.
    """

    experiment: Experiment
    plan: Plan
    folder: Path
    run: RunDirectory
    on_interim: OnInterim | None
    seen: int = 0
    due: float = 0.0

    def renew(self) -> None:
        if self.on_interim is None or self.experiment.ready is None or monotonic() < self.due:
            return
        if self.run.state == "done":  # its results are of all seeds already
            return
        ready, wanted = self.experiment.ready(self.plan, self.folder), len(self.plan.seeds)
        if not self.seen < ready < wanted:
            return
        began, self.seen = monotonic(), ready
        so_far = {"interim": {"seeds": ready, "of": wanted}, "missing": []}  # they are on their way
        with contextlib.suppress(UserError):  # what is wrong is told at the end, if it still is
            summary = summarized(self.experiment, self.plan, self.folder, self.run)
            self.on_interim(self.run, summary | so_far)
        self.due = monotonic() + 29 * (monotonic() - began)


def compute_share(
    experiment: Experiment,
    plan: Plan,
    folder: Path,
    share: tuple[int, int],
    resources: Resources = LOCAL,
    progress: Progress | None = None,
) -> Performed:
    """The i-th of n shares of the tasks that need no other's results, for job arrays; no tables.

    The shares depend on the plan and n alone, not on what is in the folder already, so all of them
    can run at the same time; ``compute`` then finds them done and goes on.
    """
    number, count = share
    clock = Clock()
    patterns = load_patterns(plan.settings.patterns, plan.settings.machine)
    plan = replace(plan, settings=named(plan.settings, patterns))
    check(experiment, plan, folder, resources)
    nothing = folder / "nothing-done-yet"
    tasks = experiment.tasks(plan, nothing, count)[number - 1 :: count]
    keep_patterns(folder / RUNS, patterns)
    with clock.measure("tasks"):
        outcomes = run_tasks(tasks, folder, resources, progress)
    warnings = [line for o in outcomes.values() for line in o.result.get("warnings", [])]
    return Performed(
        folder / experiment.name, {"tasks": len(tasks)}, failures(outcomes), warnings, clock.seconds
    )


def check(experiment: Experiment, plan: Plan, folder: Path, resources: Resources) -> int:
    """Refuse all that can be known to fail, with nothing written yet; returns the workers."""
    models = experiment.models(plan)
    together = 1 if resources.cluster else min(resources.processes, len(models))
    _check_models(models, together)
    known = replace(plan, settings=identified(plan.settings))  # a run is known by its patterns
    refuse_claimed(folder / experiment.name, experiment.name, known.as_dict(), plan.defaults())
    return _check_resources(resources, plan.settings)


def _check_models(models: Iterable[Settings], together: int) -> None:
    """Computers that cannot be trained, sampled or measured here, so many at a time."""
    kinds = {
        (model.machine, model.patterns, model.measures, model.generation): model for model in models
    }
    for model in kinds.values():
        require_memory(measures_memory(model.machine, model.generation.samples), together)
        patterns = load_patterns(model.patterns, model.machine)
        check_learning(model, Drive(unit_fields(patterns, model.machine)))
        check_labels(patterns, model.machine)
        if model.measures.classifier:
            classifier_in(model.measures.classifier)


def _check_resources(resources: Resources, settings: Settings) -> int:
    """Refuse a cluster that does not answer or see what it needs; the number of workers."""
    if resources.cluster is None:
        return resources.processes
    if settings.measures.classifier and not resources.shared:
        raise UserError(
            "measures.classifier: a cluster without --shared-disk does not see that folder; run "
            "here, or with --shared-disk"
        )
    return check_cluster(resources.cluster)


def describe(experiment: Experiment, plan: Plan, run: RunDirectory) -> dict[str, Any]:
    """What was run, with what, where, and how to do it again."""
    settings = plan.as_dict()
    for name in experiment.varied:
        section, _, key = name.partition(".")
        settings[section].pop(key, None)
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "order": NAMES.index(experiment.name),
        "preset": experiment.preset_of(plan),
        "settings": settings,
        "rerun": experiment.rerun(plan, run.path),
        "date": run.manifest.created[:10],
        "versions": run.manifest.versions,
        "host": run.manifest.host,
    }


def save_summary(run: RunDirectory, summary: dict[str, Any]) -> None:
    """summary.json, every number of the page."""
    text = json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False)
    run.save_bytes(SUMMARY, text.encode() + b"\n")
