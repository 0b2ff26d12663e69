"""The task that all experiments share: train computers on common paths, sample and measure each.

    results/runs/patterns-ID    what is learned, read by every task
    results/runs/training-ID    parameters, validation curve, archive of samples
    results/runs/measures-ID    samples.csv, paths.csv, and the seed-level numbers as its results
    results/runs/replay-ID      an archive generated a second time, with snapshots on the way

A run is found by its settings alone, so experiments that need the same computer share it, and a
task that is done twice costs nothing the second time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.config import Settings
from thermoloom.generation import Generated, generate
from thermoloom.measures.classifier import SIDE, classifier_in, classifier_sha256
from thermoloom.measures.diagnostics import (
    PathTerms,
    additional_path,
    coupling_norms,
    mean_energies,
    path_terms,
)
from thermoloom.measures.quality import Quality, measure_quality
from thermoloom.measures.statistics import spread
from thermoloom.physics.computer import Computer
from thermoloom.prototypes import Prototypes, unit_fields
from thermoloom.runs.jobs import (
    computer_of,
    generate_run,
    prototypes_of,
    train_runs,
    training_path,
    training_settings,
)
from thermoloom.runs.manifest import run_path
from thermoloom.runs.patterns import patterns_of, patterns_path
from thermoloom.runs.store import RunDirectory, finished_results
from thermoloom.runs.tasks import Report, Task
from thermoloom.threads import in_threads
from thermoloom.training.trainer import Trainee

RUNS = "runs"
"""Folder, within the results folder, of the runs that experiments share."""
MEASURES, REPLAY = "measures", "replay"
SNAPSHOTS = 6
"""Equally spaced times of a denoising trajectory that are kept, both ends included."""
SAMPLE_IN_CYCLES = 0.9
"""What a sample costs in training cycles; only for the progress display."""


@dataclass(frozen=True)
class Paths:
    """Additional noising paths on which all computers of an experiment are compared."""

    seed: int = 555001
    per_prototype: int = 10
    """0 leaves this measure out."""


# --- where things are ---------------------------------------------------------------------------


def measures_settings(settings: Settings, paths: Paths) -> dict[str, Any]:
    """What identifies the measures of a model: how it was trained, sampled, judged and compared."""
    generation = {"samples": settings.generation.samples, "seed": settings.generation_seed}
    judged: dict[str, Any] = {}
    if is_classified(settings):
        judged = {"classifier": {"sha256": classifier_sha256(settings.measures.classifier)}}
    return training_settings(settings) | {"generation": generation, "paths": asdict(paths)} | judged


def is_classified(settings: Settings) -> bool:
    """Whether samples are shown to the classifier: 28 × 28 images of MNIST classes only."""
    return settings.prototypes.source != "images" and settings.physics.visible == SIDE * SIDE


def measures_path(folder: Path, settings: Settings, paths: Paths) -> Path:
    """Where the measures of a model live, found by its settings alone."""
    return run_path(folder / RUNS, MEASURES, measures_settings(settings, paths))


def replay_path(folder: Path, settings: Settings, paths: Paths) -> Path:
    """Where the replay of a model lives."""
    return run_path(folder / RUNS, REPLAY, measures_settings(settings, paths))


def patterns_input(settings: Settings) -> str:
    """What every task reads: the patterns, by their content, relative to the results folder."""
    return str(patterns_path(Path(RUNS), settings))


# --- tasks --------------------------------------------------------------------------------------


def measuring_tasks(
    models: Sequence[Settings], paths: Paths, replay: Settings | None = None
) -> list[Task]:
    """Tasks that train and measure ``models``, those of one training seed on shared paths.

    With an odd number of seeds the models of the last one are split, so that two workers end
    together. ``replay``: the model whose archive is generated again.
    """
    by_seed: dict[int, list[Settings]] = {}
    for model in models:
        by_seed.setdefault(model.training.seed, []).append(model)
    groups = list(by_seed.values())
    if len(groups) % 2 and len(groups[-1]) > 1:
        last = groups.pop()
        half = (len(last) + 1) // 2
        groups += [last[:half], last[half:]]
    return [_task(group, paths, replay if replay in group else None) for group in groups]


def _task(models: list[Settings], paths: Paths, replay: Settings | None) -> Task:
    here = Path()
    outputs = [training_path(here / RUNS, model) for model in models]
    outputs += [measures_path(here, model, paths) for model in models]
    if replay is not None:
        outputs.append(replay_path(here, replay, paths))
    seed = models[0].training.seed
    return Task(
        name=f"seed {seed}: {', '.join(describe(model) for model in models)}",
        function="thermoloom.experiments.models:train_and_measure",
        arguments={
            "models": [model.as_dict() for model in models],
            "paths": asdict(paths),
            "replay": None if replay is None else models.index(replay),
        },
        outputs=tuple(str(path) for path in outputs),
        inputs=(patterns_input(models[0]),),
    )


def describe(settings: Settings) -> str:
    """A model in a few words: its rule, and what differs from the defaults of training."""
    training, errors = settings.training, settings.imperfections
    words = [training.rule if training.period is None else f"period {training.period}"]
    if training.learning_rate_scale != 1:
        words.append(f"rate × {training.learning_rate_scale:g}")
    plain = type(errors)()
    changed = {k: v for k, v in asdict(errors).items() if v != getattr(plain, k)}
    words += [f"{key.replace('_', ' ')} {value}" for key, value in changed.items()]
    return " ".join(words)


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
            runs = {training_path(workdir / RUNS, settings): settings for settings in chosen}
            train_runs(list(runs.items()), on_cycle, warnings.append)
    # models of a task share its paths and its training time
    share = {
        "training": clock.seconds.get("training", 0.0) / len(chosen),
        "paths_made": len(cycles) / len(chosen),
    }
    for settings in chosen:
        timing = Clock(share)
        measure_model(workdir, settings, wanted, timing, lambda done: advance(done, None))
    if replay is not None:
        replay_model(workdir, chosen[replay], wanted)
    return {"warnings": warnings}


def _not_measured(workdir: Path, settings: Settings, paths: Paths) -> bool:
    identity = measures_settings(settings, paths)
    path = run_path(workdir / RUNS, MEASURES, identity)
    return finished_results(path, MEASURES, identity) is None


def _advance(report: Report, models: list[Settings]) -> Callable[[float, float | None], None]:
    """Progress of the whole task in training cycles, samples counted by what they cost."""
    total = sum(m.training.cycles + SAMPLE_IN_CYCLES * m.generation.samples for m in models)
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
) -> None:
    """Samples of a trained model, their quality and its diagnostics, in its measures run.

    A training that diverged, or samples that are not finite, are recorded as diverged.
    """
    identity = measures_settings(settings, paths)
    trained = training_path(workdir / RUNS, settings)
    with RunDirectory.create(
        run_path(workdir / RUNS, MEASURES, identity), MEASURES, identity
    ) as run:
        if run.state in ("done", "diverged"):
            return
        training = RunDirectory.open(trained)
        if training.state == "diverged":
            run.diverged(training.results["cycle"])
            return
        samples, seed = settings.generation.samples, settings.generation_seed
        per_step = SAMPLE_IN_CYCLES / settings.physics.steps
        # states that grow without bound are a result; they are looked for below
        with clock.measure("generation"), np.errstate(over="ignore", invalid="ignore"):
            generated = generate_run(trained, samples, seed, lambda n: on_progress(n * per_step))
        if not np.isfinite(generated.final_states).all():
            run.diverged(settings.training.cycles, {"stage": "generation"})
            return
        prototypes = patterns_of(settings, workdir / RUNS)
        with clock.measure("quality"):
            quality = judged(settings, generated, prototypes)
        with clock.measure("diagnostics"):
            computer = computer_of(training)
            terms = _terms_on_paths(settings, computer, prototypes, paths, clock)
        run.save_table("samples", sample_columns(generated, quality))
        if terms:
            run.save_table("paths", _path_columns(terms))
        run.finish(_results(training, computer, generated, quality, terms, clock))


def _terms_on_paths(
    settings: Settings, computer: Computer, prototypes: Prototypes, paths: Paths, clock: Clock
) -> list[tuple[int, PathTerms]]:
    """(prototype, terms) on every additional path; how long a path takes is noted by the way.

    Paths side by side, single-threaded linear algebra: the same bits whatever the threads.
    """
    fields = unit_fields(prototypes, settings)
    making: list[float] = []

    def terms(index: int) -> tuple[int, PathTerms]:
        began = time.perf_counter()
        prototype, path = additional_path(settings.physics, fields, index, paths.seed)
        making.append(time.perf_counter() - began)
        return prototype, path_terms(computer, settings.physics, path, fields[prototype])

    found = in_threads(terms, [(i,) for i in range(paths.per_prototype * len(fields))])
    if making:
        clock.seconds["one_path"] = sum(making) / len(making)
    return found


def judged(settings: Settings, generated: Generated, prototypes: Prototypes) -> Quality:
    """Quality of the samples, by the classifier or without it as the run's identity says."""
    visible = generated.visible(settings.physics)
    judge = classifier_in(settings.measures.classifier) if is_classified(settings) else None
    return measure_quality(visible, prototypes, judge)


def sample_columns(generated: Generated, quality: Quality) -> dict[str, Any]:
    """One row a sample; class −1 and softmax NaN where there is no classifier."""
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


def _path_columns(terms: list[tuple[int, PathTerms]]) -> dict[str, Any]:
    values = [term for _, term in terms]
    return {
        "path": list(range(len(terms))),
        "prototype": [prototype for prototype, _ in terms],
        **{name: [getattr(t, name) for t in values] for name in PathTerms._fields},
        "identity_error": [t.identity_error for t in values],
    }


def _results(
    training: RunDirectory,
    computer: Computer,
    generated: Generated,
    quality: Quality,
    terms: list[tuple[int, PathTerms]],
    clock: Clock,
) -> dict[str, Any]:
    """Seed-level numbers of a model: what one observation consists of."""
    values = [term for _, term in terms]
    return {
        "heat": asdict(spread(generated.heat)),
        "quality": quality.summary(),
        "class_counts": quality.class_counts,
        "initial_energy": mean_energies(generated.initial_energy),
        "final_energy": mean_energies(generated.final_energy),
        "norms": coupling_norms(computer)._asdict(),
        "validation": {
            "loss": training.results["loss"],
            "reduced_loss": training.results["reduced_loss"],
        },
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
    identity = measures_settings(settings, paths)
    with RunDirectory.create(run_path(workdir / RUNS, REPLAY, identity), REPLAY, identity) as run:
        if run.state in ("done", "diverged"):
            return
        measured = RunDirectory.open(measures_path(workdir, settings, paths))
        if measured.state == "diverged":
            run.diverged(measured.results["cycle"])
            return
        began = time.perf_counter()
        training = RunDirectory.open(training_path(workdir / RUNS, settings))
        samples, seed = settings.generation.samples, settings.generation_seed
        archive = generate_run(training.path, samples, seed)
        prototypes = patterns_of(settings, workdir / RUNS)
        chosen = [found[0] for found in nearest_samples(measured, prototypes).values() if found]
        steps = np.linspace(0, settings.physics.steps, SNAPSHOTS).round().astype(int).tolist()
        again = generate(settings.physics, computer_of(training), samples, seed, steps, chosen)
        visible = again.snapshots[:, :, : settings.physics.visible]
        run.save_arrays(
            "snapshots",
            {"states": visible, "samples": np.array(chosen, np.int64), "steps": np.array(steps)},
        )
        differing = differing_samples(archive, again)
        run.finish(
            {
                "samples": samples,
                "differing": len(differing),
                "parameters_unchanged": True,  # generate() compares them and raises otherwise
                "timing": {"replay": time.perf_counter() - began},
            }
        )


def differing_samples(archive: Generated, again: Generated) -> list[int]:
    """Samples whose start, end or heat is not the same to the bit."""
    differs = np.zeros(len(archive.heat), bool)
    for name in ("initial_states", "final_states", "heat"):
        then, now = getattr(archive, name), getattr(again, name)
        differs |= (then != now).reshape(len(then), -1).any(axis=1)
    return [int(i) for i in np.flatnonzero(differs)]


def nearest_samples(
    measured: RunDirectory, prototypes: Prototypes, count: int = 1
) -> dict[str, list[int]]:
    """For each target, the samples assigned to it that are nearest to a prototype, nearest first.

    Assigned by the classifier; where there is none, by the nearest prototype. A target that has
    fewer samples than ``count`` has a shorter list, perhaps an empty one.
    """
    table = measured.load_table("samples")
    labels, assigned = assignment(table, prototypes)
    order = np.argsort(table["prototype_distance"], kind="stable")
    return {label: [int(i) for i in order if assigned[i] == label][:count] for label in labels}


def assignment(
    samples: dict[str, NDArray[Any]], prototypes: Prototypes
) -> tuple[list[str], NDArray[np.str_]]:
    """Targets by name, and the name that every sample is assigned to."""
    if classified(samples):
        return [str(t) for t in prototypes.targets], samples["class"].astype(np.str_)
    names = np.array(prototypes.labels, dtype=np.str_)
    return list(dict.fromkeys(prototypes.labels)), names[samples["prototype"]]


def classified(samples: dict[str, NDArray[Any]]) -> bool:
    """Whether the samples were shown to the classifier."""
    return bool((samples["class"] >= 0).all())


def trained_prototypes(folder: Path, settings: Settings) -> Prototypes:
    """The prototypes of a model as its training run keeps them."""
    return prototypes_of(RunDirectory.open(training_path(folder / RUNS, settings)))
