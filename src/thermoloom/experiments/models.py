"""What the tasks of all experiments do: train computers on common paths, sample and measure each.

A training and its samples may be one task or several (``cutting``); what is already done is not
repeated. Numbers do not depend on this: a path does not depend on who learns from it, and the
samples of a piece are those of the whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.computers.pattern_store import patterns_of
from thermoloom.computers.sample_archives import arrays_of, generate_run, generated_of, keep_archive
from thermoloom.computers.training_runs import (
    parameters_of,
    solve_run,
    train_runs,
    training_settings,
)
from thermoloom.engines import engine
from thermoloom.experiments.results import (
    MEASURES,
    REPLAY,
    RUNS,
    Paths,
    finished,
    has_archive,
    is_classified,
    measures_path,
    measures_settings,
    order_of,
    replay_path,
    trained_path,
)
from thermoloom.generation import differing_samples, generate
from thermoloom.machine.action import PathTerms
from thermoloom.machine.generated import Generated
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.diagnostics import additional_path, coupling_norms, mean_energies
from thermoloom.measures.quality import Quality, measure_quality
from thermoloom.measures.statistics import estimate_mean
from thermoloom.patterns.fields import label_words, unit_fields
from thermoloom.patterns.patterns import Patterns
from thermoloom.runs.manifest import PART_OF, run_path
from thermoloom.runs.store import RunDirectory, finished_results
from thermoloom.runs.tasks import Report
from thermoloom.settings import Settings
from thermoloom.threads import in_threads
from thermoloom.training.trainer import Trainee

SNAPSHOTS = 6
"""Equally spaced times of a denoising trajectory that are kept, both ends included."""
SAMPLE_IN_CYCLES = 0.9
"""What a sample costs in training cycles, to cut tasks and to show progress."""
Terms = tuple[int, PathTerms]
"""A pattern, and the terms of a path that starts from it."""
TIMING = "timing"
"""Table of a training that was a separate task: its seconds."""
PIECE = "samples"
"""Kind of the runs that hold a piece of an archive."""


def train_and_measure(
    workdir: Path,
    report: Report,
    models: list[dict[str, Any]],
    paths: dict[str, Any],
    replay: int | None = None,
) -> dict[str, Any]:
    """Train ``models`` on shared paths, generate, measure; returns warnings for the user.

    ``replay``: position of the model whose archive is generated again and compared.
    """
    chosen, wanted = [Settings.from_dict(model) for model in models], Paths(**paths)
    advance = _advance(report, chosen)
    warnings: list[str] = []
    clock = Clock()
    cycles: set[int] = set()

    def on_cycle(_: Path, trainee: Trainee) -> None:
        cycles.add(trainee.cycle)
        advance(1, trainee.curve[-1][1] if trainee.curve else None)

    if any(_not_measured(workdir, settings, wanted) for settings in chosen):
        with clock.measure("training"):
            # models that differ in their samples only are one training
            runs = {trained_path(workdir, settings): settings for settings in chosen}
            _train(runs, on_cycle, warnings.append)
    terms: dict[Path, list[Terms]] = {}
    # models of a task share its paths and its training time
    for settings in chosen:
        spent = clock.seconds.get("training", 0.0) + _seconds_before(workdir, settings)
        timing = Clock({"training": spent / len(chosen), "paths_made": len(cycles) / len(chosen)})
        measure_model(workdir, settings, wanted, timing, lambda done: advance(done, None), terms)
    if replay is not None:
        replay_model(workdir, chosen[replay], wanted)
    return {"warnings": warnings}


def train_only(workdir: Path, report: Report, model: dict[str, Any]) -> dict[str, Any]:
    """Train one computer; its samples are drawn by other tasks."""
    settings = Settings.from_dict(model)
    warnings: list[str] = []
    cycles = settings.training.cycles

    def on_cycle(_: Path, trainee: Trainee) -> None:
        report(trainee.cycle, cycles, trainee.curve[-1][1] if trainee.curve else None)

    path, clock = trained_path(workdir, settings), Clock()
    with clock.measure("seconds"):
        _train({path: settings}, on_cycle, warnings.append)
    with RunDirectory.open(path, write=True) as run:
        run.save_table(TIMING, {key: [value] for key, value in clock.seconds.items()})
    return {"warnings": warnings}


def _seconds_before(workdir: Path, settings: Settings) -> float:
    """Seconds of a training that was a separate task."""
    run = RunDirectory.open(trained_path(workdir, settings))
    return float(run.load_table(TIMING)["seconds"][0]) if run.has(f"{TIMING}.csv") else 0.0


def _train(
    runs: Mapping[Path, Settings],
    on_cycle: Callable[[Path, Trainee], None],
    on_warning: Callable[[str], None],
) -> None:
    """Train, or solve where the rule is ``optimum``, what is not done yet."""
    learning = {p: s for p, s in runs.items() if s.training.rule != "optimum"}
    for path, settings in runs.items():
        if path not in learning:
            solve_run(path, settings)
    if learning:
        train_runs(list(learning.items()), on_cycle, on_warning)


# --- samples in pieces ----------------------------------------------------------------------------


def piece(settings: Settings, number: int) -> tuple[int, int]:
    """(first sample, samples) of a piece: a group of the engine, so that no bit depends on it."""
    first = number * engine().GROUP
    return first, min(engine().GROUP, settings.generation.samples - first)


def _piece_settings(settings: Settings, number: int) -> dict[str, Any]:
    first, samples = piece(settings, number)
    own = {"seed": settings.generation_seed, "first": first, "samples": samples}
    return training_settings(settings) | {"piece": own}


def piece_paths(folder: Path, settings: Settings) -> list[Path]:
    """Where the pieces of a model's samples live; none where they are no more than one piece."""
    count = math.ceil(settings.generation.samples / engine().GROUP)
    numbers = range(count if count > 1 else 0)
    return [run_path(folder / RUNS, PIECE, _piece_settings(settings, n)) for n in numbers]


def draw_piece(workdir: Path, report: Report, model: dict[str, Any], number: int) -> dict[str, Any]:
    """Samples of one piece, kept until the archive of all of them is made."""
    settings = Settings.from_dict(model)
    place = piece_paths(workdir, settings)[number]
    with RunDirectory.create(place, PIECE, _piece_settings(settings, number)) as run:
        if run.state == "done":
            return {}
        began = time.perf_counter()
        theta = parameters_of(RunDirectory.open(trained_path(workdir, settings)))
        first, samples = piece(settings, number)
        with np.errstate(over="ignore", invalid="ignore"):
            drawn = generate(theta, samples, settings.generation_seed, first=first)
        run.save_arrays(PIECE, arrays_of(drawn))
        archive = f"{trained_path(workdir, settings).name}/{order_of(settings).archive}.safetensors"
        run.finish({"seconds": time.perf_counter() - began, PART_OF: archive})
        report(samples, samples, None)
    return {}


def _join_pieces(workdir: Path, settings: Settings, clock: Clock) -> None:
    """The archive of a model from its pieces, where all of them are there and it is not."""
    training, order = RunDirectory.open(trained_path(workdir, settings)), order_of(settings)
    pieces = [finished(path) for path in piece_paths(workdir, settings)]
    runs = [run for run in pieces if run is not None]
    if has_archive(training, settings) or not runs or len(runs) < len(pieces):
        return
    found = [run.load_arrays(PIECE) for run in runs]
    whole = {name: np.concatenate([arrays[name] for arrays in found]) for name in found[0]}
    keep_archive(training.path, order, generated_of(settings.machine, whole))
    clock.seconds["generation"] = sum(run.results["seconds"] for run in runs)


def _not_measured(workdir: Path, settings: Settings, paths: Paths) -> bool:
    path = measures_path(workdir, settings, paths)
    return finished_results(path, MEASURES, measures_settings(settings, paths)) is None


def _advance(report: Report, models: list[Settings]) -> Callable[[float, float | None], None]:
    """Progress of the whole task in training cycles, samples counted by what they cost."""
    total = sum(
        (0 if m.training.rule == "optimum" else m.training.cycles)
        + SAMPLE_IN_CYCLES * m.generation.samples
        for m in models
    )
    done = 0.0

    def advance(more: float, loss: float | None) -> None:
        nonlocal done
        done += more
        report(min(round(done), round(total)), round(total), loss)

    return advance


class Clock:
    """Seconds by stage."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = dict(seconds or {})

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began


# --- one model ----------------------------------------------------------------------------------


def measure_model(
    workdir: Path,
    settings: Settings,
    paths: Paths,
    clock: Clock,
    on_progress: Callable[[float], None],
    known: dict[Path, list[Terms]],
) -> None:
    """Samples of a trained model, their quality and its diagnostics, in its measures run.

    A training that diverged, or samples that are not finite, are recorded as diverged. ``known``:
    what trainings have on the additional paths, whatever their samples.
    """
    place, identity = measures_path(workdir, settings, paths), measures_settings(settings, paths)
    with RunDirectory.create(place, MEASURES, identity) as run:
        training = RunDirectory.open(trained_path(workdir, settings))
        if run.state == "done" and not has_archive(training, settings):
            generate_run(training.path, order_of(settings))  # it was lost; tables need it
        if run.state in ("done", "diverged"):
            return
        if training.state == "diverged":
            run.diverged(training.results["cycle"])
            return
        _join_pieces(workdir, settings, clock)
        per_step = SAMPLE_IN_CYCLES / settings.machine.steps
        # states that grow without bound are a result; they are looked for below
        with clock.measure("generation"), np.errstate(over="ignore", invalid="ignore"):
            order = order_of(settings)
            generated = generate_run(training.path, order, lambda n: on_progress(n * per_step))
        patterns = patterns_of(settings, workdir / RUNS)
        measured = record_samples(run, settings, generated, patterns, clock)
        if measured is None:
            return
        with clock.measure("diagnostics"):
            theta = parameters_of(training)
            if training.path not in known:
                known[training.path] = _terms_on_paths(settings, theta, patterns, paths, clock)
            terms = known[training.path]
        if terms:
            run.save_table("paths", _path_columns(terms))
        run.finish(measured | _diagnosed(training, theta, generated, terms, clock))


def record_samples(
    run: RunDirectory, settings: Settings, generated: Generated, patterns: Patterns, clock: Clock
) -> dict[str, Any] | None:
    """The table of samples, their heat and quality; None where they diverged, which is noted."""
    if not np.isfinite(generated.final_states).all():
        run.diverged(settings.training.cycles, {"stage": "generation"})
        return None
    with clock.measure("quality"):
        images = generated.final_states[:, : settings.machine.visible]
        quality = measure_quality(images, patterns, settings.measures.classifier)
    if (quality.sample_class is not None) != is_classified(settings):
        raise RuntimeError("the identity of the measures is wrong about the classifier")
    run.save_table("samples", _sample_columns(generated, quality))
    return {
        "heat": asdict(estimate_mean(generated.heat)),
        "quality": quality.summary(),
        "class_counts": quality.class_counts,
        "timing": clock.seconds,
    }


def _terms_on_paths(
    settings: Settings, theta: Parameters, patterns: Patterns, paths: Paths, clock: Clock
) -> list[Terms]:
    """(pattern, terms) on every additional path; the seconds per path are recorded as well.

    Paths side by side, single-threaded linear algebra: the same bits whatever the threads.
    """
    machine = settings.built
    fields, words = unit_fields(patterns, machine), label_words(patterns, machine)
    making: list[float] = []

    def terms(index: int) -> Terms:
        began = time.perf_counter()
        pattern, path = additional_path(machine, fields, index, paths.seed, words)
        making.append(time.perf_counter() - began)
        return pattern, engine().terms(theta, path, fields[pattern])

    found = in_threads(terms, [(i,) for i in range(paths.per_prototype * len(fields))])
    if making:
        clock.seconds["one_path"] = sum(making) / len(making)
    return found


def _sample_columns(generated: Generated, quality: Quality) -> dict[str, Any]:
    """One row per sample; class −1 and softmax NaN where there is no classifier."""
    count = quality.samples
    none, nan = np.full(count, -1), np.full(count, np.nan)
    classes, scores = quality.sample_class, quality.sample_max_softmax
    return {
        "sample": np.arange(count),
        "heat": generated.heat,
        "class": none if classes is None else classes,
        "max_softmax": nan if scores is None else scores,
        "prototype": quality.sample_prototype,
        "prototype_distance": quality.sample_prototype_distance,
        "correlation": quality.sample_correlation,
    }


def _path_columns(terms: list[Terms]) -> dict[str, Any]:
    values = [term for _, term in terms]
    return {
        "path": list(range(len(terms))),
        "prototype": [prototype for prototype, _ in terms],
        **{name: [getattr(t, name) for t in values] for name in PathTerms._fields},
        "identity_error": [t.identity_error for t in values],
    }


def _diagnosed(
    training: RunDirectory,
    theta: Parameters,
    generated: Generated,
    terms: list[Terms],
    clock: Clock,
) -> dict[str, Any]:
    """Seed-level numbers of a computer beside those of its samples."""
    values = [term for _, term in terms]
    return {
        "initial_energy": mean_energies(generated.initial_energy),
        "final_energy": mean_energies(generated.final_energy),
        "norms": coupling_norms(theta),
        "validation": {key: training.results[key] for key in ("loss", "reduced_loss")},
        "paths": {
            "count": len(terms),
            **{n: float(np.mean([getattr(t, n) for t in values])) for n in PathTerms._fields},
            "identity_error": max(t.identity_error for t in values),
        }
        if terms
        else None,
        "timing": clock.seconds,
    }


# --- replay -------------------------------------------------------------------------------------


def replay_model(workdir: Path, settings: Settings, paths: Paths) -> None:
    """Generate an archive again, compare it to the bit, keep snapshots of chosen samples."""
    place, identity = replay_path(workdir, settings, paths), measures_settings(settings, paths)
    with RunDirectory.create(place, REPLAY, identity) as run:
        if run.state in ("done", "diverged"):
            return
        measured = RunDirectory.open(measures_path(workdir, settings, paths))
        if measured.state == "diverged":
            run.diverged(measured.results["cycle"])
            return
        began = time.perf_counter()
        training, order = RunDirectory.open(trained_path(workdir, settings)), order_of(settings)
        archive = generate_run(training.path, order)
        patterns = patterns_of(settings, workdir / RUNS)
        nearest = nearest_samples(measured.load_table("samples"), patterns)
        chosen = [found[0] for found in nearest.values() if found]
        steps = np.linspace(0, settings.machine.steps, SNAPSHOTS).round().astype(int).tolist()
        again = generate(
            parameters_of(training),
            order.samples,
            order.seed,
            snapshot_steps=steps,
            snapshot_samples=chosen,
        )
        visible = again.snapshots[:, :, : settings.machine.visible]
        run.save_arrays(
            "snapshots",
            {"states": visible, "samples": np.array(chosen, np.int64), "steps": np.array(steps)},
        )
        run.finish(
            {
                "samples": order.samples,
                "differing": len(differing_samples(archive, again)),
                "parameters_unchanged": True,  # generate() compares them and raises otherwise
                "timing": {"replay": time.perf_counter() - began},
            }
        )


def nearest_samples(
    samples: dict[str, NDArray[Any]], patterns: Patterns, count: int = 1
) -> dict[str, list[int]]:
    """For each target, the samples assigned to it that are nearest to a pattern, nearest first.

    Assigned by the classifier; where there is none, by the nearest pattern. A target that has
    fewer samples than ``count`` has a shorter list, perhaps an empty one.
    """
    labels, assigned = assignment(samples, patterns)
    order = np.argsort(samples["prototype_distance"], kind="stable")
    return {label: [int(i) for i in order if assigned[i] == label][:count] for label in labels}


def assignment(
    samples: dict[str, NDArray[Any]], patterns: Patterns
) -> tuple[list[str], NDArray[np.str_]]:
    """Targets by name, and the name that every sample is assigned to."""
    if classified(samples):
        return [str(t) for t in patterns.targets], samples["class"].astype(np.str_)
    names = np.array(patterns.labels, dtype=np.str_)
    return list(dict.fromkeys(patterns.labels)), names[samples["prototype"]]


def classified(samples: dict[str, NDArray[Any]]) -> bool:
    """Whether the samples were shown to the classifier."""
    return bool((samples["class"] >= 0).all())
