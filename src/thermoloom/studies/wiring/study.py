"""Wiring: quality, heat and correct class by the number and the length of wires.

Two machines, each solved exactly on every wiring, some also trained by the online rule:

    three   the paper's machine and its three digits; no class is requested
    ten     harmonic visible units, four stages, a label unit for each class, ten images of each

A grid has all wires up to a length; a random wiring has wires of any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.errors import UserError
from thermoloom.generation import generate, requested_classes
from thermoloom.machine import wires
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.presets import HARMONIC, ONLINE_AMPLITUDE, ONLINE_RATE
from thermoloom.measures.class_accuracy import RequestedImages
from thermoloom.measures.quality import measure_quality
from thermoloom.measures.statistics import estimate_mean
from thermoloom.patterns.drive import Drive, drive_of
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import GenerationSettings, PatternSettings, Settings
from thermoloom.studies.case import TIMING, Case, Job, is_classified
from thermoloom.studies.first_patterns import first_patterns
from thermoloom.studies.gather import Gathered, Record, save_rows
from thermoloom.studies.pairs import OPTIMUM
from thermoloom.studies.sampled_computer import SAMPLE_IN_CYCLES, Clock
from thermoloom.studies.study import SECTION, VARIED, Figure, Plan, Study
from thermoloom.theory.expected_loss import expected_losses
from thermoloom.theory.marginals import solve_marginals
from thermoloom.theory.solver import solve_optimum
from thermoloom.training.trainer import Trainee, train

THREE, TEN = "three", "ten"
COMPLETE, GRID, RANDOM, NO_HIDDEN = "complete", "grid", "random", "no hidden-hidden"
ONLINE = "online"

_HARMONIC = ("hidden", "labels", "stages", "wiring", "biases", "J4", "dt")
MACHINES: dict[str, dict[str, Any]] = {
    THREE: {},
    TEN: {key: getattr(HARMONIC, key) for key in _HARMONIC},
}
"""Settings of each machine that differ from those of the plan."""
ONLINE_SETTINGS: dict[str, dict[str, Any]] = {
    THREE: {},
    TEN: {
        "machine": {"label_amplitude": ONLINE_AMPLITUDE},
        "training": {"learning_rate": ONLINE_RATE},
    },
}
"""Settings that differ for the online rule. The optimum and its samples do not depend on the
amplitude of labels."""
PATTERNS = {THREE: 3, TEN: 0}
"""Number of patterns that each machine learns, counted from the first; 0: all."""
ENOUGH = 0.95
"""A wiring is enough if it reaches this fraction of the quality of the complete wiring."""
TOLERANCE = 1e-4
"""|∇L(θ)|/|∇L(0)| at which θ* counts as solved; heat and images no longer change."""
STAGES = ("solving or training", "sampling")
QUALITY = ("max_softmax", "target_fraction", "polarity", "absolute_correlation")


@dataclass(frozen=True)
class WiringPlan(Plan):
    """Wirings that are solved, wirings that are trained, and the samples drawn from each."""

    settings: Settings = field(
        default_factory=lambda: Settings(
            patterns=PatternSettings(digits=tuple(range(10)), per_digit=10),
            generation=GenerationSettings(samples=100),
        )
    )
    seeds: tuple[int, ...] = (101,)
    radii: tuple[int, ...] = (1, 2, 3, 5, 8, 12, 20)
    """Longest wires of the grids, in sites of the sheet."""
    degrees: tuple[int, ...] = (2, 4, 8, 24, 64, 150)
    """Mean number of wires per unit of the random wirings."""
    online_radii: tuple[int, ...] = (3, 6)
    """Grids that are also trained by the online rule."""
    online_degrees: tuple[int, ...] = (8, 24)
    online_cycles: int = 300

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("radii", "degrees", "online_radii", "online_degrees"):
            values = getattr(self, key)
            if min(values) < 1 or list(values) != sorted(set(values)):
                raise UserError(
                    f"{SECTION}.{key} = {list(values)}: must be at least 1 and increasing"
                )

    def wirings(self, machine: str, rule: str) -> list[tuple[str, int, dict[str, Any]]]:
        """(wiring, radius or degree, settings of the machine), the complete one first."""
        solved = rule == OPTIMUM
        radii = self.radii if solved else self.online_radii
        degrees = self.degrees if solved else self.online_degrees
        wirings: list[tuple[str, int, dict[str, Any]]] = [
            (COMPLETE, 0, {}),
            *((GRID, radius, {"topology": GRID, "radius": radius}) for radius in radii),
            *((RANDOM, degree, {"topology": RANDOM, "degree": degree}) for degree in degrees),
        ]
        if machine == THREE and solved:
            fewer = [w for w in self.settings.machine.wiring if w != "hidden-hidden"]
            wirings.append((NO_HIDDEN, 0, {"wiring": fewer}))
        return wirings

    def computer(self, machine: str, wiring: dict[str, Any], rule: str) -> Settings:
        """A machine on a wiring, solved or trained."""
        settings = self.settings.updated(
            {"machine": MACHINES[machine] | wiring, "training": {"seed": self.seeds[0]}}
        )
        if rule == OPTIMUM:
            return settings.updated({"solver": {}})
        training = {"training": {"rule": rule, "cycles": self.online_cycles}}
        return settings.updated(training).updated(ONLINE_SETTINGS[machine])


def cases(plan: WiringPlan, folder: Path) -> list[Case]:
    """Every machine on every wiring, solved and trained."""
    sampling = SAMPLE_IN_CYCLES * plan.settings.generation.samples
    return [
        Case(
            {"machine": machine, "wiring": wiring, "value": size, "rule": rule},
            plan.computer(machine, topology, rule),
            computer_on_wiring,
            {"patterns": PATTERNS[machine]},
            cycles=sampling + (plan.online_cycles if rule == ONLINE else 0),
        )
        for machine in MACHINES
        for rule in (OPTIMUM, ONLINE)
        for wiring, size, topology in plan.wirings(machine, rule)
    ]


# --- one machine on one wiring ---


def computer_on_wiring(job: Job, patterns: int) -> dict[str, Any]:
    """Learn the first ``patterns``, sample, judge; only the numbers are saved."""
    settings, clock = job.settings, Clock()
    learned = first_patterns(job.patterns, patterns)
    with clock.measure(STAGES[0]):
        theta, loss = _computer(job, drive_of(learned, settings.machine))
    with clock.measure(STAGES[1]):
        samples = settings.generation.samples
        generated = generate(theta, samples, settings.generation_seed)
        images = generated.final_states[:, : settings.machine.visible]
        quality = measure_quality(images, learned, settings.measures.classifier)
        by_class: dict[str, Any] = {"correct_class": None, "diversity": None}
        classes = requested_classes(theta, samples, None)
        if classes is not None and is_classified(settings):
            judged = RequestedImages(images, classes.astype(np.intp), settings.measures.classifier)
            by_class = {key: judged.class_measures(learned)[key] for key in by_class}
    return by_class | {
        "expected_loss": loss,
        "heat": asdict(estimate_mean(generated.heat)),
        "work": asdict(estimate_mean(generated.work)),
        "quality": quality.summary(),
        TIMING: clock.seconds,
    }


def _computer(job: Job, drive: Drive) -> tuple[Parameters, float]:
    """θ, solved or trained, and its expected loss per step."""
    machine = job.settings.machine
    if job.settings.solved:
        optimum = solve_optimum(machine, drive, TOLERANCE)
        return optimum.parameters, optimum.expected_loss
    cycles = job.settings.training.cycles
    trainee = Trainee.new(job.settings)
    train([trainee], drive, lambda _: job.report(trainee.cycle, cycles, None))
    marginals = solve_marginals(machine, float(np.abs(drive.fields).max()))
    losses = expected_losses(machine, drive.fields, marginals, drive.words)
    vectors = trainee.parameters.vector.astype(np.float64)
    total = sum(loss.total(vector) for loss, vector in zip(losses, vectors, strict=True))
    return trainee.parameters, total / machine.steps


# --- tables and summary ---


def summarize(plan: WiringPlan, gathered: Gathered, run: RunDirectory) -> dict[str, Any]:
    """A row for each machine on each wiring, and how few wires are enough."""
    rows = [_row(record) for record in gathered]
    save_rows(run, "points", rows)
    classified = rows[0]["max_softmax"] is not None
    measures = {machine: quality_column(machine, classified) for machine in MACHINES}
    fewest = [fewest_wires(rows, THREE, wiring, measures[THREE]) for wiring in (GRID, RANDOM)]
    return {
        "classified": classified,
        "samples": plan.settings.generation.samples,
        "cycles": plan.online_cycles,
        "enough": ENOUGH,
        "measures": measures,
        "rows": rows,
        "least": [row for row in fewest if row is not None],
        "correct_class": most_often_correct(rows),
        "timing": gathered.seconds(STAGES),
    }


def quality_column(machine: str, classified: bool) -> str:
    """Column that measures quality: correct class where one is requested, else recognizability."""
    if not classified:
        return "absolute_correlation"
    return "correct_class" if machine == TEN else "max_softmax"


def _row(record: Record) -> dict[str, Any]:
    results = record.results
    return {
        **record.labels,
        **asdict(wires.measure(record.settings.machine)),
        "expected_loss": results["expected_loss"],
        "heat": results["heat"]["mean"],
        "heat_sem": results["heat"]["sem"],
        "work": results["work"]["mean"],
        "correct_class": results["correct_class"],
        "diversity": results["diversity"],
        **{key: results["quality"][key] for key in QUALITY},
    }


def fewest_wires(
    rows: Sequence[dict[str, Any]], machine: str, wiring: str, column: str
) -> dict[str, Any] | None:
    """The fewest wires that reach enough of the quality of the complete wiring."""
    solved = [row for row in rows if (row["machine"], row["rule"]) == (machine, OPTIMUM)]
    complete = next((row for row in solved if row["wiring"] == COMPLETE), None)
    if complete is None:
        return None
    good = [row for row in solved
            if row["wiring"] == wiring and row[column] >= ENOUGH * complete[column]]  # fmt: skip
    if not good:
        return None
    fewest = min(good, key=lambda row: int(row["wires"]))
    return {
        **{key: fewest[key] for key in ("machine", "wiring", "value", "wires", "length", "heat")},
        "quality": fewest[column],
        "complete": complete[column],
        "percent_wires": 100 * fewest["wires"] / complete["wires"],
        "percent_length": 100 * fewest["length"] / complete["length"],
        "complete_heat": complete["heat"],
    }


def most_often_correct(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ten digits, solved: for each kind of wiring, the one with the most correct samples."""
    solved = [r for r in rows if (r["machine"], r["rule"]) == (TEN, OPTIMUM)]
    kinds = [
        [row for row in solved if row["wiring"] == kind and row["correct_class"] is not None]
        for kind in (COMPLETE, GRID, RANDOM)
    ]
    return [max(kind, key=lambda row: float(row["correct_class"])) for kind in kinds if kind]


FULL = WiringPlan()
QUICK = WiringPlan(
    settings=FULL.settings.updated({"generation": {"samples": 20}}),
    radii=(2, 6),
    degrees=(8, 64),
    online_radii=(3,),
    online_degrees=(24,),
    online_cycles=30,
)
STUDY = Study(
    name="wiring",
    title="Wiring: number and length of wires",
    question="Beyond the paper: how many wires are needed, and how long are they?",
    presets={"full": FULL, "paper": FULL, "quick": QUICK},
    cases=cases,
    summarize=summarize,
    figures=(Figure("wiring", "Quality and heat by wiring", "draw_wiring"),),
    order=10,
    varied=(
        *VARIED,
        "patterns.digits",
        *(f"machine.{key}" for key in ("topology", "radius", "degree", "edges")),
    ),
)
