"""skeleton: does a warmer computer release more heat?

A study to start from. It trains one computer per temperature and seed, samples it, and adds a
new measure. Change the question, the cases and the summary.

    thermoloom run ./skeleton --preset quick
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings
from thermoloom.studies.case import Case, Job
from thermoloom.studies.gather import Gathered, save_rows
from thermoloom.studies.study import Figure, Plan, Study, brief


@dataclass(frozen=True)
class TemperaturePlan(Plan):
    """Settings that a user can change with ``--set study.temperatures=...``."""

    settings: Settings = field(default_factory=lambda: brief(cycles=60, samples=100))
    seeds: tuple[int, ...] = (101, 102, 103)
    temperatures: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    """k_BT in E₀."""

    def computer(self, temperature: float, seed: int) -> Settings:
        """Settings of one computer: those of the plan, with this temperature and seed."""
        return self.settings.updated(
            {"machine": {"kT": temperature}, "training": {"rule": "online", "seed": seed}}
        )


def cases(plan: TemperaturePlan, folder: Path) -> list[Case]:
    """A computer for each temperature and seed, and a measure of its samples.

    A case without a measure trains the computer, samples it, and measures heat and quality.
    """
    computers = [
        Case({"temperature": temperature, "seed": seed}, plan.computer(temperature, seed))
        for temperature in plan.temperatures
        for seed in plan.seeds
    ]
    contrasts = [
        Case(case.labels, case.settings, contrast, {"percentile": 95}, needs=(case,))
        for case in computers
    ]
    return [*computers, *contrasts]


def contrast(job: Job, percentile: float) -> dict[str, Any]:
    """The new measure: mean difference between bright and dark pixels of a sample.

    It runs once for each of its cases, on any worker; whatever it returns is saved.
    """
    from thermoloom.generation import generate

    samples = job.settings.generation.samples
    generated = generate(job.parameters(), samples, job.settings.generation_seed)
    pixels = generated.final_states[:, : job.settings.machine.visible]
    low, high = np.percentile(pixels, (100 - percentile, percentile), axis=1)
    return {"contrast": float(np.mean(high - low))}


def summarize(plan: TemperaturePlan, gathered: Gathered, run: RunDirectory) -> dict[str, Any]:
    """Save a table for figures and statements, and return the numbers for the report."""
    rows = []
    for record in gathered:
        if record.case.samples_computer and not record.diverged:
            measured = [r for r in gathered.where(**record.labels) if r.case.measure is contrast]
            rows.append(
                {
                    **record.labels,
                    "heat": record.results["heat"]["mean"],
                    "contrast": measured[0].results["contrast"] if measured else None,
                }
            )
    save_rows(run, "heats", rows)
    return {"rows": rows}


STUDY = Study(
    name="skeleton",
    title="Heat and temperature",
    question="Does a warmer computer release more heat?",
    presets={
        "full": TemperaturePlan(),
        "quick": TemperaturePlan(
            settings=brief(cycles=6, samples=10), seeds=(101,), temperatures=(0.1, 0.4)
        ),
    },
    cases=cases,
    summarize=summarize,
    figures=(Figure("heats", "Heat by temperature", "draw_heats"),),
    varied=("training.rule", "training.period", "training.seed", "machine.kT"),
)
