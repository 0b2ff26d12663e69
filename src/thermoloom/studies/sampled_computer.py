"""The most common measure: train or solve a computer, sample it, measure the samples.

Computers that share their noising paths are trained together, in one task. With many workers a
training and its samples are several tasks (``schedule``). This does not change the numbers: a path
does not depend on the computers that learn from it, and a piece holds exactly its samples of the
archive.
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
from thermoloom.computers.sample_archives import (
    arrays_of,
    generate_run,
    generated_of,
    store_archive,
)
from thermoloom.computers.training_runs import (
    parameters_of,
    solve_run,
    train_runs,
    training_settings,
)
from thermoloom.engines import engine
from thermoloom.errors import DivergedSamples
from thermoloom.generation import differing_samples, generate, samples_together
from thermoloom.machine.action import PathTerms
from thermoloom.machine.generated import Generated
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.classifier import panel
from thermoloom.measures.diagnostics import additional_path, coupling_norms, mean_energies
from thermoloom.measures.quality import Quality, measure_quality, on_panel
from thermoloom.measures.statistics import estimate_mean
from thermoloom.patterns.drive import drive_of
from thermoloom.patterns.patterns import Patterns
from thermoloom.runs.manifest import PART_OF, run_path
from thermoloom.runs.store import RunDirectory, finished_results
from thermoloom.runs.tasks import Report
from thermoloom.settings import Settings
from thermoloom.studies.case import RUNS, TIMING, Case, Job, finished, is_classified, trained_path
from thermoloom.studies.gather import has_archive, order_of
from thermoloom.threads import in_threads
from thermoloom.training.trainer import Trainee

SNAPSHOTS = 6
"""Equally spaced times of a denoising trajectory that are saved, both ends included."""
SAMPLE_IN_CYCLES = 0.9
"""Cost of a sample in training cycles, to cut tasks and to show progress."""
Terms = tuple[int, PathTerms]
"""A pattern, and the terms of a path that starts from it."""
PIECE = "samples"
"""Kind of the runs that hold a piece of an archive."""


class Clock:
    """Seconds by stage."""

    def __init__(self, seconds: Mapping[str, float] | None = None) -> None:
        self.seconds = dict(seconds or {})

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - began


# --- tasks ---


def sample_computers(workdir: Path, report: Report, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Train these computers on shared paths, sample and measure each; returns warnings."""
    planned = [Case.from_json(case) for case in cases]
    advance = _advance(report, [case.settings for case in planned])
    warnings: list[str] = []
    clock = Clock()
    cycles: set[int] = set()

    def on_cycle(_: Path, trainee: Trainee) -> None:
        cycles.add(trainee.cycle)
        advance(1, trainee.curve[-1][1] if trainee.curve else None)

    if any(_not_measured(workdir, case) for case in planned):
        with clock.measure("training"):
            # computers that differ only in their samples share one training
            runs = {trained_path(workdir, case.settings): case.settings for case in planned}
            _train(runs, on_cycle, warnings.append)
    terms: dict[Path, list[Terms]] = {}
    count = len(planned)  # computers of a task share its paths and its training time
    for case in planned:
        seconds = clock.seconds.get("training", 0.0) + _separate_seconds(workdir, case.settings)
        timing = Clock({"training": seconds / count, "paths_made": len(cycles) / count})
        _measure(workdir, case, timing, lambda done: advance(done, None), terms)
    return {"warnings": warnings}


def train_only(workdir: Path, report: Report, case: dict[str, Any]) -> dict[str, Any]:
    """Train one computer; its samples are drawn by other tasks."""
    settings = Case.from_json(case).settings
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


def _separate_seconds(workdir: Path, settings: Settings) -> float:
    """Seconds of a training that was a separate task; otherwise 0."""
    run = RunDirectory.open(trained_path(workdir, settings))
    return float(run.load_table(TIMING)["seconds"][0]) if run.has(f"{TIMING}.csv") else 0.0


def _train(
    runs: Mapping[Path, Settings],
    on_cycle: Callable[[Path, Trainee], None],
    on_warning: Callable[[str], None],
) -> None:
    """Train or solve the computers that are not done yet."""
    trained = {p: s for p, s in runs.items() if not s.solved}
    for path, settings in runs.items():
        if path not in trained:
            solve_run(path, settings)
    if trained:
        train_runs(list(trained.items()), on_cycle, on_warning)


def _not_measured(workdir: Path, case: Case) -> bool:
    return finished_results(workdir / case.path, case.kind, case.identity) is None


def _advance(report: Report, models: list[Settings]) -> Callable[[float, float | None], None]:
    """Progress of the task in training cycles, samples counted by their cost."""
    total = sum(
        (0 if m.solved else m.training.cycles) + SAMPLE_IN_CYCLES * m.generation.samples
        for m in models
    )
    done = 0.0

    def advance(cycles: float, loss: float | None) -> None:
        nonlocal done
        done += cycles
        report(min(round(done), round(total)), round(total), loss)

    return advance


# --- samples in pieces ---


def piece(settings: Settings, number: int) -> tuple[int, int]:
    """(first sample, number of samples) of a piece.

    A piece is a group that the engine simulates together, so that no bit changes.
    """
    first = number * samples_together()
    return first, min(samples_together(), settings.generation.samples - first)


def _piece_settings(settings: Settings, number: int) -> dict[str, Any]:
    first, samples = piece(settings, number)
    numbers = {"seed": settings.generation_seed, "first": first, "samples": samples}
    return training_settings(settings) | {"piece": numbers}


def piece_paths(folder: Path, settings: Settings) -> list[Path]:
    """Run directories of the pieces of a computer's samples; none if one piece holds all."""
    count = math.ceil(settings.generation.samples / samples_together())
    numbers = range(count if count > 1 else 0)
    return [run_path(folder / RUNS, PIECE, _piece_settings(settings, n)) for n in numbers]


def draw_piece(workdir: Path, report: Report, case: dict[str, Any], number: int) -> dict[str, Any]:
    """Draw the samples of one piece, stored until the archive of all pieces is written."""
    settings = Case.from_json(case).settings
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
    """Write the archive of a computer from its pieces, unless it exists or a piece is missing."""
    training, order = RunDirectory.open(trained_path(workdir, settings)), order_of(settings)
    pieces = [finished(path) for path in piece_paths(workdir, settings)]
    runs = [run for run in pieces if run is not None]
    if has_archive(training, settings) or not runs or len(runs) < len(pieces):
        return
    parts = [run.load_arrays(PIECE) for run in runs]
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    store_archive(training.path, order, generated_of(settings.machine, arrays))
    clock.seconds["generation"] = sum(run.results["seconds"] for run in runs)


# --- one computer ---


def _measure(
    workdir: Path,
    case: Case,
    clock: Clock,
    on_progress: Callable[[float], None],
    known_terms: dict[Path, list[Terms]],
) -> None:
    """Sample a trained computer; save quality and diagnostics in the run of the case.

    A training that diverged, or samples that are not finite, are recorded as diverged.
    ``known_terms``: terms on the additional paths by training; samples do not change them.
    """
    settings = case.settings
    with RunDirectory.create(workdir / case.path, case.kind, case.identity) as run:
        training = RunDirectory.open(trained_path(workdir, settings))
        if run.state == "done" and not has_archive(training, settings):
            generate_run(training.path, order_of(settings))  # the archive was lost; tables need it
        if run.state in ("done", "diverged"):
            return
        if training.state == "diverged":
            run.diverged(training.results["cycle"])
            return
        _join_pieces(workdir, settings, clock)
        per_step = SAMPLE_IN_CYCLES / settings.machine.steps
        # states that grow without bound are a result; they are detected below
        with clock.measure("generation"), np.errstate(over="ignore", invalid="ignore"):
            order = order_of(settings)
            try:
                generated = generate_run(training.path, order, lambda n: on_progress(n * per_step))
            except DivergedSamples:
                run.diverged(settings.training.cycles, {"stage": "generation"})
                return
        patterns = patterns_of(settings, workdir / RUNS)
        results = record_samples(run, settings, generated, patterns, clock)
        if results is None:
            return
        with clock.measure("diagnostics"):
            theta = parameters_of(training)
            if training.path not in known_terms:
                known_terms[training.path] = _terms_on_paths(
                    settings, theta, patterns, clock, **case.arguments
                )
            terms = known_terms[training.path]
        if terms:
            run.save_table("paths", _path_columns(terms))
        run.finish(results | _diagnosed(training, theta, generated, terms, clock))


def record_samples(
    run: RunDirectory, settings: Settings, generated: Generated, patterns: Patterns, clock: Clock
) -> dict[str, Any] | None:
    """Save the table of samples; return heat and quality, None if the samples diverged."""
    if not np.isfinite(generated.final_states).all():
        run.diverged(settings.training.cycles, {"stage": "generation"})
        return None
    with clock.measure("quality"):
        images = generated.final_states[:, : settings.machine.visible]
        quality = measure_quality(images, patterns, settings.measures.classifier, panel())
    if (quality.sample_class is not None) != is_classified(settings):
        raise RuntimeError("the identity of the case is wrong about the classifier")
    run.save_table("samples", _sample_columns(generated, quality))
    return {
        "heat": asdict(estimate_mean(generated.heat)),
        "quality": quality.summary() | quality.panel_summary(),
        "class_counts": quality.class_counts,
        TIMING: clock.seconds,
    }


def _terms_on_paths(
    settings: Settings,
    theta: Parameters,
    patterns: Patterns,
    clock: Clock,
    path_seed: int = 0,
    paths_per_pattern: int = 0,
) -> list[Terms]:
    """(pattern, terms) on every additional path; the seconds per path are recorded as well.

    Paths run side by side, each on one thread, so the bits do not depend on the threads.
    """
    machine = settings.built
    drive = drive_of(patterns, machine)
    seconds: list[float] = []

    def terms(index: int) -> Terms:
        began = time.perf_counter()
        pattern, path = additional_path(machine, drive, index, path_seed)
        seconds.append(time.perf_counter() - began)
        return pattern, engine().terms(theta, path, drive.fields[pattern])

    count = paths_per_pattern * len(drive.fields)
    terms_of_paths = in_threads(terms, [(index,) for index in range(count)])
    if seconds:
        clock.seconds["one_path"] = sum(seconds) / len(seconds)
    return terms_of_paths


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
        "pattern": quality.nearest_pattern,
        "pattern_distance": quality.sample_pattern_distance,
        "correlation": quality.sample_correlation,
        **{on_panel("class", name): member.classes for name, member in quality.panel.items()},
        **{on_panel("max_softmax", name): member.scores for name, member in quality.panel.items()},
    }


def _path_columns(terms: list[Terms]) -> dict[str, Any]:
    values = [term for _, term in terms]
    return {
        "path": list(range(len(terms))),
        "pattern": [pattern for pattern, _ in terms],
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
    """Energies, norms, losses and path terms of a computer."""
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
        TIMING: clock.seconds,
    }


# --- replay ---


def replay(job: Job) -> dict[str, Any]:
    """Generate an archive again, compare it bit by bit, save snapshots of the nearest samples.

    A copy of θ made before the call is compared, entry by entry, with the θ that the call used and
    with θ read again after the call.
    """
    began = time.perf_counter()
    settings, order = job.settings, order_of(job.settings)
    training = RunDirectory.open(trained_path(job.workdir, settings))
    archive = generate_run(training.path, order)
    images = archive.final_states[:, : settings.machine.visible]
    quality = measure_quality(images, job.patterns, settings.measures.classifier)
    nearest = nearest_samples(_sample_columns(archive, quality), job.patterns)
    displayed = [samples[0] for samples in nearest.values() if samples]
    last = settings.machine.generation_steps
    steps = np.linspace(0, last, SNAPSHOTS).round().astype(int).tolist()
    theta = parameters_of(training)
    before = theta.copy()
    again = generate(
        theta,
        order.samples,
        order.seed,
        snapshot_steps=steps,
        snapshot_samples=displayed,
    )
    changed = [_changed(before, after) for after in (theta, parameters_of(training))]
    visible = again.snapshots[:, :, : settings.machine.visible]
    job.run.save_arrays(
        "snapshots",
        {"states": visible, "samples": np.array(displayed, np.int64), "steps": np.array(steps)},
    )
    return {
        "samples": order.samples,
        "differing": len(differing_samples(archive, again)),
        "parameters": before.vector.size,
        "changed_parameters": max(changed),
        TIMING: {"replay": time.perf_counter() - began},
    }


def _changed(before: Parameters, after: Parameters) -> int:
    """Number of entries of θ that differ."""
    return int((before.vector != after.vector).sum())


def nearest_samples(
    samples: Mapping[str, NDArray[Any]], patterns: Patterns, count: int = 1
) -> dict[str, list[int]]:
    """For each target, the samples assigned to it that are nearest to a pattern, nearest first.

    Assigned by the classifier; where there is none, by the nearest pattern. A target that has
    fewer samples than ``count`` has a shorter list, perhaps an empty one.
    """
    labels, assigned = assignment(samples, patterns)
    order = np.argsort(samples["pattern_distance"], kind="stable")
    return {label: [int(i) for i in order if assigned[i] == label][:count] for label in labels}


def assignment(
    samples: Mapping[str, NDArray[Any]], patterns: Patterns
) -> tuple[list[str], NDArray[np.str_]]:
    """Targets by name, and the name that every sample is assigned to."""
    if classified(samples):
        return [str(t) for t in patterns.targets], samples["class"].astype(np.str_)
    names = np.array(patterns.labels, dtype=np.str_)
    return list(dict.fromkeys(patterns.labels)), names[samples["pattern"]]


def classified(samples: Mapping[str, NDArray[Any]]) -> bool:
    """Whether the samples were shown to the classifier."""
    return bool((samples["class"] >= 0).all())
