"""What is measured of machines for ten digits: one function per part, each in its own run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from thermoloom.computers.sample_archives import generate_run
from thermoloom.computers.training_runs import parameters_of, solve_run
from thermoloom.experiments.results import finished, order_of, save_rows, trained_path
from thermoloom.experiments.works import Job, Work
from thermoloom.generation import asked_classes, drawn_styles, generate
from thermoloom.machine.energy import label_word
from thermoloom.machine.generated import Generated
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.protocol import noising_heat
from thermoloom.measures.class_accuracy import Asked, Data, reference_data
from thermoloom.measures.classifier import CLASSES
from thermoloom.measures.fidelity import nearest_images
from thermoloom.measures.statistics import estimate_mean
from thermoloom.patterns.clamps import clamp_of
from thermoloom.patterns.codes import cluster_words
from thermoloom.patterns.fields import check_labels, styles_of, unit_fields
from thermoloom.patterns.patterns import Patterns
from thermoloom.runs.store import RunDirectory
from thermoloom.theory.best_windows import best_windows
from thermoloom.theory.expected_loss import expected_losses
from thermoloom.theory.likelihood import class_log_likelihoods, expected_residuals, path_residuals
from thermoloom.theory.marginals import Marginals
from thermoloom.theory.predictions import online_stability, scatter_edge
from thermoloom.theory.solver import solve_optimum
from thermoloom.training.trainer import Trainee, train_together

SHOWN = 10
"""Samples of each class on the sheet."""
FRAMES = 8
"""Times of a denoising trajectory that are shown, both ends included."""
TOLERANCE = 1e-4
"""Relative gradient at which a machine of the curves counts as solved: its loss is off by the
square of it."""
KEPT_EVERY = 60.0
"""Seconds."""
SAMPLED_PATHS = 200
"""Images that are classified by one sampled path, beside the expectation."""


def data_of(job: Job) -> Data:
    """Test images where MNIST is available."""
    chosen = job.settings.prototypes
    return reference_data(job.patterns, chosen.path if chosen.source == "mnist" else None)


def solved(job: Job) -> Parameters:
    """The machine of the settings, in a run like any other; solved if it is not there."""
    path = trained_path(job.workdir, job.settings)
    if finished(path) is None:
        solve_run(path, job.settings, patterns=job.patterns)
    return parameters_of(RunDirectory.open(path))


def first_patterns(patterns: Patterns, count: int) -> Patterns:
    """The first patterns, which take the classes in turn."""
    if count == 0 or count >= len(patterns):
        return patterns
    cut = slice(count)
    return replace(
        patterns,
        patterns=patterns.patterns[cut],
        labels=patterns.labels[cut],
        classes=patterns.classes[cut],
        pixels=None if patterns.pixels is None else patterns.pixels[cut],
    )


def words_of(patterns: Patterns, machine: Machine) -> NDArray[np.float32] | None:
    """States of the label units for each pattern; those grouped last are not grouped again."""
    if machine.labels == 0:
        return None
    check_labels(patterns, machine)
    grouped = Machine(visible=machine.visible, labels=machine.labels, styles=machine.styles,
                      code_seed=machine.code_seed)  # fmt: skip
    return label_word(machine, np.array(patterns.classes), _styles(patterns, grouped))


@lru_cache(maxsize=2)
def _styles(patterns: Patterns, grouped: Machine) -> NDArray[np.intp]:
    return styles_of(patterns, grouped)


def asked_of(theta: Parameters, generated: Generated, classifier: str) -> Asked:
    """Images of a generation in which all classes were requested in turn."""
    images = generated.final_states[:, : theta.machine.visible]
    asked = asked_classes(theta, len(images), None)
    return Asked(images, None if asked is None else asked.astype(np.intp), classifier)


def energies(generated: Generated) -> dict[str, Any]:
    """Heat and work of a sample, in E₀."""
    return {
        "heat": asdict(estimate_mean(generated.heat)),
        "work": asdict(estimate_mean(generated.work)),
    }


# --- the machine ----------------------------------------------------------------------------------


def measure_machine(job: Job, data_samples: int, samples: int) -> dict[str, Any]:
    """Solve, sample, judge: all measures, a sheet of ten columns, trajectories of all classes."""
    settings = job.settings.updated({"generation": {"samples": samples}})
    theta = solved(job)
    path = trained_path(job.workdir, settings)
    generated = generate_run(path, order_of(settings))
    asked, data = asked_of(theta, generated, settings.measures.classifier), data_of(job)
    states = data.states(settings.machine, data_samples)
    classes = data.classes[: len(states)]
    measured = asked.many(job.patterns, states)
    itself = Asked(states, classes, settings.measures.classifier).few(job.patterns)
    near = nearest_images(states, job.patterns.patterns).correlation
    clean = Asked(data.patterns[: len(states)], classes, settings.measures.classifier)
    labels = settings.machine.labels
    last, steps = settings.machine.steps, np.linspace(0, settings.machine.steps, FRAMES)
    shown = generate(
        theta, labels, settings.generation_seed, snapshot_samples=range(labels),
        snapshot_steps=[round(step) for step in steps],
    )  # fmt: skip
    visible = settings.machine.visible
    job.run.save_arrays(
        "images",
        {"sheet": asked.images[: SHOWN * labels], "frames": shown.snapshots[..., :visible]},
        {"steps": [round(step) for step in steps], "last": last, "shape": job.patterns.shape},
    )
    table = asked.confusion
    assert table is not None  # the machine has labels
    save_rows(
        job.run, "confusion",
        [{"asked": i} | {f"as_{j}": int(n) for j, n in enumerate(row)}
         for i, row in enumerate(table)],
    )  # fmt: skip
    drawn = style_draws(job.patterns, theta, len(asked.images), settings.generation_seed)
    return {
        "measured": measured,
        "patterns": len(job.patterns),
        "held_out": data.held_out,
        "data": itself
        | {
            "clean_asked": clean.few(job.patterns)["asked"],
            "nearest_correlation": float(near.mean()),
        },
        "test_loss": None
        if not data.held_out
        else data_loss(theta, job.patterns, data, job.marginals),
        "style_means": Asked(drawn, asked.classes).few(job.patterns),
        "solved": dict(RunDirectory.open(path).results),
        "first_law_error": generated.first_law_error,
        **energies(generated),
    }


def data_loss(theta: Parameters, learned: Patterns, data: Data, marginals: Marginals) -> float:
    """E[L(θ)]/K of the noising paths of data, each with the style of its class that is nearest."""
    machine = theta.machine
    style = nearest_styles(machine, learned, data.patterns, data.classes)
    words = label_word(machine, data.classes, style)
    fields = np.zeros((len(style), machine.units), np.float32)
    fields[:, : machine.visible] = data.patterns
    losses = expected_losses(machine, fields, marginals, words)
    wide = theta.vector.astype(np.float64)
    return sum(loss.total(row) for loss, row in zip(losses, wide, strict=True)) / machine.steps


def nearest_styles(
    machine: Machine,
    learned: Patterns,
    images: NDArray[np.float32],
    classes: NDArray[np.intp],
    known: NDArray[np.bool_] | slice = slice(None),
) -> NDArray[np.intp]:
    """The style of its class whose mean is nearest to each image, in the pixels that are known."""
    words = words_of(learned, machine)
    assert words is not None  # the machine has labels
    means = style_means(learned, words).reshape(machine.labels, machine.styles, -1)
    used = (words > 0).any(axis=0).reshape(machine.labels, machine.styles)
    style = np.empty(len(classes), np.intp)
    for own in learned.targets:
        rows = classes == own
        distance = cdist(images[rows][:, known], means[own][:, known])
        style[rows] = np.where(used[own], distance, np.inf).argmin(axis=1)
    return style


def style_means(patterns: Patterns, words: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """Mean of the patterns of every style, (L, N_v); 0 where there is none."""
    assert words is not None  # the machine has labels
    unit = words.argmax(axis=1)
    counts = np.bincount(unit, minlength=words.shape[1])
    sums = np.zeros((words.shape[1], patterns.patterns.shape[1]))
    np.add.at(sums, unit, patterns.patterns)
    means: NDArray[np.float32] = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
    return means


def style_draws(
    patterns: Patterns, theta: Parameters, count: int, seed: int
) -> NDArray[np.float32]:
    """The mean of the style drawn for each sample: images without fluctuations."""
    asked = asked_classes(theta, count, None)
    assert asked is not None
    unit = asked * theta.machine.styles + drawn_styles(theta, asked, seed)
    drawn: NDArray[np.float32] = style_means(patterns, words_of(patterns, theta.machine))[unit]
    return drawn


# --- what makes it work ---------------------------------------------------------------------------


def measure_point(job: Job, patterns: int, samples: int) -> dict[str, Any]:
    """A machine solved on the first ``patterns`` (0: all) and sampled; nothing of it is kept."""
    learned, machine = first_patterns(job.patterns, patterns), job.settings.machine
    words = words_of(learned, machine)
    optimum = solve_optimum(machine, unit_fields(learned, machine), words, TOLERANCE)
    judged = sampled(job, optimum.parameters, samples)
    about = {"solving": optimum.seconds, "loss": optimum.expected_loss, "patterns": len(learned)}
    return judged | about


def measure_windows(job: Job, pieces: int, samples: int) -> dict[str, Any]:
    """The machine with the windows that make its expected loss least."""
    machine = job.settings.machine
    words = words_of(job.patterns, machine)
    windows = best_windows(machine, job.fields, words, pieces)
    optimum = solve_optimum(replace(machine, windows=windows), job.fields, words, TOLERANCE)
    judged = sampled(job, optimum.parameters, samples)
    about = {"windows": windows, "loss": optimum.expected_loss, "patterns": len(job.patterns)}
    return judged | about


def measure_unlabelled(job: Job, patterns: int, samples: int) -> dict[str, Any]:
    """No class is asked for: which word do hidden units choose, and does the image follow?

    The class of a sample is that of the word that its hidden units are most alike.
    """
    learned, machine = first_patterns(job.patterns, patterns), job.settings.machine
    fields = unit_fields(learned, machine)
    theta = solve_optimum(machine, fields, tolerance=TOLERANCE).parameters
    generated = generate(theta, samples, job.settings.generation_seed)
    images, hidden = np.split(generated.final_states, [machine.visible], axis=1)
    known = np.unique(learned.classes)
    words = cluster_words(machine, len(known) * machine.code_clusters)
    alike = 1 - cdist(hidden, words, "cosine")
    classes = known[alike.argmax(axis=1) // machine.code_clusters].astype(np.intp)
    asked = Asked(images, classes, job.settings.measures.classifier)
    first, second = np.sort(alike, axis=1)[:, :-3:-1].mean(axis=0)
    job.run.save_arrays("images", {"sheet": images[:100]}, {"shape": job.patterns.shape})
    return (
        asked.few(job.patterns)
        | energies(generated)
        | {
            "patterns": len(learned),
            "overlap": float(first),
            "second_overlap": float(second),
            "confidence": float(asked.softmax.max(axis=1).mean()),
            "counts": np.bincount(classes, minlength=CLASSES).tolist(),
        }
    )


def sampled(job: Job, theta: Parameters, samples: int) -> dict[str, Any]:
    """Rate, diversity, negatives, heat and work of so many samples; diverged if not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        generated = generate(theta, samples, job.settings.generation_seed)
    if not np.isfinite(generated.final_states).all():
        return {"diverged": True}
    judged = asked_of(theta, generated, job.settings.measures.classifier).few(job.patterns)
    data = data_of(job)
    states = data.states(theta.machine, samples)
    known = Asked(states, data.classes[: len(states)], job.settings.measures.classifier)
    return (
        judged
        | energies(generated)
        | {"diverged": False, "data_diversity": known.few(job.patterns)["diversity"]}
    )


# --- inpainting -----------------------------------------------------------------------------------


def measure_inpainting(job: Job, images: int) -> dict[str, Any]:
    """Half of each test image is known, its class is requested, the rest is drawn: with the style
    whose mean is nearest in the known half, and with one chosen at random.
    """
    theta, machine = solved(job), job.settings.machine
    data = data_of(job)
    truth, classes = data.patterns[:images], data.classes[:images]
    side = round(machine.visible**0.5)
    row, column = np.divmod(np.arange(machine.visible), side)
    thermal = machine.kT / float(machine.potential.curvature(0.0))
    labels, learned = np.array(job.patterns.classes), job.patterns.patterns
    mean = learned.mean(axis=0)
    class_means = {c: learned[labels == c].mean(axis=0) for c in job.patterns.targets}
    own_mean = np.stack([class_means[c] for c in classes])
    rows, pictures = [], {"truth": truth[:SHOWN]}
    for name, known in {"top": row < side // 2, "left": column < side // 2}.items():
        clamp = clamp_of(machine, job.patterns, truth, len(truth), known)
        nearest = nearest_styles(machine, job.patterns, truth, classes, known)
        hidden = ~known
        for style, chosen in {"die": None, "nearest": nearest.tolist()}.items():
            done = generate(
                theta, len(truth), job.settings.generation_seed, classes.tolist(), clamp,
                styles=chosen,
            )  # fmt: skip
            drawn = done.final_states[:, : machine.visible]
            full = np.where(known, truth, drawn)
            asked = Asked(full.astype(np.float32), classes, job.settings.measures.classifier)
            error = float(np.square(drawn[:, hidden] - truth[:, hidden]).mean())
            rows.append(
                {
                    "known": name,
                    "style": style,
                    "images": len(truth),
                    "kept": float(np.mean(asked.recognized == classes)),
                    "error": error - thermal,
                    "mean_image": float(np.square(mean[hidden] - truth[:, hidden]).mean()),
                    "class_mean": float(np.square((own_mean - truth)[:, hidden]).mean()),
                    "heat": float(done.heat.mean()),
                    "work": float(done.work.mean()),
                }
            )
        pictures[name] = drawn[:SHOWN]
        pictures[f"{name}_known"] = known
    save_rows(job.run, "inpainting", rows)
    job.run.save_arrays("images", pictures, {"shape": job.patterns.shape})
    return {"held_out": data.held_out}


# --- classification -------------------------------------------------------------------------------


def measure_classes(job: Job, images: int) -> dict[str, Any]:
    """The class whose labels make the noising path of an image most likely."""
    from thermoloom.experiments.digits.peers import discriminants

    theta, data = solved(job), data_of(job)
    fields, classes = data.patterns[:images], data.classes[:images]
    hidden = np.zeros((len(fields), job.settings.machine.hidden), np.float32)
    every = np.concatenate([fields, hidden], axis=1)
    expected = class_log_likelihoods(theta, expected_residuals(theta, every, job.marginals))
    few = every[:SAMPLED_PATHS]
    paths = [_path(job, field, n) for n, field in enumerate(few)]
    sums = np.stack([path_residuals(theta, path) for path in paths])
    heat = [noising_heat(theta.machine, f, path.states) for f, path in zip(few, paths, strict=True)]
    by_path = class_log_likelihoods(theta, sums)
    rows = [
        _right("the machine, expected path", expected, classes),
        _right("the machine, one sampled path", by_path, classes[: len(few)]),
        *discriminants(job.patterns, fields, classes),
    ]
    save_rows(job.run, "classes", rows)
    return {
        "held_out": data.held_out,
        "steps": theta.machine.steps,
        "heat": asdict(estimate_mean(np.array(heat))),
    }


def _path(job: Job, field: NDArray[np.float32], number: int) -> Any:
    from thermoloom.engines import engine

    seed = job.settings.training.validation_seed
    return engine().path(job.settings.machine, field, seed, number, stream="validation ")


def _right(name: str, scores: NDArray[Any], classes: NDArray[np.intp]) -> dict[str, Any]:
    right = scores.argmax(axis=1) == classes
    return {"classifier": name, "images": len(right), "accuracy": float(right.mean())}


# --- the local rule -------------------------------------------------------------------------------


def learn_online(
    job: Job, cycles: int, samples: int, before: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Train by the online rule up to ``cycles``, on from where ``before`` ended; sample.

    What an interrupted training has reached is kept every ``KEPT_EVERY`` seconds.
    """
    settings, machine = job.settings, job.settings.machine
    words = words_of(job.patterns, machine)
    run: RunDirectory | None = job.run
    if not job.run.has("computer.safetensors") and before is not None:
        model = settings.updated({"training": {"cycles": before["cycles"]}})
        run = Work("digits-online", model, before).found(job.workdir)
    trainee = Trainee.new(settings)
    if run is not None and run.has("computer.safetensors"):
        reached = run.load_metadata("computer")["cycle"]
        trainee = Trainee.restore(settings, run.load_arrays("computer"), reached)
    kept = time.monotonic()
    for _ in train_together([trainee], job.fields, words):
        job.report(trainee.cycle, cycles, trainee.curve[-1][1] if trainee.curve else None)
        if time.monotonic() - kept > KEPT_EVERY:
            job.run.save_arrays("computer", trainee.arrays(), {"cycle": trainee.cycle})
            kept = time.monotonic()
    job.run.save_arrays("computer", trainee.arrays(), {"cycle": trainee.cycle})
    assert words is not None  # the machine has labels
    few = slice(len(job.patterns.targets))
    edge = online_stability(machine, job.fields[few], job.marginals, words[few]).safe_rate
    about = {
        "cycles": trainee.cycle,
        "amplitude": machine.label_amplitude,
        "rate": settings.learning_rate_of(trainee.cycle),
        "edge": edge,
        "scatter_edge": scatter_edge(machine),
    }
    if trainee.diverged:
        return about | {"diverged": True}
    return about | sampled(job, trainee.parameters, samples)
