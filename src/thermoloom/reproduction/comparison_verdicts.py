"""The paper's main comparison: losses alike, less heat online, and where the energy goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from thermoloom.measures.paired import RULES
from thermoloom.measures.statistics import compare_pairs
from thermoloom.reproduction import paper
from thermoloom.reproduction.evidence import Evidence
from thermoloom.runs.formats import only

said = COMPARISON = paper.Said("comparison")
NO_CLASSIFIER = "there is no classifier for this visible layer"


def judge(evidence: Evidence) -> dict[str, Any]:
    """Headline numbers and statements, and when the losses have reached their plateau."""
    return {
        "plateau": plateau(evidence),
        "quantities": quantities(said, evidence.summary),
        "statements": [statement for check in CHECKS for statement in check(evidence)],
    }


def quantities(said: paper.Said, summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The headline numbers, each with the paper's where there is one."""
    heat, note = summary["heat"], summary["heat"]["note"]
    rows: list[tuple[str, str, float | None, dict[str, Any]]] = [
        ("heat_reduction", "heat reduction, batch − online", heat["reduction"],
         {"interval": heat["interval"], "unit": "E₀", "note": note}),
        ("relative_reduction", "relative heat reduction, mean over pairs", heat["percent"],
         {"interval": heat["percent_interval"], "unit": "%", "note": note}),
        ("t_test_p", "paired t-test, p", heat["t_test_p"],
         {"digits": ".2g", "note": note, "compare": _by_level("t_test_p")}),
        ("sign_test_p", "exact two-sided sign test, p", heat["sign_test_p"],
         {"digits": ".4g", "note": note, "compare": _by_level("sign_test_p")}),
        ("batch_heat", "mean heat, batch", heat["batch"], {"unit": "E₀"}),
        ("online_heat", "mean heat, online", heat["online"], {"unit": "E₀"}),
    ]  # fmt: skip
    if summary.get("optimum"):
        found = summary["optimum"]["heat"]
        rows.append(("optimum_heat", "mean heat, optimum (ours)", found, {"unit": "E₀"}))
    if summary["classifier"]:
        accuracy = summary["classifier"]["test_accuracy_percent"]
        how = {"unit": "%", "digits": ".1f", "compare": paper.compare_size}
        label = "test accuracy of the classifier on MNIST"
        rows.append(("classifier_accuracy", label, accuracy, how))
    return [said.quantity(key, label, value, **how) for key, label, value, how in rows]


def _by_level(key: str) -> Callable[[float | None, float], str]:
    return partial(paper.compare_p, level=COMPARISON.limit(key, "level"))


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
        said.statement("plateau", paper.holds_if(in_time and stable), left=left, batch=batch,
                       online=online, excess=100 * excess),
        said.statement("similar_losses", paper.holds_if(close), apart=apart,
                       difference=found["level_difference"]),
    ]  # fmt: skip


def heat_statements(evidence: Evidence) -> Found:
    return [lower_heat(said, evidence)]


def lower_heat(said: paper.Said, evidence: Evidence) -> dict[str, Any]:
    compared = evidence.models.compared("heat.mean")
    percent = -(compared.mean_percent_difference or 0.0)
    verdict = paper.in_all_pairs(compared, -1)
    return said.statement("lower_heat", verdict, **compared.numbers | {"percent": percent})


def quality_statements(evidence: Evidence) -> Found:
    return [
        change(said, evidence, "softmax", "quality.max_softmax", 0),
        change(said, evidence, "target_fraction", "quality.target_fraction", -1),
        change(said, evidence, "class_entropy", "quality.class_entropy", +1),
        change(said, evidence, "pattern_distance", "quality.pattern_distance", -1),
        change(said, evidence, "diversity", "quality.pairwise_distance", -1),
    ]


def change(said: paper.Said, evidence: Evidence, key: str, value: str, sign: int) -> dict[str, Any]:
    """A statement about online − batch of one seed-level number: its sign, or no change (0)."""
    compared = evidence.models.compare(value)
    if compared is None:
        return said.missing(key, NO_CLASSIFIER)
    verdict = paper.direction(compared, sign) if sign else paper.no_change(compared)
    text = "{percent:+.2f} % of the batch mean; one pair has no interval"
    low, high = compared.percent_interval or (None, None)
    if low is not None:
        text = "{percent:+.2f} % of the batch mean, 95 % interval [{low:+.2f}, {high:+.2f}] %"
    return said.statement(key, verdict, text, **compared.numbers, low=low, high=high)


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
    beside = paper.holds_if(near > said.limit("off_target", "share") * off.sum())
    return [
        said.statement("mostly_targets", paper.holds_if(mostly), targets=known, total=total,
                       seed=seed),
        said.statement("uneven_classes", paper.holds_if(uneven), zero=counts[0], one=counts[1],
                       two=counts[2]),
        said.statement("off_target", beside if off.any() else paper.NOT_MEASURED, near=near,
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
        said.statement("other_paths", paper.direction(loss, -1), **loss.numbers, paths=paths),
        said.statement("force_squared", paper.holds_if(retained), ratio=ratio,
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
    equal = paper.holds_if(abs(start.mean_difference) <= most)
    dominates = abs(coupling.mean_difference) > abs(onsite.mean_difference)
    return [
        said.statement("start_energy", equal, **start.numbers, share=100 * share),
        said.statement("coupling_energy", paper.direction(coupling, +1), **coupling.numbers),
        said.statement("onsite_energy", paper.direction(onsite, -1), **onsite.numbers),
        said.statement(
            "final_energy",
            paper.direction(end, +1) if dominates else paper.DIFFERS,
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
            paper.weakest([paper.in_all_pairs(block, -1) for block in (visible, hidden)]),
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
            paper.weakest([paper.direction(c, -1) for c in compared]),
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
    same = paper.holds_if(not differing)
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
