"""A case: one piece of computation, identified by everything that determines its numbers.

    identity = settings of the computer + how it is sampled and judged + arguments of the measure

The identity names the run directory, ``runs/MEASURE-ID``, in which the case leaves its results. So
a case is computed once, however many studies need it, and an interrupted case is continued.

The most common measure, ``sampled_computer``, trains or solves a computer, samples it and measures
the samples. Any other function of a study can serve as a measure:

    measure(job, **arguments) -> results as JSON, or None where it diverged
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

from thermoloom.computers.pattern_store import patterns_of, patterns_path
from thermoloom.computers.training_runs import parameters_of, training_path, training_settings
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.measures.classifier import SIDE, classifier_sha256, panel_records
from thermoloom.patterns.drive import Drive, drive_of
from thermoloom.patterns.patterns import Patterns
from thermoloom.runs.files import sha256
from thermoloom.runs.formats import canonical
from thermoloom.runs.manifest import MANIFEST, run_path
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import STUDY_PACKAGE, Report
from thermoloom.settings import PatternSettings, Settings

RUNS = "runs"
"""Folder, within the results folder, of the runs that studies share."""
TIMING = "timing"
"""Key of the seconds by stage, in the results of a case."""
STAGES = ("training", "generation", "quality", "diagnostics")
"""Stages whose seconds a sampled computer records."""

Measure = Callable[..., "dict[str, Any] | None"]


# --- the source of a study outside the package ---


@dataclass(frozen=True)
class Source:
    """The Python files of a study outside the package, from which any worker can run it."""

    folder: str
    """The folder from which the files were read."""
    files: tuple[tuple[str, str], ...]
    """(name without .py, text) of every file."""

    @cached_property
    def sha256(self) -> str:
        """Hash of the files that determine numbers; figures only read tables."""
        return sha256(canonical([f for f in self.files if f[0] != "figures"]).encode())

    def module(self, name: str) -> ModuleType:
        """Import one of the files, which can import another by ``from . import NAME``.

        Edited files form another package, so that no process mixes two versions.
        """
        package = f"{STUDY_PACKAGE}{sha256(canonical(self.files).encode())[:16]}"
        if package not in sys.modules:
            module = ModuleType(package)
            module.__path__ = [str(self._place())]
            sys.modules[package] = module
        return import_module(f"{package}.{name}")

    def _place(self) -> Path:
        """The folder itself, or a copy of the files where it is absent, such as on a cluster."""
        folder = Path(self.folder)
        if folder.is_dir() and Source.read(folder).files == self.files:
            return folder
        copy = Path(mkdtemp(prefix="thermoloom-study-"))
        for name, text in self.files:
            (copy / f"{name}.py").write_text(text, encoding="utf-8")
        return copy

    @classmethod
    def read(cls, folder: Path) -> Source:
        """The Python files of a folder."""
        paths = sorted(folder.glob("*.py"))
        return cls(str(folder), tuple((p.stem, p.read_text(encoding="utf-8")) for p in paths))


# --- the case ---


@dataclass(frozen=True, eq=False)
class Case:
    """One piece of computation: a measure of a computer."""

    labels: Mapping[str, Any]
    """Coordinates of its row in a table, such as rule and seed."""
    settings: Settings
    """Settings of the computer that is measured."""
    measure: Measure | None = None
    """Function that computes the results; None: ``sampled_computer`` does."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of the measure, JSON."""
    needs: tuple[Case, ...] = ()
    """Cases that must be done first."""
    group: str = ""
    """Computers of one group that share their paths may be trained in one task."""
    cycles: float | None = None
    """Approximate cost in training cycles; cases of unknown cost start first."""
    leaves_computer: bool = False
    """Whether the measure also solves the computer of the settings, which other cases then read."""
    source: Source | None = None
    """Where the measure is defined, if not in the package; set by the study."""

    @property
    def samples_computer(self) -> bool:
        """Whether the case trains or solves a computer and samples it, as most cases do."""
        return self.measure is None

    @property
    def kind(self) -> str:
        """Kind of the run: the name of the measure."""
        name = "sampled_computer" if self.measure is None else self.measure.__name__
        return name.replace("_", "-")

    @property
    def name(self) -> str:
        """Name of the case in progress displays and in lines about missing cases."""
        return name_of([self])

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the numbers of the case."""
        settings = self.settings
        generation = {"samples": settings.generation.samples, "seed": settings.generation_seed}
        arguments = {k: list(v) if isinstance(v, tuple) else v for k, v in self.arguments.items()}
        source = {} if self.source is None else {"source": {"sha256": self.source.sha256}}
        seeds = {} if self.samples_computer else {"training": settings.as_dict()["training"]}
        return (
            training_settings(settings)
            | seeds
            | {"generation": generation, "arguments": arguments}
            | _judge(settings)
            | source
        )

    @cached_property
    def path(self) -> Path:
        """Run directory, relative to the results folder."""
        return run_path(Path(RUNS), self.kind, self.identity)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Run directories that the case writes, relative to the results folder."""
        leaves_computer = self.samples_computer or self.leaves_computer
        trained = (str(trained_path(Path(), self.settings)),) if leaves_computer else ()
        return (*trained, str(self.path))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Run directories that the case reads."""
        patterns = str(patterns_path(Path(RUNS), self.settings))
        return (patterns, *(path for case in self.needs for path in case.outputs))

    def as_json(self) -> dict[str, Any]:
        """The case as JSON, complete enough for a worker to compute it."""
        measure, source = self.measure, self.source
        return {
            "settings": self.settings.as_dict(),
            "measure": None if measure is None else f"{measure.__module__}:{measure.__name__}",
            "arguments": dict(self.arguments),
            "source": None if source is None else [source.folder, source.files],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Case:
        """The case that ``as_json`` described; labels and needs serve planning and are left out."""
        source: Source | None = None
        if values["source"] is not None:
            folder, files = values["source"]
            source = Source(folder, tuple((name, text) for name, text in files))
        measure: Measure | None = None
        if values["measure"] is not None:
            module, _, function = values["measure"].partition(":")
            home = source.module(module.rpartition(".")[2]) if source else import_module(module)
            measure = getattr(home, function)
        settings = Settings.from_dict(values["settings"])
        return cls({}, settings, measure, values["arguments"], source=source)


def name_of(cases: Sequence[Case]) -> str:
    """Name of cases of one measure, from their labels: ``rule batch | online, seed 101``."""
    labels: dict[str, dict[str, None]] = {}
    for case in cases:
        for key, value in case.labels.items():
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            labels.setdefault(key, {})[shown] = None
    texts = [f"{key} {' | '.join(values)}" for key, values in labels.items() if any(values)]
    text = ", ".join(texts) or cases[0].group
    measure = "" if cases[0].samples_computer else cases[0].kind.replace("-", " ")
    return ": ".join(dict.fromkeys(part for part in (measure, text) if part))


def _judge(settings: Settings) -> dict[str, Any]:
    """Hashes of the classifiers that judge the samples; empty where none does."""
    if not is_classified(settings):
        return {}
    main = classifier_sha256(settings.measures.classifier)
    if not settings.patterns.are_digits:
        return {"classifier": {"sha256": main}}
    members = {name: record["sha256"] for name, record in panel_records().items()}
    return {"classifier": {"sha256": main, "panel": members}}


def is_classified(settings: Settings) -> bool:
    """Whether a classifier judges the samples: 28 × 28 images of classes that it knows."""
    known_classes = settings.patterns.are_digits or settings.measures.classifier != ""
    return known_classes and settings.machine.visible == SIDE * SIDE


def trained_path(folder: Path, settings: Settings) -> Path:
    """Run directory of the training of a computer, in a results folder."""
    return training_path(folder / RUNS, settings)


# --- computing a case ---


@dataclass(frozen=True)
class Job:
    """A case being computed: the data for its measure, and the run for its results."""

    workdir: Path
    """Results folder."""
    settings: Settings
    run: RunDirectory
    """Tables and arrays are saved here."""
    report: Report
    """``report(done, total, loss)`` shows progress."""

    @cached_property
    def patterns(self) -> Patterns:
        """The patterns of the settings, as stored in the results folder."""
        patterns, machine = self.settings.patterns, self.settings.machine
        return _read_patterns(patterns, machine.visible, self.workdir / RUNS)

    @cached_property
    def drive(self) -> Drive:
        """Fields and label words of the patterns."""
        return drive_of(self.patterns, self.settings.machine)

    def parameters(self, settings: Settings | None = None) -> Parameters:
        """θ of a computer that a needed case has trained or solved."""
        path = trained_path(self.workdir, settings or self.settings)
        return parameters_of(RunDirectory.open(path))


@lru_cache(maxsize=1)
def _read_patterns(patterns: PatternSettings, visible: int, folder: Path) -> Patterns:
    """Patterns of a results folder, read once per process: reading 60,000 images takes seconds."""
    return patterns_of(Settings(Machine(visible=visible), patterns), folder)


def carry_out(workdir: Path, report: Report, case: dict[str, Any]) -> dict[str, Any]:
    """Compute a case unless it is done: the task of every case except sampled computers."""
    planned = Case.from_json(case)
    assert planned.measure is not None
    with RunDirectory.create(workdir / planned.path, planned.kind, planned.identity) as run:
        if run.state not in ("done", "diverged"):
            began = time.perf_counter()
            job = Job(workdir, planned.settings, run, report)
            results = planned.measure(job, **planned.arguments)
            if results is not None:
                run.finish({**results, "seconds": time.perf_counter() - began})
    return {}


# --- runs in a results folder ---


def ended(path: Path) -> RunDirectory | None:
    """The run in this directory if it is done or diverged, otherwise None."""
    run = RunDirectory.open(path) if (path / MANIFEST).exists() else None
    return run if run is not None and run.state in ("done", "diverged") else None


def finished(path: Path) -> RunDirectory | None:
    """The run in this directory if it is done, otherwise None."""
    run = ended(path)
    return run if run is not None and run.state == "done" else None


def why_missing(path: Path) -> str:
    """Why the run in this directory cannot be used."""
    if not (path / MANIFEST).exists():
        return "not measured"
    run = RunDirectory.open(path)
    return f"{run.state} {run.manifest.reason}".strip()
