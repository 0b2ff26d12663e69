"""Precision response: bits to store a trained computer, and bits to train one.

    storage    J_vh and J_hh of the online checkpoint rounded to b bits; 2, 3, 4, 5, 6, 8, 16, 32
    training   every online update followed by clipping and rounding to b bits, to nearest or
               stochastically; 4, 6, 8, 16, and 10, 12, 14, which the paper skips

Both leave b_h in float32; 32 bits are the unquantized float32 reference. The checkpoint of the
storage screen is that of the main comparison, trained once. The ranges of training are the largest
magnitudes of the full-precision checkpoint of the same length. The paper does not give that length:
100 cycles and 100 samples are chosen here, the length of its other screens, because a quantized
step cannot be trained in blocks and costs three to eight times a plain one.

Heat distributions are compared by the Kolmogorov–Smirnov distance, without a p value. All
conditions of a seed are generated from the same random numbers, so sample s of one bit depth is
the partner of sample s of another: the p value of the test supposes independent samples and would
be wrong here, far too large where rounding changes little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.config import GenerationSettings, Settings, Training
from thermoloom.experiments import paper
from thermoloom.experiments.models import (
    RUNS,
    Clock,
    judged,
    measures_settings,
    patterns_input,
    sample_columns,
)
from thermoloom.experiments.plan import Experiment, Plan
from thermoloom.experiments.screens import (
    NO_PATHS,
    VARIED,
    Condition,
    Curve,
    Measured,
    Screens,
    base_summary,
    check_grid,
    collect,
    save_tables,
    trained,
    training_tasks,
)
from thermoloom.generation import generate
from thermoloom.measures.quality import MEASURES
from thermoloom.measures.statistics import ks_distance, spread
from thermoloom.runs.jobs import computer_of, training_path
from thermoloom.runs.manifest import MANIFEST, run_path
from thermoloom.runs.patterns import patterns_of
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Report, Task
from thermoloom.training.quantization import (
    UNQUANTIZED,
    coupling_ranges,
    nonzero_fraction,
    quantized_computer,
)

NAME = "precision"
STORAGE, TRAINING = "storage", "training"
REFERENCE, NEAREST, STOCHASTIC = "reference", "nearest", "stochastic"
ROUNDINGS = (NEAREST, STOCHASTIC)

limit = partial(paper.threshold, NAME)
"""``limit(statement, name)``: a threshold of paper.toml."""
SUMMARIES = ("max_softmax", "prototype_distance", "pairwise_distance")
"""Measures of quality that the paper's statements speak of."""
WORDS = {
    "heat": "heat",
    "max_softmax": "softmax",
    "prototype_distance": "prototype distance",
    "pairwise_distance": "diversity",
}
LOW_BITS, ENOUGH_BITS = (4, 6, 8), 16


@dataclass(frozen=True)
class PrecisionPlan(Plan):
    """Bit depths; ``settings`` are those of the checkpoint that is stored."""

    seeds: tuple[int, ...] = (101,)
    storage_bits: tuple[int, ...] = (2, 3, 4, 5, 6, 8, 16, 32)
    training_bits: tuple[int, ...] = (4, 6, 8, 10, 12, 14, 16)
    """Bits of the couplings during training; the float32 reference is always trained too."""
    training_cycles: int = 100
    training_samples: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_grid("storage_bits", self.storage_bits, low=2, high=32, reference=32)
        check_grid("training_bits", self.training_bits, low=2, high=24)

    def stored(self, seed: int) -> Settings:
        """The computer whose couplings are stored: the online one of the main comparison."""
        return self.settings.updated({"training": {"rule": "online", "period": None, "seed": seed}})

    def model(self, seed: int, **grid: Any) -> Settings:
        """A computer of the screen of training."""
        return self.stored(seed).updated(
            {
                "training": {"cycles": self.training_cycles},
                "generation": {"samples": self.training_samples},
                "imperfections": grid,
            }
        )

    def references(self) -> list[Condition]:
        """The float32 computers: one to be stored, one that gives the ranges of training."""
        return [
            condition
            for seed in self.seeds
            for condition in (
                trained(STORAGE, UNQUANTIZED, self.stored(seed)),
                trained(TRAINING, UNQUANTIZED, self.model(seed), REFERENCE),
            )
        ]

    def storage(self) -> list[Condition]:
        """The stored computers on a grid."""
        return [
            Condition(STORAGE, bits, settings, storage_path(settings, bits))
            for settings in map(self.stored, self.seeds)
            for bits in self.storage_bits
            if bits != UNQUANTIZED
        ]

    def training(self, folder: Path) -> list[Condition]:
        """The computers trained on a grid, of the seeds whose reference is trained."""
        conditions = []
        for seed in self.seeds:
            ranges = _ranges(folder, self.model(seed))
            if ranges is None:
                continue
            visible, hidden = ranges
            for rounding in reversed(ROUNDINGS):  # the slower ones first
                for bits in self.training_bits:
                    grid = {
                        "bits": bits,
                        "rounding": rounding,
                        "range_visible_hidden": visible,
                        "range_hidden_hidden": hidden,
                    }
                    settings = self.model(seed, **grid)
                    conditions.append(trained(TRAINING, bits, settings, rounding))
        return conditions


def _ranges(folder: Path, settings: Settings) -> tuple[float, float] | None:
    """A_max of both tensors of a trained computer; None where there is none."""
    path = training_path(folder / RUNS, settings)
    if not (path / MANIFEST).exists():
        return None
    run = RunDirectory.open(path)
    return coupling_ranges(computer_of(run)) if run.state == "done" else None


# --- tasks ----------------------------------------------------------------------------------------


def tasks(plan: PrecisionPlan) -> list[Task]:
    """The float32 computers of a seed, on shared paths."""
    return training_tasks(
        (
            f"float32 references, seed {seed}",
            [condition for condition in plan.references() if condition.seed == seed],
        )
        for seed in plan.seeds
    )


def later(plan: PrecisionPlan, folder: Path) -> list[Task]:
    """One task for each computer trained or stored on a grid."""
    found = training_tasks(
        (f"train {c.value:g} bits, {c.variant}, seed {c.seed}", [c]) for c in plan.training(folder)
    )
    for condition in plan.storage():
        checkpoint = training_path(Path(RUNS), condition.settings)
        if (folder / checkpoint / MANIFEST).exists():
            found.append(
                Task(
                    name=f"store {condition.value:g} bits, seed {condition.seed}",
                    function="thermoloom.experiments.precision:store",
                    arguments={"model": condition.settings.as_dict(), "bits": condition.value},
                    outputs=(str(condition.path),),
                    inputs=(str(checkpoint), patterns_input(condition.settings)),
                )
            )
    return found


def foreseen(plan: PrecisionPlan) -> list[Settings]:
    """The computers trained on a grid, whose ranges are not known yet."""
    unknown = {"range_visible_hidden": 1.0, "range_hidden_hidden": 1.0}
    return [
        plan.model(seed, bits=bits, rounding=rounding, **unknown)
        for seed in plan.seeds
        for rounding in ROUNDINGS
        for bits in plan.training_bits
    ]


def storage_settings(settings: Settings, bits: float) -> dict[str, Any]:
    """What identifies a stored computer: its training, its sampling and its bits."""
    return measures_settings(settings, NO_PATHS) | {"storage": {"bits": int(bits)}}


def storage_path(settings: Settings, bits: float) -> Path:
    """Where the measures of a stored computer live, relative to the results folder."""
    return run_path(Path(RUNS), STORAGE, storage_settings(settings, bits))


def store(workdir: Path, report: Report, model: dict[str, Any], bits: int) -> dict[str, Any]:
    """Round the couplings of a trained computer to ``bits``, sample it and measure the samples."""
    settings = Settings.from_dict(model)
    identity = storage_settings(settings, bits)
    with RunDirectory.create(workdir / storage_path(settings, bits), STORAGE, identity) as run:
        if run.state not in ("done", "diverged"):
            _measure_stored(workdir, settings, bits, run, report)
    return {}


def _measure_stored(
    workdir: Path, settings: Settings, bits: int, run: RunDirectory, report: Report
) -> None:
    training = RunDirectory.open(training_path(workdir / RUNS, settings))
    if training.state == "diverged":
        run.diverged(training.results["cycle"])
        return
    clock, samples, machine = Clock(), settings.generation.samples, settings.machine
    computer = quantized_computer(computer_of(training), bits)
    with clock.measure("generation"), np.errstate(over="ignore", invalid="ignore"):
        generated = generate(
            machine,
            computer,
            samples,
            settings.generation_seed,
            on_progress=_progress(report, samples * machine.steps),
        )
    if not np.isfinite(generated.final_states).all():
        run.diverged(settings.training.cycles, {"stage": "generation"})
        return
    with clock.measure("quality"):
        quality = judged(settings, generated, patterns_of(settings, workdir / RUNS))
    run.save_table("samples", sample_columns(generated, quality))
    run.finish(
        {
            "heat": asdict(spread(generated.heat)),
            "quality": quality.summary(),
            "class_counts": quality.class_counts,
            "timing": clock.seconds,
        }
    )


def _progress(report: Report, total: int) -> Callable[[int], None]:
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        report(done, total, None)

    return advance


# --- tables and summary -------------------------------------------------------------------------


def assemble(plan: PrecisionPlan, folder: Path, run: RunDirectory) -> dict[str, Any]:
    """Tables of both screens, and the summary with its verdicts."""
    conditions = plan.references() + plan.storage() + plan.training(folder)
    screens = collect(sorted(conditions, key=_order), folder)
    found = Found(screens, folder)
    rows = [found.row(m) for m in screens.measured]
    save_tables(screens, run, rows)
    return base_summary(screens, plan, PrecisionPlan()) | {
        "rows": rows,
        "references": {
            STORAGE: _heat_or_none(found.storage),
            TRAINING: _heat_or_none(found.reference),
        },
        "ranges": {str(seed): _ranges(folder, plan.model(seed)) for seed in plan.seeds},
        "cycles": {STORAGE: plan.settings.training.cycles, TRAINING: plan.training_cycles},
        "samples": {STORAGE: plan.settings.generation.samples, TRAINING: plan.training_samples},
        "quantities": quantities(found),
        "statements": statements(found),
    }


def _order(condition: Condition) -> tuple[Any, ...]:
    variants = ("", REFERENCE, *ROUNDINGS)
    return condition.screen, variants.index(condition.variant), condition.value, condition.seed


def _heat_or_none(curve: Curve) -> float | None:
    return curve.heat(UNQUANTIZED) if curve.has(UNQUANTIZED) else None


@dataclass(frozen=True)
class Found:
    """Both screens, with what is compared to their references."""

    screens: Screens
    folder: Path

    @property
    def storage(self) -> Curve:
        return self.screens.curve(STORAGE)

    @property
    def reference(self) -> Curve:
        """The float32 training beside the screen of training."""
        return self.screens.curve(TRAINING, REFERENCE)

    @property
    def training(self) -> dict[str, Curve]:
        """By rounding; the reference is the 32-bit point of both."""
        shared = self.reference.measured
        return {
            rounding: Curve([*self.screens.curve(TRAINING, rounding).measured, *shared])
            for rounding in ROUNDINGS
        }

    def nonzero(self, measured: Measured) -> dict[str, float | None]:
        """Fraction of nonzero couplings of J_vh, of J_hh, and of both."""
        names = ("visible_hidden", "hidden_hidden", "couplings")
        condition = measured.condition
        run = RunDirectory.open(training_path(self.folder / RUNS, condition.settings))
        if run.state != "done":
            return dict.fromkeys(names)
        computer = computer_of(run)
        if condition.screen == STORAGE:
            computer = quantized_computer(computer, int(condition.value))
        return {**nonzero_fraction(computer)}

    def ks(self, measured: Measured) -> float | None:
        """KS distance of the heats to those of the 32-bit reference of the same seed."""
        curve = self.storage if measured.condition.screen == STORAGE else self.reference
        for other in curve.at(UNQUANTIZED):
            if other.condition.seed == measured.condition.seed:
                if measured.diverged or other.diverged:
                    return None
                return ks_distance(measured.samples["heat"], other.samples["heat"])
        return None

    def row(self, measured: Measured) -> dict[str, Any]:
        nonzero = {f"nonzero_{key}": value for key, value in self.nonzero(measured).items()}
        return measured.row() | {"ks_distance": self.ks(measured)} | nonzero

    def mean_ks(self, bits: int) -> float | None:
        """Mean over seeds of the KS distance at a storage depth."""
        found = [self.ks(m) for m in self.storage.at(bits)]
        known = [d for d in found if d is not None]
        return float(np.mean(known)) if known else None

    def couplings(self, rounding: str, bits: int, block: str) -> float | None:
        """Mean over seeds of a nonzero fraction of the trainings."""
        found = [self.nonzero(m)[block] for m in self.training[rounding].at(bits)]
        known = [f for f in found if f is not None]
        return float(np.mean(known)) if known else None


def differences(curve: Curve, bits: float) -> dict[str, float]:
    """Relative differences to the 32-bit reference: heat, and quality where it is defined."""
    found = {"heat": _change(curve, bits)}
    for name in SUMMARIES:
        here, there = curve.quality(bits, name), curve.quality(UNQUANTIZED, name)
        if here is not None and there:
            found[name] = here / there - 1
    return found


def _change(curve: Curve, bits: float) -> float:
    """Heat minus that of the reference, in units of it."""
    reference = curve.heat(UNQUANTIZED)
    return (curve.heat(bits) - reference) / abs(reference)


def quantities(found: Found) -> list[dict[str, Any]]:
    """The headline numbers; the paper gives none of them."""
    rows = []
    if found.storage.has(UNQUANTIZED, 2):
        ratio = found.storage.ratio(2, UNQUANTIZED)
        rows.append(
            paper.quantity(
                NAME, "two_bit_heat", "heat with two-bit storage, of the reference",
                100 * ratio, unit="%", digits=".1f",
            )
        )  # fmt: skip
    within = limit("lowest_tested", "close")
    bits = lowest_close(found.storage, within)
    rows.append(
        paper.quantity(
            NAME, "storage_bits", f"fewest bits of storage within {100 * within:.0f} %",
            bits, digits=".0f",
        )
    )  # fmt: skip
    for rounding, curve in found.training.items():
        label = f"fewest bits of training within {100 * within:.0f} %, {rounding}"
        bits = lowest_close(curve, within)
        rows.append(paper.quantity(NAME, f"{rounding}_bits", label, bits, digits=".0f"))
    return rows


def lowest_close(curve: Curve, within: float) -> float | None:
    """Fewest bits from which on heat and quality are all close to the reference."""
    if not curve.has(UNQUANTIZED):
        return None
    lowest = None
    for bits in reversed([value for value in curve.values if value != UNQUANTIZED]):
        if not is_close(curve, bits, within):
            break
        lowest = bits
    return lowest


def is_close(curve: Curve, bits: float, within: float) -> bool:
    return all(abs(value) <= within for value in differences(curve, bits).values())


# --- the paper's statements -----------------------------------------------------------------------


def statements(found: Found) -> list[dict[str, Any]]:
    return [
        *two_bits(found.storage),
        four_and_five_bits(found),
        four_bit_quality(found.storage),
        zero_couplings(found),
        enough_bits(found, NEAREST, "sixteen_bits"),
        stochastic_nonzero(found),
        stochastic_recovery(found),
        stochastic_quality(found),
        enough_bits(found, STOCHASTIC, "stochastic_sixteen"),
        lowest_tested(found),
    ]


def _verdict(holds: bool) -> str:
    return paper.HOLDS if holds else paper.DIFFERS


def two_bits(curve: Curve) -> list[dict[str, Any]]:
    """Low heat of the two-bit computer, and what becomes of its samples."""
    keys = ("two_bit_heat", "two_bit_softmax", "two_bit_distance", "two_bit_diversity")
    if not curve.has(UNQUANTIZED, 2):
        return [paper.missing(NAME, key, "two bits were not tested") for key in keys]
    ratio, very_low = curve.ratio(2, UNQUANTIZED), limit("two_bit_heat", "ratio")
    heat = paper.statement(
        NAME,
        "two_bit_heat",
        _verdict(ratio <= very_low),
        "{two:.1f} E₀ against {reference:.1f} E₀ with 32 bits, {percent:.0f} % of it; very low: "
        "below {limit:.0f} %",
        two=curve.heat(2),
        reference=curve.heat(UNQUANTIZED),
        percent=100 * ratio,
        limit=100 * very_low,
    )
    measures = zip(keys[1:], SUMMARIES, (-1, +1, -1), strict=True)
    return [heat, *(_two_bit_measure(curve, *measure) for measure in measures)]


def _two_bit_measure(curve: Curve, key: str, measure: str, sign: int) -> dict[str, Any]:
    here, there = curve.quality(2, measure), curve.quality(UNQUANTIZED, measure)
    if here is None or there is None:
        return paper.missing(NAME, key, "not defined for these samples or this visible layer")
    if measure == "pairwise_distance":
        strongly = limit(key, "ratio")
        holds = here <= strongly * there
        note = f"; strongly: below {100 * strongly:.0f} %"
    else:
        holds, note = (here - there) * sign > 0, ""
    return paper.statement(
        NAME,
        key,
        _verdict(holds),
        MEASURES[measure] + " {here:.3f} against {there:.3f}, {percent:.0f} % of it" + note,
        here=here,
        there=there,
        percent=100 * here / there,
    )


def four_and_five_bits(found: Found) -> dict[str, Any]:
    key, curve = "four_five_bits", found.storage
    if not curve.has(UNQUANTIZED, 2, 4, 5):
        return paper.missing(NAME, key, "2, 4 or 5 bits were not tested")
    two, four, five = (found.mean_ks(bits) for bits in (2, 4, 5))
    changes = [_change(curve, bits) for bits in (4, 5)]
    approach = all(abs(change) <= limit(key, "close") for change in changes)
    if two is not None and four is not None and five is not None:
        approach &= max(four, five) < limit(key, "distance") * two
    return paper.statement(
        NAME,
        key,
        _verdict(approach),
        "KS distance to 32 bits {four:.2f} at 4 and {five:.2f} at 5 bits ({two:.2f} at 2); mean "
        "heat {four_change:+.1f} % and {five_change:+.1f} %",
        two=two,
        four=four,
        five=five,
        four_change=100 * changes[0],
        five_change=100 * changes[1],
    )


def _in_words(changes: dict[str, float]) -> tuple[str, dict[str, float]]:
    """``heat +3.1 %, softmax −0.2 %, …`` as a template and its numbers."""
    template = ", ".join(f"{WORDS[name]} {{{name}:+.1f}} %" for name in changes)
    return template, {name: 100 * value for name, value in changes.items()}


def four_bit_quality(curve: Curve) -> dict[str, Any]:
    key = "four_bit_quality"
    if not curve.has(UNQUANTIZED, 4):
        return paper.missing(NAME, key, "4 bits were not tested")
    changes = {k: v for k, v in differences(curve, 4).items() if k != "heat"}
    template, values = _in_words(changes)
    holds = all(abs(change) <= limit(key, "close") for change in changes.values())
    return paper.statement(NAME, key, _verdict(holds), template + " of 32 bits", **values)


def _tested(curve: Curve, wanted: tuple[int, ...]) -> list[int]:
    return [bits for bits in wanted if curve.at(bits)]


def zero_couplings(found: Found) -> dict[str, Any]:
    tested = _tested(found.training[NEAREST], LOW_BITS)
    if not tested:
        return paper.missing(NAME, "zero_couplings", "none of 4, 6 and 8 bits was trained")
    fractions = {bits: found.couplings(NEAREST, bits, "visible_hidden") for bits in tested}
    hidden = {bits: found.couplings(NEAREST, bits, "hidden_hidden") for bits in tested}
    return paper.statement(
        NAME,
        "zero_couplings",
        _verdict(all(fraction == 0 for fraction in fractions.values())),
        "nonzero part of J_vh: "
        + ", ".join(f"{{vh{bits}:.3g}} % at {bits} bits" for bits in tested)
        + "; of J_hh: "
        + ", ".join(f"{{hh{bits}:.3g}} %" for bits in tested),
        **{f"vh{bits}": _percent(fraction) for bits, fraction in fractions.items()},
        **{f"hh{bits}": _percent(fraction) for bits, fraction in hidden.items()},
    )


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def enough_bits(found: Found, rounding: str, key: str) -> dict[str, Any]:
    curve = found.training[rounding]
    if not curve.has(UNQUANTIZED, ENOUGH_BITS):
        return paper.missing(NAME, key, f"{ENOUGH_BITS} bits or the reference were not trained")
    template, values = _in_words(differences(curve, ENOUGH_BITS))
    verdict = _verdict(is_close(curve, ENOUGH_BITS, limit(key, "close")))
    return paper.statement(NAME, key, verdict, template + " of the reference", **values)


def stochastic_nonzero(found: Found) -> dict[str, Any]:
    tested = _tested(found.training[STOCHASTIC], LOW_BITS)
    if not tested:
        return paper.missing(NAME, "stochastic_nonzero", "none of 4, 6 and 8 bits was trained")
    fractions = {bits: found.couplings(STOCHASTIC, bits, "visible_hidden") for bits in tested}
    return paper.statement(
        NAME,
        "stochastic_nonzero",
        _verdict(all(fractions.values())),
        "nonzero part of J_vh: "
        + ", ".join(f"{{vh{bits}:.3g}} % at {bits} bits" for bits in tested),
        **{f"vh{bits}": _percent(fraction) for bits, fraction in fractions.items()},
    )


def stochastic_recovery(found: Found) -> dict[str, Any]:
    """Heat nearer to the reference than with rounding to nearest, at every low bit depth."""
    key, curves = "stochastic_recovery", found.training
    tested = [b for b in LOW_BITS if all(curves[r].has(UNQUANTIZED, b) for r in ROUNDINGS)]
    if not tested:
        return paper.missing(NAME, key, "none of 4, 6 and 8 bits was trained both ways")
    away = {
        rounding: [100 * differences(curves[rounding], bits)["heat"] for bits in tested]
        for rounding in ROUNDINGS
    }
    nearer = sum(abs(s) < abs(n) for s, n in zip(away[STOCHASTIC], away[NEAREST], strict=True))
    verdict = paper.HOLDS if nearer == len(tested) else paper.DIFFERS
    if 0 < nearer < len(tested):
        verdict = paper.UNRESOLVED
    return paper.statement(
        NAME,
        key,
        verdict,
        "heat relative to the reference, stochastic (nearest): "
        + ", ".join(f"{{s{b}:+.1f}} % ({{n{b}:+.1f}} %) at {b} bits" for b in tested),
        **{f"s{b}": value for b, value in zip(tested, away[STOCHASTIC], strict=True)},
        **{f"n{b}": value for b, value in zip(tested, away[NEAREST], strict=True)},
    )


def stochastic_quality(found: Found) -> dict[str, Any]:
    """A measure that is not close to the reference, or is resolved from it in paired samples."""
    key, curve = "stochastic_quality", found.training[STOCHASTIC]
    if not curve.has(UNQUANTIZED, 8):
        return paper.missing(NAME, key, "8 bits or the reference were not trained")
    changes = {k: v for k, v in differences(curve, 8).items() if k != "heat"}
    paired = [name for name in changes if name != "pairwise_distance"]  # one value a sample
    errors = limit(key, "resolved")
    resolved = [name for name in paired if curve.change(8, UNQUANTIZED, name).resolved(errors)]
    template, values = _in_words(changes)
    far = any(abs(change) > limit(key, "close") for change in changes.values())
    differ = bool(resolved) or far
    return paper.statement(
        NAME,
        key,
        _verdict(differ),
        template + " of the reference; resolved in paired samples: {resolved}",
        **values,
        resolved=", ".join(WORDS[name] for name in resolved) or "none",
    )


def lowest_tested(found: Found) -> dict[str, Any]:
    """Of the paper's bit depths only 16 is close, with either rounding; ours are also reported."""
    key, curves = "lowest_tested", found.training
    wanted = (UNQUANTIZED, 8, ENOUGH_BITS)
    if not all(curves[rounding].has(*wanted) for rounding in ROUNDINGS):
        return paper.missing(NAME, key, "8 or 16 bits or the reference were not trained")
    within = limit(key, "close")
    holds = all(
        is_close(curve, ENOUGH_BITS, within)
        and not any(is_close(curve, bits, within) for bits in _tested(curve, LOW_BITS))
        for curve in curves.values()
    )
    lowest = {rounding: lowest_close(curves[rounding], within) for rounding in ROUNDINGS}
    return paper.statement(
        NAME,
        key,
        _verdict(holds),
        f"among all depths tested here, heat and quality are within {100 * within:.0f} % of the "
        "reference from {nearest:.0f} bits (nearest) and {stochastic:.0f} bits (stochastic) on",
        **lowest,
    )


EXPERIMENT = Experiment(
    name=NAME,
    title="Precision response: bits to store, bits to train",
    presets={
        "paper": PrecisionPlan(),
        "quick": PrecisionPlan(
            settings=Settings(
                training=Training(cycles=10), generation=GenerationSettings(samples=16)
            ),
            storage_bits=(2, 4, 5, 32),
            training_bits=(8, 16),
            training_cycles=10,
            training_samples=16,
        ),
    },
    tasks=tasks,
    later=later,
    foreseen=foreseen,
    assemble=assemble,
    varied=VARIED,
)
