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
the partner of sample s of another. The p value of the test assumes independent samples: here
it would be far too large where rounding changes little.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.computers.training_runs import parameters_of
from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.machine.parameters import layout
from thermoloom.machine.quantization import (
    UNQUANTIZED,
    coupling_ranges,
    nonzero_fraction,
    quantized,
)
from thermoloom.measures.statistics import ks_distance
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings
from thermoloom.studies.case import Case, Job, finished, trained_path
from thermoloom.studies.gather import Gathered, Record
from thermoloom.studies.sampled_computer import Clock, record_samples
from thermoloom.studies.screens import SET, check_grid, condition, responses_of, summarize_screens
from thermoloom.studies.study import Figure, Plan, Study, brief

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

    def trained(self, seed: int, **grid: Any) -> Settings:
        """A computer of the screen of training; without a grid, its float32 reference."""
        return self.stored(seed).updated(
            {
                "training": {"cycles": self.training_cycles},
                "generation": {"samples": self.training_samples},
                "imperfections": grid,
            }
        )

    def storage(self, seed: int, bits: int) -> Case:
        """The stored computer with couplings of so many bits."""
        settings = self.stored(seed)
        full = condition(STORAGE, UNQUANTIZED, settings)
        if bits == UNQUANTIZED:
            return full
        return condition(
            STORAGE,
            bits,
            settings,
            measure=stored_couplings,
            arguments={"bits": bits},
            needs=(full,),
        )

    def reference(self, seed: int) -> Case:
        """The float32 computer that gives the ranges of training."""
        return condition(TRAINING, UNQUANTIZED, self.trained(seed), REFERENCE)

    def training(self, seed: int, bits: int, rounding: str, ranges: tuple[float, float]) -> Case:
        """A computer trained on a grid of so many bits.

        It is a separate task: a step on a grid costs far more than the path that it could share.
        """
        settings = self.trained(seed, **_grid(bits, rounding, ranges))
        group = f"{TRAINING} {rounding} {bits}"
        return condition(TRAINING, bits, settings, rounding, group=group)


def _grid(bits: int, rounding: str, ranges: tuple[float, float]) -> dict[str, Any]:
    visible, hidden = ranges
    return {
        "bits": bits,
        "rounding": rounding,
        "range_visible_hidden": visible,
        "range_hidden_hidden": hidden,
    }


# --- cases ---


def cases(plan: PrecisionPlan, folder: Path) -> list[Case]:
    """Stored computers, references, and trainings on a grid of seeds whose reference is trained."""
    ranges = ranges_by_seed(plan, folder)
    return [
        *(plan.storage(seed, bits) for bits in sorted(plan.storage_bits) for seed in plan.seeds),
        *(plan.reference(seed) for seed in plan.seeds),
        *(
            plan.training(seed, bits, rounding, ranges[seed])
            for rounding in ROUNDINGS
            for bits in sorted(plan.training_bits)
            for seed in plan.seeds
            if seed in ranges
        ),
    ]


def ranges_by_seed(plan: PrecisionPlan, folder: Path) -> dict[int, tuple[float, float]]:
    """A_max of J_vh and J_hh of the references that are trained."""
    runs = {seed: finished(trained_path(folder, plan.trained(seed))) for seed in plan.seeds}
    return {
        seed: coupling_ranges(parameters_of(run)) for seed, run in runs.items() if run is not None
    }


def foreseen(plan: PrecisionPlan) -> list[Settings]:
    """The references, and the computers trained on a grid, whose ranges are not known yet."""
    return [
        *(settings for seed in plan.seeds for settings in (plan.stored(seed), plan.trained(seed))),
        *(
            plan.trained(seed, **_grid(bits, rounding, (1.0, 1.0)))
            for seed in plan.seeds
            for rounding in ROUNDINGS
            for bits in plan.training_bits
        ),
    ]


def stored_couplings(job: Job, bits: int) -> dict[str, Any] | None:
    """Round the couplings of a trained computer to ``bits``, sample it and measure the samples."""
    settings, clock = job.settings, Clock()
    theta, samples = quantized(job.parameters(), bits), settings.generation.samples
    with clock.measure("generation"), np.errstate(over="ignore", invalid="ignore"):
        generated = generate(theta, samples, settings.generation_seed)
    return record_samples(job.run, settings, generated, job.patterns, clock)


# --- tables and summary ---


def summarize(plan: PrecisionPlan, gathered: Gathered, run: RunDirectory) -> dict[str, Any]:
    """Tables of both screens, and their summary."""

    def columns(record: Record) -> dict[str, Any]:
        return {"ks_distance": _distance(record, gathered)} | _nonzero(record)

    responses = responses_of(gathered, columns)
    curves = {STORAGE: responses.curve(STORAGE), TRAINING: responses.curve(TRAINING, REFERENCE)}
    ranges = ranges_by_seed(plan, gathered.folder)
    return summarize_screens(responses, plan, gathered, run) | {
        "references": {
            screen: curve.heat(UNQUANTIZED) if curve.has(UNQUANTIZED) else None
            for screen, curve in curves.items()
        },
        "ranges": {str(seed): ranges.get(seed) for seed in plan.seeds},
        "cycles": {STORAGE: plan.settings.training.cycles, TRAINING: plan.training_cycles},
        "samples": {STORAGE: plan.settings.generation.samples, TRAINING: plan.training_samples},
    }


def _distance(record: Record, gathered: Gathered) -> float | None:
    """Kolmogorov–Smirnov distance between its heats and those of its 32-bit reference."""
    reference = gathered.one(screen=record.labels["screen"], value=UNQUANTIZED, seed=record.seed)
    if reference is None or record.diverged:
        return None
    return ks_distance(record.samples["heat"], reference.samples["heat"])


def _nonzero(record: Record) -> dict[str, float | None]:
    """Fraction of nonzero couplings of each block, and of all."""
    names = [block.name for block in layout(record.settings.machine).couplings]
    if record.training.state != "done":
        return dict.fromkeys([f"nonzero_{name}" for name in (*names, "couplings")])
    theta = record.parameters
    if record.labels["screen"] == STORAGE:
        theta = quantized(theta, record.labels["value"])
    return {f"nonzero_{name}": share for name, share in nonzero_fraction(theta).items()}


STUDY = Study(
    name="precision",
    title="Precision response: bits to store, bits to train",
    question="Figure 5: how many bits to store, how many to train?",
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
    cases=cases,
    summarize=summarize,
    figures=(
        Figure("figure-5", "Response to precision", "draw_heat"),
        Figure("figure-precision", "Quality and couplings by precision", "draw_quality"),
    ),
    foreseen=foreseen,
    order=4,
    together=True,
    varied=SET,
)
