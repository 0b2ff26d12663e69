"""Run a study from plan to verdicts: tasks, tables, summary, statements.

results/NAME/settings.toml   the plan, as a settings file
results/NAME/*.csv           tables
results/NAME/summary.json    every number of the page
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

from thermoloom.computers.pattern_store import identified, named, store_patterns
from thermoloom.engines.memory import measures_memory
from thermoloom.errors import UserError
from thermoloom.feasibility import require_memory
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
from thermoloom.studies.case import RUNS, Case, Source
from thermoloom.studies.discovery import errors_named
from thermoloom.studies.gather import gather
from thermoloom.studies.sampled_computer import Clock
from thermoloom.studies.schedule import tasks_of
from thermoloom.studies.study import Plan, Study
from thermoloom.studies.verdicts import judged
from thermoloom.training.checks import check_learning

OnInterim = Callable[[RunDirectory, dict[str, Any]], None]


@dataclass(frozen=True)
class Performed:
    """Results of a run of a study, for the user."""

    path: Path
    """Directory of the study."""
    summary: dict[str, Any]
    """Empty if so many tasks failed that there is nothing to summarize."""
    failures: list[str]
    """``task: reason`` of every task that failed."""
    warnings: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock seconds of all tasks together, and of the tables."""


def compute(
    study: Study,
    plan: Plan,
    folder: Path,
    resources: Resources = LOCAL,
    progress: Progress | None = None,
    on_interim: OnInterim | None = None,
) -> Performed:
    """Run the tasks of a study and save tables, summary and verdicts; finished cases are kept.

    ``on_interim(run, summary)`` is called with the results so far while more seeds are computed.
    """
    clock = Clock()
    path = folder / study.name
    patterns = load_patterns(plan.settings.patterns, plan.settings.machine)
    plan = replace(plan, settings=named(plan.settings, patterns))
    workers = check(study, plan, folder, resources)
    # claimed after all checks, so that a refused command leaves nothing, and before hours of work
    with RunDirectory.create(path, study.name, plan.as_dict(), defaults=plan.defaults()) as run:
        store_patterns(folder / RUNS, patterns)
        interim = _Interim(study, plan, folder, run, on_interim)
        with clock.measure("tasks"):
            outcomes: dict[str, Outcome] = {}
            while tasks := [
                task
                for task in tasks_of(cases_of(study, plan, folder), folder, workers)
                if task.name not in outcomes
            ]:
                outcomes |= run_tasks(tasks, folder, resources, progress, interim.renew)
        failed = failures(outcomes)
        warnings = list(run.warnings)
        for outcome in outcomes.values():
            warnings += outcome.result.get("warnings", [])
        with clock.measure("tables"):
            try:
                summary = summarized(study, plan, folder, run)
            except UserError as error:
                if not failed:
                    raise
                run.fail(str(error))
                return Performed(path, {}, failed, warnings, clock.seconds)
            without = (*study.varied, "patterns.content")
            run.save_bytes("settings.toml", plan.to_toml(without).encode())
            run.finish({})
    return Performed(path, summary, failed, warnings, clock.seconds)


def cases_of(study: Study, plan: Plan, folder: Path) -> list[Case]:
    """The cases of a plan; measures of a study outside the package carry its source."""
    with errors_named(study):
        cases = study.cases(plan, folder)
    if study.source is None:
        return list(cases)
    return [case if case.samples_computer else _with_source(case, study.source) for case in cases]


def _with_source(case: Case, source: Source) -> Case:
    needs = tuple(n if n.samples_computer else _with_source(n, source) for n in case.needs)
    return replace(case, source=source, needs=needs)


def summarized(study: Study, plan: Plan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """Tables of the finished cases, saved in the run, with summary and verdicts."""
    gathered = gather(cases_of(study, plan, folder), folder)
    numbers: dict[str, Any] = {"seeds": list(plan.seeds), "missing": gathered.missing}
    with errors_named(study):
        numbers |= study.summarize(plan, gathered, run)
    summary: dict[str, Any] = jsonable(describe(study, plan, run) | numbers)
    summary["lengths"] = plan.lengths() | {"seeds": len(numbers["seeds"])}
    summary.setdefault("timing", gathered.total_seconds)
    with errors_named(study):
        summary = judged(study, run, summary)
    save_summary(run, summary)
    return summary


@dataclass
class _Interim:
    """Save results so far: after the first complete seed, then as more seeds come in.

    The process that holds the study's run saves them between two tasks and writes every file
    atomically, so a kill leaves the earlier results. This takes at most a thirtieth of the time,
    because all cores are busy with tasks.
    """

    study: Study
    plan: Plan
    folder: Path
    run: RunDirectory
    on_interim: OnInterim | None
    seen: int = 0
    due: float = 0.0

    def renew(self) -> None:
        if self.on_interim is None or self.study.complete_seeds is None or monotonic() < self.due:
            return
        if self.run.state == "done":  # its results already cover all seeds
            return
        ready, wanted = self.study.complete_seeds(self.plan, self.folder), len(self.plan.seeds)
        if not self.seen < ready < wanted:
            return
        began, self.seen = monotonic(), ready
        # the other seeds are not missing: they are being computed
        so_far = {"interim": {"seeds": ready, "of": wanted}, "missing": []}
        with contextlib.suppress(UserError):  # reported at the end if it is still wrong
            summary = summarized(self.study, self.plan, self.folder, self.run) | so_far
            save_summary(self.run, summary)
            self.on_interim(self.run, summary)
        self.due = monotonic() + 29 * (monotonic() - began)


def compute_share(
    study: Study,
    plan: Plan,
    folder: Path,
    share: tuple[int, int],
    resources: Resources = LOCAL,
    progress: Progress | None = None,
) -> Performed:
    """Run the i-th of n shares of the tasks that need no results of others; save no tables.

    For job arrays: the shares depend only on the plan and n, not on the contents of the folder, so
    all shares can run at the same time. ``compute`` then continues from their results.
    """
    number, count = share
    clock = Clock()
    patterns = load_patterns(plan.settings.patterns, plan.settings.machine)
    plan = replace(plan, settings=named(plan.settings, patterns))
    check(study, plan, folder, resources)
    nothing = folder / "nothing-done-yet"
    tasks = tasks_of(cases_of(study, plan, nothing), nothing, count)[number - 1 :: count]
    store_patterns(folder / RUNS, patterns)
    with clock.measure("tasks"):
        outcomes = run_tasks(tasks, folder, resources, progress)
    warnings = [line for o in outcomes.values() for line in o.result.get("warnings", [])]
    return Performed(
        folder / study.name, {"tasks": len(tasks)}, failures(outcomes), warnings, clock.seconds
    )


def check(study: Study, plan: Plan, folder: Path, resources: Resources) -> int:
    """Refuse a plan that is certain to fail, before anything is written.

    Returns the number of workers.
    """
    models = study.computers(plan, folder)
    together = 1 if resources.cluster else min(resources.processes, len(models))
    _check_models(models, together)
    known = replace(plan, settings=identified(plan.settings))  # patterns identify a run
    refuse_claimed(folder / study.name, study.name, known.as_dict(), plan.defaults())
    return _check_resources(resources, plan.settings)


def _check_models(models: Iterable[Settings], together: int) -> None:
    """Refuse computers that cannot be trained, sampled or measured, ``together`` at a time."""
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
    """The number of workers; refuse a cluster that does not answer or lacks a needed folder."""
    if resources.cluster is None:
        return resources.processes
    if settings.measures.classifier and not resources.shared:
        raise UserError(
            "measures.classifier: a cluster without --shared-disk cannot read that folder; run "
            "locally, or with --shared-disk"
        )
    return check_cluster(resources.cluster)


def describe(study: Study, plan: Plan, run: RunDirectory) -> dict[str, Any]:
    """Study, settings, software and host of a run, and the command that repeats it."""
    settings = plan.as_dict()
    for name in study.varied:
        section, _, key = name.partition(".")
        settings[section].pop(key, None)
    return {
        "study": study.name,
        "title": study.title,
        "question": study.question,
        "folder": "" if study.source is None else str(study.folder),
        "preset": study.preset_of(plan),
        "settings": settings,
        "rerun": study.rerun(plan, run.path),
        "date": run.manifest.created[:10],
        "versions": run.manifest.versions,
        "host": run.manifest.host,
    }


def save_summary(run: RunDirectory, summary: dict[str, Any]) -> None:
    """Write summary.json, with every number of the page."""
    text = json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False)
    run.save_bytes(SUMMARY, text.encode() + b"\n")
