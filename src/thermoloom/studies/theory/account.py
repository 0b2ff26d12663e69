"""Where the heat comes from: θ* itself, the mean that a rule approaches, or the noise around it.

To lowest order noise adds heat in proportion to its variance. δ_s has (1 − 1/S) of a rule's
variance and θ̄ keeps 1/S of it, so with S seeds

    N = S/(S − 1) ⟨Q(centre + δ_s) − Q(centre)⟩

is the heat that the whole noise adds, and Q(θ̄) − N/S the heat of the mean without noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.experiments.optimum import RULE as OPTIMUM
from thermoloom.experiments.theory.mixtures import LINES
from thermoloom.measures.paired import RULES
from thermoloom.measures.statistics import compare_pairs
from thermoloom.runs.formats import Table, only


def heat_of(heats: Table, centre: str, noise: str) -> NDArray[np.float64]:
    """Heat of a mixture, one value per seed."""
    return only(heats, part="mixed", centre=centre, noise=noise)["heat"]


def accounts(heats: Table) -> dict[str, Any]:
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
        "optimum": across_seeds(heat_of(heats, OPTIMUM, "none")),
        **{rule: across_seeds(trained[rule]) for rule in RULES},
        "difference": across_seeds(trained[batch] - trained[online]),
        "from_noise": across_seeds(noise[batch] - noise[online]),
        "from_mean": across_seeds(mean_heat(batch) - mean_heat(online)),
        "around_optimum": across_seeds(around[batch] - around[online]),
        "noise": {rule: across_seeds(noise[rule]) for rule in RULES},
        "noise_around_optimum": {rule: across_seeds(around[rule]) for rule in RULES},
        "isotropic": across_seeds(added(OPTIMUM, "isotropic")),
        "mean_shift": {
            rule: across_seeds(mean_heat(rule) - heat_of(heats, OPTIMUM, "none")) for rule in RULES
        },
        "seeds": seeds,
    }


def across_seeds(values: NDArray[np.float64]) -> dict[str, Any]:
    """Mean across seeds and its 95 % interval."""
    compared = compare_pairs(np.zeros(len(values)), values)
    return {"mean": compared.mean_difference, "interval": compared.interval}


def predicted_difference(table: Table) -> dict[str, Any]:
    """Heat difference batch − online of the means that theory predicts, across pairs."""
    batch, online = (only(table, rule=rule)["heat"] for rule in RULES)
    return across_seeds(batch - online)


def curves(heats: Table) -> list[dict[str, Any]]:
    """Means over pairs along the lines and over the size of isotropic noise, ends included."""
    found = []
    own_noise = {OPTIMUM: "none", "batch": "batch", "online": "online"}
    lines, sizes = only(heats, part="line"), only(heats, part="size")
    for start, end in LINES:
        inner = only(lines, centre=start, noise=end)
        for value in sorted({0.0, 1.0, *inner["value"].tolist()}) if len(inner["value"]) else []:
            points = only(inner, value=value)
            if value in (0.0, 1.0):
                name = end if value else start
                points = only(heats, part="mixed", centre=name, noise=own_noise[name])
                there = np.isin(points["seed"], lines["seed"])
                points = {key: column[there] for key, column in points.items()}
            found.append((f"{start} → {end}", value, points["heat"]))
    found.append(("isotropic noise", 0.0, heat_of(heats, OPTIMUM, "none")))
    found += [
        ("isotropic noise", value, only(sizes, value=value)["heat"])
        for value in np.unique(sizes["value"]).tolist()
    ]
    return [
        {
            "curve": curve,
            "value": value,
            "heat": float(heat.mean()),
            "sd": float(heat.std(ddof=1)) if len(heat) > 1 else None,
            "pairs": len(heat),
        }
        for curve, value, heat in found
    ]
