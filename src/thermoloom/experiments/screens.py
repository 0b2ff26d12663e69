"""Screens: response curves over one setting, on the same noising paths and generation numbers.

    condition   one computer of a screen, and the run directory that holds its measures
    tasks       groups of computers that share paths; none is trained twice
    tables      curves.csv, a row a point; conditions.csv, a row a condition of a seed;
                samples.csv, a row a denoising trajectory

A condition whose parameters or samples cease to be finite is a result: it is recorded with its
cycle, and the screen goes on. The spread over the trajectories of a computer describes sampling;
only several training seeds replicate a curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.config import Settings
from thermoloom.errors import UserError
from thermoloom.experiments.models import RUNS, Paths, measures_path, patterns_input
from thermoloom.experiments.plan import SECTION, Plan
from thermoloom.measures.quality import MEASURES
from thermoloom.measures.statistics import spread
from thermoloom.runs.jobs import training_path
from thermoloom.runs.manifest import MANIFEST, flatten
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task

NO_PATHS = Paths(per_prototype=0)
"""Screens measure heat and quality; nothing on additional paths."""
STAGES = ("training", "generation", "quality")
VARIED = (
    "training.rule",
    "training.period",
    "training.seed",
    "imperfections.residual_noise",
    "imperfections.residual_offset",
    "imperfections.residual_correlation",
    "imperfections.update_noise",
    "imperfections.bits",
    "imperfections.rounding",
    "imperfections.range_visible_hidden",
    "imperfections.range_hidden_hidden",
)
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
    """A condition that is a training of its own."""
    path = measures_path(Path(), settings, NO_PATHS)
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


# --- tasks --------------------------------------------------------------------------------------


def training_tasks(groups: Iterable[tuple[str, Sequence[Condition]]]) -> list[Task]:
    """A task for each named group of computers that share their paths.

    A computer that comes again, be it with other samples, is left to the group that had it first:
    it is trained once, and no two tasks write to one run.
    """
    tasks: list[tuple[str, list[Settings]]] = []
    home: dict[Path, list[Settings]] = {}
    for name, conditions in groups:
        own: list[Settings] = []
        tasks.append((name, own))
        for condition in conditions:
            models = home.setdefault(training_path(Path(), condition.settings), own)
            if condition.settings not in models:
                models.append(condition.settings)
    return [_task(name, models) for name, models in tasks if models]


def _task(name: str, models: Sequence[Settings]) -> Task:
    outputs = [training_path(Path(RUNS), model) for model in models]
    outputs += [measures_path(Path(), model, NO_PATHS) for model in models]
    return Task(
        name=name,
        function="thermoloom.experiments.models:train_and_measure",
        arguments={
            "models": [model.as_dict() for model in models],
            "paths": asdict(NO_PATHS),
        },
        outputs=tuple(dict.fromkeys(str(path) for path in outputs)),
        inputs=(patterns_input(models[0]),),
    )


def in_pieces(
    name: str, conditions: Sequence[Condition], pieces: int
) -> list[tuple[str, list[Condition]]]:
    """Conditions dealt out to so many groups, each named by its values, by seed."""
    groups: list[tuple[str, list[Condition]]] = []
    for seed in dict.fromkeys(condition.seed for condition in conditions):
        own = [condition for condition in conditions if condition.seed == seed]
        for piece in range(min(pieces, len(own))):
            dealt = own[piece::pieces]
            values = ", ".join(f"{condition.value:g}" for condition in dealt)
            groups.append((f"{name} {values}, seed {seed}", dealt))
    return groups


# --- what the tasks left ------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """A condition that was carried out: measured, or diverged."""

    condition: Condition
    run: RunDirectory

    @property
    def diverged(self) -> bool:
        return self.run.state == "diverged"

    @property
    def results(self) -> dict[str, Any]:
        return self.run.results

    @cached_property
    def samples(self) -> dict[str, NDArray[Any]]:
        return self.run.load_table("samples")

    @property
    def heat(self) -> float:
        """Mean heat; infinite where the condition diverged."""
        return math.inf if self.diverged else float(self.results["heat"]["mean"])

    def quality(self, name: str) -> float | None:
        """A measure of quality; None where diverged or not defined."""
        return None if self.diverged else self.results["quality"][name]

    def row(self) -> dict[str, Any]:
        """A row of the table of conditions."""
        condition = self.condition
        row: dict[str, Any] = {
            "screen": condition.screen,
            "variant": condition.variant,
            "value": condition.value,
            "seed": condition.seed,
            "state": self.run.state,
            "diverged_in": self.results["cycle"] if self.diverged else None,
            "stage": self.results.get("stage", "training") if self.diverged else "",
        }
        heat = {} if self.diverged else self.results["heat"]
        row |= {f"heat_{key}": heat.get(key) for key in ("mean", "sd", "sem")}
        row["samples"] = condition.settings.generation.samples
        row["cycles"] = condition.settings.training.cycles
        return row | {name: self.quality(name) for name in MEASURES}


@dataclass(frozen=True)
class Change:
    """Mean heat (or another measure) of a condition minus that of another, with its error.

    Over the trajectories of one seed, which share their random numbers, or over several seeds.
    """

    mean: float
    error: float | None
    reference: float

    @property
    def percent(self) -> float:
        """Of the size of the reference; heat may be negative where little was learned."""
        return 100 * self.mean / abs(self.reference)

    def resolved(self, errors: float) -> bool:
        """Whether it is larger than so many of its standard errors; divergence is beyond doubt."""
        return math.isinf(self.mean) or (
            self.error is not None and abs(self.mean) > errors * self.error
        )


@dataclass(frozen=True)
class Curve:
    """A response curve: the conditions of one screen and variant."""

    measured: Sequence[Measured]

    @property
    def values(self) -> list[float]:
        """Values of which something is known, ascending."""
        return sorted({m.condition.value for m in self.measured})

    def at(self, value: float) -> list[Measured]:
        return [m for m in self.measured if math.isclose(m.condition.value, value, abs_tol=1e-12)]

    def has(self, reference: float, *values: float) -> bool:
        """Whether these were carried out, and the first of them, the reference, did not diverge."""
        base = self.at(reference)
        finite = bool(base) and not any(m.diverged for m in base)
        return finite and all(self.at(value) for value in values)

    def heat(self, value: float) -> float:
        """Mean over seeds of the mean heat; infinite if one of them diverged."""
        return float(np.mean([m.heat for m in self.at(value)]))

    def ratio(self, value: float, reference: float) -> float:
        """Heat in units of the size of the heat at ``reference``."""
        return self.heat(value) / abs(self.heat(reference))

    def quality(self, value: float, name: str) -> float | None:
        """Mean over seeds of a measure of quality."""
        found = [m.quality(name) for m in self.at(value)]
        known = [v for v in found if v is not None]
        return float(np.mean(known)) if known and len(known) == len(found) else None

    def change(self, value: float, reference: float, measure: str = "heat") -> Change:
        """A column of the samples at ``value`` minus that at ``reference``, in pairs.

        Pairs of trajectories where there is one seed, of seed means where there are several.
        """
        base = {m.condition.seed: m for m in self.at(reference)}
        pairs = [(m, base[m.condition.seed]) for m in self.at(value) if m.condition.seed in base]
        if any(m.diverged or b.diverged for m, b in pairs):
            return Change(math.inf, None, float(np.mean([b.heat for _, b in pairs])))
        differences = [m.samples[measure] - b.samples[measure] for m, b in pairs]
        found = spread(differences[0] if len(pairs) == 1 else [d.mean() for d in differences])
        level = float(np.mean([b.samples[measure].mean() for _, b in pairs]))
        return Change(found.mean, found.sem, level)

    def points(self) -> list[dict[str, Any]]:
        """What is drawn: mean heat and its error bar at every value.

        The bar is the standard error over trajectories for one seed, the standard deviation
        across seed means for several.
        """
        return [self._point(value) for value in self.values]

    def _point(self, value: float) -> dict[str, Any]:
        found = self.at(value)
        done = [m for m in found if not m.diverged]
        heats = spread([m.heat for m in done]) if done else None
        bar = None if heats is None else heats.sd
        if len(found) == 1 and done:
            bar = done[0].results["heat"]["sem"]
        return {
            "value": value,
            "heat": None if heats is None else heats.mean,
            "bar": bar,
            "seeds": len(done),
            "diverged": len(found) - len(done),
            "diverged_in": min((m.results["cycle"] for m in found if m.diverged), default=None),
        }


@dataclass(frozen=True)
class Screens:
    """The measured conditions of an experiment, and lines about what is missing."""

    measured: Sequence[Measured]
    missing: list[str] = field(default_factory=list)

    def curve(self, screen: str, variant: str = "") -> Curve:
        return Curve(
            [
                m
                for m in self.measured
                if (m.condition.screen, m.condition.variant) == (screen, variant)
            ]
        )

    def rows(self) -> list[dict[str, Any]]:
        """A row a condition."""
        return [m.row() for m in self.measured]

    def curves(self) -> list[dict[str, Any]]:
        """A row a point of every curve, in the order of the conditions."""
        names = dict.fromkeys((m.condition.screen, m.condition.variant) for m in self.measured)
        return [
            {"screen": screen, "variant": variant, **point}
            for screen, variant in names
            for point in self.curve(screen, variant).points()
        ]

    def timing(self) -> dict[str, float]:
        """Seconds of work by stage, summed over all computers, whatever process did it."""
        total = dict.fromkeys(STAGES, 0.0)
        for run in {m.run.path: m.run for m in self.measured}.values():
            for stage, seconds in run.results.get("timing", {}).items():
                if stage in total:
                    total[stage] += seconds
        return total


def collect(conditions: Sequence[Condition], folder: Path) -> Screens:
    """The conditions that were carried out; the others are named."""
    measured, missing = [], []
    for condition in conditions:
        path = folder / condition.path
        run = RunDirectory.open(path) if (path / MANIFEST).exists() else None
        if run is not None and run.state in ("done", "diverged"):
            measured.append(Measured(condition, run))
        else:
            reason = "not measured" if run is None else f"{run.state} {run.manifest.reason}"
            missing.append(
                f"{condition.label}, seed {condition.seed} is left out ({reason.strip()})"
            )
    if not measured:
        raise UserError(f"{folder}: nothing was measured: {' | '.join(missing)}")
    return Screens(measured, missing)


def save_tables(
    screens: Screens, run: RunDirectory, rows: Sequence[Mapping[str, Any]] | None = None
) -> None:
    """curves.csv, conditions.csv and samples.csv; figures read these and nothing else.

    ``rows``: those of the screens, if there is more to say of a condition.
    """
    rows = screens.rows() if rows is None else rows
    for name, table in (("conditions", rows), ("curves", screens.curves())):
        run.save_table(name, {key: [row[key] for row in table] for key in table[0]})
    done = [m for m in screens.measured if not m.diverged]
    lengths = [len(m.samples["heat"]) for m in done]
    columns: dict[str, Any] = {
        name: np.repeat([getattr(m.condition, name) for m in done], lengths)
        for name in ("screen", "variant", "value", "seed")
    }
    if done:
        columns |= {
            name: np.concatenate([m.samples[name] for m in done]) for name in done[0].samples
        }
    run.save_table("samples", columns)


def shortened(plan: Plan, whole: Plan) -> list[str]:
    """Lengths in which a plan falls short of the paper's, as ``cycles 12 (paper: 100)``."""
    here, there = flatten(plan.as_dict()), flatten(whole.as_dict())
    return [
        f"{key.partition('.')[2].replace('_', ' ')} {value} (paper: {there[key]})"
        for key, value in here.items()
        if key.endswith(("cycles", "samples")) and value < there[key]
    ]


def base_summary(screens: Screens, plan: Plan, whole: Plan) -> dict[str, Any]:
    """What every experiment of screens reports, before its statements.

    ``whole``: the plan of the paper, to which the lengths are compared.
    """
    diverged = [m for m in screens.measured if m.diverged]
    seeds = sorted({m.condition.seed for m in screens.measured})
    return {
        "missing": screens.missing,
        "shortened": shortened(plan, whole),
        "seeds": seeds,
        "seed_count": len(seeds),
        "conditions": len(screens.measured),
        "diverged": len(diverged),
        "rows": screens.rows(),
        "curves": screens.curves(),
        "timing": screens.timing(),
    }
