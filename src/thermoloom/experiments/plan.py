"""What an experiment is: a plan with presets, tasks that run anywhere, tables and a summary.

``docs/extending.md`` says what else another experiment needs.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

from thermoloom.errors import UserError
from thermoloom.experiments import MOST_SEEDS
from thermoloom.inputs import shown
from thermoloom.runs.store import RunDirectory
from thermoloom.runs.tasks import Task
from thermoloom.sections import fitted
from thermoloom.settings import GenerationSettings, Settings, Training, current_names, toml_of

SECTION = "experiment"
"""Table of a settings file, and prefix of --set, for what is the plan's own."""


@dataclass(frozen=True)
class Plan:
    """Everything that determines the numbers of an experiment; experiments add their own fields.

    ``settings`` are those of every model, except for what the experiment varies.
    """

    settings: Settings = field(default_factory=Settings)
    seeds: tuple[int, ...] = (101, 102, 103, 104, 105)
    """Training seeds; one seed is one independent observation."""

    optional: ClassVar[tuple[str, ...]] = ()
    """Lists that may be empty."""

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise UserError(
                f"{SECTION}.seeds = {shown(list(self.seeds))}: at least one, each only once"
            )
        if self.settings.solved:
            raise UserError("solver, training.rule: set by the experiment itself")
        if len(self.seeds) > MOST_SEEDS:
            raise UserError(f"{SECTION}.seeds: {len(self.seeds):,} of them; at most {MOST_SEEDS:,}")
        for entry in fields(self):
            value, key = getattr(self, entry.name), f"{SECTION}.{entry.name}"
            if value == () and entry.name not in self.optional:
                raise UserError(f"{key} = []: at least one is needed")
            least = int(entry.name.endswith(("cycles", "samples")))
            if isinstance(value, int) and value < least:
                raise UserError(f"{key} = {value}: must be at least {least}")

    def own(self) -> dict[str, Any]:
        """The plan's own fields, as JSON has them."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "settings"}
        own: dict[str, Any] = json.loads(json.dumps(values))
        return own

    def lengths(self) -> dict[str, int]:
        """How long it runs: cycles, samples and every other number of the plan that counts them."""
        own = {key: value for key, value in self.own().items() if isinstance(value, int)}
        return {
            "cycles": self.settings.training.cycles,
            "samples": self.settings.generation.samples,
            **own,
        }

    def as_dict(self) -> dict[str, Any]:
        """Identity of the experiment: its own fields and the settings of its models."""
        return {SECTION: self.own()} | self.settings.as_dict()

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Values that do not count for the identity of an experiment: plans may get new fields."""
        return cls().as_dict()

    def updated(self, values: Mapping[str, Mapping[str, Any]]) -> Self:
        """A copy with ``{section: {key: value}}`` replaced; unknown names are refused."""
        values = current_names(values)
        rest = {section: entries for section, entries in values.items() if section != SECTION}
        own = _coerced(type(self), values.get(SECTION, {}))
        return replace(self, settings=self.settings.updated(rest), **own)

    def to_toml(self, without: Sequence[str] = ()) -> str:
        """A settings file that gives this plan again; settings ``without`` are left out."""
        return toml_of(
            {
                section: {k: v for k, v in values.items() if f"{section}.{k}" not in without}
                for section, values in self.as_dict().items()
            }
        )


def _coerced(plan: type[Plan], values: Mapping[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(plan)
    known = [f.name for f in fields(plan) if f.name != "settings"]
    coerced = {}
    for key, value in values.items():
        if key not in known:
            raise UserError(f"{SECTION}.{key}: no such setting; known: {', '.join(known)}")
        coerced[key] = fitted(f"{SECTION}.{key}", hints[key], value)
    return coerced


VARIED = ("training.rule", "training.period", "training.seed")
"""Settings that every experiment sets itself."""


def brief(cycles: int, samples: int, **more: Any) -> Settings:
    """Settings of a quick look: few cycles, few samples."""
    generation = GenerationSettings(samples=samples)
    return Settings(training=Training(cycles=cycles), generation=generation, **more)


@dataclass(frozen=True)
class Experiment:
    """An experiment by name: its plans, tasks, tables and summary."""

    name: str
    title: str
    presets: Mapping[str, Plan]
    """``paper`` and ``quick``."""
    models: Callable[[Any], list[Settings]]
    """Computers that a plan trains and samples, as far as they can be told in advance."""
    tasks: Callable[[Any, Path, int], list[Task]]
    """``tasks(plan, folder, workers)``: what can be done with what is in the results folder, cut
    for so many workers; independent of each other. Asked again until nothing new comes."""
    assemble: Callable[[Any, Path, RunDirectory], dict[str, Any]]
    """``assemble(plan, folder, run)``: save the experiment's tables in its run directory and
    return its summary, from whatever is done in the results folder; it never simulates."""
    ready: Callable[[Any, Path], int] | None = None
    """``ready(plan, folder)``: number of complete seeds; where given, tables and a
    page appear with the first of them and are renewed as others come in."""
    varied: tuple[str, ...] = VARIED
    """Settings that the experiment itself sets; the user cannot."""

    def plan(self, preset: str, values: Mapping[str, Mapping[str, Any]] | None = None) -> Plan:
        """A preset with the user's settings on top."""
        if preset not in self.presets:
            raise UserError(f"--preset {preset}: must be one of {', '.join(self.presets)}")
        named = current_names(values or {})
        return self.presets[preset].updated(self._without_varied(preset, named))

    def _without_varied(
        self, preset: str, values: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Mapping[str, Any]]:
        """The user's values, without defaults of what the experiment sets itself.

        So a file with all settings can be given to any experiment; a changed one is refused.
        """
        # settings.toml of a run has the preset's own values
        usual = (Settings().as_dict(), self.presets[preset].settings.as_dict())
        kept: dict[str, Mapping[str, Any]] = dict(values)
        for name in self.varied:
            section, _, key = name.partition(".")
            if key not in kept.get(section, {}):
                continue
            if not any(_same(kept[section][key], values[section][key]) for values in usual):
                own = ", ".join(f"{SECTION}.{key}" for key in self.presets[preset].own())
                raise UserError(f"{name}: set by the experiment itself; it has {own}")
            kept[section] = {k: v for k, v in kept[section].items() if k != key}
        return kept

    def preset_of(self, plan: Plan) -> str | None:
        """The preset that a plan is, if it is one."""
        plan = plan.updated({"patterns": {"content": ""}})
        return next((name for name, preset in self.presets.items() if preset == plan), None)

    def rerun(self, plan: Plan, path: Path) -> str:
        """The command that does it again, from any directory."""
        preset, folder = self.preset_of(plan), path.absolute()
        how = ["--preset", preset] if preset else ["--config", str(folder / "settings.toml")]
        command = ["thermoloom", "run", self.name, *how, "--out", str(folder.parent)]
        return shlex.join(command)


def _same(a: Any, b: Any) -> bool:
    """Equality of settings, where files have lists for tuples."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return list(a) == list(b)
    return bool(a == b)
