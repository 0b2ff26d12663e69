"""What is in a results folder: runs that are found by their settings alone, and read here.

    results/runs/patterns-ID    what is learned, read by every task
    results/runs/training-ID    parameters, validation curve, archive of samples
    results/runs/measures-ID    samples.csv, paths.csv, and the seed-level numbers as its results
    results/runs/replay-ID      an archive generated a second time, with snapshots on the way

Experiments that need the same computer share it. Nothing here computes: what is not there is said
to be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from thermoloom.computers.pattern_store import patterns_path
from thermoloom.computers.sample_archives import SampleRequest, archived_classes, read_archive
from thermoloom.computers.training_runs import (
    learned_patterns,
    parameters_of,
    training_path,
    training_settings,
)
from thermoloom.machine.energy import label_word
from thermoloom.machine.generated import Generated
from thermoloom.machine.parameters import Array, Parameters
from thermoloom.measures.classifier import SIDE, classifier_sha256
from thermoloom.patterns.patterns import Patterns
from thermoloom.runs.formats import Table
from thermoloom.runs.manifest import MANIFEST, run_path
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings

RUNS = "runs"
"""Folder, within the results folder, of the runs that experiments share."""
MEASURES, REPLAY = "measures", "replay"


@dataclass(frozen=True)
class Paths:
    """Additional noising paths on which all computers of an experiment are compared."""

    seed: int = 555001
    per_prototype: int = 10
    """0 leaves this measure out."""


NO_PATHS = Paths(per_prototype=0)


# --- where things are ---------------------------------------------------------------------------


def trained_path(folder: Path, settings: Settings) -> Path:
    """Where the training of a model lives in a results folder."""
    return training_path(folder / RUNS, settings)


def measures_settings(settings: Settings, paths: Paths = NO_PATHS) -> dict[str, Any]:
    """What identifies the measures of a model: how it was trained, sampled, judged and compared."""
    generation = {"samples": settings.generation.samples, "seed": settings.generation_seed}
    judge = classifier_sha256(settings.measures.classifier) if is_classified(settings) else ""
    judged = {"classifier": {"sha256": judge}} if judge else {}
    return training_settings(settings) | {"generation": generation, "paths": asdict(paths)} | judged


def is_classified(settings: Settings) -> bool:
    """Whether samples are shown to the classifier: 28 × 28 images of MNIST classes only."""
    return settings.prototypes.source != "images" and settings.machine.visible == SIDE * SIDE


def measures_path(folder: Path, settings: Settings, paths: Paths = NO_PATHS) -> Path:
    """Where the measures of a model live."""
    return run_path(folder / RUNS, MEASURES, measures_settings(settings, paths))


def replay_path(folder: Path, settings: Settings, paths: Paths) -> Path:
    """Where the replay of a model lives."""
    return run_path(folder / RUNS, REPLAY, measures_settings(settings, paths))


def patterns_input(settings: Settings) -> str:
    """What every task reads: the patterns, by their content, relative to the results folder."""
    return str(patterns_path(Path(RUNS), settings))


# --- what is there --------------------------------------------------------------------------------


def ended(path: Path) -> RunDirectory | None:
    """The run at a place, if there is one and it is done or diverged."""
    run = RunDirectory.open(path) if (path / MANIFEST).exists() else None
    return run if run is not None and run.state in ("done", "diverged") else None


def finished(path: Path) -> RunDirectory | None:
    """The run at a place, if there is one and it is done."""
    run = ended(path)
    return run if run is not None and run.state == "done" else None


def why_missing(path: Path) -> str:
    """Why the run at a place cannot be used."""
    if not (path / MANIFEST).exists():
        return "not measured"
    run = RunDirectory.open(path)
    return f"{run.state} {run.manifest.reason}".strip()


def save_rows(run: RunDirectory, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table from its rows, which all have the columns of the first."""
    run.save_table(name, {key: [row[key] for row in rows] for key in rows[0]})


def stacked(tables: Iterable[tuple[Mapping[str, Any], Table]]) -> Table:
    """Tables one under the other, with columns that say whose rows they are."""
    found = list(tables)
    lengths = [len(next(iter(columns.values()))) for _, columns in found]
    owner = {key: np.repeat([own[key] for own, _ in found], lengths) for key in found[0][0]}
    return owner | {name: np.concatenate([t[name] for _, t in found]) for name in found[0][1]}


def order_of(settings: Settings) -> SampleRequest:
    """The samples of a model."""
    return SampleRequest(settings.generation.samples, settings.generation_seed)


def has_archive(training: RunDirectory, settings: Settings) -> bool:
    """Whether the samples of a model are in the run of its training."""
    file = f"{order_of(settings).archive}.safetensors"
    return training.has(file) and not training.is_lost(file)


@dataclass(frozen=True)
class Model:
    """A measured computer as its tasks saved it; everything is read when it is needed."""

    folder: Path
    """Results folder."""
    settings: Settings
    measures: RunDirectory
    """Run of its measures, done or diverged."""

    @classmethod
    def found(cls, folder: Path, settings: Settings, paths: Paths) -> Model | None:
        """The computer of these settings, if it was trained, sampled and measured."""
        run = finished(measures_path(folder, settings, paths))
        return None if run is None else cls(folder, settings, run)

    @property
    def rule(self) -> str:
        return self.settings.training.rule

    @property
    def seed(self) -> int:
        return self.settings.training.seed

    @property
    def diverged(self) -> bool:
        return self.measures.state == "diverged"

    @property
    def results(self) -> dict[str, Any]:
        """Seed-level numbers."""
        return self.measures.results

    @cached_property
    def samples(self) -> Table:
        """The table of samples; empty where the computer diverged."""
        return {} if self.diverged else self.measures.load_table("samples")

    @cached_property
    def training(self) -> RunDirectory:
        return RunDirectory.open(trained_path(self.folder, self.settings))

    @cached_property
    def curve(self) -> Table:
        """The validation curve."""
        return self.training.load_table("curve")

    @property
    def parameters(self) -> Parameters:
        return parameters_of(self.training)

    @property
    def archive(self) -> Generated:
        """The samples themselves."""
        return read_archive(self.training, order_of(self.settings).archive)

    @property
    def words(self) -> Array | None:
        """Label states of the samples, where there are labels."""
        asked = archived_classes(self.training, order_of(self.settings).archive)
        return label_word(self.settings.machine, None if asked is None else np.array(asked))

    @property
    def patterns(self) -> Patterns:
        """What it learned."""
        return learned_patterns(self.training)


def seconds_by_stage(models: Iterable[Model], stages: Iterable[str]) -> dict[str, float]:
    """Seconds of work by stage, summed over all computers and processes."""
    spent = [model.results.get("timing", {}) for model in models]
    return {stage: sum((one.get(stage, 0.0) for one in spent), 0.0) for stage in stages}
