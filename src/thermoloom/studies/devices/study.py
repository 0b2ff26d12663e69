"""Devices: how much can they vary, and what can learning on the chip correct?

    written    θ*, computed for the ideal machine, on a device with one imperfection
    learning   the online rule continues there from θ*, trajectory by trajectory

Each imperfection has several strengths, each with a separate device. A device without imperfection
shows how the rule itself changes θ*. Where couplings drift, a second device ages for as long
without learning. Preset ``ten``: ten digits on request, judged by the correct class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.generation import generate, requested_classes
from thermoloom.machine.device import Device
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.presets import HARMONIC, ONLINE_AMPLITUDE, ONLINE_RATE
from thermoloom.measures.quality import MEASURES, measure_quality
from thermoloom.measures.statistics import estimate_mean
from thermoloom.runs.formats import rows_of
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import GenerationSettings, PatternSettings, Settings, Solver, Training
from thermoloom.studies.case import Case, Job
from thermoloom.studies.gather import Gathered, save_rows
from thermoloom.studies.sampled_computer import SAMPLE_IN_CYCLES
from thermoloom.studies.study import SECTION, VARIED, Figure, Plan, Study
from thermoloom.training.trainer import Trainee, train

LABELS = {
    "spread_J2": "spread of J₂",
    "spread_J4": "spread of J₄",
    "spread_mobility": "spread of mobility",
    "spread_temperature": "spread of temperature",
    "gain_error": "gain error",
    "offset": "offset",
    "dead": "dead couplings",
    "stuck": "stuck couplings",
    "non_reciprocity": "non-reciprocity",
    "drift": "drift",
}
"""Imperfections, in the order of tables and figures."""
NONE = "none"
"""Imperfection of the ideal device."""
WRITTEN, LEARNING = "written", "learning"
QUALITY = "absolute_correlation"
"""Measure of samples without a requested class. The classifier cannot serve here: it accepts many
samples that no longer look like a pattern."""
CORRECT_CLASS = "correct_class"
"""Measure of samples of a requested class."""
MEASURED = {
    QUALITY: "correlation with the nearest pattern",
    CORRECT_CLASS: "fraction with the correct class",
}
COLUMNS = (
    "heat", "heat_sem", "work", f"{QUALITY}_sem", CORRECT_CLASS, f"{CORRECT_CLASS}_sem", *MEASURES
)  # fmt: skip
"""Columns that describe a set of samples."""
RESOLVED = 3
"""Standard errors that a loss of quality must exceed to count."""
CORRECTED, PARTLY = 0.9, 0.25
"""Smallest recovered part of a loss for a device to count as corrected, or partly so."""
SAVED = 8
"""Number of samples of each computer whose images are saved."""
SLOW = 2
"""Cost of a device that changes the couplings written on it, relative to one that does not."""


@dataclass(frozen=True)
class DevicesPlan(Plan):
    """Strengths of every imperfection, and how long the rule continues."""

    optional = tuple(LABELS)

    settings: Settings = field(
        default_factory=lambda: Settings(generation=GenerationSettings(samples=50))
    )
    seeds: tuple[int, ...] = (101,)
    trajectories: tuple[int, ...] = (3, 10, 30)
    """Noising trajectories after which the computer that continues to learn is sampled."""
    spread_J2: tuple[float, ...] = (0.3, 1.0)
    spread_J4: tuple[float, ...] = (0.3, 1.0)
    spread_mobility: tuple[float, ...] = (0.3, 1.0)
    spread_temperature: tuple[float, ...] = (0.3, 1.0)
    gain_error: tuple[float, ...] = (0.5, 2.0)
    offset: tuple[float, ...] = (0.03, 0.1)
    dead: tuple[float, ...] = (0.1, 0.3)
    stuck: tuple[float, ...] = (0.05, 0.2)
    non_reciprocity: tuple[float, ...] = (0.5, 2.0)
    drift: tuple[float, ...] = (0.001, 0.01)

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = tuple(sorted(set(self.trajectories)))
        if self.trajectories != rising or rising[0] < 1:
            raise UserError(f"{SECTION}.trajectories: must be at least 1 and increasing")
        for name in LABELS:
            for strength in getattr(self, name):
                Device(**{name: strength})
                if strength == 0:
                    raise UserError(f"{SECTION}.{name}: 0 is the ideal device, always included")

    def device(self, imperfection: str, strength: float, seed: int, optimum: Case) -> Case:
        """One device on which θ* is written and the rule continues."""
        device = {} if imperfection == NONE else {imperfection: strength, "seed": seed}
        training = {"seed": seed, "cycles": self.trajectories[-1]}
        settings = self.settings.updated({"training": training, "device": device})
        samples = settings.generation.samples * (1 + len(self.trajectories))
        cycles = self.trajectories[-1] + SAMPLE_IN_CYCLES * samples
        return Case(
            {"imperfection": imperfection, "strength": strength, "seed": seed},
            settings,
            recalibration,
            {"trajectories": self.trajectories},
            needs=(optimum,),
            cycles=cycles * (SLOW if settings.device.couples else 1),
        )


def cases(plan: DevicesPlan, folder: Path) -> list[Case]:
    """θ*, then every device."""
    optimum = Case({}, optimum_of(plan.settings), group="the optimum")
    strengths = [(name, strength) for name in LABELS for strength in getattr(plan, name)]
    devices = [
        plan.device(imperfection, strength, seed, optimum)
        for seed in plan.seeds
        for imperfection, strength in [(NONE, 0.0), *strengths]
    ]
    return [optimum, *devices]


def optimum_of(settings: Settings) -> Settings:
    """θ* of the ideal machine, one for all seeds and devices."""
    return replace(settings, training=Training(), device=Device(), solver=Solver())


# --- one device ---


def recalibration(job: Job, trajectories: list[int]) -> dict[str, Any]:
    """Write θ* on a device and sample it; then continue the rule there, sampling along the way."""
    settings = job.settings
    start = job.parameters(optimum_of(settings))
    rows: list[dict[str, Any]] = []
    images: dict[str, Any] = {}

    def sample(theta: Parameters, how: str, cycle: int, age: float = 0.0) -> None:
        device = replace(settings.device, age=age)
        numbers, images[how] = _sampled(job, theta.on(replace(settings, device=device).built))
        rows.append({"how": how, "trajectories": cycle, **numbers})

    sample(start, WRITTEN, 0)
    trainee = Trainee.new(settings, start)

    def after_cycle(_: list[Trainee]) -> None:
        job.report(trainee.cycle, trajectories[-1], trainee.curve[-1][1])
        if trainee.cycle in trajectories and not trainee.diverged:
            sample(trainee.parameters, LEARNING, trainee.cycle)
            if settings.device.drift:
                sample(start, WRITTEN, trainee.cycle, age=trainee.cycle)

    train([trainee], job.drive, after_cycle)
    save_rows(job.run, "course", rows)
    job.run.save_table("curve", trainee.curve_columns())
    job.run.save_arrays("images", images, {"shape": job.patterns.shape})
    return {"diverged": trainee.diverged}


def _sampled(job: Job, theta: Parameters) -> tuple[dict[str, Any], NDArray[np.float32]]:
    """Heat, work and quality of samples (None where they are not finite), and the first images."""
    settings = job.settings
    samples = settings.generation.samples
    with np.errstate(over="ignore", invalid="ignore"):
        generated = generate(theta, samples, settings.generation_seed)
    states = generated.final_states[:, : settings.machine.visible]
    if not np.isfinite(states).all():
        return dict.fromkeys(COLUMNS), states[:SAVED]
    quality = measure_quality(states, job.patterns, settings.measures.classifier)
    heat = estimate_mean(generated.heat)
    correct, correct_error = None, None
    classes = requested_classes(theta, samples, None)
    if classes is not None and quality.sample_class is not None:
        correct = float(np.mean(quality.sample_class == classes))
        correct_error = math.sqrt(correct * (1 - correct) / samples)
    numbers = (
        heat.mean,
        heat.sem,
        float(generated.work.mean()),
        estimate_mean(np.abs(quality.sample_correlation)).sem,
        correct,
        correct_error,
        *quality.summary().values(),
    )
    return dict(zip(COLUMNS, numbers, strict=True)), states[:SAVED]


# --- tables and summary ---


def summarize(plan: DevicesPlan, gathered: Gathered, run: RunDirectory) -> dict[str, Any]:
    """The course of every device, and how much of its loss learning recovered."""
    if gathered.one(imperfection=NONE) is None:
        missing = " | ".join(gathered.missing)
        raise UserError(f"{gathered.folder}: the ideal device was not measured: {missing}")
    rows: list[dict[str, Any]] = []
    images: dict[str, Any] = {}
    shape = None
    for record in gathered.of(recalibration):
        rows += [{**record.labels, **point} for point in rows_of(record.table("course"))]
        if record.seed == plan.seeds[0]:
            images |= {
                image_key(record.labels, how): states
                for how, states in record.run.load_arrays("images").items()
            }
            shape = record.run.load_metadata("images")["shape"]
    save_rows(run, "courses", rows)
    run.save_arrays("images", images, {"shape": shape})
    measure = CORRECT_CLASS if any(row[CORRECT_CLASS] is not None for row in rows) else QUALITY
    conditions = condition_rows(rows, measure)
    return {
        "measure": measure,
        "measured": MEASURED[measure],
        "samples": plan.settings.generation.samples,
        "trajectories": plan.trajectories[-1],
        "imperfections": {name: LABELS[name] for name in LABELS if getattr(plan, name)},
        "conditions": conditions,
        "groups": recovery_groups(conditions),
        "rows": rows,
    }


def device_name(row: Mapping[str, Any]) -> str:
    """Imperfection and strength, as tables and figures name a device."""
    return f"{row['label']} {row['strength']:g}" if row["strength"] else str(row["label"])


def image_key(row: Mapping[str, Any], how: str) -> str:
    """Name of an array of images: those of a device, as written or after learning."""
    return f"{row['imperfection']} {row['strength']:g} {how}"


def condition_rows(rows: Sequence[dict[str, Any]], measure: str = QUALITY) -> list[dict[str, Any]]:
    """A row for each imperfection and strength: before, after, and the part recovered."""
    ideal = last_point(rows, NONE, 0.0, WRITTEN)
    error = f"{measure}_sem"
    conditions = []
    for name, strength in dict.fromkeys((row["imperfection"], row["strength"]) for row in rows):
        before, after = (last_point(rows, name, strength, how) for how in (WRITTEN, LEARNING))
        start, end = before[measure], after[measure]
        lost = None if start is None else ideal[measure] - start
        change = None if start is None or end is None else end - start
        noise = math.hypot(ideal[error] or 0.0, before[error] or 0.0)
        resolved = lost is not None and lost > RESOLVED * noise
        conditions.append({
            "imperfection": name, "label": LABELS.get(name, "none (ideal)"), "strength": strength,
            "before": start, "after": end, "change": change,
            "sem": before[error], "after_sem": after[error], "lost": lost,
            "recovered": change / lost if resolved and lost and change is not None else None,
            "heat_before": before["heat"], "heat_after": after["heat"],
            "work_before": before["work"], "work_after": after["work"],
            "softmax_before": before["max_softmax"], "softmax_after": after["max_softmax"],
            "correct_class_before": before[CORRECT_CLASS],
            "correct_class_after": after[CORRECT_CLASS],
        })  # fmt: skip
    return conditions


def last_point(
    rows: Sequence[dict[str, Any]], imperfection: str, strength: float, how: str
) -> dict[str, Any]:
    """The last point of a course, mean over seeds; None where a number is missing."""
    points = {
        row["seed"]: row for row in rows
        if (row["imperfection"], row["strength"], row["how"]) == (imperfection, strength, how)
    }  # fmt: skip
    means: dict[str, float | None] = {}
    for column in [key for key in rows[0] if key not in ("imperfection", "how")]:
        numbers = [point[column] for point in points.values()]
        means[column] = None if not numbers or None in numbers else float(np.mean(numbers))
    return means


def recovery_groups(conditions: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Imperfections that did no harm, or were corrected, corrected in part, or not corrected."""
    groups: dict[str, list[dict[str, Any]]] = {
        key: [] for key in ("harmless", "corrected", "partly", "lost")
    }
    for row in conditions:
        recovered = row["recovered"]
        if row["imperfection"] == NONE:
            continue
        if recovered is None:
            group = "lost" if row["before"] is None else "harmless"
        else:
            partly = "partly" if recovered >= PARTLY else "lost"
            group = "corrected" if recovered >= CORRECTED else partly
        groups[group].append(row)
    return groups


FULL = DevicesPlan()
QUICK = replace(
    FULL,
    settings=Settings(generation=GenerationSettings(samples=16)),
    trajectories=(3,),
    **{name: getattr(FULL, name)[-1:] for name in LABELS},
)
_TEN_STRENGTHS: dict[str, Any] = dict.fromkeys(LABELS, ()) | {
    "gain_error": (1.0,), "offset": (0.03,), "dead": (0.1, 0.3), "stuck": (0.05,),
    "spread_J2": (0.3,), "spread_mobility": (0.5,),
}  # fmt: skip
TEN = replace(
    FULL,
    settings=Settings(
        replace(HARMONIC, styles=10, label_amplitude=ONLINE_AMPLITUDE),
        PatternSettings(digits=tuple(range(10)), per_digit=10),
        training=Training(learning_rate=ONLINE_RATE),
        generation=GenerationSettings(samples=200),
    ),
    trajectories=(10, 30, 100),
    **_TEN_STRENGTHS,
)
"""A label unit for each of the hundred bundled images; each label line learns only from
every hundredth trajectory."""

STUDY = Study(
    name="devices",
    title="Imperfect devices",
    question="Beyond the paper: how much can devices vary, and what can learning correct?",
    presets={"full": FULL, "paper": FULL, "quick": QUICK, "ten": TEN},
    cases=cases,
    summarize=summarize,
    figures=(
        Figure("devices", "Devices, written and recalibrated", "draw_devices"),
        Figure("device-samples", "Samples before and after recalibration", "draw_samples"),
    ),
    order=11,
    varied=(
        *VARIED,
        "training.cycles",
        *(f"device.{key}" for key in asdict(Device()) if key != "stuck_at"),
    ),
)
