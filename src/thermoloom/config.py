"""Settings: frozen, validated, strict about keys, TOML in and TOML out.

The defaults are the paper's values. A setting is named ``section.key`` in TOML files and on
the command line; the section may be left out where the key is unambiguous.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, get_args, get_type_hints

from thermoloom.errors import UserError
from thermoloom.inputs import (
    LARGEST,
    LARGEST_COUNT,
    LARGEST_SEED,
    SMALLEST,
    InvalidTomlError,
    parse_toml,
    read_toml,
    real,
    shown,
    user_path,
    whole,
)

__all__ = [
    "GenerationSettings",
    "Imperfections",
    "MeasureSettings",
    "Physics",
    "PrototypeSettings",
    "Settings",
    "Training",
    "fitted",
    "parse_assignment",
    "read_toml",
    "settings_file",
]


def _require(condition: bool, key: str, value: object, must: str) -> None:
    if not condition:
        raise UserError(f"{key} = {shown(value)}: {must}")


def _positive(section: str, settings: object, *keys: str) -> None:
    for key in keys:
        value = getattr(settings, key)
        _require(value > 0, f"{section}.{key}", value, "must be positive")


def _non_negative(section: str, settings: object, *keys: str) -> None:
    for key in keys:
        value = getattr(settings, key)
        _require(value >= 0, f"{section}.{key}", value, "must not be negative")


class _Section:
    """A table of settings: every value is read strictly as its type, then the whole is checked.

    So Python and TOML are refused the same things, and NumPy's numbers become plain ones.
    """

    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for entry in fields(self):  # type: ignore[arg-type]
            key = f"{self.name}.{entry.name}"
            value = fitted(key, hints[entry.name], getattr(self, entry.name))
            object.__setattr__(self, entry.name, value)
        self.check()

    def check(self) -> None:
        """Refuse values that do not fit together."""


_ROUND_OFF = 1e-6
"""t_f/Δt may differ from a whole number by this fraction of it: 0.3/0.1 is 2.9999999999999996, and
numbers that were float32 once are off by 1e-7."""


@dataclass(frozen=True)
class Physics(_Section):
    """What the computer is and how it moves: dx = −μ ∂V dt + √(2 μ k_BT) dW, in steps of Δt."""

    name: ClassVar[str] = "physics"

    visible: int = 784
    """N_v, number of visible units (28 × 28 pixels by default)."""
    hidden: int = 512
    """N_h, number of hidden units."""
    J2: float = 1.0
    """Quadratic onsite coefficient, in E₀."""
    J4: float = 1.0
    """Quartic onsite coefficient, in E₀."""
    kT: float = 0.1
    """Thermal energy k_BT, in E₀."""
    mobility: float = 1.0
    """Mobility μ, in 1/(E₀ · time)."""
    dt: float = 1e-3
    """Integration step Δt, in the time unit of μ."""
    duration: float = 2.5
    """Trajectory time t_f, in the time unit of μ: a multiple of Δt."""

    def check(self) -> None:
        _positive("physics", self, "visible", "hidden", "kT", "mobility", "dt", "duration")
        _non_negative("physics", self, "J2", "J4")
        _require(
            self.J2 > 0 or self.J4 > 0,
            "physics.J2, physics.J4",
            (self.J2, self.J4),
            "at least one must be positive, or no unit is confined",
        )
        _require(
            self.duration >= self.dt,
            "physics.duration",
            self.duration,
            f"must be at least one step, physics.dt = {self.dt}",
        )
        counted = {"physics.visible + hidden": self.units, "physics.duration/dt": self.steps}
        for key, count in counted.items():
            _require(count <= LARGEST_COUNT, key, count, f"must be at most {LARGEST_COUNT}")
        ratio = self.duration / self.dt
        if abs(ratio - self.steps) > _ROUND_OFF * self.steps:
            low, high = (count * self.dt for count in (math.floor(ratio), math.ceil(ratio)))
            raise UserError(
                f"physics.duration = {self.duration}: no multiple of physics.dt = {self.dt}; the "
                f"nearest are {low:.12g} and {high:.12g}"
            )
        for meaning, value in (
            ("μΔt", self.mobility * self.dt),
            ("μΔt/2k_BT", self.residual_scale),
            ("√(2μk_BTΔt)", self.noise_amplitude),
        ):
            _require(
                SMALLEST <= value <= LARGEST,
                "physics.mobility, physics.dt, physics.kT",
                (self.mobility, self.dt, self.kT),
                f"{meaning} = {value:.2g} is no number of float32",
            )

    @property
    def units(self) -> int:
        """N = N_v + N_h; visible units come first in every state array."""
        return self.visible + self.hidden

    @property
    def steps(self) -> int:
        """K = round(t_f/Δt), counted in integers."""
        return round(self.duration / self.dt)

    @property
    def residual_scale(self) -> float:
        """c = μΔt/(2k_BT): a coupling force f changes a residual by c·f."""
        return self.mobility * self.dt / (2 * self.kT)

    @property
    def noise_amplitude(self) -> float:
        """√(2 μ k_BT Δt), the standard deviation of the thermal kick in one step."""
        return math.sqrt(2 * self.mobility * self.kT * self.dt)


@dataclass(frozen=True)
class PrototypeSettings(_Section):
    """Which patterns are learned."""

    name: ClassVar[str] = "prototypes"

    source: str = "bundled"
    """``bundled`` (first ten MNIST training images of each class), ``mnist`` (a folder of IDX
    files, or downloaded once if no path is given) or ``images`` (the user's own, at ``path``)."""
    digits: tuple[int, ...] = (0, 1, 2)
    """Classes taken from MNIST, in training order."""
    per_digit: int = 1
    """How many of the first training images of each class."""
    path: str = ""
    """Folder of IDX files (``mnist``); folder of PNG images or an .npy array (``images``)."""
    resize: bool = False
    """Resize the user's images to the visible layer (which must then be square)."""
    projection_seed: int = 42
    """Seed of P, the fixed random projection that gives the hidden units their fields."""
    content: str = ""
    """SHA-256 of the patterns, found when they are loaded; if given, others are refused."""

    def check(self) -> None:
        sources = ("bundled", "mnist", "images")
        _require(
            self.source in sources,
            "prototypes.source",
            self.source,
            f"must be one of {', '.join(sources)}",
        )
        _positive("prototypes", self, "per_digit")
        _non_negative("prototypes", self, "projection_seed")
        if self.source == "bundled":
            _require(
                self.per_digit <= 10,
                "prototypes.per_digit",
                self.per_digit,
                "ten images a class are bundled; take prototypes.source = 'mnist' for more",
            )
        if self.source == "images":
            _require(
                self.path.strip() != "",
                "prototypes.path",
                self.path,
                "must name a folder of PNG images or an .npy file",
            )
        if self.path:
            user_path("prototypes.path", self.path)
        _require(
            len(self.digits) > 0 and all(0 <= d <= 9 for d in self.digits),
            "prototypes.digits",
            self.digits,
            "must be classes from 0 to 9, at least one",
        )
        _require(
            len(set(self.digits)) == len(self.digits),
            "prototypes.digits",
            self.digits,
            "must not repeat a class",
        )
        _require(
            self.content == "" or re.fullmatch("[0-9a-f]{64}", self.content) is not None,
            "prototypes.content",
            self.content,
            "must be 64 hexadecimal digits, or be left out",
        )


@dataclass(frozen=True)
class Training(_Section):
    """How the computer learns."""

    name: ClassVar[str] = "training"

    rule: str = "online"
    """``online`` (update after every step), ``batch`` (once a trajectory), ``delayed``
    (every ``period`` steps) or ``optimum`` (solved, without any trajectory)."""
    period: int | None = None
    """M, steps between updates; given by the rule unless the rule is ``delayed``."""
    seed: int = 101
    """Seed of the noising paths (and, in separate streams, of injected errors)."""
    cycles: int = 300
    """Number of noising trajectories; prototypes are taken in turn."""
    learning_rate: float | None = None
    """α; Δt/t_f if not given."""
    learning_rate_scale: float = 1.0
    """Factor on α, for scans around the default."""
    validation_seed: int = 777001
    """Seed of the fixed validation path, which starts from the first prototype."""
    validation_every: int = 10
    """Cycles between evaluations of the validation loss."""

    def check(self) -> None:
        rules = ("online", "batch", "delayed", "optimum")
        _require(
            self.rule in rules, "training.rule", self.rule, f"must be one of {', '.join(rules)}"
        )
        if self.rule == "delayed":
            _require(
                self.period is not None and self.period >= 1,
                "training.period",
                self.period,
                "rule 'delayed' needs the number of steps between updates, at least 1",
            )
        else:
            _require(
                self.period is None,
                "training.period",
                self.period,
                f"rule {self.rule!r} fixes the period; use rule = 'delayed' to choose it",
            )
        _positive("training", self, "cycles", "validation_every", "learning_rate_scale")
        _non_negative("training", self, "seed", "validation_seed")
        if self.learning_rate is not None:
            _positive("training", self, "learning_rate")


@dataclass(frozen=True)
class Imperfections(_Section):
    """Errors injected into learning; everything off by default."""

    name: ClassVar[str] = "imperfections"

    residual_noise: float = 0.0
    """σ_res, standard deviation of the error added to every node residual at every step."""
    residual_offset: float = 0.0
    """μ_bias, constant added to every node residual."""
    residual_correlation: float = 0.0
    """ρ, AR(1) coefficient of the residual error from step to step (0: independent)."""
    update_noise: float = 0.0
    """σ_upd, standard deviation of the error added to every formed coupling or bias update."""
    bits: int = 32
    """Bits of the coupling grid during training; 32 = unquantized float32."""
    rounding: str = "nearest"
    """``nearest`` or ``stochastic``, where bits < 32."""
    range_visible_hidden: float | None = None
    """A_max of J_vh: the grid spans ±A_max (needed where bits < 32)."""
    range_hidden_hidden: float | None = None
    """A_max of J_hh (needed where bits < 32)."""

    def check(self) -> None:
        _non_negative("imperfections", self, "residual_noise", "update_noise")
        _require(
            0 <= self.residual_correlation < 1,
            "imperfections.residual_correlation",
            self.residual_correlation,
            "must be in [0, 1)",
        )
        _require(
            self.residual_correlation == 0 or self.residual_noise > 0,
            "imperfections.residual_correlation",
            self.residual_correlation,
            "correlates the residual noise, so residual_noise must be positive",
        )
        _require(
            self.bits == 32 or 2 <= self.bits <= 24,
            "imperfections.bits",
            self.bits,
            "must be 2 to 24, or 32 for unquantized float32",
        )
        _require(
            self.rounding in ("nearest", "stochastic"),
            "imperfections.rounding",
            self.rounding,
            "must be nearest or stochastic",
        )
        ranges = ("range_visible_hidden", "range_hidden_hidden")
        given = [key for key in ranges if getattr(self, key) is not None]
        _positive("imperfections", self, *given)
        _require(
            self.bits == 32 or len(given) == len(ranges),
            "imperfections.bits",
            self.bits,
            "a grid needs positive range_visible_hidden and range_hidden_hidden, such as the "
            "largest |J_vh| and |J_hh| of an unquantized run",
        )
        _require(
            self.bits == 32 or self.update_noise == 0,
            "imperfections.update_noise",
            self.update_noise,
            f"not defined on a grid of imperfections.bits = {self.bits}; take bits = 32 or "
            "update_noise = 0",
        )


@dataclass(frozen=True)
class GenerationSettings(_Section):
    """How the frozen computer is sampled."""

    name: ClassVar[str] = "generation"

    samples: int = 200
    """Number of independent denoising trajectories."""
    seed: int | None = None
    """Generation seed; 90000 + training seed if not given."""

    def check(self) -> None:
        _positive("generation", self, "samples")
        if self.seed is not None:
            _non_negative("generation", self, "seed")


@dataclass(frozen=True)
class MeasureSettings(_Section):
    """What judges the samples."""

    name: ClassVar[str] = "measures"

    classifier: str = ""
    """Folder of a classifier made by ``thermoloom classifier train``; the bundled one if empty."""

    def check(self) -> None:
        if self.classifier:
            user_path("measures.classifier", self.classifier)


@dataclass(frozen=True)
class Settings:
    """Everything that determines a result."""

    physics: Physics = field(default_factory=Physics)
    prototypes: PrototypeSettings = field(default_factory=PrototypeSettings)
    training: Training = field(default_factory=Training)
    imperfections: Imperfections = field(default_factory=Imperfections)
    generation: GenerationSettings = field(default_factory=GenerationSettings)
    measures: MeasureSettings = field(default_factory=MeasureSettings)

    def __post_init__(self) -> None:
        for name, section in _SECTIONS.items():
            if not isinstance(getattr(self, name), section):
                raise UserError(f"{name}: expected {section.__name__}(...)")
        _require(
            SMALLEST <= self.learning_rate <= LARGEST,
            "training.learning_rate, training.learning_rate_scale",
            (self.training.learning_rate, self.training.learning_rate_scale),
            f"α = {self.learning_rate:.2g} is no number of float32",
        )
        _require(
            self.measures.classifier == "" or self.prototypes.source != "images",
            "measures.classifier",
            self.measures.classifier,
            "an MNIST classifier does not judge own images (prototypes.source = 'images')",
        )
        if self.training.rule == "delayed":
            _require(
                self.period <= self.physics.steps,
                "training.period",
                self.training.period,
                f"must not exceed the {self.physics.steps} steps of a trajectory",
            )
        _require(
            self.imperfections.bits == 32 or self.period == 1,
            "imperfections.bits",
            self.imperfections.bits,
            "quantized training is defined for the online rule only (training.rule = 'online')",
        )

    @property
    def period(self) -> int:
        """Update period M: 1 online, K batch, as given if delayed; 0 where nothing is updated."""
        fixed = {"online": 1, "batch": self.physics.steps, "optimum": 0}
        return fixed.get(self.training.rule, self.training.period or 1)

    @property
    def learning_rate(self) -> float:
        """α, by default Δt/t_f, times its scale."""
        base = self.training.learning_rate
        if base is None:
            base = self.physics.dt / self.physics.duration
        return base * self.training.learning_rate_scale

    @property
    def generation_seed(self) -> int:
        seed = self.generation.seed
        return 90000 + self.training.seed if seed is None else seed

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Plain nested dictionary (tuples as lists), as stored in manifests."""
        as_lists: dict[str, dict[str, Any]] = json.loads(json.dumps(asdict(self)))
        return as_lists

    def to_toml(self) -> str:
        """Settings as TOML; keys without a value are left out."""
        lines: list[str] = []
        for section, values in self.as_dict().items():
            lines.append(f"[{section}]")
            lines += [f"{k} = {json.dumps(v)}" for k, v in values.items() if v is not None]
            lines.append("")
        return "\n".join(lines)

    def updated(self, values: Mapping[str, Mapping[str, Any]]) -> Settings:
        """A copy with ``{section: {key: value}}`` replaced; unknown names are refused."""
        sections = {}
        for section, entries in values.items():
            if section not in _SECTIONS:
                raise UserError(_unknown("section", section, _SECTIONS))
            if not isinstance(entries, Mapping):
                raise UserError(f"{section}: expected a table [{section}] of settings")
            known = {entry.name for entry in fields(_SECTIONS[section])}
            for key in entries:
                if key not in known:
                    raise UserError(_unknown("setting", f"{section}.{key}", _all_keys()))
            sections[section] = replace(getattr(self, section), **entries)
        return replace(self, **sections)

    @classmethod
    def from_dict(cls, values: Mapping[str, Mapping[str, Any]]) -> Settings:
        return cls().updated(values)

    @classmethod
    def from_toml(cls, path: Path) -> Settings:
        """Settings from a TOML file on top of the defaults."""
        return cls().updated(read_toml(path))


_SECTIONS: dict[str, type] = {f.name: get_type_hints(Settings)[f.name] for f in fields(Settings)}


def _all_keys() -> list[str]:
    return [f"{name}.{f.name}" for name, section in _SECTIONS.items() for f in fields(section)]


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name[:100], list(known), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "`thermoloom settings` lists all"
    return f"{shown(name)[1:-1]}: no such {kind}; {hint}"


_LISTS = {int: "whole numbers, such as [1, 2]", float: "numbers, such as [0.1, 0.2]"}
_OTHERS = {bool: "true or false", str: "text"}


def fitted(key: str, hint: Any, value: Any) -> Any:
    """``value`` as the type of the setting ``key``, or an error that names both."""
    if type(None) in get_args(hint):
        return None if value is None else fitted(key, get_args(hint)[0], value)
    if get_args(hint):  # tuple[int, ...]
        kind = get_args(hint)[0]
        if not isinstance(value, (list, tuple)):
            raise UserError(f"{key} = {shown(value)}: expected a list of {_LISTS[kind]}")
        return tuple(fitted(key, kind, entry) for entry in value)
    if hint is float:
        return real(key, value)
    if hint is int:
        # the sections say what may be negative or zero; the rest is counted in 32 bits
        highest = LARGEST_SEED if key.rpartition(".")[2].rstrip("s").endswith("seed") else None
        return whole(key, value, None, highest or LARGEST_COUNT)
    if type(value) is not hint:
        raise UserError(f"{key} = {shown(value)}: expected {_OTHERS[hint]}")
    return value


def settings_file() -> str:
    """Every setting with its default and its meaning, as a TOML file."""
    lines: list[str] = []
    for name, section in _SECTIONS.items():
        meanings, defaults = _meanings(section), section()
        lines += [f"[{name}]"]
        for key, value in asdict(defaults).items():
            meaning = meanings[key].replace("``", "").splitlines()
            lines += [f"# {line.strip()}" for line in meaning if line.strip()]
            lines.append(f"# {key} =" if value is None else f"{key} = {json.dumps(value)}")
        lines.append("")
    return "\n".join(lines)


def _meanings(section: type) -> dict[str, str]:
    """The text below each setting of a section, from its source: it is not kept at run time."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(section))).body[0]
    assert isinstance(definition, ast.ClassDef)
    return {
        setting.target.id: text.value.value
        for setting, text in pairwise(definition.body)
        if isinstance(setting, ast.AnnAssign)
        and isinstance(setting.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def parse_assignment(text: str, own_section: str = "") -> dict[str, dict[str, Any]]:
    """``key=value`` from the command line as ``{section: {key: value}}``.

    The value is read as TOML, and as a plain text where that fails (``rule=batch``). Keys of
    ``own_section`` are the caller's to check.
    """
    key, equals, raw = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UserError(f"--set {shown(text)}: expected key=value, such as physics.kT=0.2")
    matches = [name for name in _all_keys() if name == key or name.partition(".")[2] == key]
    if own_section and key.startswith(f"{own_section}."):
        matches = [key]
    if not matches:
        raise UserError(_unknown("setting", key, _all_keys()))
    if len(matches) > 1:
        raise UserError(f"{key}: ambiguous; name one of {', '.join(matches)}")
    section, _, name = matches[0].partition(".")
    return {section: {name: _assigned(text, raw.strip())}}


def _assigned(text: str, raw: str) -> Any:
    if not raw.isprintable():
        raise UserError(
            f"--set {shown(text)}: has a line break or a control character; give one setting"
        )
    try:
        return parse_toml(f"value = {raw}", f"--set {shown(text)}")["value"]
    except InvalidTomlError:
        return raw
