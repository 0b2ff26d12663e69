"""The paper beside what was measured here: an experiment is computed, then judged.

judge       tables and summary of an experiment → quantities, statements, verdicts
reproduce   compute and judge, everything but pictures
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from thermoloom.experiments.plan import Experiment, Plan
from thermoloom.experiments.run import OnInterim, Performed, compute, save_summary
from thermoloom.reproduction.evidence import Evidence
from thermoloom.reproduction.headlines import HEADLINES
from thermoloom.reproduction.paper import judged, verdict_counts
from thermoloom.runs.execution import LOCAL, Resources
from thermoloom.runs.formats import jsonable
from thermoloom.runs.progress import Progress
from thermoloom.runs.store import RunDirectory


def reproduce(
    experiment: Experiment,
    plan: Plan,
    folder: Path,
    resources: Resources = LOCAL,
    progress: Progress | None = None,
    on_interim: OnInterim | None = None,
) -> Performed:
    """Run an experiment and judge it; what is there already is not done again.

    ``on_interim(run, summary)``: of results so far, judged and saved.
    """

    def so_far(run: RunDirectory, summary: dict[str, Any]) -> None:
        found = judge(run, summary)
        save_summary(run, found)
        if on_interim is not None:
            on_interim(run, found)

    told = None if on_interim is None else so_far
    done = compute(experiment, plan, folder, resources, progress, told)
    if not done.summary:
        return done
    with RunDirectory.open(done.path, write=True) as run:
        summary = judge(run, done.summary)
        save_summary(run, summary)
    return replace(done, summary=summary)


def judge(run: RunDirectory, summary: dict[str, Any]) -> dict[str, Any]:
    """The summary with quantities, statements and verdicts, from saved tables alone."""
    name = summary["experiment"]
    found: dict[str, Any] = {"statements": []}
    if name in HEADLINES:
        found["quantities"] = HEADLINES[name](summary)
    else:
        found = import_module(f"{__name__}.{name}_verdicts").judge(Evidence(run, summary))
    for part in ("quantities", "statements"):
        found[part] = judged(name, found[part], summary["lengths"])
    whole: dict[str, Any] = jsonable(summary | found)
    return whole | {"verdicts": verdict_counts(whole["statements"])}
