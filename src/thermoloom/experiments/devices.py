"""Devices: how unequal may they be, and what can a chip mend that continues to learn?

    written    θ*, computed for the ideal machine, on a device with one imperfection
    learning   the online rule continues there from θ*, trajectory by trajectory

Each imperfection comes at several strengths, each with a device of its own; a device without any
shows what the rule itself does to θ*. Couplings that drift are compared with a device that was
left alone for as long as the other one learned. Preset ``ten``: ten digits on demand, by the asked
class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.computers.pattern_store import patterns_of
from thermoloom.computers.training_runs import parameters_of
from thermoloom.errors import UserError
from thermoloom.experiments.cutting import measuring_tasks
from thermoloom.experiments.digits import HARMONIC, DigitsPlan
from thermoloom.experiments.plan import SECTION, VARIED, Experiment, Plan
from thermoloom.experiments.results import (
    RUNS,
    finished,
    save_rows,
    trained_path,
)
from thermoloom.experiments.works import Job, Work
from thermoloom.generation import asked_classes, generate
from thermoloom.machine.device import Device
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.quality import MEASURES, measure_quality
from thermoloom.measures.statistics import estimate_mean
from thermoloom.patterns.fields import label_words
from thermoloom.runs.formats import rows_of
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task
from thermoloom.settings import GenerationSettings, PrototypeSettings, Settings, Training
from thermoloom.training.trainer import Trainee, train_together

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
QUALITY = "absolute_correlation"
"""The measure to watch: the classifier still accepts much that no longer looks like a prototype."""
ASKED = "asked"
"""What is watched where classes are asked for: how often they are recognized."""
MEASURED = {QUALITY: "correlation with the nearest prototype", ASKED: "recognized as asked"}
COLUMNS = ("heat", "heat_sem", "work", f"{QUALITY}_sem", ASKED, f"{ASKED}_sem", *MEASURES)
"""Numbers of a set of samples."""
SHOWN = 8
"""Samples of each computer whose images are kept."""


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
            raise UserError(f"{SECTION}.trajectories: must rise, from 1 on")
        for name in LABELS:
            for strength in getattr(self, name):
                Device(**{name: strength})
                if strength == 0:
                    raise UserError(f"{SECTION}.{name}: 0 is the ideal device, always included")

    @property
    def optimum(self) -> Settings:
        """θ* of the ideal machine."""
        return optimum_of(self.settings)

    def works(self) -> Iterator[tuple[str, float, int, Work]]:
        """(imperfection, strength, seed, work) of every device."""
        conditions = [(NONE, 0.0)]
        conditions += [(name, strength) for name in LABELS for strength in getattr(self, name)]
        for seed in self.seeds:
            for name, strength in conditions:
                training = {"seed": seed, "cycles": self.trajectories[-1]}
                values: dict[str, dict[str, Any]] = {"training": training}
                if name != NONE:
                    values["device"] = {name: strength, "seed": seed}
                samples = self.settings.generation.samples
                more = {"trajectories": list(self.trajectories), "samples": samples}
                settings = self.settings.updated(values)
                yield name, strength, seed, Work("recalibration", settings, more)


def optimum_of(settings: Settings) -> Settings:
    """θ* does not depend on rules, seeds and devices, so there is one for all of them."""
    return replace(settings, training=Training(rule="optimum"), device=Device())


# --- one device -----------------------------------------------------------------------------------


def recalibrate(job: Job, trajectories: list[int], samples: int) -> dict[str, Any]:
    """θ* written on a device and sampled; then the rule continues there, sampled on the way."""
    settings = job.settings
    start = parameters_of(RunDirectory.open(trained_path(job.workdir, optimum_of(settings))))
    rows: list[dict[str, Any]] = []
    images: dict[str, Any] = {}

    def sample(theta: Parameters, how: str, cycles: int, age: float = 0.0) -> None:
        device = replace(settings.device, age=age)
        row, images[how] = sampled(job, theta.on(replace(settings, device=device).built), samples)
        rows.append({"how": how, "trajectories": cycles, **row})

    sample(start, "written", 0)
    trainee = Trainee.new(settings, start)
    words = label_words(job.patterns, settings.machine)
    for _ in train_together([trainee], job.fields, words):
        job.report(trainee.cycle, trajectories[-1], trainee.curve[-1][1])
        if trainee.cycle in trajectories and not trainee.diverged:
            sample(trainee.parameters, "learning", trainee.cycle)
            if settings.device.drift:
                sample(start, "written", trainee.cycle, age=trainee.cycle)
    save_rows(job.run, "course", rows)
    job.run.save_table("curve", trainee.curve_columns())
    job.run.save_arrays("images", images)
    return {"diverged": trainee.diverged}


def sampled(job: Job, theta: Parameters, samples: int) -> tuple[dict[str, Any], Any]:
    """Heat, work and quality of samples; the first of them. Not finite: no numbers."""
    settings = job.settings
    with np.errstate(over="ignore", invalid="ignore"):
        made = generate(theta, samples, settings.generation_seed)
    states = made.final_states[:, : settings.machine.visible]
    if not np.isfinite(states).all():
        return dict.fromkeys(COLUMNS), states[:SHOWN]
    quality = measure_quality(states, job.patterns, settings.measures.classifier)
    asked = asked_classes(theta, samples, None)
    heat = estimate_mean(made.heat)
    right, error = None, None
    if asked is not None and quality.sample_class is not None:
        right = float(np.mean(quality.sample_class == asked))
        error = math.sqrt(right * (1 - right) / samples)
    values = (
        heat.mean,
        heat.sem,
        float(made.work.mean()),
        estimate_mean(np.abs(quality.sample_correlation)).sem,
        right,
        error,
        *quality.summary().values(),
    )
    return dict(zip(COLUMNS, values, strict=True)), states[:SHOWN]


# --- tasks, tables, summary -----------------------------------------------------------------------


def models(plan: DevicesPlan) -> list[Settings]:
    return [plan.optimum, *(work.settings for _, _, _, work in plan.works())]


def tasks(plan: DevicesPlan, folder: Path, workers: int) -> list[Task]:
    """θ* first, then every device; those whose kernels take longest begin."""
    place = trained_path(Path(), plan.optimum)
    if finished(folder / place) is None:
        return measuring_tasks([("the optimum", [plan.optimum])], folder, 1)
    works = sorted(plan.works(), key=lambda found: not found[3].settings.device.couples)
    return [
        work.task(f"{LABELS.get(name, name)} {strength:g}, seed {seed}", [place])
        for name, strength, seed, work in works
    ]


def assemble(plan: DevicesPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """The course of every device, and how much of its loss learning recovered."""
    rows: list[dict[str, Any]] = []
    missing: list[str] = []
    pictures: dict[str, Any] = {}
    spent = 0.0
    for name, strength, seed, work in plan.works():
        done = work.found(folder)
        if done is None:
            missing.append(f"{LABELS.get(name, name)} {strength:g}, seed {seed}: not measured")
            continue
        about = {"imperfection": name, "strength": strength, "seed": seed}
        rows += [about | row for row in rows_of(done.load_table("course"))]
        spent += done.results["seconds"]
        if seed == plan.seeds[0]:
            kept = done.load_arrays("images")
            pictures |= {f"{name} {strength:g} {how}": kept[how] for how in kept}
    if not any(row["imperfection"] == NONE for row in rows):
        raise UserError(f"{folder}: the ideal device was not measured: {' | '.join(missing)}")
    save_rows(run, "courses", rows)
    shape = patterns_of(plan.settings, folder / RUNS).shape
    run.save_arrays("images", pictures, {"shape": shape})
    measure = ASKED if any(row[ASKED] is not None for row in rows) else QUALITY
    conditions = _conditions(rows, measure)
    return {
        "seeds": sorted({row["seed"] for row in rows}),
        "missing": missing,
        "measure": measure,
        "measured": MEASURED[measure],
        "samples": plan.settings.generation.samples,
        "trajectories": plan.trajectories[-1],
        "kT": plan.settings.machine.kT,
        "imperfections": {k: v for k, v in LABELS.items() if getattr(plan, k)},
        "conditions": conditions,
        "groups": _groups(conditions),
        "rows": rows,
        "timing": {"recalibration": spent},
    }


def _conditions(rows: Sequence[dict[str, Any]], measure: str = QUALITY) -> list[dict[str, Any]]:
    """A row for each imperfection and strength: before, after, and what came back."""
    found = []
    ideal = _of(rows, NONE, 0.0, "written")
    error = f"{measure}_sem"
    for name, strength in dict.fromkeys((row["imperfection"], row["strength"]) for row in rows):
        before, after = (_of(rows, name, strength, how) for how in ("written", "learning"))
        base, last, best = before[measure], after[measure], ideal[measure]
        lost = None if base is None else best - base
        noise = math.hypot(ideal[error] or 0.0, before[error] or 0.0)
        resolved = lost is not None and lost > 3 * noise
        back = (last - base) / lost if resolved and lost and last is not None else None
        found.append({
            "imperfection": name, "label": LABELS.get(name, "none (ideal)"), "strength": strength,
            "before": base, "after": last, "change": None if None in (base, last) else last - base,
            "sem": before[error], "after_sem": after[error], "lost": lost, "recovered": back,
            "heat_before": before["heat"], "heat_after": after["heat"],
            "work_before": before["work"], "work_after": after["work"],
            "softmax_before": before["max_softmax"], "softmax_after": after["max_softmax"],
            "asked_before": before[ASKED], "asked_after": after[ASKED],
        })  # fmt: skip
    return found


def _of(rows: Sequence[dict[str, Any]], name: str, strength: float, how: str) -> dict[str, Any]:
    """The last point of a course, mean over seeds; None where a number is missing."""
    own = {
        row["seed"]: row for row in rows
        if (row["imperfection"], row["strength"], row["how"]) == (name, strength, how)
    }  # fmt: skip
    columns = {
        key: [row[key] for row in own.values()]
        for key in rows[0]
        if key not in ("imperfection", "how")
    }
    return {
        key: None if not values or None in values else float(np.mean(values))
        for key, values in columns.items()
    }


def _groups(conditions: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Imperfections that did no harm, were recovered, partly recovered, or not recovered."""
    groups: dict[str, list[dict[str, Any]]] = {
        key: [] for key in ("harmless", "mended", "partly", "lost")
    }
    for own in conditions:
        back = own["recovered"]
        if own["imperfection"] == NONE:
            continue
        if back is None:
            groups["lost" if own["before"] is None else "harmless"].append(own)
        else:
            groups["mended" if back >= 0.9 else "partly" if back >= 0.25 else "lost"].append(own)
    return groups


_FULL = DevicesPlan()
_QUICK = replace(
    _FULL,
    settings=Settings(generation=GenerationSettings(samples=16)),
    trajectories=(3,),
    **{name: getattr(_FULL, name)[-1:] for name in LABELS},
)

_ONLINE = DigitsPlan()
_FEW: dict[str, Any] = dict.fromkeys(LABELS, ()) | {
    "gain_error": (1.0,), "offset": (0.03,), "dead": (0.1, 0.3), "stuck": (0.05,),
    "spread_J2": (0.3,), "spread_mobility": (0.5,),
}  # fmt: skip
_TEN = replace(
    _FULL,
    settings=Settings(
        replace(HARMONIC, styles=10, label_amplitude=_ONLINE.online_amplitude),
        PrototypeSettings(digits=tuple(range(10)), per_digit=10),
        training=Training(learning_rate=_ONLINE.online_rate),
        generation=GenerationSettings(samples=200),
    ),
    trajectories=(10, 30, 100),
    **_FEW,
)
"""A label unit for each of the hundred bundled images, and rates that its rule is stable at: each
line of a label learns from every hundredth trajectory."""

EXPERIMENT = Experiment(
    name="devices",
    title="Devices that are not as they should be",
    presets={"full": _FULL, "paper": _FULL, "quick": _QUICK, "ten": _TEN},
    models=models,
    tasks=tasks,
    assemble=assemble,
    varied=(
        *VARIED,
        "training.cycles",
        *(f"device.{key}" for key in asdict(Device()) if key != "stuck_at"),
    ),
)
