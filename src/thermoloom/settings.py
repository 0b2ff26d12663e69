"""Settings: frozen, validated tables with strict keys, read and written as TOML.

The defaults are the paper's values. A setting is named ``section.key`` in TOML files and on
the command line; the section may be left out where the key is unambiguous.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, get_type_hints

import numpy as np
import tomli_w
from numpy.typing import NDArray

from thermoloom.engine_choice import EngineSettings
from thermoloom.errors import UserError
from thermoloom.extensions import is_extension
from thermoloom.inputs import LARGEST, SMALLEST, InvalidTomlError, parse_toml, shown, user_path
from thermoloom.machine.device import Device, build
from thermoloom.machine.machine import Machine
from thermoloom.rules import ERROR, RULE
from thermoloom.sections import Section, meanings, require, unknown

SOURCES = {
    "bundled": "thermoloom.patterns.patterns:read_digits",
    "mnist": "thermoloom.patterns.patterns:read_digits",
    "dataset": "thermoloom.patterns.patterns:read_digits",
    "images": "thermoloom.patterns.patterns:read_own_images",
}
"""Every source of patterns: ``module:function``, which is called with the ``PatternSettings`` and
returns images (n, h, w) or (n, N_v), a name for each, and a class for each, or ()."""
RULES = ("online", "batch", "delayed")
"""Rules that subtract αu, with different periods; others are extensions (``thermoloom.rules``)."""


@dataclass(frozen=True)
class PatternSettings(Section):
    """Which patterns are learned."""

    section: ClassVar[str] = "patterns"

    source: str = "bundled"
    """``bundled`` (first ten MNIST training images of each class), ``mnist`` (a folder of IDX
    files, or downloaded once if no path is given), ``dataset`` (any other labelled data set, at
    ``path``) or ``images`` (your own, at ``path``)."""
    digits: tuple[int, ...] = (0, 1, 2)
    """Classes taken from MNIST or another data set, in training order."""
    per_digit: int = 1
    """Number of training images per class, counted from the first; 0 takes all."""
    path: str = ""
    """For ``mnist``: a folder of IDX files. For ``dataset``: a folder of IDX files or of arrays
    train-images.npy, train-labels.npy, test-images.npy and test-labels.npy (classes.txt names the
    classes of both), or of pictures in train/CLASS and test/CLASS. For ``images``: a picture, a
    folder of pictures (or of one folder per class), IDX files or an .npy array."""
    threshold: float | None = None
    """Grey value, from 0 to 1, above which pixels become white; all others become black. Without
    a threshold, images stay grey."""
    resize: bool = False
    """Resize your own images to the visible layer, which must then be square."""
    grey: bool = False
    """Reduce the colours of your own images to their luminance."""
    mean: float = 0.0
    """m of the scale y = m + σs from patterns s to data y, where machine.scale = fixed."""
    deviation: float = 1.0
    """σ of the same scale."""
    code: str = ""
    """Fields of the hidden units for each pattern, as an .npy array, where machine.code = given."""
    content: str = ""
    """SHA-256 of the patterns, computed when they are loaded; if set, others are refused."""

    def check(self) -> None:
        known = f"must be one of {', '.join(SOURCES)}"
        self._require("source", self.source in SOURCES, known)
        self._non_negative("per_digit")
        must = "only ten images per class are bundled; use patterns.source = 'mnist' for more"
        self._require("per_digit", self.source != "bundled" or self.per_digit <= 10, must)
        self._positive("deviation")
        must = "must name a picture, a folder, an IDX file or an .npy file"
        self._require("path", self.source != "images" or self.path.strip() != "", must)
        must = "must name a folder of IDX files, arrays or pictures"
        self._require("path", self.source != "dataset" or self.path.strip() != "", must)
        must = "must be at least 0 and less than 1, and is for labelled data sets only"
        usable = self.threshold is None or (0 <= self.threshold < 1 and self.source != "images")
        self._require("threshold", usable, must)
        if self.path:
            user_path("patterns.path", self.path)
        last = 255 if self.source == "dataset" else 9
        are_classes = len(self.digits) > 0 and all(0 <= d <= last for d in self.digits)
        self._require("digits", are_classes, f"must be classes from 0 to {last}, at least one")
        once = len(set(self.digits)) == len(self.digits)
        self._require("digits", once, "must not repeat a class")
        hexadecimal = re.fullmatch("([0-9a-f]{64})?", self.content) is not None
        self._require("content", hexadecimal, "must be 64 hexadecimal digits, or be left out")

    @property
    def are_digits(self) -> bool:
        """Whether the patterns are MNIST images, which the classifier knows."""
        return self.source in ("bundled", "mnist")


@dataclass(frozen=True)
class Training(Section):
    """How the computer learns."""

    section: ClassVar[str] = "training"

    rule: Annotated[str, RULE] = "online"
    """``online`` (update after every step), ``batch`` (once per trajectory), ``delayed`` (every
    ``period`` steps), thermoloom.rules:Momentum(beta=0.9), or your own rule, module:object."""
    period: int | None = None
    """M, steps between updates: fixed by the rules ``online`` and ``batch``, needed by ``delayed``,
    and 1 by default for other rules."""
    seed: int = 101
    """Seed of the noising paths (and, in separate streams, of injected errors)."""
    cycles: int = 300
    """Number of noising trajectories; patterns are used in turn."""
    learning_rate: float | None = None
    """Learning rate α; Δt/t_f if not given."""
    learning_rate_scale: float = 1.0
    """Factor applied to α, for scans around the default."""
    learning_rate_decay: float | None = None
    """Cycles after which α has fallen to half: cycle n, counted from 0, learns at α/(1 + n/decay);
    α is constant if not given."""
    validation_seed: int = 777001
    """Seed of the fixed validation path, which starts from the first pattern."""
    validation_every: int = 10
    """Cycles between evaluations of the validation loss."""

    def check(self) -> None:
        known = self.rule in RULES or is_extension(self.rule)
        self._require("rule", known, f"must be one of {', '.join(RULES)}, or module:object")
        if self.rule == "delayed":
            must = "rule 'delayed' needs the number of steps between updates, at least 1"
            self._require("period", self.period is not None and self.period >= 1, must)
        elif is_extension(self.rule):
            self._positive("period")
        else:
            must = f"rule {self.rule!r} fixes the period; use rule = 'delayed' to choose it"
            self._require("period", self.period is None, must)
        self._positive("cycles", "validation_every", "learning_rate_scale")
        self._non_negative("seed", "validation_seed")
        self._positive("learning_rate", "learning_rate_decay")


@dataclass(frozen=True)
class Solver(Section):
    """How the computer is solved: its parameters minimize the expected loss, without training."""

    section: ClassVar[str] = "solver"

    heat_weight: float = 0.0
    """λ, weight of the expected heat (in k_BT), which is added to the loss."""
    ridge: float = 0.0
    """ρ, weight of a penalty ½ρ|θ|², which is added to the loss."""

    def check(self) -> None:
        self._non_negative("heat_weight", "ridge")


@dataclass(frozen=True)
class Imperfections(Section):
    """Errors injected into learning; all off by default."""

    section: ClassVar[str] = "imperfections"

    residual_noise: float = 0.0
    """σ_res, standard deviation of the error added to every node residual at every step."""
    residual_offset: float = 0.0
    """μ_bias, constant added to every node residual."""
    residual_correlation: float = 0.0
    """ρ, AR(1) coefficient of the residual error from step to step (0: independent)."""
    update_noise: float = 0.0
    """σ_upd, standard deviation of the error added to every coupling or bias update."""
    bits: int = 32
    """Bits of the coupling grid during training; 32 = unquantized float32."""
    rounding: str = "nearest"
    """``nearest`` or ``stochastic``, where bits < 32."""
    range_visible_hidden: float | None = None
    """A_max of J_vh: the grid spans ±A_max (needed where bits < 32)."""
    range_hidden_hidden: float | None = None
    """A_max of J_hh (needed where bits < 32)."""
    errors: Annotated[str, ERROR] = ""
    """Your own residual errors, module:object."""

    def additive(self, machine: Machine, seed: int, trajectory: int) -> NDArray[np.float32] | None:
        """User-defined errors that are added to residuals, (K, N); None if there are none."""
        model = ERROR.object("imperfections.errors", self.errors) if self.errors else None
        if model is None or not hasattr(model, "additive"):
            return None
        errors, shape = model.additive(machine, seed, trajectory), (machine.steps, machine.units)
        try:
            return np.ascontiguousarray(np.broadcast_to(np.asarray(errors, np.float32), shape))
        except (TypeError, ValueError):
            raise UserError(
                f"imperfections.errors: additive returns {np.shape(errors)}; expected numbers of "
                f"shape {shape} (steps, units)"
            ) from None

    def check(self) -> None:
        self._non_negative("residual_noise", "update_noise")
        correlation, plain = self.residual_correlation, self.bits == 32
        self._require("residual_correlation", 0 <= correlation < 1, "must be in [0, 1)")
        must = "correlates the residual noise, so residual_noise must be positive"
        self._require("residual_correlation", correlation == 0 or self.residual_noise > 0, must)
        must = "must be 2 to 24, or 32 for unquantized float32"
        self._require("bits", plain or 2 <= self.bits <= 24, must)
        known = self.rounding in ("nearest", "stochastic")
        self._require("rounding", known, "must be nearest or stochastic")
        self._positive("range_visible_hidden", "range_hidden_hidden")
        must = (
            "a grid needs positive range_visible_hidden and range_hidden_hidden, such as the "
            "largest |J_vh| and |J_hh| of an unquantized run"
        )
        ranges = (self.range_visible_hidden, self.range_hidden_hidden)
        self._require("bits", plain or None not in ranges, must)
        must = (
            f"not defined on a grid of imperfections.bits = {self.bits}; use bits = 32 or "
            "update_noise = 0"
        )
        self._require("update_noise", plain or self.update_noise == 0, must)


@dataclass(frozen=True)
class GenerationSettings(Section):
    """How the frozen computer is sampled."""

    section: ClassVar[str] = "generation"

    samples: int = 200
    """Number of independent denoising trajectories."""
    seed: int | None = None
    """Generation seed; 90000 + training seed if not given."""

    def check(self) -> None:
        self._positive("samples")
        self._non_negative("seed")


@dataclass(frozen=True)
class MeasureSettings(Section):
    """How samples are judged."""

    section: ClassVar[str] = "measures"

    classifier: str = ""
    """Folder of a classifier made by ``thermoloom classifier train``; if empty, MNIST digits are
    judged by the bundled one and other data sets are not judged."""

    def check(self) -> None:
        if self.classifier:
            user_path("measures.classifier", self.classifier)


@dataclass(frozen=True)
class Settings:
    """Everything that determines a result."""

    machine: Machine = field(default_factory=Machine)
    patterns: PatternSettings = field(default_factory=PatternSettings)
    training: Training = field(default_factory=Training)
    imperfections: Imperfections = field(default_factory=Imperfections)
    device: Device = field(default_factory=Device)
    generation: GenerationSettings = field(default_factory=GenerationSettings)
    measures: MeasureSettings = field(default_factory=MeasureSettings)
    solver: Solver | None = None
    """None: the computer is trained."""

    def __post_init__(self) -> None:
        for name, section in _SECTIONS.items():
            if name == Solver.section and self.solver is None:
                continue
            if not isinstance(getattr(self, name), section):
                value = shown(getattr(self, name))
                raise UserError(f"{name} = {value}: expected {section.__name__}(...)")
        require(
            SMALLEST <= self.learning_rate <= LARGEST,
            "training.learning_rate, training.learning_rate_scale",
            (self.training.learning_rate, self.training.learning_rate_scale),
            f"α = {self.learning_rate:.2g} is not a float32 number",
        )
        require(
            self.measures.classifier == "" or self.patterns.source != "images",
            "measures.classifier",
            self.measures.classifier,
            "a classifier judges labelled data sets only; leave it out where "
            f"patterns.source = {self.patterns.source!r}",
        )
        if self.training.period is not None:
            require(
                self.period <= self.machine.steps,
                "training.period",
                self.training.period,
                f"must not exceed the {self.machine.steps} steps of a trajectory",
            )
        for key, off in (("bits", 32), ("update_noise", 0)):
            value = getattr(self.imperfections, key)
            require(
                value == off or not self.device.couples,
                f"imperfections.{key}",
                value,
                "not defined on a device whose couplings differ from the written ones; use "
                f"{off}, or a device without coupling errors",
            )
        custom_rule, errors = is_extension(self.training.rule), self.imperfections
        require(
            errors.bits == 32 or (self.period == 1 and not custom_rule),
            "imperfections.bits",
            errors.bits,
            "quantized training is defined for the online rule only (training.rule = 'online')",
        )
        require(
            errors.update_noise == 0 or not (custom_rule or errors.errors),
            "imperfections.update_noise",
            errors.update_noise,
            "not defined with your own rule or errors; let your code add the noise",
        )

    @property
    def built(self) -> Machine:
        """The machine on its device; the machine itself if the device has no imperfection."""
        return build(self.machine, self.device)

    @property
    def without_update_noise(self) -> Settings:
        """These settings without update noise, the same for every strength of the noise."""
        return replace(self, imperfections=replace(self.imperfections, update_noise=0.0))

    @property
    def solved(self) -> bool:
        """Whether the computer is solved, not trained."""
        return self.solver is not None

    @property
    def period(self) -> int:
        """Update period M: 1 online, K batch, ``training.period`` if delayed."""
        fixed = {"online": 1, "batch": self.machine.steps}
        return fixed.get(self.training.rule, self.training.period or 1)

    @property
    def learning_rate(self) -> float:
        """α, by default Δt/t_f, times its scale."""
        base = self.training.learning_rate
        if base is None:
            base = self.machine.dt / self.machine.duration
        return base * self.training.learning_rate_scale

    def learning_rate_of(self, cycle: int) -> float:
        """α of a cycle, counted from 0."""
        decay = self.training.learning_rate_decay
        return self.learning_rate if decay is None else self.learning_rate / (1 + cycle / decay)

    @property
    def generation_seed(self) -> int:
        seed = self.generation.seed
        return 90000 + self.training.seed if seed is None else seed

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """Plain nested dictionary (tuples as lists), as stored in manifests.

        Without a solver, its section is left out.
        """
        as_lists: dict[str, dict[str, Any] | None] = json.loads(json.dumps(asdict(self)))
        return {section: values for section, values in as_lists.items() if values is not None}

    def to_toml(self) -> str:
        """Settings as TOML; keys without a value are left out."""
        return toml_of(self.as_dict())

    def updated(self, values: Mapping[str, Mapping[str, Any]]) -> Settings:
        """A copy with ``{section: {key: value}}`` replaced; unknown names are refused.

        ``{"solver": {}}`` is a computer that is solved, ``{"solver": None}`` one that is trained.
        """
        sections: dict[str, Any] = {}
        for section, entries in current_names(values).items():
            if section not in _SECTIONS:
                raise UserError(unknown("section", section, _SECTIONS))
            if section == Solver.section and entries is None:
                sections[section] = None
                continue
            if not isinstance(entries, Mapping):
                raise UserError(f"{section}: expected a table [{section}] of settings")
            known = {entry.name for entry in fields(_SECTIONS[section])}
            for key in entries:
                if key not in known:
                    raise UserError(unknown("setting", f"{section}.{key}", _all_keys()))
            before = getattr(self, section)
            sections[section] = replace(Solver() if before is None else before, **entries)
        return replace(self, **sections)

    @classmethod
    def from_dict(cls, values: Mapping[str, Mapping[str, Any]]) -> Settings:
        return cls().updated(values)


RENAMED = {
    "prototypes.projection_seed": "machine.code_seed",
    "projection_seed": "machine.code_seed",
    "training.heat_weight": "solver.heat_weight",
    "training.ridge": "solver.ridge",
    "experiment.paths_per_prototype": "study.paths_per_pattern",
    "study.paths_per_prototype": "study.paths_per_pattern",
}
"""Settings that had another name before 0.3."""
RENAMED_TABLES = {"physics": "machine", "prototypes": "patterns", "experiment": "study"}
"""Tables of settings that had another name before 0.3."""


def current_name(name: str) -> str:
    """The current name of a setting."""
    name = RENAMED.get(name, name)
    section, dot, key = name.partition(".")
    return f"{RENAMED_TABLES.get(section, section)}{dot}{key}" if dot else name


def current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under their current names."""
    tables: dict[str, Any] = {}
    for section, entries in _with_solver(values).items():
        if not isinstance(entries, Mapping):
            tables[section] = entries
            continue
        tables.setdefault(current_name(f"{section}.").partition(".")[0], {})
        for key, value in entries.items():
            table, _, name = current_name(f"{section}.{key}").partition(".")
            tables.setdefault(table, {})[name] = value
    return tables


def _with_solver(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings in which the former rule ``optimum`` is a solver; weights of zero are left out."""
    training = values.get("training")
    if not isinstance(training, Mapping):
        return values
    solved = training.get("rule") == "optimum"
    weights = {key: training[key] for key in ("heat_weight", "ridge") if key in training}
    if not solved and not weights:
        return values
    dropped = {"rule"} if solved else set()
    if not solved and not any(weights.values()):
        dropped |= weights.keys()
    trained = {key: value for key, value in training.items() if key not in dropped}
    solver = {"solver": values.get("solver") or {}} if solved else {}
    return {**values, "training": trained, **solver}


def toml_of(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """TOML of ``{section: {key: value}}``; keys without a value are left out."""
    without_none = {
        section: {key: value for key, value in values.items() if value is not None}
        for section, values in tables.items()
    }
    return tomli_w.dumps(without_none)


_SECTIONS: dict[str, type] = get_type_hints(Settings) | {Solver.section: Solver}


_TABLES = _SECTIONS | {EngineSettings.section: EngineSettings}
"""Tables of a settings file: those of ``Settings``, and the engine of the process."""


def _all_keys() -> list[str]:
    return [f"{name}.{f.name}" for name, section in _TABLES.items() for f in fields(section)]


def settings_file() -> str:
    """Every setting with its default and its meaning, as a TOML file.

    A solver is not among the defaults, so its lines are comments.
    """
    lines: list[str] = []
    for name, section in _TABLES.items():
        texts, defaults = meanings(section), section()
        if section is Solver:
            lines += ["# With this table, the computer is solved, not trained.", "# [solver]"]
            for key, value in asdict(defaults).items():
                lines += [f"# {texts[key].replace('``', '')}", f"# {key} = {value}"]
            lines.append("")
            continue
        lines += [f"[{name}]"]
        for key, value in asdict(defaults).items():
            meaning = texts[key].replace("``", "").splitlines()
            lines += [f"# {line.strip()}" for line in meaning if line.strip()]
            lines.append(f"# {key} =" if value is None else f"{key} = {json.dumps(value)}")
        lines.append("")
    return "\n".join(lines)


def parse_assignment(text: str, extra_section: str = "") -> dict[str, dict[str, Any]]:
    """``key=value`` from the command line as ``{section: {key: value}}``.

    The value is read as TOML, or as plain text if that fails (``rule=batch``). The caller checks
    the keys of ``extra_section``.
    """
    key, equals, raw = text.partition("=")
    key = current_name(key.strip())
    if not equals or not key:
        raise UserError(f"--set {shown(text)}: expected key=value, such as machine.kT=0.2")
    matches = [name for name in _all_keys() if name == key or name.partition(".")[2] == key]
    if extra_section and key.startswith(f"{extra_section}."):
        matches = [key]
    if not matches:
        message = unknown("setting", key, _all_keys())
        if extra_section:
            start = " Settings" if message.endswith("?") else "; settings"
            message += f"{start} of the study are written {extra_section}.KEY"
        raise UserError(message)
    elsewhere = [name for name in matches if not name.startswith("device.")]
    if len(elsewhere) == 1:  # bits alone means those of training, not of the device
        matches = elsewhere
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
