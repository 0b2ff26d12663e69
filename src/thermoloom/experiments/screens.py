"""Screens: response curves over one setting, on the same noising paths and generation numbers.

    condition   one computer of a screen, and the run directory that holds its measures
    tasks       groups of computers that share paths; none is trained twice
    tables      curves.csv, one row per point; conditions.csv, one per condition and seed;
                samples.csv, one row per denoising trajectory

A condition whose parameters or samples cease to be finite is a result: it is recorded with its
cycle, and the screen goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from thermoloom.errors import UserError
from thermoloom.experiments.cutting import measuring_tasks
from thermoloom.experiments.plan import SECTION, VARIED, Plan
from thermoloom.experiments.results import (
    Model,
    ended,
    measures_path,
    save_rows,
    seconds_by_stage,
    stacked,
    why_missing,
)
from thermoloom.measures.quality import MEASURES
from thermoloom.measures.responses import KEYS, Measured, Responses
from thermoloom.runs.manifest import flatten
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task
from thermoloom.settings import Imperfections, Settings

STAGES = ("training", "generation", "quality")
SET = (*VARIED, *(f"imperfections.{entry.name}" for entry in fields(Imperfections)))
"""Settings that a screen itself sets."""


@dataclass(frozen=True)
class Condition:
    """One computer of a screen."""

    screen: str
    value: float
    """What the screen varies."""
    settings: Settings
    path: Path
    """Run directory of its measures, relative to the results folder."""
    variant: str = ""
    """Which of several curves of a screen, such as a rule."""

    @property
    def seed(self) -> int:
        return self.settings.training.seed

    @property
    def label(self) -> str:
        words = [self.screen, self.variant, f"{self.value:g}"]
        return " ".join(word for word in words if word)


def trained(screen: str, value: float, settings: Settings, variant: str = "") -> Condition:
    """A condition that needs its own training."""
    path = measures_path(Path(), settings)
    return Condition(screen, value, settings, path, variant)


def check_grid(
    name: str,
    values: Sequence[float],
    low: float = -math.inf,
    high: float = math.inf,
    reference: float | None = None,
) -> None:
    """A grid has no value twice and none out of bounds, and contains its reference."""
    if not values or len(set(values)) < len(values):
        wrong = "at least one value, none of them twice"
    elif min(values) < low or max(values) > high:
        wrong = f"values must be from {low:g} to {high:g}"
    elif reference is not None and reference not in values:
        wrong = f"must contain {reference:g}, to which all others are compared"
    else:
        return
    raise UserError(f"{SECTION}.{name} = {list(values)}: {wrong}")


def screen_tasks(conditions: Iterable[Condition], folder: Path, workers: int) -> list[Task]:
    """Tasks for the computers of each screen, which share their paths seed by seed."""
    groups: dict[str, list[Settings]] = {}
    for condition in conditions:
        name = " ".join(filter(None, (condition.screen, condition.variant)))
        groups.setdefault(name, []).append(condition.settings)
    return measuring_tasks(groups.items(), folder, workers)


class ScreenPlan(Plan):
    """A plan all of whose conditions are known in advance."""

    def conditions(self) -> list[Condition]:
        """Every condition of every screen."""
        raise NotImplementedError


def models(plan: ScreenPlan) -> list[Settings]:
    """The computers of all conditions."""
    return [condition.settings for condition in plan.conditions()]


def tasks(plan: ScreenPlan, folder: Path, workers: int) -> list[Task]:
    """The computers of each screen and variant, in the order of the conditions."""
    return screen_tasks(plan.conditions(), folder, workers)


# --- what the tasks left ------------------------------------------------------------------------


@dataclass(frozen=True)
class Screens(Responses):
    """The measured conditions of an experiment, their models, and lines about what is missing."""

    models: Sequence[Model] = ()
    missing: list[str] = field(default_factory=list)

    def timing(self) -> dict[str, float]:
        """Seconds of work by stage, summed over all computers and processes."""
        once = {model.measures.path: model for model in self.models}
        return seconds_by_stage(once.values(), STAGES)


def _row(condition: Condition, model: Model) -> dict[str, Any]:
    """A row of the table of conditions."""
    lost, results = model.diverged, model.results
    heat = {} if lost else results["heat"]
    return {
        "screen": condition.screen,
        "variant": condition.variant,
        "value": condition.value,
        "seed": condition.seed,
        "state": model.measures.state,
        "diverged_in": results["cycle"] if lost else None,
        "stage": results.get("stage", "training") if lost else "",
        **{f"heat_{key}": heat.get(key) for key in ("mean", "sd", "sem")},
        "samples": condition.settings.generation.samples,
        "cycles": condition.settings.training.cycles,
        **{name: None if lost else results["quality"][name] for name in MEASURES},
    }


def collect(conditions: Sequence[Condition], folder: Path) -> Screens:
    """The conditions that were carried out; the others are named."""
    measured, models, missing = [], [], []
    for condition in conditions:
        run = ended(folder / condition.path)
        if run is None:
            reason = why_missing(folder / condition.path)
            missing.append(f"{condition.label}, seed {condition.seed} is left out ({reason})")
            continue
        models.append(Model(folder, condition.settings, run))
        measured.append(Measured(_row(condition, models[-1]), models[-1].samples))
    if not measured:
        raise UserError(f"{folder}: nothing was measured: {' | '.join(missing)}")
    return Screens(measured, models, missing)


def save_tables(screens: Screens, run: RunDirectory) -> None:
    """curves.csv, conditions.csv and samples.csv; figures and verdicts read these."""
    save_rows(run, "conditions", [m.row for m in screens.measured])
    save_rows(run, "curves", screens.curves())
    done = [
        ({key: m.row[key] for key in KEYS}, dict(m.samples))
        for m in screens.measured
        if not m.diverged
    ]
    run.save_table("samples", stacked(done) if done else {key: [] for key in KEYS})


def shortened(plan: Plan, whole: Plan) -> list[str]:
    """Lengths in which a plan falls short of the paper's, as ``cycles 12 (paper: 100)``."""
    here, there = flatten(plan.as_dict()), flatten(whole.as_dict())
    return [
        f"{key.partition('.')[2].replace('_', ' ')} {value} (paper: {there[key]})"
        for key, value in here.items()
        if key.endswith(("cycles", "samples")) and value < there[key]
    ]


def summed_up(screens: Screens, plan: Plan, run: RunDirectory) -> dict[str, Any]:
    """The tables saved, and what every experiment of screens reports of them."""
    save_tables(screens, run)
    seeds = sorted({m.seed for m in screens.measured})
    return {
        "missing": screens.missing,
        "shortened": shortened(plan, type(plan)()),
        "seeds": seeds,
        "seed_count": len(seeds),
        "conditions": len(screens.measured),
        "diverged": sum(m.diverged for m in screens.measured),
        "rows": [m.row for m in screens.measured],
        "curves": screens.curves(),
        "timing": screens.timing(),
    }
