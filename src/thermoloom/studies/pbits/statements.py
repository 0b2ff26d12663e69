"""Headline numbers, and our own statements that they can contradict."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from thermoloom.measures.prices import price_list
from thermoloom.studies.pbits.pbit_machine import INSTALL
from thermoloom.studies.pbits.study import LANGEVIN, PBITS, best_point
from thermoloom.studies.verdicts import Evidence, Statements, own_quantity

said = Statements.beside(__file__)
ENOUGH_CROSSINGS = 4
"""Fewest crossings of a barrier for which the time counts as long enough."""


def judge(evidence: Evidence) -> dict[str, Any]:
    """Quality of both machines, cost of reading, and the Ising limit."""
    points = evidence.summary["points"]
    best = {machine: best_point(points, machine) for machine in (LANGEVIN, PBITS)}
    reading = _reading(evidence)
    quantities = [
        own_quantity(
            f"{machine}_{key}", f"{machine}: {label}", scale * point[key], unit=unit, digits=digits
        )
        for machine, point in best.items()
        if point is not None
        for key, label, scale, unit, digits in (
            ("correct_class", "correct class", 100, "%", ".1f"),
            ("frechet", "Fréchet distance", 1, "", ".0f"),
            ("heat_joules", "heat of an image", 1, "J", ".1e"),
            ("total_z1", "total at the prices of z1", 1, "J", ".1e"),
        )
    ]
    return {
        "quantities": quantities,
        "statements": [
            reading,
            _peer(best),
            *_limit(evidence),
        ],
    }


def _reading(evidence: Evidence) -> dict[str, Any]:
    """Reading all pixels at the simulated price, in heats of the Langevin machine."""
    point = best_point(evidence.summary["points"], LANGEVIN)
    assert point is not None
    pixels = point["count_read"]
    cost = price_list("z1", "prices").prices["read"].joules * pixels
    times = cost / point["heat_joules"]
    check = said.check("reading", "times", times)
    return said.judge("reading", [check], times=times, joules=cost, pixels=pixels)


def _peer(best: dict[str, Any]) -> dict[str, Any]:
    if best[PBITS] is None:
        return said.missing("peer", INSTALL)
    langevin, pbits = (best[machine] for machine in (LANGEVIN, PBITS))
    ratio = math.log(langevin["frechet"] / pbits["frechet"])
    return said.judge(
        "peer",
        [said.check("peer", "ratio", ratio)],
        langevin=langevin["frechet"],
        pbits=pbits["frechet"],
        langevin_class=100 * langevin["correct_class"],
        pbits_class=100 * pbits["correct_class"],
    )


def _limit(evidence: Evidence) -> list[dict[str, Any]]:
    """The Ising limit, by barriers that are crossed often enough and by those that are not."""
    table = evidence.table("ising")
    steps = evidence.summary["settings"]["study"]["ising_steps"]
    crossings = steps / table["crossing_steps"]
    often = crossings >= ENOUGH_CROSSINGS
    if not often.any():
        reason = "no barrier was crossed often enough"
        return [said.missing(key, reason) for key in ("ising", "frozen", "crossing")]
    worst = float(table["corrected_deviation"][often].max())
    bare = float(table["deviation"][often].max())
    criteria = [said.check("ising", "error", worst), said.check("ising", "gain", bare / worst)]
    rows = [
        said.judge("ising", criteria, worst=worst, bare=bare, highest=table["barrier"][often].max())
    ]
    last, nearest = int(crossings.argmin()), int(table["deviation"].argmin())
    if crossings[last] < 1:
        frozen, best = (float(table["deviation"][place]) for place in (last, nearest))
        rows.append(
            said.judge(
                "frozen",
                [said.check("frozen", "ratio", frozen / best)],
                frozen=frozen,
                best=best,
                barrier=table["barrier"][last],
                best_barrier=table["barrier"][nearest],
                crossings=crossings[last],
            )
        )
    else:
        rows.append(said.missing("frozen", "every barrier was crossed, so none was too high"))
    crossed = crossings >= 1
    ratio = table["measured_crossing_steps"][crossed] / table["crossing_steps"][crossed]
    percent = float(100 * np.abs(ratio - 1).max())
    check = said.check("crossing", "percent", percent)
    return [*rows, said.judge("crossing", [check], percent=percent)]
