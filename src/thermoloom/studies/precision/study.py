"""Precision response: bits to store a trained computer, and bits to train one.

    storage    J_vh and J_hh of the online checkpoint rounded to b bits; 2, 3, 4, 5, 6, 8, 16, 32
    training   every online update followed by clipping and rounding to b bits, to nearest or
               stochastically; 4, 6, 8, 16, and 10, 12, 14, which the paper skips

Both leave b_h in float32; 32 bits are the unquantized float32 reference. The checkpoint of the
storage screen is that of the main comparison, trained once. The ranges of training are the largest
magnitudes of the full-precision checkpoint of the same length. The paper does not give that length:
100 cycles and 100 samples are chosen here, the length of its other screens, because a quantized
step cannot be trained in blocks and costs three to eight times a plain one.

Heat distributions are compared by the Kolmogorov–Smirnov distance, without a p value. All
conditions of a seed are generated from the same random numbers, so sample s of one bit depth is
the partner of sample s of another: the p value of the test supposes independent samples and would
be wrong here, far too large where rounding changes little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.computers.training_runs import parameters_of
from thermoloom.errors import UserError
from thermoloom.experiments.models import Clock, record_samples
from thermoloom.experiments.plan import Experiment, Plan, brief
from thermoloom.experiments.results import Model, finished, trained_path
from thermoloom.experiments.screens import (
    SET,
    Condition,
    Screens,
    check_grid,
    collect,
    screen_tasks,
    summed_up,
    trained,
)
from thermoloom.experiments.works import Job, Work
from thermoloom.generation import generate
from thermoloom.machine.parameters import layout
from thermoloom.machine.quantization import (
    UNQUANTIZED,
    coupling_ranges,
    nonzero_fraction,
    quantized,
)
from thermoloom.measures.responses import Measured
from thermoloom.measures.statistics import ks_distance
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task
from thermoloom.settings import Settings

STORAGE, TRAINING = "storage", "training"
REFERENCE, NEAREST, STOCHASTIC = "reference", "nearest", "stochastic"
ROUNDINGS = (NEAREST, STOCHASTIC)


@dataclass(frozen=True)
class PrecisionPlan(Plan):
    """Bit depths; ``settings`` are those of the checkpoint that is stored."""

    seeds: tuple[int, ...] = (101,)
    storage_bits: tuple[int, ...] = (2, 3, 4, 5, 6, 8, 16, 32)
    training_bits: tuple[int, ...] = (4, 6, 8, 10, 12, 14, 16)
    """Bits of the couplings during training; the float32 reference is always trained too."""
    training_cycles: int = 100
    training_samples: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid("storage_bits", self.storage_bits, low=2, high=32, reference=32)
        check_grid("training_bits", self.training_bits, low=2, high=24)
        wiring = self.settings.machine.wiring
        if not {"visible-hidden", "hidden-hidden"} <= set(wiring) or "visible-visible" in wiring:
            raise UserError(
                f"machine.wiring = {list(wiring)}: training on a grid is defined for the wiring "
                "visible-hidden and hidden-hidden, with or without labels"
            )

    def stored(self, seed: int) -> Settings:
        """The computer whose couplings are stored: the online one of the main comparison."""
        return self.settings.updated({"training": {"rule": "online", "period": None, "seed": seed}})

    def model(self, seed: int, **grid: Any) -> Settings:
        """A computer of the screen of training."""
        return self.stored(seed).updated(
            {
                "training": {"cycles": self.training_cycles},
                "generation": {"samples": self.training_samples},
                "imperfections": grid,
            }
        )

    def references(self) -> list[Condition]:
        """The float32 computers: one to be stored, one that gives the ranges of training."""
        return [
            condition
            for seed in self.seeds
            for condition in (
                trained(STORAGE, UNQUANTIZED, self.stored(seed)),
                trained(TRAINING, UNQUANTIZED, self.model(seed), REFERENCE),
            )
        ]

    def storage(self) -> list[Condition]:
        """The stored computers on a grid."""
        return [
            Condition(STORAGE, bits, settings, stored_in(settings, bits).path)
            for settings in map(self.stored, self.seeds)
            for bits in self.storage_bits
            if bits != UNQUANTIZED
        ]

    def training(self, folder: Path) -> list[Condition]:
        """The computers trained on a grid, of the seeds whose reference is trained."""
        conditions = []
        for seed in self.seeds:
            ranges = _ranges(folder, self.model(seed))
            if ranges is None:
                continue
            visible, hidden = ranges
            for rounding in reversed(ROUNDINGS):  # the slower ones first
                for bits in self.training_bits:
                    grid = {
                        "bits": bits,
                        "rounding": rounding,
                        "range_visible_hidden": visible,
                        "range_hidden_hidden": hidden,
                    }
                    settings = self.model(seed, **grid)
                    conditions.append(trained(TRAINING, bits, settings, rounding))
        return conditions


def stored_in(settings: Settings, bits: float) -> Work:
    """The couplings of a trained computer rounded, and what becomes of its samples."""
    more = {"bits": int(bits), "samples": settings.generation.samples}
    return Work(STORAGE, settings, more)


def _ranges(folder: Path, settings: Settings) -> tuple[float, float] | None:
    """A_max of both tensors of a trained computer; None where there is none."""
    run = finished(trained_path(folder, settings))
    return None if run is None else coupling_ranges(parameters_of(run))


# --- tasks ----------------------------------------------------------------------------------------


def tasks(plan: PrecisionPlan, folder: Path, workers: int) -> list[Task]:
    """The float32 computers; with them, one task for each computer trained or stored on a grid."""
    first = screen_tasks(plan.references(), folder, workers)
    stored = [
        stored_in(condition.settings, condition.value).task(
            f"store {condition.value:g} bits, seed {condition.seed}",
            [trained_path(Path(), condition.settings)],
        )
        for condition in plan.storage()
        if finished(trained_path(folder, condition.settings)) is not None
    ]
    trainings = plan.training(folder)
    # nothing is gained by sharing paths: a quantized step costs many times the path
    return first + screen_tasks(trainings, folder, max(workers, len(trainings))) + stored


def models(plan: PrecisionPlan) -> list[Settings]:
    """The references, and the computers trained on a grid, whose ranges are not known yet."""
    unknown = {"range_visible_hidden": 1.0, "range_hidden_hidden": 1.0}
    return [condition.settings for condition in plan.references()] + [
        plan.model(seed, bits=bits, rounding=rounding, **unknown)
        for seed in plan.seeds
        for rounding in ROUNDINGS
        for bits in plan.training_bits
    ]


def store(job: Job, bits: int, samples: int) -> dict[str, Any] | None:
    """Round the couplings of a trained computer to ``bits``, sample it and measure the samples."""
    settings, clock = job.settings, Clock()
    theta = parameters_of(RunDirectory.open(trained_path(job.workdir, settings)))
    with clock.measure("generation"), np.errstate(over="ignore", invalid="ignore"):
        generated = generate(quantized(theta, bits), samples, settings.generation_seed)
    return record_samples(job.run, settings, generated, job.patterns, clock)


# --- tables and summary -------------------------------------------------------------------------


def assemble(plan: PrecisionPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """Tables of both screens, and their summary."""
    conditions = plan.references() + plan.storage() + plan.training(folder)
    screens = _with_couplings(collect(sorted(conditions, key=_order), folder))
    curves = {STORAGE: screens.curve(STORAGE), TRAINING: screens.curve(TRAINING, REFERENCE)}
    return summed_up(screens, plan, run) | {
        "references": {
            screen: curve.heat(UNQUANTIZED) if curve.has(UNQUANTIZED) else None
            for screen, curve in curves.items()
        },
        "ranges": {str(seed): _ranges(folder, plan.model(seed)) for seed in plan.seeds},
        "cycles": {STORAGE: plan.settings.training.cycles, TRAINING: plan.training_cycles},
        "samples": {STORAGE: plan.settings.generation.samples, TRAINING: plan.training_samples},
    }


def _order(condition: Condition) -> tuple[Any, ...]:
    variants = ("", REFERENCE, *ROUNDINGS)
    return condition.screen, variants.index(condition.variant), condition.value, condition.seed


def _with_couplings(screens: Screens) -> Screens:
    """Rows that also have the distance to the reference and the fraction of nonzero couplings."""
    references = {
        (m.row["screen"], m.seed): m
        for m in screens.measured
        if m.value == UNQUANTIZED and not m.diverged
    }
    measured = []
    for m, model in zip(screens.measured, screens.models, strict=True):
        other = references.get((m.row["screen"], m.seed))
        distance = None
        if other is not None and not m.diverged:
            distance = ks_distance(m.samples["heat"], other.samples["heat"])
        more = {"ks_distance": distance} | _nonzero(m, model)
        measured.append(Measured({**m.row, **more}, m.samples))
    return replace(screens, measured=measured)


def _nonzero(measured: Measured, model: Model) -> dict[str, float | None]:
    """Fraction of nonzero couplings of each block, and of all."""
    names = [block.name for block in layout(model.settings.machine).couplings]
    if model.training.state != "done":
        return dict.fromkeys([f"nonzero_{name}" for name in (*names, "couplings")])
    theta = model.parameters
    if measured.row["screen"] == STORAGE:
        theta = quantized(theta, int(measured.value))
    return {f"nonzero_{name}": part for name, part in nonzero_fraction(theta).items()}


EXPERIMENT = Experiment(
    name="precision",
    title="Precision response: bits to store, bits to train",
    presets={
        "paper": PrecisionPlan(),
        "quick": PrecisionPlan(
            settings=brief(10, 16),
            storage_bits=(2, 4, 5, 32),
            training_bits=(8, 16),
            training_cycles=10,
            training_samples=16,
        ),
    },
    models=models,
    tasks=tasks,
    assemble=assemble,
    varied=SET,
)
