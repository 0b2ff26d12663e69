"""Where the heat comes from: θ* itself, the mean that a rule approaches, or the noise around it.

    θ_s = θ̄ + δ_s        mean over seeds, and what seed s adds to it

Heat is measured for every centre (θ*, θ̄_batch, θ̄_online) with every noise (none, δ of batch, δ of
online, isotropic noise of the same size), along straight lines between θ*, batch and online, and
around θ* as a function of the size of isotropic noise; all with the random numbers of the pair.

To lowest order noise adds heat in proportion to its variance. δ_s has (1 − 1/S) of a rule's
variance and θ̄ keeps 1/S of it, so with S seeds

    N = S/(S − 1) ⟨Q(centre + δ_s) − Q(centre)⟩

is the heat that the whole noise adds, and Q(θ̄) − N/S the heat of the mean without noise.
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

from thermoloom.config import Settings
from thermoloom.experiments import paper
from thermoloom.experiments.models import RUNS
from thermoloom.experiments.optimum import RULE as OPTIMUM
from thermoloom.experiments.predicted import BLOCKS, rule_work
from thermoloom.experiments.theory_runs import Work
from thermoloom.generation import generate
from thermoloom.measures.statistics import compare_pairs
from thermoloom.machine.parameters import Parameters
from thermoloom.computers.trained import parameters_of, training_path
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Report
from thermoloom.theory.optimum import Layout
from thermoloom.theory.predictions import Spread

Vector = NDArray[np.float64]

KIND, PREDICTED = "heat-origin", "heat-predicted"
RULES = ("batch", "online")
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
                for block in BLOCKS
            }
        return found

    def mean_squares(self, vector: Vector) -> dict[str, float]:
        """Mean square of a parameter of each block."""
        vh, hh, b = self.layout.split(vector)
        edges = max(1, b.size * (b.size - 1))
        sums = (float((vh**2).mean()), float((hh**2).sum() / edges), float((b**2).mean()))
        return dict(zip(BLOCKS, sums, strict=True))

    @property
    def counts(self) -> dict[str, int]:
        """Independent parameters of each block."""
        v, h = self.layout.visible, self.layout.hidden
        return dict(zip(BLOCKS, (v * h, h * (h - 1) // 2, h), strict=True))

    @cached_property
    def size(self) -> float:
        """σ of isotropic noise as large as that of the trained computers, both rules together."""
        counts = self.counts
        total = sum(self.noise[r][b] * counts[b] for r in RULES for b in BLOCKS) / len(RULES)
        return math.sqrt(total / sum(counts.values()))

    def isotropic(self, seed: int) -> Vector:
        """Independent normal noise of unit variance on every parameter, J_hh symmetric."""
        noise = np.random.default_rng(seed).standard_normal(self.layout.size)
        _, hh, _ = self.layout.split(noise)
        lower = np.tril(hh, -1)
        hh[...] = lower + lower.T
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


def excess_loss(spreads: Sequence[Spread]) -> float:
    """Unbiased mean of ½⟨δ, Hδ⟩/K over deviations from their own mean."""
    count = len(spreads)
    return count / (count - 1) * float(np.mean([spread.excess_loss for spread in spreads]))


# --- the task -------------------------------------------------------------------------------------


def origin_work(
    settings: Settings,
    seeds: Sequence[int],
    heat_samples: int,
    line_points: int,
    noise_sizes: Sequence[float],
) -> Work:
    """``settings``: those of the pair whose random numbers are taken; rule and seed are set."""
    return Work(
        KIND,
        settings,
        {
            "seeds": list(seeds),
            "heat_samples": heat_samples,
            "line_points": line_points,
            "noise_sizes": list(noise_sizes),
            "generation_seed": settings.generation_seed,
        },
    )


@dataclass(frozen=True)
class Condition:
    """A computer whose heat is measured: a mixture with a name."""

    part: str
    """``mixed`` (centre and noise), ``size`` (of isotropic noise around θ*) or ``line``."""
    centre: str
    noise: str
    value: float
    """Size of the noise, relative; or position on the line from ``centre`` to ``noise``."""
    theta: Vector


def conditions(
    split: Split, position: int, seed: int, points: int, sizes: Sequence[float]
) -> Iterator[Condition]:
    """All mixtures of one pair; ``position`` is that of its seed among all."""
    noises = {rule: split.deviation(rule, position) for rule in RULES}
    isotropic = split.isotropic(seed) * split.size
    # the isotropic noise of the mixtures has the variance of the others: 1 − 1/S of a rule's
    noises["isotropic"] = isotropic * math.sqrt(1 - 1 / split.seeds)
    for centre in CENTRES:
        yield Condition("mixed", centre, "none", 0.0, split.means[centre])
        for name, noise in noises.items():
            yield Condition("mixed", centre, name, 1.0, split.means[centre] + noise)
    for size in sizes:
        yield Condition("size", OPTIMUM, "isotropic", size, split.optimum + size * isotropic)
    ends = {OPTIMUM: split.optimum} | {rule: split.trained[rule][position] for rule in RULES}
    for start, end in LINES:
        for part in np.linspace(0, 1, points)[1:-1] if points > 2 else []:
            along = (1 - part) * ends[start] + part * ends[end]
            yield Condition("line", start, end, float(part), along)


def measure_heats(
    workdir: Path,
    report: Report,
    model: dict[str, Any],
    seeds: list[int],
    heat_samples: int,
    line_points: int,
    noise_sizes: list[float],
    generation_seed: int,
) -> dict[str, Any]:
    """Mean heat of every mixture, sampled with the random numbers of this pair."""
    settings = Settings.from_dict(model)
    work = origin_work(settings, seeds, heat_samples, line_points, noise_sizes)
    with work.begin(workdir) as pending:
        if pending is None:
            return {}
        split = read_split(workdir, settings, seeds)
        seed = settings.training.seed
        chosen = list(conditions(split, seeds.index(seed), seed, line_points, noise_sizes))
        rows = []
        for done, condition in enumerate(chosen):
            computer = split.layout.computer(condition.theta, np.float32)
            heat = generate(settings.machine, computer, heat_samples, generation_seed).heat
            rows.append(
                {
                    "part": condition.part,
                    "centre": condition.centre,
                    "noise": condition.noise,
                    "value": condition.value,
                    "heat": float(heat.mean()),
                    "sem": float(heat.std(ddof=1) / math.sqrt(len(heat))),
                }
            )
            report(done + 1, len(chosen), None)
        pending.run.save_table("heats", {key: [row[key] for row in rows] for key in rows[0]})
    return {}


def read_split(folder: Path, settings: Settings, seeds: Sequence[int]) -> Split:
    """Trained computers of both rules and all seeds, and θ*, from their runs."""
    layout = Layout(settings.machine.visible, settings.machine.hidden)

    def vector(rule: str, seed: int) -> Vector:
        changed = {"rule": rule, "seed": seed, "period": None}
        path = training_path(folder / RUNS, settings.updated({"training": changed}))
        return layout.flatten(parameters_of(RunDirectory.open(path)))

    trained = {rule: np.array([vector(rule, seed) for seed in seeds]) for rule in RULES}
    return Split(layout, vector(OPTIMUM, seeds[0]), trained)


# --- the means that theory predicts ---------------------------------------------------------------


def predicted_work(
    settings: Settings, seeds: Sequence[int], heat_samples: int, offset: float, offset_cycles: int
) -> Work:
    """Heat of E[θ] of both rules; the offset only names the predictions that hold E[θ]."""
    more = {"seeds": list(seeds), "heat_samples": heat_samples}
    return Work(PREDICTED, settings, more | {"offset": offset, "offset_cycles": offset_cycles})


def measure_predicted(
    workdir: Path,
    report: Report,
    model: dict[str, Any],
    seeds: list[int],
    heat_samples: int,
    offset: float,
    offset_cycles: int,
) -> dict[str, Any]:
    """Mean heat of the E[θ] of both rules, with the random numbers of every pair."""
    settings = Settings.from_dict(model)
    work = predicted_work(settings, seeds, heat_samples, offset, offset_cycles)
    with work.begin(workdir) as pending:
        if pending is None:
            return {}
        rows = []
        for rule in RULES:
            own = settings.updated({"training": {"rule": rule, "period": None}})
            path = workdir / rule_work(own, offset, offset_cycles).path
            arrays = RunDirectory.open(path).load_arrays("mean")
            computer = Computer(*(arrays[block] for block in BLOCKS))
            for seed in seeds:
                at = settings.updated({"training": {"seed": seed}}).generation_seed
                heat = generate(settings.machine, computer, heat_samples, at).heat
                rows.append({"rule": rule, "seed": seed, "heat": float(heat.mean())})
                report(len(rows), len(RULES) * len(seeds), None)
        pending.run.save_table("heats", {key: [row[key] for row in rows] for key in rows[0]})
    return {}


# --- what the heats say ---------------------------------------------------------------------------

Heats = dict[str, NDArray[Any]]


def heat_of(heats: Heats, centre: str, noise: str) -> NDArray[np.float64]:
    """Heat of a mixture, one value a seed."""
    return heats["heat"][_mixture(heats, centre, noise)]


def accounts(heats: Heats) -> dict[str, Any]:
    """The heat difference batch − online, split into what noise and what the mean contributes.

    Every entry is a mean across seeds with its 95 % interval.
    """
    seeds = len(heat_of(heats, OPTIMUM, "none"))
    whole = seeds / (seeds - 1)

    def added(centre: str, noise: str) -> NDArray[np.float64]:
        return whole * (heat_of(heats, centre, noise) - heat_of(heats, centre, "none"))

    def mean_heat(rule: str) -> NDArray[np.float64]:
        return heat_of(heats, rule, "none") - added(rule, rule) / seeds

    trained = {rule: heat_of(heats, rule, rule) for rule in RULES}
    batch, online = RULES
    noise = {rule: added(rule, rule) for rule in RULES}
    around = {rule: added(OPTIMUM, rule) for rule in RULES}
    return {
        "optimum": estimate(heat_of(heats, OPTIMUM, "none")),
        **{rule: estimate(trained[rule]) for rule in RULES},
        "difference": estimate(trained[batch] - trained[online]),
        "from_noise": estimate(noise[batch] - noise[online]),
        "from_mean": estimate(mean_heat(batch) - mean_heat(online)),
        "around_optimum": estimate(around[batch] - around[online]),
        "noise": {rule: estimate(noise[rule]) for rule in RULES},
        "noise_around_optimum": {rule: estimate(around[rule]) for rule in RULES},
        "isotropic": estimate(added(OPTIMUM, "isotropic")),
        "mean_shift": {
            rule: estimate(mean_heat(rule) - heat_of(heats, OPTIMUM, "none")) for rule in RULES
        },
        "seeds": seeds,
    }


def estimate(values: NDArray[np.float64]) -> dict[str, Any]:
    """Mean across seeds and its 95 % interval."""
    compared = compare_pairs(np.zeros(len(values)), values)
    return {"mean": compared.mean_difference, "interval": compared.interval}


def predicted_difference(table: Heats) -> dict[str, Any]:
    """Heat difference batch − online of the means that theory predicts, across pairs."""
    batch, online = (table["heat"][table["rule"] == rule] for rule in RULES)
    return estimate(batch - online)


def conclusion(found: dict[str, Any]) -> dict[str, Any]:
    """What the account says of the hypothesis that noise around the optimum makes the difference.

    A text with {name:format} for the numbers of ``values``.
    """
    difference, around = found["difference"]["mean"], found["around_optimum"]["mean"]
    low, high = found["difference"]["interval"]
    share = around / difference
    resolved = low * high > 0
    most, some = (paper.threshold("theory", "origin", name) for name in ("most", "some"))
    if not resolved:
        last = (
            "The difference itself is not resolved by {seeds} pairs, so nothing follows about its "
            "origin."
        )
    elif share >= most:
        last = "So the hypothesis holds: noise around the optimum makes most of the difference."
    elif share >= some:
        last = (
            "So the hypothesis holds in part: noise around the optimum makes some of the "
            "difference, and where the rules' means lie the rest."
        )
    else:
        last = (
            "So the hypothesis fails: noise around the optimum does not make the difference; it is "
            "where the rules' means lie that counts."
            if found["from_mean"]["mean"] / difference >= most
            else "So the hypothesis fails: noise around the optimum does not make the difference."
        )
    known = found.get("predicted_mean")
    predicted = (
        ", and the means that theory predicts before any training by {predicted:+.2f} E₀"
        if known
        else ""
    )
    return {
        "text": (
            "Batch computers release {difference:.2f} E₀ more heat than online computers (95 % "
            "interval [{low:.2f}, {high:.2f}] E₀); the optimum itself releases {optimum:.1f} E₀. "
            "Put around the optimum, the noise of batch computers adds {batch_noise:.2f} E₀ and "
            "that of online computers {online_noise:.2f} E₀, isotropic noise of the same size "
            "{isotropic:.2f} E₀. Noise around the optimum thus explains {around:+.2f} E₀ of the "
            "difference, {share:.0f} %; {left:+.2f} E₀ are left. Around their own means the "
            "noise of the two rules differs by {from_noise:+.2f} E₀; freed of noise, the means "
            "themselves differ by {from_mean:+.2f} E₀ (batch {batch_shift:+.2f}, online "
            "{online_shift:+.2f} E₀ against the optimum)" + predicted + ". " + last
        ),
        "values": {
            "difference": difference,
            "low": low,
            "high": high,
            "optimum": found["optimum"]["mean"],
            "batch_noise": found["noise_around_optimum"]["batch"]["mean"],
            "online_noise": found["noise_around_optimum"]["online"]["mean"],
            "isotropic": found["isotropic"]["mean"],
            "around": around,
            "share": 100 * share,
            "left": difference - around,
            "from_noise": found["from_noise"]["mean"],
            "from_mean": found["from_mean"]["mean"],
            "batch_shift": found["mean_shift"]["batch"]["mean"],
            "online_shift": found["mean_shift"]["online"]["mean"],
            "predicted": known["mean"] if known else None,
            "seeds": found["seeds"],
        },
    }


def curves(heats: Heats) -> list[dict[str, Any]]:
    """Means over pairs along the lines and over the size of isotropic noise, ends included."""
    rows = []
    ends = {OPTIMUM: "none", "batch": "batch", "online": "online"}
    on_lines = np.unique(heats["seed"][heats["part"] == "line"])
    for start, end in LINES:
        own = (heats["part"] == "line") & (heats["centre"] == start) & (heats["noise"] == end)
        for value in sorted({0.0, 1.0, *heats["value"][own].tolist()}) if own.any() else []:
            if value in (0.0, 1.0):
                name = end if value else start
                chosen = _mixture(heats, name, ends[name]) & np.isin(heats["seed"], on_lines)
            else:
                chosen = own & (heats["value"] == value)
            rows.append({"curve": f"{start} → {end}", "value": value} | _mean(heats, chosen))
    size = heats["part"] == "size"
    rows.append(
        {"curve": "isotropic noise", "value": 0.0} | _mean(heats, _mixture(heats, OPTIMUM, "none"))
    )
    for value in sorted(set(heats["value"][size].tolist())):
        chosen = size & (heats["value"] == value)
        rows.append({"curve": "isotropic noise", "value": value} | _mean(heats, chosen))
    return rows


def _mixture(heats: Heats, centre: str, noise: str) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (
        (heats["part"] == "mixed") & (heats["centre"] == centre) & (heats["noise"] == noise)
    )
    return found


def _mean(heats: Heats, chosen: NDArray[np.bool_]) -> dict[str, Any]:
    values = heats["heat"][chosen]
    sd = float(values.std(ddof=1)) if len(values) > 1 else None
    return {"heat": float(values.mean()), "sd": sd, "pairs": len(values)}
