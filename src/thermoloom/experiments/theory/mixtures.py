"""Mixtures of θ*, of the means that the rules approach, and of the noise around them.

    θ_s = θ̄ + δ_s        mean over seeds, and what seed s adds to it

Heat is measured for every centre (θ*, θ̄_batch, θ̄_online) with every noise (none, δ of batch, δ of
online, isotropic noise of the same size), along straight lines between θ*, batch and online, and
around θ* as a function of the size of isotropic noise; all with the random numbers of the pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.computers.training_runs import parameters_of
from thermoloom.experiments.optimum import RULE as OPTIMUM
from thermoloom.experiments.results import save_rows, trained_path
from thermoloom.experiments.works import Job, Work
from thermoloom.generation import generate
from thermoloom.machine.parameters import Layout, Parameters, layout
from thermoloom.machine.quantization import mirrored
from thermoloom.measures.paired import RULES
from thermoloom.measures.statistics import estimate_mean as statistics
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings
from thermoloom.theory.predictions import mean_squares, offset_response, parameter_scatter

Vector = NDArray[np.float64]

CENTRES = (OPTIMUM, *RULES)
NOISES = ("none", *RULES, "isotropic")
LINES = ((OPTIMUM, "batch"), (OPTIMUM, "online"), ("batch", "online"))


# --- the split ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Trained computers of all seeds as flat vectors, and θ*."""

    layout: Layout
    optimum: Vector
    trained: dict[str, NDArray[np.float64]]
    """By rule, (seeds, parameters)."""

    @property
    def seeds(self) -> int:
        return len(next(iter(self.trained.values())))

    @cached_property
    def means(self) -> dict[str, Vector]:
        """θ̄ by rule, and θ* as the mean of its own."""
        return {OPTIMUM: self.optimum} | {r: t.mean(axis=0) for r, t in self.trained.items()}

    def deviation(self, rule: str, seed: int) -> Vector:
        """δ of the seed at this position."""
        deviation: Vector = self.trained[rule][seed] - self.means[rule]
        return deviation

    @cached_property
    def noise(self) -> dict[str, dict[str, float]]:
        """Mean square of the noise across seeds by rule and block, divisor S − 1."""
        correction = self.seeds / (self.seeds - 1)
        found = {}
        for rule in RULES:
            squares = [self.mean_squares(self.deviation(rule, s)) for s in range(self.seeds)]
            found[rule] = {
                block: correction * float(np.mean([square[block] for square in squares]))
                for block in squares[0]
            }
        return found

    def mean_squares(self, vector: Vector) -> dict[str, float]:
        """Mean square of a parameter of each block."""
        return mean_squares(self.layout, vector)

    @property
    def counts(self) -> dict[str, int]:
        """Independent parameters of each block."""
        return {block.name: block.edges for block in self.layout.blocks}

    @cached_property
    def size(self) -> float:
        """σ of isotropic noise as large as that of the trained computers, both rules together."""
        counts = self.counts
        total = sum(self.noise[r][b] * counts[b] for r in RULES for b in counts) / len(RULES)
        return math.sqrt(total / sum(counts.values()))

    def isotropic(self, seed: int) -> Vector:
        """Independent normal noise of unit variance on every parameter, symmetric where θ is."""
        noise = np.random.default_rng(seed).standard_normal(self.layout.size)
        for block in self.layout.blocks:
            if block.symmetric:
                block.of(noise)[...] = mirrored(block.of(noise))
        return noise


def norm_rows(split: Split) -> list[dict[str, Any]]:
    """|θ − θ*| of both rules by block: its mean over seeds, freed of noise, and its noise."""
    rows = []
    for rule in RULES:
        shift = split.mean_squares(split.means[rule] - split.optimum)
        for block, count in split.counts.items():
            noise = split.noise[rule][block]
            mean = max(0.0, shift[block] - noise / split.seeds)
            rows.append(
                {
                    "rule": rule,
                    "block": block,
                    "mean": math.sqrt(count * mean),
                    "noise": math.sqrt(count * noise),
                    "mean_rms": math.sqrt(mean),
                    "noise_rms": math.sqrt(noise),
                }
            )
    return rows


# --- heats ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mixture:
    """A computer whose heat is measured: a mixture with a name."""

    part: str
    """``mixed`` (centre and noise), ``size`` (of isotropic noise around θ*) or ``line``."""
    centre: str
    noise: str
    value: float
    """Size of the noise, relative; or position on the line from ``centre`` to ``noise``."""
    theta: Vector


PARTS = (*CENTRES, "size", "line")
"""What is measured in one task: noises around a centre, sizes of noise around θ*, lines."""


def mixtures(
    split: Split, part: str, position: int, seed: int, points: int, sizes: Sequence[float]
) -> Iterator[Mixture]:
    """Mixtures of one pair; ``position`` is that of its seed among all."""
    isotropic = split.isotropic(seed) * split.size
    if part in CENTRES:
        noises = {rule: split.deviation(rule, position) for rule in RULES}
        # this isotropic noise has the variance of the others: 1 − 1/S of a rule's
        noises["isotropic"] = isotropic * math.sqrt(1 - 1 / split.seeds)
        centre = split.means[part]
        yield Mixture("mixed", part, "none", 0.0, centre)
        for name, noise in noises.items():
            yield Mixture("mixed", part, name, 1.0, centre + noise)
    if part == "size":
        for size in sizes:
            yield Mixture("size", OPTIMUM, "isotropic", size, split.optimum + size * isotropic)
    if part == "line":
        ends = {OPTIMUM: split.optimum} | {rule: split.trained[rule][position] for rule in RULES}
        for start, end in LINES:
            for along in np.linspace(0, 1, points)[1:-1] if points > 2 else []:
                theta = (1 - along) * ends[start] + along * ends[end]
                yield Mixture("line", start, end, float(along), theta)


def measure_heats(
    job: Job,
    part: str,
    seeds: list[int],
    heat_samples: int,
    line_points: int,
    noise_sizes: list[float],
    generation_seed: int,
) -> dict[str, Any]:
    """Mean heat of mixtures of one part, sampled with the random numbers of this pair."""
    split, seed = read_split(job.workdir, job.settings, seeds), job.settings.training.seed
    chosen = list(mixtures(split, part, seeds.index(seed), seed, line_points, noise_sizes))
    rows = []
    for done, mixture in enumerate(chosen):
        heat = statistics(
            generate(job.parameters(mixture.theta), heat_samples, generation_seed).heat
        )
        name = {key: getattr(mixture, key) for key in ("part", "centre", "noise", "value")}
        rows.append(name | {"heat": heat.mean, "sem": heat.sem})
        job.report(done + 1, len(chosen), None)
    save_rows(job.run, "heats", rows)
    return {}


def read_split(folder: Path, settings: Settings, seeds: Sequence[int]) -> Split:
    """Trained computers of both rules and all seeds, and θ*, from their runs."""

    def vector(rule: str, seed: int) -> Vector:
        changed = {"rule": rule, "seed": seed, "period": None}
        path = trained_path(folder, settings.updated({"training": changed}))
        flat: Vector = parameters_of(RunDirectory.open(path)).vector[0].astype(np.float64)
        return flat

    trained = {rule: np.array([vector(rule, seed) for seed in seeds]) for rule in RULES}
    return Split(layout(settings.machine), vector(OPTIMUM, seeds[0]), trained)


# --- the means that theory predicts ---------------------------------------------------------------


def predicted_mean(job: Job, rule: str, **offset: Any) -> Parameters:
    """E[θ] of a rule, from its prediction."""
    own = job.settings.updated({"training": {"rule": rule, "period": None}})
    run = RunDirectory.open(job.workdir / Work("prediction", own, offset).path)
    return Parameters.from_arrays(own.machine, run.load_arrays("mean"))


def measure_predicted(
    job: Job, seeds: list[int], heat_samples: int, **offset: Any
) -> dict[str, Any]:
    """Mean heat of the E[θ] of both rules, with the random numbers of every pair."""
    rows = []
    for rule in RULES:
        theta = predicted_mean(job, rule, **offset)
        for seed in seeds:
            at = job.settings.updated({"training": {"seed": seed}}).generation_seed
            heat = generate(theta, heat_samples, at).heat
            rows.append({"rule": rule, "seed": seed, "heat": float(heat.mean())})
            job.report(len(rows), len(RULES) * len(seeds), None)
    save_rows(job.run, "heats", rows)
    return {}


def measure_spread(job: Job, seeds: list[int], **offset: Any) -> dict[str, Any]:
    """What the noise of trained computers adds to the loss, and how far their mean is from E[θ].

    By rule. And where an offset drives biases in the end, if couplings move too.
    """
    split, loss = read_split(job.workdir, job.settings, seeds), job.loss
    whole = len(seeds) / (len(seeds) - 1)  # deviations are from their own mean
    found: dict[str, Any] = {}
    for rule in RULES:
        spreads = [parameter_scatter(loss, split.deviation(rule, s)) for s in range(len(seeds))]
        theta = predicted_mean(job, rule, **offset)
        found[rule] = {
            "excess_loss": whole * float(np.mean([each.excess_loss for each in spreads])),
            "from_prediction": split.mean_squares(split.means[rule] - theta.vector[0]),
        }
    biases = job.loss.layout["hidden_bias"].of(offset_response(loss))
    return found | {"offset_response": float(biases.mean())}
