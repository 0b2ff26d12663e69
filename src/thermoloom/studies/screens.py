"""Screens: response curves over one setting, on shared noising paths and random numbers.

    case     labels {screen, variant, value, seed}; the computers of a screen share their paths
    tables   curves.csv, one row per point; conditions.csv, one per condition and seed;
             samples.csv, one row per denoising trajectory

A condition whose parameters or samples cease to be finite is a result: it is recorded with its
cycle, and the screen goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from thermoloom.errors import UserError
from thermoloom.measures.classifier import panel_records, panel_rows
from thermoloom.measures.quality import CLASSIFIED, MEASURES, on_panel, value_range
from thermoloom.measures.responses import KEYS, Measured, Responses
from thermoloom.runs.manifest import flatten
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Imperfections, Settings
from thermoloom.studies.case import Case, Measure, is_classified
from thermoloom.studies.gather import Gathered, Record, save_rows, stacked
from thermoloom.studies.study import SECTION, VARIED, Plan

STAGES = ("training", "generation", "quality")
SET = (*VARIED, *(f"imperfections.{entry.name}" for entry in fields(Imperfections)))
"""Settings that a screen itself sets."""

Extra = Callable[[Record], dict[str, Any]]
"""Further columns of the row of a condition."""


def condition(
    screen: str,
    value: float,
    settings: Settings,
    variant: str = "",
    measure: Measure | None = None,
    **case: Any,
) -> Case:
    """A point of a screen; ``variant`` names its curve.

    The computers of a curve are one group, unless ``case`` names another.
    """
    seed = settings.training.seed
    labels = {"screen": screen, "variant": variant, "value": value, "seed": seed}
    return Case(labels, settings, measure, **{"group": f"{screen} {variant}".strip()} | case)


def check_grid(
    name: str,
    values: Sequence[float],
    low: float = -math.inf,
    high: float = math.inf,
    reference: float | None = None,
) -> None:
    """Refuse a grid with repeated values, values out of bounds, or without its reference."""
    if not values or len(set(values)) < len(values):
        wrong = "must have at least one value, none of them twice"
    elif min(values) < low or max(values) > high:
        wrong = f"values must be from {low:g} to {high:g}"
    elif reference is not None and reference not in values:
        wrong = f"must contain {reference:g}, with which all others are compared"
    else:
        return
    raise UserError(f"{SECTION}.{name} = {list(values)}: {wrong}")


# --- tables and summary ---


def responses_of(gathered: Gathered, extra: Extra | None = None) -> Responses:
    """The measured conditions, with ``extra`` columns."""
    return Responses(
        [
            Measured(_row(record) | (extra(record) if extra else {}), record.samples)
            for record in gathered
        ]
    )


def _row(record: Record) -> dict[str, Any]:
    """A row of the table of conditions."""
    diverged, results, settings = record.diverged, record.results, record.settings
    heat = {} if diverged else results["heat"]
    return {
        **record.labels,
        "state": record.run.state,
        "diverged_in": results["cycle"] if diverged else None,
        "stage": results.get("stage", "training") if diverged else "",
        **{f"heat_{key}": heat.get(key) for key in ("mean", "sd", "sem")},
        "samples": settings.generation.samples,
        "cycles": settings.training.cycles,
        **{name: None if diverged else results["quality"][name] for name in _measures(settings)},
    }


def has_panel(settings: Settings) -> bool:
    """Whether the panel also judges the samples: it knows only the classes of MNIST."""
    return settings.patterns.are_digits and is_classified(settings)


def _measures(settings: Settings) -> list[str]:
    """Columns of quality: by the main classifier, and by the panel where it judges."""
    members = panel_records() if has_panel(settings) else {}
    return [*MEASURES, *(on_panel(measure, name) for measure in CLASSIFIED for name in members)]


def summarize_screens(
    responses: Responses, plan: Plan, gathered: Gathered, run: RunDirectory
) -> dict[str, Any]:
    """Save the tables; return the numbers that every study of screens reports."""
    _save_tables(responses, run)
    seeds = sorted({m.seed for m in responses.measured})
    return {
        "missing": gathered.missing,
        "shortened": shortened(plan, type(plan)()),
        "seeds": seeds,
        "seed_count": len(seeds),
        "conditions": len(responses.measured),
        "diverged": sum(m.diverged for m in responses.measured),
        "panel": panel_rows() if has_panel(plan.settings) else None,
        "rows": [{**m.row, **_ranges(m.row)} for m in responses.measured],
        "curves": responses.curves(),
        "timing": gathered.seconds(STAGES),
    }


def _ranges(row: Mapping[str, Any]) -> dict[str, Any]:
    """Range of each classifier-based measure over all classifiers, for the page."""
    names = {m: [key for key in row if key.partition("@")[0] == m] for m in CLASSIFIED}
    return {f"{m}_range": value_range(row[key] for key in keys) for m, keys in names.items()}


def _save_tables(responses: Responses, run: RunDirectory) -> None:
    """curves.csv, conditions.csv and samples.csv; figures and verdicts read these."""
    save_rows(run, "conditions", [m.row for m in responses.measured])
    save_rows(run, "curves", responses.curves())
    done = [
        ({key: m.row[key] for key in KEYS}, dict(m.samples))
        for m in responses.measured
        if not m.diverged
    ]
    run.save_table("samples", stacked(done) if done else {key: [] for key in KEYS})


def shortened(plan: Plan, full: Plan) -> list[str]:
    """Lengths in which a plan falls short of the paper's, as ``cycles 12 (paper: 100)``."""
    here, there = flatten(plan.as_dict()), flatten(full.as_dict())
    return [
        f"{key.partition('.')[2].replace('_', ' ')} {value} (paper: {there[key]})"
        for key, value in here.items()
        if key.endswith(("cycles", "samples")) and value < there[key]
    ]
