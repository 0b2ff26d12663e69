"""The paper's main comparison: losses alike, less heat online, and where the energy goes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from thermoloom.measures.paired import RULES
from thermoloom.measures.statistics import PairedComparison, compare_pairs
from thermoloom.reproduction import paper
from thermoloom.reproduction.evidence import Evidence

said = COMPARISON = paper.Said("comparison")


def judge(evidence: Evidence) -> dict[str, Any]:
    """Headline numbers and statements, and when the losses have reached their plateau."""
    return {
        "plateau": plateau(evidence),
        "quantities": quantities(said, evidence.summary),
        "statements": [statement for check in CHECKS for statement in check(evidence)],
    }


def quantities(said: paper.Said, summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The headline numbers, each with the paper's where there is one."""
    heat = summary["heat"]
    note = heat["note"]
    levels = {key: COMPARISON.limit(key, "level") for key in ("t_test_p", "sign_test_p")}
    rows = [
        said.quantity(
            "heat_reduction",
            "heat reduction, batch − online",
            heat["reduction"],
            interval=heat["interval"],
            unit="E₀",
            note=note,
        ),
        said.quantity(
            "relative_reduction",
            "relative heat reduction, mean over pairs",
            heat["percent"],
            interval=heat["percent_interval"],
            unit="%",
            note=note,
        ),
        said.quantity(
            "t_test_p",
            "paired t-test, p",
            heat["t_test_p"],
            digits=".2g",
            note=note,
            compare=partial(paper.compare_p, level=levels["t_test_p"]),
        ),
        said.quantity(
            "sign_test_p",
            "exact two-sided sign test, p",
            heat["sign_test_p"],
            digits=".4g",
            note=note,
            compare=partial(paper.compare_p, level=levels["sign_test_p"]),
        ),
        said.quantity("batch_heat", "mean heat, batch", heat["batch"], unit="E₀"),
        said.quantity("online_heat", "mean heat, online", heat["online"], unit="E₀"),
    ]
    if summary.get("optimum"):
        found, label = summary["optimum"]["heat"], "mean heat, optimum (ours)"
        rows.append(said.quantity("optimum_heat", label, found, unit="E₀"))
    if summary["classifier"]:
        accuracy = summary["classifier"]["test_accuracy_percent"]
        rows.append(
            said.quantity(
                "classifier_accuracy",
                "test accuracy of the classifier on MNIST",
                accuracy,
                unit="%",
                digits=".1f",
                compare=paper.compare_size,
            )
        )
    return rows


def plateau(evidence: Evidence) -> dict[str, Any]:
    """When the mean validation loss of each rule has fallen to its plateau, and how far apart.

    The fall is from θ = 0 to the mean of the last five evaluations.
    """
    table, shown = evidence.table("curves"), evidence.summary["shown"]
    own = (table["rule"] == shown["rule"]) & (table["seed"] == shown["seed"])
    cycles = table["cycle"][own]
    curves = {
        rule: table["reduced_loss"][table["rule"] == rule].reshape(-1, len(cycles)).mean(axis=0)
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
    first = [found[rule]["cycle"] for rule in RULES]
    excess = max(found[rule]["largest_excess_after"] for rule in RULES)
    stable = excess <= said.limit("plateau", "later")
    in_time = max(first) <= said.limit("plateau", "cycles")
    close = found["apart_percent"] <= 100 * said.limit("similar_losses", "apart")
    return [
        said.statement(
            "plateau",
            paper.HOLDS if in_time and stable else paper.DIFFERS,
            "{left:.0f} % of the fall are left at cycle {batch} (batch) and {online} (online); "
            "later never more than {excess:.1f} %",
            left=100 * found["fraction_left"],
            batch=first[0],
            online=first[1],
            excess=100 * excess,
        ),
        said.statement(
            "similar_losses",
            paper.HOLDS if close else paper.DIFFERS,
            "mean curves differ by {apart:.1f} % of the fall from θ = 0, on the plateau; "
            "online − batch {difference:+.3f} per step there",
            apart=found["apart_percent"],
            difference=found["level_difference"],
        ),
    ]


def heat_statements(evidence: Evidence) -> Found:
    return [lower_heat(said, evidence)]


def lower_heat(said: paper.Said, evidence: Evidence) -> dict[str, Any]:
    compared = evidence.models.compared("heat.mean")
    return said.statement(
        "lower_heat",
        paper.in_all_pairs(compared, -1),
        "lower in {lower} of {pairs}; mean reduction {percent:.1f} %",
        lower=sum(d < 0 for d in compared.differences),
        pairs=compared.pairs,
        percent=-(compared.mean_percent_difference or 0.0),
    )


def quality_statements(evidence: Evidence) -> Found:
    return [
        change(said, evidence, "softmax", "quality.max_softmax", 0),
        change(said, evidence, "target_fraction", "quality.target_fraction", -1),
        change(said, evidence, "class_entropy", "quality.class_entropy", +1),
        change(said, evidence, "prototype_distance", "quality.prototype_distance", -1),
        change(said, evidence, "diversity", "quality.pairwise_distance", -1),
    ]


def change(said: paper.Said, evidence: Evidence, key: str, value: str, sign: int) -> dict[str, Any]:
    """A statement about online − batch of one seed-level number: its sign, or no change (0)."""
    compared = evidence.models.compare(value)
    if compared is None:
        return said.missing(key, "there is no classifier for this visible layer")
    verdict = paper.direction(compared, sign) if sign else paper.no_change(compared)
    if compared.percent_interval is None:
        return said.statement(
            key,
            verdict,
            "{percent:+.2f} % of the batch mean; one pair has no interval",
            percent=compared.mean_percent_difference,
        )
    low, high = compared.percent_interval
    return said.statement(
        key,
        verdict,
        "{percent:+.2f} % of the batch mean, 95 % interval [{low:+.2f}, {high:+.2f}] %",
        percent=compared.mean_percent_difference,
        low=low,
        high=high,
    )


def class_statements(evidence: Evidence) -> Found:
    """Class coverage of the displayed model: one seed, as in the paper."""
    keys = ("mostly_targets", "uneven_classes", "off_target")
    patterns, samples = evidence.summary["patterns"], evidence.shown_samples
    targets = patterns["targets"]
    if evidence.summary["classifier"] is None:
        reason = "there is no classifier for this visible layer"
        return [said.missing(key, reason) for key in keys]
    if targets != [0, 1, 2]:
        return [said.missing(key, "other digits were learned") for key in keys]
    counts = [int((samples["class"] == digit).sum()) for digit in range(3)]
    off = ~np.isin(samples["class"], targets)
    nearest = np.array(patterns["classes"])[samples["prototype"][off]]
    near_1_or_2 = int(np.isin(nearest, (1, 2)).sum())
    total = len(samples["class"])
    uneven = counts[2] == max(counts) and counts[1] == min(counts)
    return [
        said.statement(
            "mostly_targets",
            paper.HOLDS
            if sum(counts) > said.limit("mostly_targets", "share") * total
            else paper.DIFFERS,
            "{targets} of {total} samples, seed {seed}",
            targets=sum(counts),
            total=total,
            seed=evidence.summary["shown"]["seed"],
        ),
        said.statement(
            "uneven_classes",
            paper.HOLDS if uneven else paper.DIFFERS,
            "classes 0, 1, 2: {zero}, {one}, {two} samples",
            zero=counts[0],
            one=counts[1],
            two=counts[2],
        ),
        said.statement(
            "off_target",
            paper.NOT_MEASURED
            if not off.any()
            else paper.HOLDS
            if near_1_or_2 > said.limit("off_target", "share") * off.sum()
            else paper.DIFFERS,
            "{near} of {off} off-target samples",
            near=near_1_or_2,
            off=int(off.sum()),
        ),
    ]


def path_statements(evidence: Evidence) -> Found:
    loss = evidence.models.compare("paths.reduced_loss")
    if loss is None:
        return [said.missing(k, "no additional paths") for k in PATH_KEYS]
    ratio, heat_like, force = (
        float(np.mean(evidence.models.compared(f"paths.{key}").other))
        for key in ("log_ratio", "heat_like", "force_squared")
    )
    negligible = said.limit("force_squared", "negligible") * abs(heat_like)
    return [
        said.statement(
            "other_paths",
            paper.direction(loss, -1),
            "without squared increments {batch:.3f} (batch) and {online:.3f} (online) per step on "
            "{paths} paths; online lower in {lower} of {pairs}",
            batch=float(np.mean(loss.reference)),
            online=float(np.mean(loss.other)),
            paths=evidence.summary["additional_paths"],
            lower=sum(d < 0 for d in loss.differences),
            pairs=loss.pairs,
        ),
        said.statement(
            "force_squared",
            paper.HOLDS if abs(force) > negligible else paper.DIFFERS,
            "R = {ratio:.1f} = {heat_like:.1f} (heat-like) {force:+.1f} (force-squared), online; "
            "both sides of the identity agree to {error:.0e} of the terms",
            ratio=ratio,
            heat_like=heat_like,
            force=force,
            error=evidence.summary["identity_error"],
        ),
    ]


PATH_KEYS = ("other_paths", "force_squared")
CROSS_KEYS = ("online_potential", "online_ensemble")


def energy_statements(evidence: Evidence) -> Found:
    heat = evidence.models.compared("heat.mean")
    start, end = (
        evidence.models.compared("initial_energy.total"),
        evidence.models.compared("final_energy.total"),
    )
    onsite = evidence.models.compared("final_energy.onsite")
    rows = {(row["label"], row["moment"]): row["key"] for row in evidence.summary["energies"]}
    coupling = evidence.models.compared(*rows["coupling", "end"])
    share = said.limit("start_energy", "share")
    equal = abs(start.mean_difference) <= share * abs(heat.mean_difference)
    dominates = abs(coupling.mean_difference) > abs(onsite.mean_difference)
    template = "{batch:.2f} E₀ (batch), {online:.2f} E₀ (online); difference {difference:+.2f} E₀"
    return [
        said.statement(
            "start_energy",
            paper.HOLDS if equal else paper.DIFFERS,
            template + ", {share:.0f} % of the difference in heat",
            share=100 * abs(start.mean_difference / heat.mean_difference),
            **_means(start),
        ),
        said.statement(
            "coupling_energy", paper.direction(coupling, +1), template, **_means(coupling)
        ),
        said.statement("onsite_energy", paper.direction(onsite, -1), template, **_means(onsite)),
        said.statement(
            "final_energy",
            paper.direction(end, +1) if dominates else paper.DIFFERS,
            "coupling {coupling:+.2f} E₀ against onsite {onsite:+.2f} E₀; final total energy "
            "{final:+.2f} E₀ (online − batch)",
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
    return [
        said.statement(
            "norms",
            paper.weakest([paper.in_all_pairs(block, -1) for block in (visible, hidden)]),
            "J_vh smaller in {vh} of {pairs} ({vh_percent:+.1f} %), J_hh in {hh} of {pairs} "
            "({hh_percent:+.1f} %)",
            vh=sum(d < 0 for d in visible.differences),
            hh=sum(d < 0 for d in hidden.differences),
            vh_percent=visible.mean_percent_difference,
            hh_percent=hidden.mean_percent_difference,
            pairs=visible.pairs,
        )
    ]


def cross_statements(evidence: Evidence) -> Found:
    """Potentials compared on the same states, then states compared in the same potential."""
    if not evidence.summary["cross"]:
        reason = "the drop of one potential is defined for machines of one stage"
        return [said.missing(key, reason) for key in CROSS_KEYS]
    batch, online = RULES
    drops = evidence.drops
    by_potential = [compare_pairs(drops(batch, e), drops(online, e)) for e in RULES]
    by_ensemble = [compare_pairs(drops(p, batch), drops(p, online)) for p in RULES]
    return [
        _both("online_potential", by_potential, "states"),
        _both("online_ensemble", by_ensemble, "potential"),
    ]


def _both(key: str, compared: list[PairedComparison], what: str) -> dict[str, Any]:
    return said.statement(
        key,
        paper.weakest([paper.direction(c, -1) for c in compared]),
        f"online − batch drop {{batch:+.2f}} E₀ ({what} of batch), {{online:+.2f}} E₀ "
        f"({what} of online)",
        batch=compared[0].mean_difference,
        online=compared[1].mean_difference,
    )


def replay_statements(evidence: Evidence) -> Found:
    replay = evidence.summary["replay"]
    if replay is None:
        return [said.missing("replay", "no replay was made")]
    return [
        said.statement(
            "replay",
            paper.DIFFERS if replay["differing"] else paper.HOLDS,
            "{differing} of {samples} replayed samples differ in any bit (seed {seed}, online); "
            "parameters compared elementwise after every generation",
            differing=replay["differing"],
            samples=replay["samples"],
            seed=evidence.summary["shown"]["seed"],
        )
    ]


def _means(compared: PairedComparison) -> dict[str, float]:
    return {
        "batch": float(np.mean(compared.reference)),
        "online": float(np.mean(compared.other)),
        "difference": compared.mean_difference,
    }


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
