"""Every statement can fail: its judge is tested with numbers that hold, differ or are unresolved.

A statement of the paper without an example here fails ``test_every_statement_has_examples``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from study_runs import one_pair

from thermoloom.machine.quantization import UNQUANTIZED
from thermoloom.measures.paired import RULES
from thermoloom.measures.responses import Curve, Measured
from thermoloom.studies import verdicts
from thermoloom.studies.comparison import statements as comparison
from thermoloom.studies.controls import statements as controls
from thermoloom.studies.discovery import names, study
from thermoloom.studies.noise import statements as noise
from thermoloom.studies.precision import statements as precision
from thermoloom.studies.prototypes import statements as prototypes
from thermoloom.studies.verdicts import DEPENDS, DIFFERS, HOLDS, UNRESOLVED, Evidence, Statements

Rows = Sequence[Mapping[str, Any]]
SEEDS = (1, 2, 3, 4, 5)
STEADY = (0.9, 1.0, 1.1, 1.0, 1.0)
"""A change that is resolved from zero, by seed."""
SCATTERED = (9.0, -7.0, 3.0, -2.0, 2.0)
"""One with the same mean that is not."""


def verdict_of(rows: Rows, key: str) -> str:
    (row,) = (row for row in rows if row["key"] == key)
    assert row["criteria"], "a verdict shows how it could have failed"
    return str(row["verdict"])


# --- pairs ---


class MadeUp(Evidence):
    """Evidence of a real small pair whose numbers were replaced."""

    def __init__(self, real: Evidence, summary: dict[str, Any], tables: Mapping[str, Any]) -> None:
        super().__init__(real.run, summary)
        self.made_up = tables

    def table(self, name: str) -> Any:
        return self.made_up[name] if name in self.made_up else super().table(name)


@cache
def real() -> Evidence:
    evidence = Evidence.open(one_pair().path)
    assert isinstance(evidence, Evidence)
    return evidence


def pairs(tables: Mapping[str, Any] | None = None, **changes: Sequence[float]) -> MadeUp:
    """Five pairs: online is 100, plus the changes of a number, by seed; batch is 100.

    ``a__b`` is the number ``a.b``.
    """
    summary = copy.deepcopy(real().summary)
    model = summary["models"][0]
    summary["models"] = [
        copy.deepcopy(model) | {"rule": rule, "seed": seed} for rule in RULES for seed in SEEDS
    ]
    for name, change in changes.items():
        for entry, amount in zip(summary["models"], [0.0] * 5 + list(change), strict=True):
            *path, last = name.split("__")
            node = entry
            for part in path:
                node = node[part]
            node[last] = 100.0 + amount
    return MadeUp(real(), summary, tables or {})


def scaled(numbers: Sequence[float], factor: float) -> list[float]:
    return [factor * number for number in numbers]


def quality(measure: str, change: Sequence[float], panel: Sequence[float] | None = None) -> MadeUp:
    """A measure of quality by all classifiers; ``panel``: another change by the others."""
    members = [member["name"] for member in real().summary["panel"]]
    others = {f"quality__{measure}@{name}": panel or change for name in members}
    return pairs(None, **{f"quality__{measure}": change}, **others)


def heat_and_quality(evidence: Evidence) -> dict[str, list[dict[str, Any]]]:
    """These statements alone: others would need numbers of their own."""
    rows = [*comparison.heat_statements(evidence), *comparison.quality_statements(evidence)]
    return {"statements": rows}


def in_pairs(name: str, sign: int) -> dict[str, Rows]:
    """Examples of a statement about the sign of one number."""

    def rows(change: Sequence[float]) -> Rows:
        return heat_and_quality(pairs(None, **{name: change}))["statements"]

    return {
        HOLDS: rows(scaled(STEADY, sign)),
        DIFFERS: rows(scaled(STEADY, -sign)),
        UNRESOLVED: rows(scaled(SCATTERED, sign)),
    }


def of_quality(
    judge: Callable[[Evidence], dict[str, Any]], measure: str, sign: int
) -> dict[str, Rows]:
    """Examples of a statement about the sign of a quality that the classifiers agree on."""
    changes = {HOLDS: scaled(STEADY, sign), DIFFERS: scaled(STEADY, -sign)}
    changes[UNRESOLVED] = scaled(SCATTERED, sign)
    return {
        v: judge(quality(measure, change))["statements"] for v, change in changes.items()
    } | _disagreement(judge, measure, sign)


def _disagreement(
    judge: Callable[[Evidence], dict[str, Any]], measure: str, sign: int
) -> dict[str, Rows]:
    if measure not in ("max_softmax", "target_fraction", "class_entropy"):
        return {}
    change = scaled(STEADY, sign or 9)
    return {DEPENDS: judge(quality(measure, change, scaled(STEADY, -sign)))["statements"]}


def similar(judge: Callable[[Evidence], dict[str, Any]], measure: str) -> dict[str, Rows]:
    """Examples of a statement that a quality does not change."""
    changes = {HOLDS: (0.1, -0.1, 0.1, -0.1, 0.0), DIFFERS: scaled(STEADY, 5)}
    changes[UNRESOLVED] = scaled(SCATTERED, 0.5)
    return {v: judge(quality(measure, c))["statements"] for v, c in changes.items()} | (
        _disagreement(judge, measure, 0)
    )


def losses(shifts: Sequence[float], **curves: Sequence[float]) -> MadeUp:
    """Validation losses by rule, evaluated at cycles 0, 10, …; online is shifted, by seed."""
    table: dict[str, list[Any]] = {"rule": [], "seed": [], "cycle": [], "reduced_loss": []}
    for rule in RULES:
        for seed, shift in zip(SEEDS, shifts if rule == "online" else [0.0] * 5, strict=True):
            for i, loss in enumerate(curves[rule]):
                for name, entry in zip(table, (rule, seed, 10 * i, loss + shift), strict=True):
                    table[name].append(entry)
    evidence = pairs({"curves": {name: np.array(column) for name, column in table.items()}})
    evidence.summary["shown"] = {"rule": "online", "seed": 1}
    return evidence


def curve_rows(
    batch: Sequence[float], online: Sequence[float], shifts: Sequence[float] = (0.0,) * 5
) -> Rows:
    return comparison.curve_statements(losses(shifts, batch=batch, online=online))


QUICK = [0, -60, -90, -98, -99, *[-100] * 15]
SLOW = [0, -20, -40, -50, -60, -70, -80, -90, -95, *[-100] * 11]
FALLING = [*QUICK[:5], *[-100 - 2 * i for i in range(15)]]


def classes(
    counts: Mapping[int, int], nearest: int = 1, panel: Mapping[int, int] | None = None
) -> Rows:
    """Class statements of samples with so many in each class, all nearest to one pattern."""
    evidence = pairs()
    members = [member["name"] for member in evidence.summary["panel"]]
    column = [np.repeat(list(c), list(c.values())) for c in (counts, panel or counts)]
    samples = {"class": column[0], "rule": np.full(len(column[0]), "online")}
    samples |= {f"class@{name}": column[1] for name in members}
    samples["pattern"] = np.full(
        len(column[0]), evidence.summary["patterns"]["classes"].index(nearest)
    )
    samples["seed"] = np.ones(len(column[0]), int)
    evidence.made_up = {"samples": samples}
    evidence.summary["shown"] = {"rule": "online", "seed": 1}
    return comparison.class_statements(evidence)


def cross(potential: Sequence[float], ensemble: Sequence[float]) -> Rows:
    """Energy drops that change with potential and with ensemble, by seed."""
    table: dict[str, list[Any]] = {"potential": [], "ensemble": [], "drop": []}
    for p in RULES:
        for e in RULES:
            for i in range(5):
                drop = 100 + (p == "online") * potential[i] + (e == "online") * ensemble[i]
                for name, entry in zip(table, (p, e, drop), strict=True):
                    table[name].append(entry)
    evidence = pairs({"cross": {name: np.array(column) for name, column in table.items()}})
    return comparison.cross_statements(evidence)


def replayed(differing: int, changed: int) -> Rows:
    evidence = pairs()
    evidence.summary["replay"] |= {"differing": differing, "changed_parameters": changed}
    return comparison.replay_statements(evidence)


def coupling_key() -> str:
    rows = {(row["label"], row["moment"]): row["key"] for row in real().summary["energies"]}
    first, *_ = rows["coupling", "end"]
    return str(first).replace(".", "__")


def energies(coupling: Sequence[float], onsite: Sequence[float]) -> Rows:
    total = [c + o for c, o in zip(coupling, onsite, strict=True)]
    changes = {coupling_key(): coupling, "final_energy__onsite": onsite}
    evidence = pairs(None, **changes, final_energy__total=total, heat__mean=scaled(total, -1))
    return comparison.energy_statements(evidence)


def start(*changes: float) -> Rows:
    evidence = pairs(None, initial_energy__total=changes, heat__mean=scaled(STEADY, -8))
    return comparison.energy_statements(evidence)


def forces(*by_seed: float) -> Rows:
    model = {
        "paths__force_squared": [force - 100 for force in by_seed],
        "paths__heat_like": [0.0] * 5,
    }
    return comparison.path_statements(pairs(None, **model))


def paths(change: Sequence[float]) -> Rows:
    return comparison.path_statements(pairs(None, paths__reduced_loss=change))


def norms(visible: Sequence[float], hidden: Sequence[float]) -> Rows:
    changes = {"norms__visible_hidden": visible, "norms__hidden_hidden": hidden}
    return comparison.norm_statements(pairs(None, **changes))


def of_comparison() -> dict[str, dict[str, Rows]]:
    down, up, unclear = scaled(STEADY, -1), list(STEADY), scaled(SCATTERED, -1)
    opposite = scaled(STEADY, -0.3)
    judge = heat_and_quality
    return {
        "plateau": {
            HOLDS: curve_rows(QUICK, QUICK), DIFFERS: curve_rows(SLOW, QUICK),
            UNRESOLVED: curve_rows(QUICK, QUICK, SCATTERED),
        },
        "similar_losses": {
            HOLDS: curve_rows(QUICK, QUICK),
            DIFFERS: curve_rows(QUICK, [1.2 * loss for loss in QUICK]),
            UNRESOLVED: curve_rows(QUICK, QUICK, (5.0, 0.0, 0.0, 0.0, 0.0)),
        },
        "lower_heat": in_pairs("heat__mean", -1) | {
            DIFFERS: judge(pairs(None, heat__mean=up))["statements"],
            UNRESOLVED: judge(pairs(None, heat__mean=(-9, -0.1, -0.2, -0.1, -0.1)))["statements"],
        },
        "softmax": similar(judge, "max_softmax"),
        "target_fraction": of_quality(judge, "target_fraction", -1),
        "class_entropy": of_quality(judge, "class_entropy", +1),
        "pattern_distance": of_quality(judge, "pattern_distance", -1),
        "diversity": of_quality(judge, "pairwise_distance", -1),
        "mostly_targets": {
            HOLDS: classes({0: 20, 1: 5, 2: 70, 8: 5}),
            DIFFERS: classes({0: 5, 1: 1, 2: 10, 8: 84}),
            UNRESOLVED: classes({0: 20, 1: 2, 2: 30, 8: 48}),
            DEPENDS: classes({0: 20, 1: 5, 2: 70, 8: 5}, panel={0: 1, 2: 1, 8: 98}),
        },
        "uneven_classes": {
            HOLDS: classes({0: 20, 1: 1, 2: 79}),
            DIFFERS: classes({0: 20, 1: 79, 2: 1}),
            UNRESOLVED: classes({0: 46, 1: 1, 2: 53}),
            DEPENDS: classes({0: 20, 1: 1, 2: 79}, panel={0: 79, 1: 1, 2: 20}),
        },
        "off_target": {
            HOLDS: classes({2: 50, 8: 50}, nearest=1),
            DIFFERS: classes({2: 50, 8: 50}, nearest=0),
            UNRESOLVED: classes({2: 99, 8: 1}, nearest=1),
        },
        "other_paths": {
            HOLDS: paths(down), DIFFERS: paths(scaled(STEADY, -5)), UNRESOLVED: paths(unclear),
        },
        "force_squared": {
            HOLDS: forces(*[30] * 5), DIFFERS: forces(*[0.1] * 5),
            UNRESOLVED: forces(9, -9, 4, -4, 2),
        },
        "start_energy": {
            HOLDS: start(*[0.1] * 5), DIFFERS: start(*[4] * 5), UNRESOLVED: start(*SCATTERED),
        },
        "coupling_energy": {
            HOLDS: energies(up, opposite), DIFFERS: energies(down, opposite),
            UNRESOLVED: energies(SCATTERED, opposite),
        },
        "onsite_energy": {
            HOLDS: energies(up, opposite), DIFFERS: energies(up, up),
            UNRESOLVED: energies(up, unclear),
        },
        "final_energy": {
            HOLDS: energies(up, opposite), DIFFERS: energies(up, scaled(STEADY, -3)),
            UNRESOLVED: energies(SCATTERED, opposite),
        },
        "norms": {
            HOLDS: norms(down, down), DIFFERS: norms(up, down),
            UNRESOLVED: norms((-9, -0.1, -0.2, -0.1, -0.1), down),
        },
        "online_potential": {
            HOLDS: cross(down, up), DIFFERS: cross(up, up), UNRESOLVED: cross(unclear, up),
        },
        "online_ensemble": {
            HOLDS: cross(up, down), DIFFERS: cross(up, up), UNRESOLVED: cross(up, unclear),
        },
        "replay": {HOLDS: replayed(0, 0), DIFFERS: replayed(1, 0)},
    }  # fmt: skip


def of_prototypes() -> dict[str, dict[str, Rows]]:
    judge = prototypes.judge
    heats = {HOLDS: scaled(STEADY, -1), DIFFERS: STEADY, UNRESOLVED: (-9, -0.1, -0.2, -0.1, -0.1)}
    return {
        "lower_heat": {v: judge(pairs(None, heat__mean=h))["statements"] for v, h in heats.items()},
        "softmax": similar(judge, "max_softmax"),
        "target_fraction": similar(judge, "target_fraction"),
        "diversity": of_quality(judge, "pairwise_distance", -1),
        "pattern_distance": of_quality(judge, "pattern_distance", +1),
    }


# --- curves ---


@dataclass(frozen=True)
class Point:
    """Mean heat (or quality) of a condition, and by how much its single trajectories scatter."""

    heat: float
    scatter: float = 0.0


TRAJECTORIES = np.array([-1.0, 1.0] * 10)
Points = Mapping[float, float | Point]


def curve(points: Points, seeds: Sequence[int] = (1,), **columns: Any) -> Curve:
    """A response curve; a scatter differs from condition to condition and from seed to seed."""
    measured = []
    for value, point in points.items():
        at = point if isinstance(point, Point) else Point(point)
        for i, seed in enumerate(seeds):
            shift = at.scatter * (-1) ** i if len(seeds) > 1 else 0.0
            heats = (
                at.heat
                + shift
                + (at.scatter * TRAJECTORIES if len(seeds) == 1 else 0 * TRAJECTORIES)
            )
            row = {
                "value": value, "seed": seed, "state": "done", "heat_mean": heats.mean(),
                "heat_sem": heats.std(ddof=1) / 20**0.5, "cycles": 1, "samples": 20,
                "pattern_distance": 20.0,
            }  # fmt: skip
            samples = {"heat": heats}
            for name, by_value in columns.items():
                of = by_value[value]
                number = of if isinstance(of, Point) else Point(of)
                row[name] = number.heat
                samples[name] = number.heat + number.scatter * TRAJECTORIES
            measured.append(Measured(row, samples))
    return Curve(measured)


def rows(*statements: dict[str, Any]) -> Rows:
    return statements


def by_verdict(check: Callable[[Curve], dict[str, Any]], **points: Any) -> dict[str, Rows]:
    """Examples of a statement about one curve."""
    names = {"holds": HOLDS, "differs": DIFFERS, "unresolved": UNRESOLVED}
    return {names[name]: rows(check(curve(heats))) for name, heats in points.items()}


def of_noise() -> dict[str, dict[str, Rows]]:
    def averaging(heat: float | Point) -> Rows:
        quiet = curve({0.0: 100, 0.1: 101, 0.3: 102})
        accumulated = {10: quiet, 2500: curve({0.0: 100, 0.1: 101, 0.3: heat})}
        return rows(noise.averaging(quiet, accumulated))

    def coherent(memory: float | Point) -> Rows:
        update = curve({0.0: 100, 0.1: 99, 0.3: 102})
        return rows(
            noise.coherent(update, curve({0.0: 100, 0.1: 9000}), curve({0.0: 100, 0.9: memory}))
        )

    def baselines(residual: float | Point) -> Rows:
        return rows(noise.baselines(curve({0.0: 100}), curve({0.0: residual})))

    return {
        "near_baseline": by_verdict(
            noise.near_baseline, holds={0.0: 100, 0.1: 97, 0.3: 104},
            differs={0.0: 100, 0.1: 97, 0.3: 120},
            unresolved={0.0: 100, 0.1: 97, 0.3: Point(108, 9)},
        ),
        "crossover": by_verdict(
            noise.crossing_over, holds={0.0: 100, 0.3: 104, 0.35: 300},
            differs={0.0: 100, 0.3: 104, 0.35: 121},
            unresolved={0.0: 100, 0.3: 104, 0.35: Point(200, 50)},
        ),
        "low_noise": by_verdict(
            noise.low_noise, holds={0.0: 100, 0.05: 98, 0.15: 97, 0.3: 104},
            differs={0.0: 100, 0.05: 101, 0.15: 102, 0.3: 90},
            unresolved={0.0: 100, 0.05: Point(99, 9), 0.15: Point(99, 9), 0.3: 90},
        ),
        "averaging": {
            HOLDS: averaging(95), DIFFERS: averaging(140), UNRESOLVED: averaging(Point(109, 9)),
        },
        "monotone": by_verdict(
            noise.monotone, holds={0.0: 100, 0.1: 101, 0.2: 102, 0.3: 103},
            differs={0.0: 100, 0.1: 101, 0.2: 102, 0.3: 140},
            unresolved={0.0: 100, 0.1: 110, 0.2: Point(111, 20), 0.3: 121},
        ),
        "baselines": {
            HOLDS: baselines(120), DIFFERS: baselines(100.1), UNRESOLVED: baselines(Point(103, 9)),
        },
        "smallest_offset": by_verdict(
            noise.smallest_offset, holds={0.0: 100, 0.01: 150}, differs={0.0: 100, 0.01: 105},
            unresolved={0.0: 100, 0.01: Point(112, 9)},
        ),
        "orders": by_verdict(
            noise.orders, holds={0.0: 100, 0.01: 1e5}, differs={0.0: 100, 0.01: 900},
            unresolved={0.0: 100, 0.01: Point(1.1e4, 5e3)},
        ),
        "correlation": by_verdict(
            noise.correlation, holds={0.0: 100, 0.5: 110, 0.9: 120},
            differs={0.0: 100, 0.5: 90, 0.9: 120},
            unresolved={0.0: 100, 0.5: Point(101, 9), 0.9: 120},
        ),
        "two_largest": by_verdict(
            noise.two_largest, holds={0.0: 100, 0.5: 110, 0.9: 150, 0.99: 900},
            differs={0.0: 100, 0.5: 110, 0.9: 115, 0.99: 900},
            unresolved={0.0: 100, 0.5: 110, 0.9: Point(121, 9), 0.99: 900},
        ),
        "coherent": {
            HOLDS: coherent(150), DIFFERS: coherent(110), UNRESOLVED: coherent(Point(121, 9)),
        },
    }  # fmt: skip


def of_controls() -> dict[str, dict[str, Rows]]:
    seeds, low = (1, 2, 3), {0.5: 100.0, 1.0: 110.0}

    def rates(online: Points, batch: Points) -> Any:
        return {"online": curve(online, seeds), "batch": curve(batch, seeds)}

    def delays(points: Points) -> Curve:
        return curve(points, seeds)

    scattered = Point(100, 20)
    return {
        "online_lower": {
            HOLDS: rows(controls.online_lower(rates(low, {0.5: 101, 1.0: 130}))),
            DIFFERS: rows(controls.online_lower(rates(low, {0.5: 99, 1.0: 130}))),
        },
        "lowest_scale": {
            HOLDS: rows(controls.lowest_scale(rates(low, low))),
            DIFFERS: rows(controls.lowest_scale(rates(low, {0.5: 120, 1.0: 110}))),
            UNRESOLVED: rows(controls.lowest_scale(rates(low, {0.5: scattered, 1.0: 101}))),
        },
        "still_lower": {
            HOLDS: rows(controls.still_lower(rates({0.5: 90}, {0.5: 100}))),
            DIFFERS: rows(controls.still_lower(rates({0.5: 110}, {0.5: 100}))),
            UNRESOLVED: rows(controls.still_lower(rates({0.5: 99}, {0.5: scattered}))),
        },
        "similar": {
            HOLDS: rows(controls.similar(delays({1: 100, 10: 100.2, 100: 99.9}))),
            DIFFERS: rows(controls.similar(delays({1: 100, 10: 103, 100: 99.9}))),
            UNRESOLVED: rows(controls.similar(delays({1: 100, 10: Point(100, 2), 100: 100}))),
        },
        "full_period": {
            HOLDS: rows(controls.full_period(delays({1: 100, 2500: 108}), 2500)),
            DIFFERS: rows(controls.full_period(delays({1: 100, 2500: 99}), 2500)),
            UNRESOLVED: rows(controls.full_period(delays({1: 100, 2500: Point(108, 7)}), 2500)),
        },
        "fully_accumulated": {
            HOLDS: rows(controls.fully_accumulated(delays({1: 100, 10: 101, 2500: 108}), 2500)),
            DIFFERS: rows(controls.fully_accumulated(delays({1: 100, 10: 120, 2500: 108}), 2500)),
            UNRESOLVED: rows(
                controls.fully_accumulated(delays({1: 100, 10: Point(107, 20), 2500: 108}), 2500)
            ),
        },
    }


# --- bits ---

BITS = (2, 4, 5, 6, 8, 16, UNQUANTIZED)
NONE: Points = {}


def depths(
    heats: Points, softmax: Points = NONE, distance: Points = NONE, diversity: Points = NONE,
    panel: Points | None = None, **more: Points,
) -> Curve:  # fmt: skip
    """A curve over bit depths; what is not named is as in the reference."""

    def column(numbers: Points, reference: float) -> dict[float, float | Point]:
        return {bits: numbers.get(bits, reference) for bits in BITS}

    columns = {
        "max_softmax": column(softmax, 0.9),
        "max_softmax@other": column(softmax if panel is None else panel, 0.9),
        "pattern_distance": column(distance, 20.0),
        "pairwise_distance": column(diversity, 30.0),
        "ks_distance": column(more.get("ks", {}), 0.0),
        "nonzero_visible_hidden": column(more.get("nonzero", {}), 1.0),
        "nonzero_hidden_hidden": column(NONE, 1.0),
    }
    return curve({bits: heats.get(bits, 100.0) for bits in BITS}, **columns)


def bit_rows(storage: Curve | None = None, **training: Curve) -> Rows:
    full = depths({})
    trained = {rounding: training.get(rounding, full) for rounding in precision.ROUNDINGS}
    return precision.statements(precision.Curves(storage or full, trained), ["", "other"])


def of_precision() -> dict[str, dict[str, Rows]]:
    ks = {2: 1.0, 4: 0.1, 5: 0.1}
    zero, half = dict.fromkeys((4, 6, 8), 0.0), dict.fromkeys((4, 6, 8), 0.7)
    poor = dict.fromkeys((4, 6, 8), 0.3)
    cold = dict.fromkeys((4, 6, 8), 10.0)
    better = dict.fromkeys((4, 6, 8), 50.0)
    bad = {"heats": cold, "softmax": poor}
    return {
        "two_bit_heat": {
            HOLDS: bit_rows(depths({2: 10})), DIFFERS: bit_rows(depths({2: 80})),
            UNRESOLVED: bit_rows(depths({2: Point(50, 30)})),
        },
        "two_bit_softmax": {
            HOLDS: bit_rows(depths({}, softmax={2: 0.5})),
            DIFFERS: bit_rows(depths({}, softmax={2: 0.95})),
            UNRESOLVED: bit_rows(depths({}, softmax={2: Point(0.88, 0.2)})),
            DEPENDS: bit_rows(depths({}, softmax={2: 0.5}, panel={2: 0.95})),
        },
        "two_bit_distance": {
            HOLDS: bit_rows(depths({}, distance={2: 25})),
            DIFFERS: bit_rows(depths({}, distance={2: 15})),
            UNRESOLVED: bit_rows(depths({}, distance={2: Point(20.5, 4)})),
        },
        "two_bit_diversity": {
            HOLDS: bit_rows(depths({}, diversity={2: 10})),
            DIFFERS: bit_rows(depths({}, diversity={2: 25})),
        },
        "four_five_bits": {
            HOLDS: bit_rows(depths({4: 98, 5: 99}, ks=ks)),
            DIFFERS: bit_rows(depths({4: 98, 5: 99}, ks=ks | {4: 0.6})),
            UNRESOLVED: bit_rows(depths({4: Point(98, 20), 5: 99}, ks=ks)),
        },
        "four_bit_quality": {
            HOLDS: bit_rows(depths({}, softmax={4: 0.89})),
            DIFFERS: bit_rows(depths({}, distance={4: 25})),
            UNRESOLVED: bit_rows(depths({}, distance={4: Point(20.8, 3)})),
            DEPENDS: bit_rows(depths({}, softmax={4: 0.89}, panel={4: 0.5})),
        },
        "zero_couplings": {
            HOLDS: bit_rows(nearest=depths({}, nonzero=zero)),
            DIFFERS: bit_rows(nearest=depths({}, nonzero=zero | {8: 1e-6})),
        },
        "sixteen_bits": {
            HOLDS: bit_rows(nearest=depths({16: 101})),
            DIFFERS: bit_rows(nearest=depths({16: 120})),
            UNRESOLVED: bit_rows(nearest=depths({16: Point(104, 9)})),
            DEPENDS: bit_rows(nearest=depths({16: 101}, panel={16: 0.5})),
        },
        "stochastic_nonzero": {
            HOLDS: bit_rows(stochastic=depths({}, nonzero=half)),
            DIFFERS: bit_rows(stochastic=depths({}, nonzero=half | {4: 0.1})),
        },
        "stochastic_recovery": {
            HOLDS: bit_rows(nearest=depths(**bad), stochastic=depths(better)),
            DIFFERS: bit_rows(nearest=depths(**bad), stochastic=depths(better, distance={8: 90})),
            UNRESOLVED: bit_rows(
                nearest=depths(**bad), stochastic=depths(better | {4: Point(15, 30)})
            ),
            DEPENDS: bit_rows(
                nearest=depths(**bad), stochastic=depths(better, panel={4: 0.1})
            ),
        },
        "stochastic_quality": {
            HOLDS: bit_rows(stochastic=depths({}, diversity={8: 20})),
            DIFFERS: bit_rows(stochastic=depths({}, diversity={8: 29})),
            UNRESOLVED: bit_rows(stochastic=depths({}, distance={8: Point(21.2, 3)})),
            DEPENDS: bit_rows(stochastic=depths({}, softmax={8: 0.5}, panel={8: 0.9})),
        },
        "stochastic_sixteen": {
            HOLDS: bit_rows(), DIFFERS: bit_rows(stochastic=depths({16: 120})),
            UNRESOLVED: bit_rows(stochastic=depths({16: Point(104, 9)})),
        },
        "lowest_tested": {
            HOLDS: bit_rows(nearest=depths(cold), stochastic=depths(better)),
            DIFFERS: bit_rows(nearest=depths(cold), stochastic=depths(better | {8: 101})),
            UNRESOLVED: bit_rows(
                nearest=depths(cold | {16: Point(104, 9)}), stochastic=depths(better)
            ),
        },
    }  # fmt: skip


EXAMPLES = {
    "comparison": of_comparison,
    "prototypes": of_prototypes,
    "noise": of_noise,
    "controls": of_controls,
    "precision": of_precision,
}


@cache
def examples(name: str) -> dict[str, dict[str, Rows]]:
    return EXAMPLES[name]()


def keys_of(name: str) -> list[str]:
    return list(Statements(study(name).folder).entries["statements"])


STATEMENTS = [(name, key) for name in EXAMPLES for key in keys_of(name)]


@pytest.mark.parametrize(("name", "key"), STATEMENTS)
def test_every_statement_holds_and_fails_with_some_numbers(name: str, key: str) -> None:
    tried = {v: verdict_of(rows, key) for v, rows in examples(name)[key].items()}
    assert {HOLDS, DIFFERS} <= set(tried), "an example must hold, and one must fail"
    assert tried == {verdict: verdict for verdict in tried}


EXACT = {
    "replay": "a count of bits that differ",
    "zero_couplings": "a count of couplings",
    "stochastic_nonzero": "a count of couplings",
    "online_lower": "a count of seeds",
    "two_bit_diversity": "one number of all pairs of samples",
}
"""Statements about numbers without an error, which are never left unresolved."""


def test_all_statements_but_those_about_exact_numbers_may_be_left_unresolved() -> None:
    resolved = {key for name, key in STATEMENTS if UNRESOLVED not in examples(name)[key]}
    assert resolved == set(EXACT)


def test_every_study_that_quotes_the_paper_is_tried() -> None:
    """Expectations of ours, which say so, are tried where their study is."""
    quoting = {
        name
        for name in names()
        for entry in Statements(study(name).folder).entries.get("statements", {}).values()
        if not entry["where"].startswith("our")
    }
    assert set(EXAMPLES) == quoting


# --- criteria by hand ---


@pytest.mark.parametrize(
    ("side", "limit", "interval", "verdict", "distance"),
    [
        ("below", 0.0, (-2.0, -1.0), HOLDS, 1.0),
        ("below", 0.0, (-2.0, 0.5), UNRESOLVED, 0.5),
        ("below", 0.0, (1.0, 3.0), DIFFERS, 1.0),
        ("below", 0.0, (0.0, 0.0), DIFFERS, 0.0),
        ("at_most", 0.0, (0.0, 0.0), HOLDS, 0.0),
        ("above", 50.0, (60.0, 80.0), HOLDS, 10.0),
        ("at_least", 100.0, (80.0, 80.0), DIFFERS, 20.0),
        ("within", 2.0, (-1.0, 1.5), HOLDS, 0.5),
        ("within", 2.0, (-3.0, 1.0), UNRESOLVED, 1.0),
        ("within", 2.0, (-5.0, -3.0), DIFFERS, 1.0),
        ("beyond", 2.0, (-5.0, -3.0), HOLDS, 1.0),
        ("beyond", 2.0, (-1.0, 1.0), DIFFERS, 1.0),
        ("beyond", 2.0, (-5.0, 1.0), UNRESOLVED, 2.0),
        ("above", 0.0, (-np.inf, np.inf), UNRESOLVED, None),
    ],
)
def test_a_criterion_by_hand(
    side: str, limit: float, interval: tuple[float, float], verdict: str, distance: float | None
) -> None:
    made = verdicts.Criterion("name", sum(interval) / 2, side, limit, "E₀", "reason", interval)
    assert (made.verdict, made.distance) == (verdict, distance)
    exact = replace(made, value=interval[0], interval=None)
    assert exact.verdict in (HOLDS, DIFFERS)


def test_a_statement_of_the_panel_is_what_all_classifiers_say() -> None:
    said = Statements(study("comparison").folder)
    below, above, unclear = (
        [said.check("class_entropy", "difference", 0.0, ends)]
        for ends in ((1, 2), (-2, -1), (-1, 1))
    )

    def together(*criteria: Any) -> str:
        named = dict(zip(("", "a", "b"), criteria, strict=False))
        return str(said.judge_panel("class_entropy", named, "nothing")["verdict"])

    assert together(below, below) == HOLDS
    assert together(above, above) == DIFFERS
    assert together(below, above) == together(below, unclear) == DEPENDS
    assert together(below, [], below) == HOLDS  # nothing to judge
    assert together([], []) == verdicts.NOT_MEASURED
