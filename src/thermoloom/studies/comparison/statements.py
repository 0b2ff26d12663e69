"""The paper's main comparison: similar losses, less heat online, energies by part."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.measures.paired import RULES
from thermoloom.measures.quality import on_panel, value_range
from thermoloom.measures.statistics import compare_pairs, rate_interval
from thermoloom.runs.formats import only
from thermoloom.studies.pair_statements import NO_CLASSIFIER, change, lower_heat, quantities
from thermoloom.studies.verdicts import Criterion, Evidence, Rows, Statements

said = Statements.beside(__file__)


def judge(evidence: Evidence) -> dict[str, Any]:
    """Headline numbers and statements, and when the losses have reached their plateau."""
    return {
        "plateau": plateau(evidence),
        "quantities": quantities(said, evidence.summary),
        "statements": [statement for check in CHECKS for statement in check(evidence)],
    }


def plateau(evidence: Evidence) -> dict[str, Any]:
    """When the mean validation loss of each rule reaches its plateau, and the distance between the
    curves of a pair afterwards.

    The loss is that without squared increments; its level is the mean of the last five evaluations.
    The plateau begins where the loss comes close to that level, from above or below, and stays
    close to it.
    """
    table, shown = evidence.table("curves"), evidence.summary["shown"]
    cycles = only(table, rule=shown["rule"], seed=shown["seed"])["cycle"]
    losses = {
        rule: only(table, rule=rule)["reduced_loss"].reshape(-1, len(cycles)) for rule in RULES
    }
    levels = {rule: by_seed[:, -5:].mean(axis=1) for rule, by_seed in losses.items()}
    band = said.limit("plateau", "band")
    rules = {}
    for rule, by_seed in losses.items():
        level = float(levels[rule].mean())
        outside = np.flatnonzero(np.abs(by_seed.mean(axis=0) - level) > band / 100 * abs(level))
        first = min(int(outside[-1]) + 1, len(cycles) - 1) if len(outside) else 0
        rules[rule] = {"cycle": int(cycles[first]), "level": level}
    later = cycles >= rules["batch"]["cycle"]
    apart = np.abs(losses["online"] - losses["batch"])[:, later].mean(axis=1)
    percent = 100 / abs(rules["batch"]["level"])
    online = dict(zip(cycles.tolist(), losses["online"].mean(axis=0).tolist(), strict=True))
    return rules | {
        "band_percent": band,
        "apart_percents": (percent * apart).tolist(),
        "level_percents": (percent * (levels["online"] - levels["batch"])).tolist(),
        "losses": {f"loss_{cycle}": online.get(cycle, math.nan) for cycle in (20, 40, 50)},
    }


# --- the paper's statements -----------------------------------------------------------------------


def curve_statements(evidence: Evidence) -> Rows:
    curves = plateau(evidence)
    batch, online = (curves[rule]["cycle"] for rule in RULES)
    criteria = [
        said.check("plateau", "cycles", max(batch, online)),
        said.check_mean("plateau", "level_difference", curves["level_percents"]),
    ]
    numbers = {"batch": batch, "online": online, "level": curves["online"]["level"]}
    close = said.check_mean("similar_losses", "difference", curves["apart_percents"])
    difference = curves["online"]["level"] - curves["batch"]["level"]
    return [
        said.judge("plateau", criteria, band=curves["band_percent"], **numbers, **curves["losses"]),
        said.judge("similar_losses", [close], apart=close.value, difference=difference),
    ]


def heat_statements(evidence: Evidence) -> Rows:
    return [lower_heat(said, evidence)]


def quality_statements(evidence: Evidence) -> Rows:
    return [
        change(said, evidence, "softmax", "max_softmax"),
        change(said, evidence, "target_fraction", "target_fraction"),
        change(said, evidence, "class_entropy", "class_entropy"),
        change(said, evidence, "pattern_distance", "pattern_distance"),
        change(said, evidence, "diversity", "pairwise_distance"),
    ]


def check_share(key: str, name: str, part: int, total: int) -> list[Criterion]:
    """A share in per cent with Wilson's interval; no criterion if the total is zero."""
    if total == 0:
        return []
    low, high = rate_interval(part, total)
    return [said.check(key, name, 100 * part / total, (100 * low, 100 * high))]


def class_statements(evidence: Evidence) -> Rows:
    """Class coverage of the displayed computer: one seed, as in the paper, by every classifier."""
    keys = ("mostly_targets", "uneven_classes", "off_target")
    patterns, samples = evidence.summary["patterns"], evidence.shown_samples
    if evidence.summary["classifier"] is None:
        return [said.missing(key, NO_CLASSIFIER) for key in keys]
    if patterns["targets"] != [0, 1, 2]:
        return [said.missing(key, "other digits were learned") for key in keys]
    nearest = np.array(patterns["classes"])[samples["pattern"]]
    seen = {
        name: _coverage(samples[on_panel("class", name)], nearest) for name in evidence.classifiers
    }
    mostly, uneven, off_target = (
        said.judge_panel(
            key,
            {name: check(counts) for name, counts in seen.items()},
            **_coverage_numbers(seen),
            seed=evidence.summary["shown"]["seed"],
        )
        for key, check in zip(keys, COVERAGE, strict=True)
    )
    return [mostly, uneven, off_target]


Counts = dict[str, int]
COVERAGE: tuple[Callable[[Counts], list[Criterion]], ...] = (
    lambda c: check_share("mostly_targets", "share", c["targets"], c["total"]),
    lambda c: [
        *check_share("uneven_classes", "class_2", c["two"], c["targets"]),
        *check_share("uneven_classes", "class_1", c["one"], c["targets"]),
    ],
    lambda c: check_share("off_target", "share", c["near"], c["off"]),
)
"""Criteria of the three statements, from the counts of one classifier."""


def _coverage(classes: NDArray[Any], nearest: NDArray[Any]) -> Counts:
    """Samples by assigned class, and how many of the off-target ones are nearest to a 1 or a 2."""
    zero, one, two = (int((classes == digit).sum()) for digit in range(3))
    off = ~np.isin(classes, (0, 1, 2))
    near = int(np.isin(nearest[off], (1, 2)).sum())
    counts = {"zero": zero, "one": one, "two": two, "targets": zero + one + two}
    return counts | {"off": int(off.sum()), "near": near, "total": len(classes)}


def _coverage_numbers(seen: Mapping[str, Counts]) -> dict[str, Any]:
    """Counts of the main classifier, and ranges over the panel."""

    def ends(part: str, total: str) -> tuple[float, float]:
        shares = [100 * c[part] / c[total] for c in seen.values() if c[total]]
        return value_range(shares) or (math.nan, math.nan)

    (least, most), two, one = (
        ends(part, total)
        for part, total in (("targets", "total"), ("two", "targets"), ("one", "targets"))
    )
    off = [counts["off"] for counts in seen.values()]
    return seen[""] | {
        "least": least,
        "most": most,
        "two_least": two[0],
        "two_most": two[1],
        "one_least": one[0],
        "one_most": one[1],
        "off_least": min(off),
        "off_most": max(off),
    }


def path_statements(evidence: Evidence) -> Rows:
    loss = evidence.models.compare("paths.reduced_loss")
    if loss is None:
        keys, reason = ("other_paths", "force_squared"), "no additional paths were simulated"
        return [said.missing(key, reason) for key in keys]
    ratios, heats, forces = (
        np.array(evidence.models.compared(f"paths.{key}").other)
        for key in ("log_ratio", "heat_like", "force_squared")
    )
    paths, error = (evidence.summary[key] for key in ("additional_paths", "identity_error"))
    close, lower = (
        said.check_pairs("other_paths", name, loss) for name in ("size_of_difference", "difference")
    )
    part = said.check_mean("force_squared", "force_squared_term", 100 * forces / np.abs(heats))
    size = abs(loss.mean_percent_difference or 0.0)
    return [
        said.judge("other_paths", [close, lower], **loss.numbers, paths=paths, size=size),
        said.judge("force_squared", [part], ratio=ratios.mean(), heat_like=heats.mean(),
                   force=forces.mean(), error=error),
    ]  # fmt: skip


def energy_statements(evidence: Evidence) -> Rows:
    compared = evidence.models.compared
    heat, start, end, onsite = (
        compared(key)
        for key in ("heat.mean", "initial_energy.total", "final_energy.total",
                    "final_energy.onsite")
    )  # fmt: skip
    rows = {(row["label"], row["moment"]): row["key"] for row in evidence.summary["energies"]}
    coupling = compared(*rows["coupling", "end"])
    both = compared("final_energy.onsite", *rows["coupling", "end"])
    explained = heat.mean_difference or 1e-9  # E₀; no heat to explain
    equal = said.check_mean("start_energy", "share", 100 * np.array(start.differences) / explained)
    final = [
        said.check_pairs("final_energy", "coupling_and_onsite", both),
        said.check_pairs("final_energy", "difference", end),
    ]
    return [
        said.judge("start_energy", [equal], **start.numbers, share=abs(equal.value)),
        *(
            said.judge(key, [said.check_pairs(key, "difference", part)], **part.numbers)
            for key, part in (("coupling_energy", coupling), ("onsite_energy", onsite))
        ),
        said.judge(
            "final_energy",
            final,
            coupling=coupling.mean_difference,
            onsite=onsite.mean_difference,
            final=end.mean_difference,
        ),
    ]


def norm_statements(evidence: Evidence) -> Rows:
    blocks = ("visible_hidden", "hidden_hidden")
    visible, hidden = (evidence.models.compare(f"norms.{block}") for block in blocks)
    if visible is None or hidden is None:
        return [said.missing("norms", "the machine lacks one of the two coupling blocks")]
    vh, hh = visible.numbers, hidden.numbers
    share = 100 * min(vh["lower"], hh["lower"]) / vh["pairs"]
    criteria = [
        said.check_pairs("norms", blocks[0], visible),
        said.check_pairs("norms", blocks[1], hidden),
        said.check("norms", "pairs", share),
    ]
    return [
        said.judge(
            "norms",
            criteria,
            vh=vh["lower"],
            hh=hh["lower"],
            vh_percent=vh["percent"],
            hh_percent=hh["percent"],
            pairs=vh["pairs"],
        )
    ]


def cross_statements(evidence: Evidence) -> Rows:
    """Potentials compared on the same states, then states compared in the same potential."""
    keys = ("online_potential", "online_ensemble")
    if not evidence.summary["cross"]:
        reason = "an energy drop in one potential is defined only for machines of one stage"
        return [said.missing(key, reason) for key in keys]
    batch, online = RULES
    drops = evidence.drops
    by_potential = {e: compare_pairs(drops(batch, e), drops(online, e)) for e in RULES}
    by_ensemble = {p: compare_pairs(drops(p, batch), drops(p, online)) for p in RULES}
    return [
        said.judge(
            key,
            [said.check_pairs(key, rule, pairs) for rule, pairs in compared.items()],
            **{rule: pairs.mean_difference for rule, pairs in compared.items()},
        )
        for key, compared in zip(keys, (by_potential, by_ensemble), strict=True)
    ]


def replay_statements(evidence: Evidence) -> Rows:
    replay = evidence.summary["replay"]
    if replay is None:
        return [said.missing("replay", "no replay was made")]
    criteria = [
        said.check("replay", "samples", replay["differing"]),
        said.check("replay", "parameters", replay["changed_parameters"]),
    ]
    return [said.judge("replay", criteria, **replay)]


CHECKS = (
    curve_statements,
    heat_statements,
    quality_statements,
    class_statements,
    path_statements,
    energy_statements,
    norm_statements,
    cross_statements,
    replay_statements,
)
