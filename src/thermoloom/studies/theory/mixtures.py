"""Mixtures of θ*, of the means that the rules approach, and of the noise around them.

    θ_s = θ̄ + δ_s        mean over seeds, and the deviation of seed s

Heat is measured for every centre (θ*, θ̄_batch, θ̄_online) with every noise (none, δ of batch, δ of
online, isotropic noise of the same size), along straight lines between θ*, batch and online, and
around θ* as a function of the size of isotropic noise; all with the random numbers of the pair.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from thermoloom.generation import generate
from thermoloom.machine.parameters import Layout, Parameters, layout
from thermoloom.machine.quantization import mirrored
from thermoloom.measures.paired import RULES
from thermoloom.measures.statistics import estimate_mean as statistics
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings
from thermoloom.studies.case import Job
from thermoloom.studies.gather import save_rows
from thermoloom.studies.pairs import OPTIMUM
from thermoloom.studies.theory.expectation import Expectation, Vector, parameters_of_vector
from thermoloom.theory.predictions import mean_squares, offset_response, parameter_scatter

CENTRES = (OPTIMUM, *RULES)
NOISES = ("none", *RULES, "isotropic")
LINES = {
    f"{start} → {end}": (start, end)
    for start, end in ((OPTIMUM, "batch"), (OPTIMUM, "online"), ("batch", "online"))
}
"""Ends of the straight lines in parameter space."""
PARTS = (*CENTRES, "size", "line")
"""Mixtures of one case: noises around a centre, sizes of noise around θ*, points on lines."""


# --- the split ---


@dataclass(frozen=True)
class Split:
    """Trained computers of all seeds as flat vectors, and θ*."""

    layout: Layout
    optimum: Vector
    trained: dict[str, Vector]
    """By rule, (seeds, parameters)."""

    @classmethod
    def of(cls, job: Job, seeds: Sequence[int]) -> Split:
        """Trained computers of both rules and these seeds, and θ*, from their runs."""

        def vector(settings: Settings) -> Vector:
            flat: Vector = job.parameters(settings).vector[0].astype(np.float64)
            return flat

        def trained(rule: str) -> Vector:
            training = [{"rule": rule, "seed": seed, "period": None} for seed in seeds]
            return np.array([vector(job.settings.updated({"training": t})) for t in training])

        optimum = vector(job.settings.updated({"solver": {}}))
        return cls(layout(job.settings.machine), optimum, {rule: trained(rule) for rule in RULES})

    @property
    def seeds(self) -> int:
        return len(next(iter(self.trained.values())))

    @cached_property
    def means(self) -> dict[str, Vector]:
        """θ̄ by rule; the optimum is a single computer, so its mean is θ*."""
        return {OPTIMUM: self.optimum} | {r: t.mean(axis=0) for r, t in self.trained.items()}

    def deviation(self, rule: str, position: int) -> Vector:
        """δ of the seed at this position."""
        deviation: Vector = self.trained[rule][position] - self.means[rule]
        return deviation

    @cached_property
    def noise(self) -> dict[str, dict[str, float]]:
        """Mean square of the noise across seeds by rule and block, divisor S − 1."""
        correction = self.seeds / (self.seeds - 1)
        noise = {}
        for rule in RULES:
            squares = [self.mean_squares(self.deviation(rule, s)) for s in range(self.seeds)]
            noise[rule] = {
                block: correction * float(np.mean([square[block] for square in squares]))
                for block in squares[0]
            }
        return noise

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
    """|θ − θ*| of both rules by block: its mean over seeds, corrected for noise, and its noise."""
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


# --- heats ---


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

    @property
    def labels(self) -> dict[str, Any]:
        """Everything but θ."""
        return {key: getattr(self, key) for key in ("part", "centre", "noise", "value")}


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
        for start, end in LINES.values():
            for along in np.linspace(0, 1, points)[1:-1] if points > 2 else []:
                theta = (1 - along) * ends[start] + along * ends[end]
                yield Mixture("line", start, end, float(along), theta)


def mixture_heats(
    job: Job,
    part: str,
    seeds: list[int],
    heat_samples: int,
    line_points: int,
    noise_sizes: list[float],
) -> dict[str, Any]:
    """Mean heat of mixtures of one part, sampled with the random numbers of this pair."""
    settings, seed, rows = job.settings, job.settings.training.seed, []
    position = seeds.index(seed)
    split = Split.of(job, seeds)
    of_part = list(mixtures(split, part, position, seed, line_points, noise_sizes))
    for mixture in of_part:
        theta = parameters_of_vector(settings.machine, mixture.theta)
        heat = statistics(generate(theta, heat_samples, settings.generation_seed).heat)
        rows.append(mixture.labels | {"heat": heat.mean, "sem": heat.sem})
        job.report(len(rows), len(of_part), None)
    save_rows(job.run, "heats", rows)
    return {}


# --- the means that theory predicts ---


def _predicted_mean(job: Job, prediction: str) -> Parameters:
    """E[θ] of a rule, from the run of its prediction."""
    arrays = RunDirectory.open(job.workdir / prediction).load_arrays("mean")
    return Parameters.from_arrays(job.settings.machine, arrays)


def predicted_mean_heats(
    job: Job, predictions: Mapping[str, str], seeds: list[int], heat_samples: int
) -> dict[str, Any]:
    """Mean heat of the E[θ] of both rules, with the random numbers of every pair.

    ``predictions``: run of each rule's prediction.
    """
    rows = []
    for rule, prediction in predictions.items():
        theta = _predicted_mean(job, prediction)
        for seed in seeds:
            pair = job.settings.updated({"training": {"seed": seed}})
            heat = generate(theta, heat_samples, pair.generation_seed).heat
            rows.append({"rule": rule, "seed": seed, "heat": float(heat.mean())})
            job.report(len(rows), len(RULES) * len(seeds), None)
    save_rows(job.run, "heats", rows)
    return {}


def seed_noise(job: Job, predictions: Mapping[str, str], seeds: list[int]) -> dict[str, Any]:
    """Noise of trained computers across seeds, and distances of their means from E[θ] and θ*.

    By rule, the noise as excess loss and the distances as mean squares of visible–hidden
    couplings. Also the final shift of biases by an offset where couplings move, too.
    """
    split = Split.of(job, seeds)
    loss = Expectation(job.settings.machine, job.drive.fields).loss
    correction = len(seeds) / (len(seeds) - 1)  # deviations are from the mean of the same seeds
    by_rule = {}
    for rule, prediction in predictions.items():
        scatters = [parameter_scatter(loss, split.deviation(rule, s)) for s in range(len(seeds))]
        predicted = _predicted_mean(job, prediction).vector[0]
        centres = {"from_prediction": predicted, "from_optimum": split.optimum}
        by_rule[rule] = {
            "excess_loss": correction * float(np.mean([each.excess_loss for each in scatters])),
            **{
                name: split.mean_squares(split.means[rule] - centre)["visible_hidden"]
                for name, centre in centres.items()
            },
        }
    biases = loss.layout["hidden_bias"].of(offset_response(loss))
    return {
        "seeds": len(seeds),
        "rules": by_rule,
        "norms": norm_rows(split),
        "size": split.size,
        "offset_response": float(biases.mean()),
    }
