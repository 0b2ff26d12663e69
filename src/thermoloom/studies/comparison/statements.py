"""The paper's main comparison: losses alike, less heat online, and where the energy goes."""

from __future__ import annotations

from typing import Any

import numpy as np

from thermoloom.measures.paired import RULES
from thermoloom.measures.statistics import compare_pairs
from thermoloom.runs.formats import only
from thermoloom.studies import verdicts
from thermoloom.studies.pair_statements import NO_CLASSIFIER, change, lower_heat, quantities
from thermoloom.studies.verdicts import Evidence, Statements

said = Statements.beside(__file__)


def judge(evidence: Evidence) -> dict[str, Any]:
    """Headline numbers and statements, and when the losses have reached their plateau."""
    return {
        "plateau": plateau(evidence),
        "quantities": quantities(said, evidence.summary),
        "statements": [statement for check in CHECKS for statement in check(evidence)],
    }


def plateau(evidence: Evidence) -> dict[str, Any]:
    """When the mean validation loss of each rule has fallen to its plateau, and how far apart.

    The fall is from θ = 0 to the mean of the last five evaluations.
    """
    table, shown = evidence.table("curves"), evidence.summary["shown"]
    cycles = only(table, rule=shown["rule"], seed=shown["seed"])["cycle"]
    curves = {
        rule: only(table, rule=rule)["reduced_loss"].reshape(-1, len(cycles)).mean(axis=0)
        for rule in RULES
    }
    levels = {rule: float(curve[-5:].mean()) for rule, curve in curves.items()}
    falls = {rule: float(curve[0]) - levels[rule] for rule, curve in curves.items()}
    most = said.limit("plateau", "left")
    found: dict[str, Any] = {"fraction_left": most}
    for rule, curve in curves.items():
        left = (curve - levels[rule]) / falls[rule]
        reached = np.flatnonzero(left <= most)
        first = int(reached[0]) if len(reached) else len(curve) - 1
        found[rule] = {
            "cycle": int(cycles[first]),
            "level": levels[rule],
            "fall": falls[rule],
            "largest_excess_after": float(left[first:].max()),
        }
    later = cycles >= found["batch"]["cycle"]
    apart = np.abs(curves["online"] - curves["batch"])[later]
    found["apart_percent"] = 100 * float(apart.mean()) / falls["batch"]
    found["level_difference"] = levels["online"] - levels["batch"]
    return found


# --- the paper's statements -----------------------------------------------------------------------

Found = list[dict[str, Any]]


def curve_statements(evidence: Evidence) -> Found:
    found = plateau(evidence)
    batch, online = (found[rule]["cycle"] for rule in RULES)
    excess = max(found[rule]["largest_excess_after"] for rule in RULES)
    stable = excess <= said.limit("plateau", "later")
    in_time = max(batch, online) <= said.limit("plateau", "cycles")
    left, apart = 100 * found["fraction_left"], found["apart_percent"]
    close = apart <= 100 * said.limit("similar_losses", "apart")
    return [
        said.statement("plateau", verdicts.holds_if(in_time and stable), left=left, batch=batch,
                       online=online, excess=100 * excess),
        said.statement("similar_losses", verdicts.holds_if(close), apart=apart,
                       difference=found["level_difference"]),
    ]  # fmt: skip


def heat_statements(evidence: Evidence) -> Found:
    return [lower_heat(said, evidence)]


def quality_statements(evidence: Evidence) -> Found:
    return [
        change(said, evidence, "softmax", "quality.max_softmax", 0),
        change(said, evidence, "target_fraction", "quality.target_fraction", -1),
        change(said, evidence, "class_entropy", "quality.class_entropy", +1),
        change(said, evidence, "pattern_distance", "quality.pattern_distance", -1),
        change(said, evidence, "diversity", "quality.pairwise_distance", -1),
    ]


def class_statements(evidence: Evidence) -> Found:
    """Class coverage of the displayed model: one seed, as in the paper."""
    keys = ("mostly_targets", "uneven_classes", "off_target")
    patterns, samples = evidence.summary["patterns"], evidence.shown_samples
    targets, seed = patterns["targets"], evidence.summary["shown"]["seed"]
    if evidence.summary["classifier"] is None:
        return [said.missing(key, NO_CLASSIFIER) for key in keys]
    if targets != [0, 1, 2]:
        return [said.missing(key, "other digits were learned") for key in keys]
    counts = [int((samples["class"] == digit).sum()) for digit in range(3)]
    total, known = len(samples["class"]), sum(counts)
    off = ~np.isin(samples["class"], targets)
    nearest = np.array(patterns["classes"])[samples["pattern"][off]]
    near = int(np.isin(nearest, (1, 2)).sum())
    mostly = known > said.limit("mostly_targets", "share") * total
    uneven = counts[2] == max(counts) and counts[1] == min(counts)
    beside = verdicts.holds_if(near > said.limit("off_target", "share") * off.sum())
    return [
        said.statement("mostly_targets", verdicts.holds_if(mostly), targets=known, total=total,
                       seed=seed),
        said.statement("uneven_classes", verdicts.holds_if(uneven), zero=counts[0], one=counts[1],
                       two=counts[2]),
        said.statement("off_target", beside if off.any() else verdicts.NOT_MEASURED, near=near,
                       off=int(off.sum())),
    ]  # fmt: skip


def path_statements(evidence: Evidence) -> Found:
    loss = evidence.models.compare("paths.reduced_loss")
    if loss is None:
        return [said.missing(k, "no additional paths") for k in ("other_paths", "force_squared")]
    ratio, heat_like, force = (
        float(np.mean(evidence.models.compared(f"paths.{key}").other))
        for key in ("log_ratio", "heat_like", "force_squared")
    )
    retained = abs(force) > said.limit("force_squared", "negligible") * abs(heat_like)
    paths, error = (evidence.summary[key] for key in ("additional_paths", "identity_error"))
    return [
        said.statement("other_paths", verdicts.direction(loss, -1), **loss.numbers, paths=paths),
        said.statement("force_squared", verdicts.holds_if(retained), ratio=ratio,
                       heat_like=heat_like, force=force, error=error),
    ]  # fmt: skip


def energy_statements(evidence: Evidence) -> Found:
    compared = evidence.models.compared
    heat, start, end, onsite = (
        compared(key)
        for key in ("heat.mean", "initial_energy.total", "final_energy.total",
                    "final_energy.onsite")
    )  # fmt: skip
    rows = {(row["label"], row["moment"]): row["key"] for row in evidence.summary["energies"]}
    coupling = compared(*rows["coupling", "end"])
    share = abs(start.mean_difference / heat.mean_difference)
    most = said.limit("start_energy", "share") * abs(heat.mean_difference)
    equal = verdicts.holds_if(abs(start.mean_difference) <= most)
    dominates = abs(coupling.mean_difference) > abs(onsite.mean_difference)
    return [
        said.statement("start_energy", equal, **start.numbers, share=100 * share),
        said.statement("coupling_energy", verdicts.direction(coupling, +1), **coupling.numbers),
        said.statement("onsite_energy", verdicts.direction(onsite, -1), **onsite.numbers),
        said.statement(
            "final_energy",
            verdicts.direction(end, +1) if dominates else verdicts.DIFFERS,
            coupling=coupling.mean_difference,
            onsite=onsite.mean_difference,
            final=end.mean_difference,
        ),
    ]


def norm_statements(evidence: Evidence) -> Found:
    keys = ("norms.visible_hidden", "norms.hidden_hidden")
    visible, hidden = (evidence.models.compare(key) for key in keys)
    if visible is None or hidden is None:
        return [said.missing("norms", "the machine is wired in another way")]
    vh, hh = visible.numbers, hidden.numbers
    return [
        said.statement(
            "norms",
            verdicts.weakest([verdicts.in_all_pairs(block, -1) for block in (visible, hidden)]),
            vh=vh["lower"],
            hh=hh["lower"],
            vh_percent=vh["percent"],
            hh_percent=hh["percent"],
            pairs=vh["pairs"],
        )
    ]


def cross_statements(evidence: Evidence) -> Found:
    """Potentials compared on the same states, then states compared in the same potential."""
    keys = ("online_potential", "online_ensemble")
    if not evidence.summary["cross"]:
        reason = "the drop of one potential is defined for machines of one stage"
        return [said.missing(key, reason) for key in keys]
    batch, online = RULES
    drops = evidence.drops
    by_potential = [compare_pairs(drops(batch, e), drops(online, e)) for e in RULES]
    by_ensemble = [compare_pairs(drops(p, batch), drops(p, online)) for p in RULES]
    return [
        said.statement(
            key,
            verdicts.weakest([verdicts.direction(c, -1) for c in compared]),
            batch=compared[0].mean_difference,
            online=compared[1].mean_difference,
        )
        for key, compared in zip(keys, (by_potential, by_ensemble), strict=True)
    ]


def replay_statements(evidence: Evidence) -> Found:
    replay, seed = evidence.summary["replay"], evidence.summary["shown"]["seed"]
    if replay is None:
        return [said.missing("replay", "no replay was made")]
    differing, samples = replay["differing"], replay["samples"]
    same = verdicts.holds_if(not differing)
    return [said.statement("replay", same, differing=differing, samples=samples, seed=seed)]


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
