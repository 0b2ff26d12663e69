"""A study: one question, the cases that answer it, and how the answer is shown.

    plan ──▶ cases ──▶ gather ──▶ summarize ──▶ statements ──▶ figures, chapter

A study is one folder with one record, ``STUDY``. Command line, report, workers, clusters,
resumption and time estimates derive from that record alone (docs/extending.md).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_type_hints

from thermoloom.errors import UserError
from thermoloom.inputs import shown
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.study_tables import StudyTables
from thermoloom.sections import fitted
from thermoloom.settings import (
    GenerationSettings,
    Settings,
    Training,
    current_names,
    toml_of,
)
from thermoloom.studies.case import Case, Source
from thermoloom.studies.discovery import load_module
from thermoloom.studies.gather import Gathered

if TYPE_CHECKING:  # loads matplotlib
    from matplotlib.figure import Figure as Picture

SECTION = "study"
"""Table of a settings file, and prefix of --set, for the fields of a plan."""
MOST_SEEDS = 10_000
"""Largest number of seeds of one study; each seed is a training."""
VARIED = ("training.rule", "training.period", "training.seed")
"""Settings that every study sets itself."""


@dataclass(frozen=True)
class Plan:
    """Everything that determines the numbers of a study; studies add fields.

    ``settings`` are those of every computer, except for what the study varies.
    """

    settings: Settings = field(default_factory=Settings)
    seeds: tuple[int, ...] = (101, 102, 103, 104, 105)
    """Training seeds; one seed is one independent observation."""

    optional: ClassVar[tuple[str, ...]] = ()
    """Lists that may be empty."""

    def __post_init__(self) -> None:
        if self.settings.solved:
            raise UserError("solver, training.rule: set by the study itself; leave them out")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UserError(
                f"{SECTION}.seeds = {shown(list(self.seeds))}: name at least one, each only once"
            )
        if len(self.seeds) > MOST_SEEDS:
            raise UserError(f"{SECTION}.seeds: {len(self.seeds):,} seeds; at most {MOST_SEEDS:,}")
        for entry in fields(self):
            value, key = getattr(self, entry.name), f"{SECTION}.{entry.name}"
            if value == () and entry.name not in self.optional:
                raise UserError(f"{key} = []: at least one is needed")
            least = int(entry.name.endswith(("cycles", "samples")))
            if isinstance(value, int) and value < least:
                raise UserError(f"{key} = {value}: must be at least {least}")

    def options(self) -> dict[str, Any]:
        """The fields of the plan except the settings, as JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "settings"}
        options: dict[str, Any] = json.loads(json.dumps(values))
        return options

    def lengths(self) -> dict[str, int]:
        """Cycles, samples and every other count of the plan."""
        counts = {key: value for key, value in self.options().items() if isinstance(value, int)}
        return {
            "cycles": self.settings.training.cycles,
            "samples": self.settings.generation.samples,
            **counts,
        }

    def as_dict(self) -> dict[str, Any]:
        """Identity of the study: the plan's fields and the settings of its computers."""
        return {SECTION: self.options()} | self.settings.as_dict()

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Values that do not count in the identity, so that plans can gain fields."""
        return cls().as_dict()

    def updated(self, values: Mapping[str, Mapping[str, Any]]) -> Self:
        """A copy with ``{section: {key: value}}`` replaced; unknown names are refused."""
        sections = current_names(values)
        checked = _checked_options(type(self), sections.pop(SECTION, {}))
        return replace(self, settings=self.settings.updated(sections), **checked)

    def to_toml(self, without: Sequence[str] = ()) -> str:
        """A settings file that yields this plan again; settings ``without`` are left out."""
        return toml_of(
            {
                section: {k: v for k, v in values.items() if f"{section}.{k}" not in without}
                for section, values in self.as_dict().items()
            }
        )


def _checked_options(plan: type[Plan], options: Mapping[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(plan)
    known = [f.name for f in fields(plan) if f.name != "settings"]
    for key in options:
        if key not in known:
            raise UserError(f"{SECTION}.{key}: no such setting; known: {', '.join(known)}")
    return {key: fitted(f"{SECTION}.{key}", hints[key], value) for key, value in options.items()}


def brief(cycles: int, samples: int, **sections: Any) -> Settings:
    """Settings of a quick look: few cycles, few samples."""
    generation = GenerationSettings(samples=samples)
    return Settings(training=Training(cycles=cycles), generation=generation, **sections)


@dataclass(frozen=True)
class Figure:
    """A figure of a study; its caption is in the chapter."""

    name: str
    """File name without its ending."""
    title: str
    draw: str
    """Function of the study's ``figures.py``, which is loaded only when the figure is drawn:
    ``draw(tables) -> matplotlib.figure.Figure``."""


@dataclass(frozen=True)
class Study:
    """A question, the cases that answer it, and how the answer is shown."""

    name: str
    title: str
    question: str
    """One line for ``thermoloom run --help``."""
    presets: Mapping[str, Plan]
    """Plans by name. The first is the default: ``full`` or ``paper``; ``quick`` takes a minute."""
    cases: Callable[[Any, Path], Sequence[Case]]
    """``cases(plan, folder)``: all cases that can be known from the results folder so far.
    Called again whenever cases are done, until it returns no new ones."""
    summarize: Callable[[Any, Gathered, RunDirectory], dict[str, Any]]
    """``summarize(plan, gathered, run)``: save tables in the study's run and return the summary.
    It never simulates."""
    figures: Sequence[Figure] = ()
    foreseen: Callable[[Any], Sequence[Settings]] | None = None
    """Computers that the plan will need, where ``cases`` cannot yet know all of them."""
    complete_seeds: Callable[[Any, Path], int] | None = None
    """``complete_seeds(plan, folder)``: how many seeds are complete. With it, tables and a page
    appear after the first complete seed and are renewed as others come in."""
    varied: tuple[str, ...] = VARIED
    """Settings that the study sets itself; the user cannot."""
    order: int = 1000
    """Place in the report."""
    together: bool = False
    """Whether ``run all`` includes it."""
    folder: Path = Path()
    """Where its files are; set when the study is loaded."""
    source: Source | None = None
    """Python files of a study outside the package; set when it is loaded."""

    def computers(self, plan: Plan, folder: Path, sampled: bool = False) -> list[Settings]:
        """Settings of every computer that a plan needs; ``sampled``: those that are sampled."""
        if self.foreseen is not None:
            return list(self.foreseen(plan))
        cases = self.cases(plan, folder)
        return [case.settings for case in cases if case.samples_computer or not sampled]

    def judge(self, tables: StudyTables) -> dict[str, Any]:
        """{"quantities": [...], "statements": [...]} by ``judge`` of the study's statements.py."""
        if not (self.folder / "statements.py").exists():
            return {}
        rows: dict[str, Any] = load_module(self, "statements").judge(tables)
        return rows

    @cached_property
    def drawings(self) -> Mapping[str, Callable[[StudyTables], Picture]]:
        """Every figure's function by the name of the figure; loads matplotlib."""
        module = load_module(self, "figures")
        return {figure.name: getattr(module, figure.draw) for figure in self.figures}

    def plan(
        self, preset: str | None = None, values: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Plan:
        """A preset, the first if none is named, with the user's settings on top."""
        preset = preset or next(iter(self.presets))
        if preset not in self.presets:
            raise UserError(f"--preset {preset}: must be one of {', '.join(self.presets)}")
        current = current_names(values or {})
        return self.presets[preset].updated(self._without_varied(preset, current))

    def _without_varied(
        self, preset: str, values: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Mapping[str, Any]]:
        """The user's values, without defaults of settings that the study sets itself.

        So any study accepts a file with all settings; a changed value is refused.
        """
        # settings.toml of a run holds the preset's values
        usual = (Settings().as_dict(), self.presets[preset].settings.as_dict())
        accepted: dict[str, Mapping[str, Any]] = dict(values)
        for name in self.varied:
            section, _, key = name.partition(".")
            if key not in accepted.get(section, {}):
                continue
            if not any(_same(accepted[section][key], defaults[section][key]) for defaults in usual):
                options = ", ".join(f"{SECTION}.{key}" for key in self.presets[preset].options())
                raise UserError(
                    f"{name}: set by the study itself; leave it out. The study has: {options}"
                )
            accepted[section] = {k: v for k, v in accepted[section].items() if k != key}
        return accepted

    def preset_of(self, plan: Plan) -> str | None:
        """Name of the preset that equals this plan; None if none does."""
        plan = plan.updated({"patterns": {"content": ""}})
        return next((name for name, preset in self.presets.items() if preset == plan), None)

    def rerun(self, plan: Plan, path: Path) -> str:
        """The command that repeats a run, from any directory."""
        preset, folder = self.preset_of(plan), path.absolute()
        options = ["--preset", preset] if preset else ["--config", str(folder / "settings.toml")]
        study = self.name if self.source is None else str(self.folder)
        return shlex.join(["thermoloom", "run", study, *options, "--out", str(folder.parent)])


def _same(a: Any, b: Any) -> bool:
    """Equality of settings; files hold lists in place of tuples."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return list(a) == list(b)
    return bool(a == b)
