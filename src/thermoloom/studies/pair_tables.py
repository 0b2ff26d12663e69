"""Tables and numbers of a study of pairs.

Tables that it saves (CSV), and the subject of each row:

    models   a computer: heat, quality, energies, norms, losses
    samples  a denoising trajectory
    curves   an evaluation of the validation loss
    paths    a computer on an additional noising path
    cross    a potential on the states of an ensemble
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.machine.parameters import Block, layout
from thermoloom.measures.classifier import classifier_record, panel_records, panel_rows
from thermoloom.measures.diagnostics import EnergyDrop
from thermoloom.measures.paired import RULES
from thermoloom.measures.quality import CLASSIFIED, MEASURES, on_panel, value_range
from thermoloom.measures.statistics import PairedComparison, compare_pairs, estimate_mean, negated
from thermoloom.runs.manifest import flatten
from thermoloom.runs.store import RunDirectory
from thermoloom.studies.case import STAGES
from thermoloom.studies.gather import Record, stacked
from thermoloom.studies.pairs import Pairs
from thermoloom.studies.sampled_computer import assignment, classified, nearest_samples

DISPLAYED = 4
"""Samples of each target on the sheet of images."""


# --- tables ---


def save_tables(pairs: Pairs, run: RunDirectory) -> None:
    """The tables of a study of pairs; figures and report read these and nothing else."""
    models = pairs.records
    run.save_table("models", _model_columns(models))
    run.save_table("samples", stacked((m.labels, m.samples) for m in models))
    run.save_table("curves", stacked((m.labels, m.curve) for m in models))
    if all(model.run.has("paths.csv") for model in models):
        paths = stacked((m.labels, m.table("paths")) for m in models)
        run.save_table("paths", paths)
    if pairs.cross:
        run.save_table("cross", _cross_columns(pairs.cross))
    _save_pictures(pairs, run)


def _model_columns(models: Sequence[Record]) -> dict[str, Any]:
    """Seed-level numbers, without timings: a table does not depend on where it was computed."""
    rows = [
        {**m.labels}
        | {
            key: value
            for key, value in flatten(m.results).items()
            if key != "class_counts" and not key.startswith("timing.")
        }
        for m in models
    ]
    return {key: [row.get(key) for row in rows] for key in rows[0]}


def _cross_columns(cross: Sequence[tuple[int, EnergyDrop]]) -> dict[str, Any]:
    return {
        "seed": [seed for seed, _ in cross],
        "potential": [d.potential for _, d in cross],
        "ensemble": [d.ensemble for _, d in cross],
        "drop": [d.drop for _, d in cross],
        "is_heat": [d.is_heat for _, d in cross],
        **{f"initial_{part}": [d.initial[part] for _, d in cross] for part in cross[0][1].initial},
        **{f"final_{part}": [d.final[part] for _, d in cross] for part in cross[0][1].final},
    }


def _save_pictures(pairs: Pairs, run: RunDirectory) -> None:
    """Images of the displayed computer: nearest samples of each target, and snapshots."""
    record, patterns = pairs.displayed, pairs.patterns
    nearest = nearest_samples(record.samples, patterns, DISPLAYED)
    displayed = [sample for samples in nearest.values() for sample in samples]
    images = record.archive.final_states[:, : record.settings.machine.visible]
    arrays: dict[str, NDArray[Any]] = {
        "nearest": images[displayed],
        "limits": np.percentile(images, (1, 99)),
        "patterns": patterns.patterns,
    }
    snapshot_samples: list[int] = []
    if pairs.displayed_replay is not None:
        snapshots = pairs.displayed_replay.run.load_arrays("snapshots")
        arrays |= {"snapshots": snapshots["states"], "steps": snapshots["steps"]}
        snapshot_samples = snapshots["samples"].tolist()
    run.save_arrays(
        "pictures",
        arrays,
        {
            **record.labels,
            "generation_seed": record.settings.generation_seed,
            "shape": patterns.shape,
            "labels": patterns.labels,
            "targets": assignment(record.samples, patterns)[0],
            "classified": classified(record.samples),
            "nearest": nearest,
            "snapshots": snapshot_samples,
        },
    )


# --- summary ---


def comparison_row(label: str, compared: PairedComparison | None, **more: Any) -> dict[str, Any]:
    """A row of a table: both means, the mean difference, its interval and tests."""
    numbers = {} if compared is None else compared.numbers
    return {"label": label, "measured": compared is not None, **numbers, **more}


def heat_reduction(pairs: Pairs) -> dict[str, Any]:
    """batch − online of the mean heat across pairs, absolute and relative to batch."""
    compared = pairs.numbers.compared("heat.mean")
    batch, online = np.array(compared.reference), np.array(compared.other)
    relative = None
    if batch.all():
        relative = compare_pairs(np.zeros(len(batch)), 100 * (batch - online) / batch)
    return {
        "batch": float(batch.mean()),
        "online": float(online.mean()),
        "reduction": -compared.mean_difference,
        "interval": negated(compared.interval),
        "percent": None if relative is None else relative.mean_difference,
        "percent_interval": None if relative is None else relative.interval,
        "t_test_p": compared.t_test_p,
        "sign_test_p": compared.sign_test_p if compared.pairs > 1 else None,
        "lower": int((online < batch).sum()),
        "pairs": compared.pairs,
        "note": compared.note,
    }


def heat_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """One row per pair: both mean heats with their trajectory spread, and the reduction."""
    rows = []
    for seed in pairs.seeds:
        batch, online = (pairs.computers[rule, seed].results["heat"] for rule in RULES)
        reduction = batch["mean"] - online["mean"]
        rows.append(
            {
                "seed": seed,
                "batch": batch["mean"],
                "batch_sd": batch["sd"],
                "online": online["mean"],
                "online_sd": online["sd"],
                "reduction": reduction,
                "percent": 100 * reduction / batch["mean"] if batch["mean"] else None,
            }
        )
    return rows


def quality_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """One row per measure of quality, online − batch across pairs, with its range on the panel."""
    return [
        comparison_row(label, pairs.numbers.compare(f"quality.{name}"), key=name)
        | _panel_ranges(pairs, name)
        for name, label in MEASURES.items()
    ]


def _panel_ranges(pairs: Pairs, measure: str) -> dict[str, Any]:
    """Ranges of a comparison over all classifiers; empty for a measure that needs none."""
    if measure not in CLASSIFIED or not classified(pairs.displayed.samples):
        return {}
    compared = [
        pairs.numbers.compared(f"quality.{on_panel(measure, name)}").numbers
        for name in ("", *panel_records())
    ]
    keys = ("batch", "online", "difference", "percent")
    return {f"panel_{key}": value_range(numbers[key] for numbers in compared) for key in keys}


def _label(block: Block) -> str:
    """A block of couplings in words, such as visible–hidden."""
    return f"{block.rows}–{block.columns}"


def energy_labels(pairs: Pairs) -> dict[str, tuple[str, ...]]:
    """Rows of the table of energies: the parts of the energy that each label adds up."""
    couplings = layout(pairs.plan.settings.machine).couplings
    parts = layout(pairs.plan.settings.machine).parts
    return {
        "onsite": ("onsite",),
        "coupling": tuple(block.name for block in couplings),
        **{_label(block): (block.name,) for block in couplings},
        **({"bias": ("bias",)} if "bias" in parts else {}),
        "total": ("total",),
    }


def energy_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """Mean energies at the start and at the end, each in the potential of its computer."""
    return [
        comparison_row(
            label,
            pairs.numbers.compare(*(f"{moment}_energy.{part}" for part in parts)),
            moment=name,
            key=[f"{moment}_energy.{part}" for part in parts],
        )
        for moment, name in (("initial", "start"), ("final", "end"))
        for label, parts in energy_labels(pairs).items()
    ]


def cross_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """Mean energy drop of both ensembles in both potentials, across pairs."""
    rows = []
    for potential in RULES if pairs.cross else ():
        for ensemble in RULES:
            key = (potential, ensemble)
            of_key = [d.drop for _, d in pairs.cross if (d.potential, d.ensemble) == key]
            drops = estimate_mean(of_key)
            kind = "heat released" if potential == ensemble else "diagnosis only"
            rows.append(
                {"potential": potential, "ensemble": ensemble, "kind": kind}
                | {"drop": drops.mean, "sd": drops.sd}
            )
    return rows


def norm_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """Frobenius norms, an undirected edge counted once."""
    form = layout(pairs.plan.settings.machine)
    labels = {
        block.name: f"‖J_{block.rows[0]}{block.columns[0]}‖"
        + (" (each edge once)" if block.symmetric else "")
        for block in form.couplings
    }
    biased = [block.rows[0] for block in form.blocks if block.is_bias]
    if biased:
        labels["bias"] = f"‖b_{'+'.join(biased)}‖"
    return [
        comparison_row(label, pairs.numbers.compare(f"norms.{key}"), key=key)
        for key, label in labels.items()
    ]


def path_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """Losses and terms of the path-action identity, mean over the additional paths."""
    labels = {
        "loss": "loss per step",
        "reduced_loss": "loss per step without squared increments",
        "log_ratio": "log path-likelihood ratio R",
        "heat_like": "heat-like term of R",
        "force_squared": "force-squared term of R",
    }
    return [
        comparison_row(label, pairs.numbers.compare(f"paths.{key}"), key=key)
        for key, label in labels.items()
    ]


def class_rows(pairs: Pairs) -> list[dict[str, Any]]:
    """Class counts over all ten classes, one row per computer; empty without a classifier."""
    return [
        {**record.labels, "counts": record.results["class_counts"]}
        for record in pairs.records
        if record.results["class_counts"] is not None
    ]


def timing(pairs: Pairs) -> dict[str, float]:
    """Seconds of work by stage, summed over all computers and processes.

    Paths are simulated during training; their share is estimated from those of diagnostics.
    """
    spent = [record.results["timing"] for record in pairs.records]
    total = {stage: sum((s.get(stage, 0.0) for s in spent), 0.0) for stage in STAGES}
    paths = sum(min(s.get("one_path", 0.0) * s["paths_made"], s["training"]) for s in spent)
    replay = sum(record.results["timing"]["replay"] for record in pairs.replays.values())
    total["training"] -= paths
    return {"paths": paths} | total | {"replay": replay}


def replayed(pairs: Pairs) -> dict[str, int] | None:
    """Samples and parameters of all checkpoints, and how many of them a replay changed."""
    results = [record.results for record in pairs.replays.values()]
    if not results:
        return None
    keys = ("samples", "differing", "parameters", "changed_parameters")
    return {"checkpoints": len(results)} | {key: sum(r[key] for r in results) for key in keys}


def judge_of(pairs: Pairs) -> dict[str, Any] | None:
    """Accuracy of the classifier, where it was used."""
    if not classified(pairs.displayed.samples):
        return None
    record = classifier_record(pairs.plan.settings.measures.classifier)
    return {
        "test_accuracy_percent": 100 * record["test_accuracy"],
        "test_images": record["test_images"],
        "sha256": record["sha256"],
    }


def panel_of(pairs: Pairs) -> list[dict[str, Any]] | None:
    """The classifiers of the panel, where samples were classified."""
    return panel_rows() if classified(pairs.displayed.samples) else None


def summarize_pairs(pairs: Pairs, run: RunDirectory) -> dict[str, Any]:
    """Save the tables; return the numbers that every study of pairs reports."""
    save_tables(pairs, run)
    return {
        "pairs": len(pairs.seeds),
        "seeds": pairs.seeds,
        "missing": pairs.missing,
        "samples": pairs.plan.settings.generation.samples,
        "cycles": pairs.plan.settings.training.cycles,
        "additional_paths": pairs.plan.paths_per_pattern * len(pairs.patterns),
        "heat": heat_reduction(pairs),
        "heat_rows": heat_rows(pairs),
        "quality": quality_rows(pairs),
        "energies": energy_rows(pairs),
        "cross": cross_rows(pairs),
        "norms": norm_rows(pairs),
        "paths": path_rows(pairs) if pairs.displayed.results["paths"] else [],
        "identity_error": max(
            (record.results["paths"] or {}).get("identity_error", 0.0) for record in pairs.records
        ),
        "classes": class_rows(pairs),
        "shown": {
            **pairs.displayed.labels,
            "generation_seed": pairs.displayed.settings.generation_seed,
        },
        "classifier": judge_of(pairs),
        "panel": panel_of(pairs),
        "patterns": {
            "count": len(pairs.patterns),
            "classes": pairs.patterns.classes,
            "targets": pairs.patterns.targets,
        },
        "replay": replayed(pairs),
        "timing": timing(pairs),
        "models": pairs.numbers.models,
    }
