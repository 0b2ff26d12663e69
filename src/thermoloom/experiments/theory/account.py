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

Heats = dict[str, NDArray[Any]]


def heat_of(heats: Heats, centre: str, noise: str) -> NDArray[np.float64]:
    """Heat of a mixture, one value per seed."""
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


def predicted_difference(table: Heats) -> dict[str, Any]:
    """Heat difference batch − online of the means that theory predicts, across pairs."""
    batch, online = (table["heat"][table["rule"] == rule] for rule in RULES)
    return across_seeds(batch - online)


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
