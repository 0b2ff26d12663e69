"""Prediction, measurement, verdict: a row for everything that the theory says of training.

A row that could not be measured says so; nothing is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.experiments import heat_origin, paper
from thermoloom.experiments.heat_origin import RULES, Split, read_split
from thermoloom.experiments.models import RUNS
from thermoloom.experiments.optimum import optimum_measures, optimum_path
from thermoloom.experiments.pairs import Pairs
from thermoloom.experiments.predicted import BLOCKS
from thermoloom.experiments.theory_plan import TheoryPlan
from thermoloom.experiments.theory_runs import Ground
from thermoloom.machine.parameters import Parameters
from thermoloom.computers.trained import training_path
from thermoloom.runs.manifest import MANIFEST
from thermoloom.runs.store import RunDirectory
from thermoloom.theory.predictions import (
    offset_bias_law,
    offset_rate,
    offset_response,
    spread,
    stationary_variance,
)

limit = partial(paper.threshold, "theory")
"""``limit(prediction, name)``: a threshold of paper.toml."""
LABELS = {
    "visible_hidden": "visible–hidden couplings",
    "hidden_hidden": "hidden–hidden couplings",
    "hidden_bias": "hidden biases",
}


# --- what the tasks left --------------------------------------------------------------------------


@dataclass(frozen=True)
class Findings:
    """What was predicted and measured of a plan."""

    plan: TheoryPlan
    folder: Path
    pairs: Pairs

    @cached_property
    def limits(self) -> RunDirectory | None:
        return self.plan.limits.found(self.folder)

    @cached_property
    def predictions(self) -> dict[str, RunDirectory]:
        """By rule; a rule whose prediction failed is not there."""
        found = {rule: self.plan.prediction(rule).found(self.folder) for rule in RULES}
        return {rule: run for rule, run in found.items() if run is not None}

    @cached_property
    def ground(self) -> Ground:
        return Ground(self.plan.settings, self.plan.limits.fields(self.folder))

    @cached_property
    def split(self) -> Split | None:
        """The trained computers of all complete pairs; None without θ* or with one pair."""
        if len(self.pairs.seeds) < 2 or not is_done(self.folder / optimum_path(self.plan)):
            return None
        return read_split(self.folder, self.plan.base, self.pairs.seeds)

    @cached_property
    def optimum(self) -> list[RunDirectory]:
        return optimum_measures(self.plan, self.folder, self.pairs.seeds)

    @cached_property
    def origin(self) -> dict[str, NDArray[Any]] | None:
        """The heats of all pairs, one under the other; None if one is missing."""
        runs = {seed: self.plan.origin(seed).found(self.folder) for seed in self.plan.seeds}
        tables = {seed: run.load_table("heats") for seed, run in runs.items() if run is not None}
        if len(tables) < len(runs):
            return None
        columns = {
            name: np.concatenate([table[name] for table in tables.values()])
            for name in next(iter(tables.values()))
        }
        lengths = [len(table["heat"]) for table in tables.values()]
        return {"seed": np.repeat(list(tables), lengths)} | columns

    @cached_property
    def predicted_heat(self) -> dict[str, NDArray[Any]] | None:
        """Heat of E[θ] of both rules, for every pair's random numbers."""
        run = self.plan.predicted_heat.found(self.folder)
        return None if run is None else run.load_table("heats")


def is_done(path: Path) -> bool:
    return (path / MANIFEST).exists() and RunDirectory.open(path).state == "done"


# --- rows: prediction, measurement, verdict -------------------------------------------------------

Row = dict[str, Any]


def row(
    quantity: str, predicted: str, measured: str, verdict: str, by: str = "", /, **values: Any
) -> Row:
    """A line of the table; {name:format} in the texts stands for a number of ``values``.

    ``by``: the entry of paper.toml whose thresholds decide the verdict, if any do.
    """
    return {
        "quantity": quantity,
        "predicted": predicted,
        "measured": measured,
        "verdict": verdict,
        "thresholds": paper.thresholds(paper.entry_of("theory", by)) if by else [],
        "values": values,
    }


def unmeasured(quantity: str, reason: str) -> Row:
    return row(quantity, "–", reason, paper.NOT_MEASURED)


def verdict(holds: bool) -> str:
    return paper.HOLDS if holds else paper.DIFFERS


def near(predicted: float, measured: float) -> bool:
    return abs(measured - predicted) <= limit("sizes", "near") * abs(predicted)


def solve_rows(found: Findings, run: RunDirectory) -> list[Row]:
    """θ* on the additional paths beside every trained computer, paired by path."""
    first = optimum_measures(found.plan, found.folder, found.plan.seeds[:1])
    if not first or not first[0].has("paths.csv"):
        return [unmeasured("loss of the optimum on additional paths", "there are none")]
    solved = RunDirectory.open(found.folder / optimum_path(found.plan)).results
    best = first[0].load_table("paths")
    models = list(found.pairs.models.values())
    tables = [model.measures.load_table("paths") for model in models]
    run.save_table(
        "paths",
        {
            "rule": np.repeat(["optimum", *(m.rule for m in models)], len(best["loss"])),
            "seed": np.repeat([0, *(m.seed for m in models)], len(best["loss"])),
            "path": np.tile(best["path"], 1 + len(models)),
            "loss": np.concatenate([best["loss"], *(table["loss"] for table in tables)]),
        },
    )
    above = np.array([table["loss"] - best["loss"] for table in tables])
    worst = float(above.mean(axis=1).min())
    mean, error = float(best["loss"].mean()), _standard_error(best["loss"])
    return [
        row(
            "loss of the optimum on additional paths, against trained computers",
            "below all {models}",
            "below {below} of {models} in the mean over {paths} paths, on {single} of {all} single "
            "paths; smallest mean distance {worst:.4f} per step",
            verdict(bool((above.mean(axis=1) > 0).all())),
            models=len(models),
            below=int((above.mean(axis=1) > 0).sum()),
            paths=above.shape[1],
            single=int((above > 0).sum()),
            all=int(above.size),
            worst=worst,
        ),
        row(
            "expected loss per step at the optimum",
            "{expected:.3f}, after {iterations} conjugate-gradient steps and {seconds:.1f} s",
            "{mean:.3f} ± {error:.3f} (mean over {paths} paths and its standard error)",
            verdict(abs(mean - solved["expected_loss"]) <= limit("optimum", "error") * error),
            "optimum",
            expected=solved["expected_loss"],
            iterations=solved["iterations"],
            seconds=solved["seconds"],
            mean=mean,
            error=error,
            paths=above.shape[1],
        ),
    ]


def _standard_error(values: NDArray[Any]) -> float:
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def stability_rows(found: Findings, run: RunDirectory) -> list[Row]:
    """Critical learning rates against scans around them."""
    titles = {rule: f"learning-rate scale at which {rule} training is unstable" for rule in RULES}
    if found.limits is None or not found.predictions:
        return [unmeasured(title, "no prediction") for title in titles.values()]
    limits = found.limits.results
    scans = [entry for rule in RULES for entry in scan_rows(found, rule)]
    run.save_table("scan", columns_of(scans))
    rows = []
    for rule, title in titles.items():
        own = [entry for entry in scans if entry["rule"] == rule]
        critical = limits[rule]["critical_rate"] / limits["learning_rate"]
        stable = [entry["scale"] for entry in own if not entry["unstable"]]
        unstable = [entry["scale"] for entry in own if entry["unstable"]]
        if not own:
            rows.append(unmeasured(title, "no training of the scan is done"))
            continue
        first = (
            "{critical:.2f}, λ_max = {curvature:.0f}"
            if rule == "batch"
            else "{critical:.0f}; no step overshoots below {safe:.0f}"
        )
        spec = ".2f" if rule == "batch" else ".0f"
        texts = []
        if stable:
            texts.append(f"stable up to {{stable:{spec}}}")
        if unstable:
            texts.append(f"unstable from {{unstable:{spec}}} on")
        rows.append(
            row(
                title,
                first,
                f"{', '.join(texts)}, in {{cycles}} cycles",
                verdict(all(e["unstable"] == (e["factor"] > 1) for e in own)),
                "stability",
                critical=critical,
                curvature=limits[rule]["curvature"],
                safe=limits["online"]["safe_rate"] / limits["learning_rate"],
                stable=max(stable, default=None),
                unstable=min(unstable, default=None),
                cycles=own[0]["cycles"],
            )
        )
    return [*rows, *growth_rows(scans)]


def growth_rows(scans: Sequence[Row]) -> list[Row]:
    """Growth of the deviation in one round of prototypes, where batch training is unstable."""
    growing = [e for e in scans if e["rule"] == "batch" and e["unstable"] and e["growth"]]
    if not growing:
        return []
    steepest = growing[-1]
    return [
        row(
            "growth of the deviation in one round of prototypes, batch at {factor:g} × critical",
            "× {predicted:.2f} (of the mean)",
            "× {measured:.2f} (root of the growth of the excess loss)",
            verdict(near(steepest["predicted_growth"], steepest["growth"])),
            "sizes",
            factor=steepest["factor"],
            predicted=steepest["predicted_growth"],
            measured=steepest["growth"],
        )
    ]


def scan_rows(found: Findings, rule: str) -> list[Row]:
    """The short trainings of a rule: whether and how fast their excess loss grows."""
    assert found.limits is not None
    best = next(iter(found.predictions.values())).results["optimum_validation"]
    table = found.limits.load_table("growth")
    predicted = dict(zip(table["factor"].tolist(), table["growth"].tolist(), strict=True))
    rows = []
    for factor, settings in found.plan.scan(rule, found.limits):
        path = training_path(found.folder / RUNS, settings)
        if not (path / MANIFEST).exists():
            continue
        training = RunDirectory.open(path)
        if training.state not in ("done", "diverged"):
            continue
        curve = training.load_table("curve")
        unstable, growth = growth_of(curve["reduced_loss"] - best, training.state == "diverged")
        rows.append(
            {
                "rule": rule,
                "factor": factor,
                "scale": settings.training.learning_rate_scale,
                "cycles": settings.training.cycles,
                "unstable": unstable,
                "diverged_in": training.results["cycle"] if training.state == "diverged" else None,
                "largest_loss": float(np.nanmax(curve["reduced_loss"])),
                "final_loss": float(curve["reduced_loss"][-1]),
                "growth": growth,
                "predicted_growth": predicted.get(factor) if rule == "batch" else None,
            }
        )
    return rows


def growth_of(excess: NDArray[np.float64], diverged: bool) -> tuple[bool, float | None]:
    """Whether an excess loss grows in the end, and the growth of θ from one value to the next.

    The loss is quadratic, so θ grows as its square root.
    """
    if diverged or not np.isfinite(excess).all():
        return True, None
    thirds = np.array_split(excess, 3)
    before, after = float(thirds[1].mean()), float(thirds[2].mean())
    if not (before > 0 and after > 0):
        return False, None
    apart = (len(thirds[1]) + len(thirds[2])) / 2
    return after > limit("stability", "growth") * before, (after / before) ** (0.5 / apart)


def curve_rows(found: Findings, run: RunDirectory) -> list[Row]:
    """Validation loss along training: predicted in the mean, with noise, and measured."""
    rows, table = [], []
    for rule in RULES:
        title = f"validation loss of {rule} training"
        if rule not in found.predictions:
            rows.append(unmeasured(title, "no prediction"))
            continue
        predicted = found.predictions[rule].load_table("curve")
        curves = [m.training.load_table("curve")["reduced_loss"] for m in found.pairs.of(rule)]
        measured, sd = np.mean(curves, axis=0), np.std(curves, axis=0, ddof=1)
        table += [
            {"rule": rule, "cycle": int(c), "predicted": p, "measured": m, "sd": s}
            for c, p, m, s in zip(
                predicted["cycle"], predicted["validation"], measured, sd, strict=True
            )
        ]
        apart = np.abs(predicted["validation"] - measured)
        fall = float(measured[0] - measured[-1])
        rows.append(
            row(
                title,
                "{half:.3f} at cycle {half_cycle}, {end:.3f} at cycle {cycles}",
                "{half_measured:.3f} and {end_measured:.3f}; never more than {apart:.1f} % of the "
                "fall apart (s.d. across seeds at the end {sd:.3f})",
                verdict(float(apart.max()) <= limit("curves", "apart") * fall),
                "curves",
                half=float(predicted["validation"][1]),
                half_cycle=int(predicted["cycle"][1]),
                end=float(predicted["validation"][-1]),
                cycles=int(predicted["cycle"][-1]),
                half_measured=float(measured[1]),
                end_measured=float(measured[-1]),
                apart=100 * float(apart.max()) / fall,
                sd=float(sd[-1]),
            )
        )
    if table:
        run.save_table("curves", columns_of(table))
    return rows


def noise_rows(found: Findings, run: RunDirectory) -> list[Row]:
    """Spread of trained computers across seeds: by block, as excess loss, and of their mean."""
    split = found.split
    if split is None or len(found.predictions) < len(RULES):
        return [unmeasured("noise of trained computers around their mean", "not all were trained")]
    loss, count = found.ground.loss, split.seeds
    rows, table = [], []
    for rule in RULES:
        predicted = found.predictions[rule].results
        for block in BLOCKS:
            pair = (math.sqrt(predicted["noise"][block]), math.sqrt(split.noise[rule][block]))
            entry = {"rule": rule, "block": block, "predicted": pair[0], "measured": pair[1]}
            table.append(entry)
            if block != "hidden_bias":
                rows.append(
                    row(
                        f"noise of {LABELS[block]}, {rule}",
                        "{predicted:.5f} ({stationary:.5f} once stationary)",
                        "{measured:.5f} (standard deviation across {seeds} seeds)",
                        verdict(near(*pair)),
                        "sizes",
                        predicted=pair[0],
                        stationary=math.sqrt(
                            stationary_variance(found.plan.model(rule, 1).learning_rate)
                        ),
                        measured=pair[1],
                        seeds=count,
                    )
                )
        spreads = [spread(loss, split.deviation(rule, s)) for s in range(count)]
        excess = (predicted["noise"]["excess_loss"], heat_origin.excess_loss(spreads))
        rows.append(
            row(
                f"loss per step that the noise adds, {rule}",
                "{predicted:.4f}",
                "{measured:.4f}",
                verdict(near(*excess)),
                "sizes",
                predicted=excess[0],
                measured=excess[1],
            )
        )
        mean = loss.layout.flatten(_computer(found.predictions[rule], "mean"))
        away = spread(loss, split.means[rule] - mean).visible_hidden
        alone = predicted["noise"]["visible_hidden"] / count
        rows.append(
            row(
                f"mean of {rule} computers over seeds: distance from E[θ], visible–hidden",
                "{predicted:.5f} (noise/√{seeds} alone)",
                "{measured:.5f}; θ̄ − θ* itself is {shift:.5f}",
                verdict(near(math.sqrt(alone), math.sqrt(away))),
                "sizes",
                predicted=math.sqrt(alone),
                measured=math.sqrt(away),
                shift=math.sqrt(split.mean_squares(split.means[rule] - split.optimum)[BLOCKS[0]]),
                seeds=count,
            )
        )
    run.save_table("noise", columns_of(table))
    return rows


def _computer(run: RunDirectory, name: str) -> Computer:
    arrays = run.load_arrays(name)
    return Computer(*(arrays[block] for block in BLOCKS))


def offset_rows(found: Findings, run: RunDirectory) -> list[Row]:
    """The shift that a residual offset makes, against trainings with and without it."""
    rows, table = [], []
    for rule in RULES:
        title = f"mean shift of hidden biases by an offset, {rule}"
        probe = found.plan.offset_probe(rule).found(found.folder)
        if probe is None or rule not in found.predictions:
            rows.append(unmeasured(title, "no training with an offset"))
            continue
        predicted, measured = (r.load_table("offset") for r in (found.predictions[rule], probe))
        table += [
            {"rule": rule, "cycle": int(c), "predicted": p, "measured": m}
            for c, p, m in zip(predicted["cycle"], predicted["bias"], measured["bias"], strict=True)
        ]
        values = {
            f"{kind}_{key}": float(source[key][-1])
            for kind, source in (("predicted", predicted), ("measured", measured))
            for key in ("bias", "visible_hidden", "hidden_hidden")
        }
        same = all(
            near(values[f"predicted_{key}"], values[f"measured_{key}"])
            for key in ("bias", "visible_hidden", "hidden_hidden")
        )
        texts = [
            f"{{{kind}_bias:.4f}}; couplings {{{kind}_visible_hidden:.5f}} (vh), "
            f"{{{kind}_hidden_hidden:.5f}} (hh)"
            for kind in ("predicted", "measured")
        ]
        rows.append(
            row(
                f"{title} of {{offset:g}} after {{cycles}} cycles",
                texts[0],
                texts[1],
                verdict(same),
                "sizes",
                offset=found.plan.offset,
                cycles=found.plan.offset_cycles,
                **values,
            )
        )
    if table:
        run.save_table("offset", columns_of(table))
        rows.insert(0, law_row(found, table))
    return rows


def law_row(found: Findings, table: Sequence[Row]) -> Row:
    """The law for biases that an offset moves alone: b = −(2k_BT/μΔt) μ_bias (1 − (1 − ρ)^n)."""
    machine, plan = found.plan.settings.machine, found.plan
    law, rate = offset_bias_law(machine), offset_rate(machine, plan.base.learning_rate)
    response = float(offset_response(found.ground.loss).hidden_bias.mean())
    cycles = plan.offset_cycles
    alone = law * plan.offset * (1 - (1 - rate) ** cycles)
    ends = {entry["rule"]: entry["measured"] for entry in table if entry["cycle"] == cycles}
    return row(
        "hidden biases under an offset of {offset:g} after {cycles} cycles, if biases alone move",
        "{alone:.3f}, on the way to {final:.2f} by {rate:.2f} % a cycle; "
        "{response:.3f} in the end where couplings move too",
        ", ".join(f"{{{rule}:.3f}} ({rule})" for rule in ends),
        verdict(all(near(alone, end) for end in ends.values())),
        "sizes",
        offset=plan.offset,
        cycles=cycles,
        alone=alone,
        final=law * plan.offset,
        rate=100 * rate,
        response=response * plan.offset,
        **ends,
    )


def bits_rows(found: Findings, run: RunDirectory) -> list[Row]:
    """Updates that survive rounding on a grid, and couplings that move in a short training."""
    title = "updates that move a coupling on a grid, nearest rounding"
    probe = None if found.limits is None else found.plan.grid(found.limits).found(found.folder)
    if found.limits is None or probe is None:
        return [unmeasured(title, "no training on a grid")]
    predicted, measured = found.limits.load_table("bits"), probe.load_table("bits")
    block = BLOCKS[0]
    bits = predicted["bits"]
    share = (predicted[f"surviving_{block}"], measured[f"surviving_{block}"])
    # at most so many couplings have moved: some move more than once, some return
    moves = found.plan.grid_cycles * found.plan.settings.machine.steps * share[0]
    nonzero = measured[f"nonzero_{block}"]
    run.save_table(
        "bits",
        {
            "bits": bits,
            "predicted": share[0],
            "measured": share[1],
            "expected_moves": moves,
            "nonzero": nonzero,
            "predicted_hidden": predicted[f"surviving_{BLOCKS[1]}"],
            "measured_hidden": measured[f"surviving_{BLOCKS[1]}"],
        },
    )
    apart = float(np.abs(share[0] - share[1]).max())
    least = limit("bits", "idle")
    idle = [last_below(bits, fraction, least) for fraction in (moves, nonzero)]
    values = {
        f"{kind}_{b}": float(value)
        for kind, column in zip(("predicted", "measured"), share, strict=True)
        for b, value in zip(bits.tolist(), column, strict=True)
    }
    texts = [_listed(kind, bits.tolist()) for kind in ("predicted", "measured")]
    return [
        row(
            f"{title}: fraction at {', '.join(str(b) for b in bits.tolist())} bits",
            f"{texts[0]}; half a level is the typical update at {{vanishing:.1f}} bits",
            f"{texts[1]}; at most {{apart:.3f}} apart",
            verdict(apart <= limit("bits", "apart")),
            "bits",
            vanishing=found.limits.results["vanishing_bits"][block],
            apart=apart,
            **values,
        ),
        row(
            "bits with which less than {idle:.0f} % of the couplings have moved after {cycles} "
            "cycles",
            "up to {predicted}" if idle[0] else "none of those tried",
            "up to {measured}" if idle[1] else "none of those tried",
            verdict(idle[0] == idle[1]),
            "bits",
            idle=100 * least,
            cycles=found.plan.grid_cycles,
            predicted=idle[0],
            measured=idle[1],
        ),
    ]


def _listed(kind: str, bits: Sequence[int]) -> str:
    return ", ".join(f"{{{kind}_{b}:.3f}}" for b in bits)


def last_below(bits: NDArray[Any], fraction: NDArray[Any], most: float) -> int | None:
    """The most bits at which a fraction is still less than ``most``."""
    few = [int(b) for b, value in zip(bits, fraction, strict=True) if value < most]
    return max(few, default=None)


def heat_rows(found: Findings, run: RunDirectory) -> list[Row]:
    """Heat difference between the rules' means: those predicted, those of the trained computers."""
    title = "heat difference batch − online of the rules' means, without noise"
    if found.predicted_heat is None or found.origin is None:
        return [unmeasured(title, "heats are missing")]
    predicted = heat_origin.predicted_difference(found.predicted_heat)["mean"]
    measured = heat_origin.accounts(found.origin)["from_mean"]
    low, high = measured["interval"]
    return [
        row(
            title,
            "{predicted:+.2f} E₀ (from E[θ], before any training)",
            "{measured:+.2f} E₀, 95 % interval [{low:+.2f}, {high:+.2f}] E₀ across {seeds} pairs",
            verdict(low <= predicted <= high),
            predicted=predicted,
            measured=measured["mean"],
            low=low,
            high=high,
            seeds=len(found.plan.seeds),
        )
    ]


def columns_of(rows: Sequence[Row]) -> dict[str, Any]:
    return {key: [entry[key] for entry in rows] for key in rows[0]}


TOPICS: dict[str, Callable[[Findings, RunDirectory], list[Row]]] = {
    "The optimum": solve_rows,
    "Stability": stability_rows,
    "Learning curves": curve_rows,
    "Noise around the mean": noise_rows,
    "Offset": offset_rows,
    "Bits": bits_rows,
    "Heat": heat_rows,
}
