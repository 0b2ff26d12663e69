"""Where the heat comes from: θ* itself, the mean that a rule approaches, or the noise around it.

Computers of S seeds are split into their mean and deviations, θ_s = θ̄ + δ_s (``mixtures``). To
lowest order noise adds heat Q in proportion to its variance. δ_s has (1 − 1/S) of a rule's variance
and θ̄ keeps 1/S of it. So

    N = S/(S − 1) ⟨Q(centre + δ_s) − Q(centre)⟩

is the heat that all of the noise adds, and Q(θ̄) − N/S is the heat of the mean without noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from thermoloom.measures.paired import RULES
from thermoloom.measures.statistics import compare_pairs
from thermoloom.runs.formats import Table, only
from thermoloom.studies.pairs import OPTIMUM
from thermoloom.studies.theory.expectation import Vector
from thermoloom.studies.theory.mixtures import LINES

ISOTROPIC = "isotropic noise"
"""Name of the curve of heat against the size of isotropic noise around θ*."""


def heat_account(heats: Table) -> dict[str, Any]:
    """The heat difference batch − online, split into the parts of the noise and of the means.

    Every entry is a mean across seeds with its 95 % interval.
    """
    seeds = len(_heat_of(heats, OPTIMUM, "none"))
    correction = seeds / (seeds - 1)

    def added(centre: str, noise: str) -> Vector:
        return correction * (_heat_of(heats, centre, noise) - _heat_of(heats, centre, "none"))

    def mean_heat(rule: str) -> Vector:
        return _heat_of(heats, rule, "none") - added(rule, rule) / seeds

    trained = {rule: _heat_of(heats, rule, rule) for rule in RULES}
    batch, online = RULES
    noise = {rule: added(rule, rule) for rule in RULES}
    around = {rule: added(OPTIMUM, rule) for rule in RULES}
    return {
        "optimum": _across_seeds(_heat_of(heats, OPTIMUM, "none")),
        **{rule: _across_seeds(trained[rule]) for rule in RULES},
        "difference": _across_seeds(trained[batch] - trained[online]),
        "from_noise": _across_seeds(noise[batch] - noise[online]),
        "from_mean": _across_seeds(mean_heat(batch) - mean_heat(online)),
        "around_optimum": _across_seeds(around[batch] - around[online]),
        "noise": {rule: _across_seeds(noise[rule]) for rule in RULES},
        "noise_around_optimum": {rule: _across_seeds(around[rule]) for rule in RULES},
        "isotropic": _across_seeds(added(OPTIMUM, "isotropic")),
        "mean_shift": {
            rule: _across_seeds(mean_heat(rule) - _heat_of(heats, OPTIMUM, "none"))
            for rule in RULES
        },
        "seeds": seeds,
    }


def predicted_difference(heats: Table) -> dict[str, Any]:
    """Heat difference batch − online of the means that theory predicts, across pairs."""
    batch, online = (only(heats, rule=rule)["heat"] for rule in RULES)
    return _across_seeds(batch - online)


def _heat_of(heats: Table, centre: str, noise: str) -> Vector:
    """Heat of a mixture, one number per seed."""
    return only(heats, part="mixed", centre=centre, noise=noise)["heat"]


def _across_seeds(heats: Vector) -> dict[str, Any]:
    """Mean across seeds and its 95 % interval."""
    compared = compare_pairs(np.zeros(len(heats)), heats)
    return {"mean": compared.mean_difference, "interval": compared.interval}


def heat_curves(heats: Table) -> list[dict[str, Any]]:
    """Means over pairs along the lines and against the size of isotropic noise, ends included."""
    points = [point for name, ends in LINES.items() for point in _line(heats, name, *ends)]
    sizes = only(heats, part="size")
    points.append((ISOTROPIC, 0.0, _heat_of(heats, OPTIMUM, "none")))
    points += [
        (ISOTROPIC, size, only(sizes, value=size)["heat"])
        for size in np.unique(sizes["value"]).tolist()
    ]
    return [
        {
            "curve": curve,
            "value": position,
            "heat": float(heat.mean()),
            "sd": float(heat.std(ddof=1)) if len(heat) > 1 else None,
            "pairs": len(heat),
        }
        for curve, position, heat in points
    ]


def _line(heats: Table, name: str, start: str, end: str) -> list[tuple[str, float, Vector]]:
    """(name, position, heats) of the points of a line; none where it was not measured."""
    lines = only(heats, part="line")
    inner = only(lines, centre=start, noise=end)
    positions = np.unique(inner["value"]).tolist()
    if not positions:
        return []

    def end_point(computer: str) -> Vector:
        """Heat of a trained computer or θ* in the pairs that have lines."""
        noise = "none" if computer == OPTIMUM else computer
        mixed = only(heats, part="mixed", centre=computer, noise=noise)
        return mixed["heat"][np.isin(mixed["seed"], lines["seed"])]

    return [
        (name, 0.0, end_point(start)),
        *((name, position, only(inner, value=position)["heat"]) for position in positions),
        (name, 1.0, end_point(end)),
    ]
