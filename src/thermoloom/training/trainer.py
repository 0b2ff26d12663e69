"""Training: cycles of noising paths, fed to one or several learners that share them.

Cycle i uses trajectory i of the training seed, from pattern i mod P. A path never sees θ, so
learners that differ in rule, learning rate or injected errors see the very same path. Computers
that differ in the strength of their update noise alone are learned together: θ⁰ + σ Δ for every σ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import Diverged, Learner, NoisyLearner, Path, engine
from thermoloom.errors import UserError
from thermoloom.feasibility import check_training
from thermoloom.interrupts import interrupts_deferred
from thermoloom.machine.action import PathLoss
from thermoloom.machine.parameters import Parameters
from thermoloom.settings import Settings

Float32 = NDArray[np.float32]
Watched = Callable[[Parameters], PathLoss]
"""The loss on a validation path as a function of θ."""

CURVE = ("cycle", "loss", "reduced_loss")
"""Columns of the validation curve: cycles done, L/K, L/K without the squared-increment term."""
PARTS = ("clean", "response")
"""θ⁰ and Δ in a checkpoint."""


class Reached(NamedTuple):
    """What training has reached. Replaced as a whole: a cycle has happened or it has not."""

    parameters: Parameters
    cycle: int = 0
    """Cycles done."""
    curve: tuple[tuple[int, float, float], ...] = ()
    diverged: bool = False
    parts: tuple[Parameters, Parameters] | None = None
    """θ⁰ and Δ where θ = θ⁰ + σ Δ has update noise; None: θ alone, as it was given."""


class _Lessons:
    """What was learned from one path: equal rules with equal θ learn it once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: list[tuple[Any, Parameters, Parameters]] = []

    def __call__(self, rule: Any, learner: Learner, theta: Parameters) -> Parameters:
        for known, before, after in self._known:
            if known == rule and (before is theta or before.same_as(theta)):
                return after
        after = learner.learn(theta, self.path)
        self._known.append((rule, theta, after))
        return after


@dataclass
class Trainee:
    """A computer in training: its settings, its rule, and how far it is."""

    settings: Settings
    learner: Learner
    reached: Reached

    @classmethod
    def new(cls, settings: Settings, start: Parameters | None = None) -> Trainee:
        """At its first cycle, from θ = ``start`` (0 if not given)."""
        theta = Parameters.zeros(settings.machine) if start is None else start.astype(np.float32)
        return cls(settings, engine().learner(settings), Reached(theta.on(settings.built)))

    @classmethod
    def restore(cls, settings: Settings, arrays: dict[str, NDArray[Any]], cycle: int) -> Trainee:
        """From what ``arrays`` gave: continues to the bit as if never interrupted."""
        theta = Parameters.from_arrays(settings.built, arrays)
        rows = zip(*(arrays[f"curve_{name}"].tolist() for name in CURVE), strict=True)
        curve = tuple((int(c), x, y) for c, x, y in rows)
        parts = None
        if PARTS[0] in arrays:
            clean, response = (theta.with_vector(arrays[name]) for name in PARTS)
            parts = clean, response
        reached = Reached(theta, cycle, curve, parts=parts)
        return cls(settings, engine().learner(settings), reached)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that a checkpoint must hold."""
        columns, parts = self.curve_columns(), self.reached.parts or ()
        return (
            self.parameters.arrays
            | {f"curve_{name}": columns[name] for name in CURVE}
            | {name: part.vector for name, part in zip(PARTS, parts, strict=False)}
        )

    def curve_columns(self) -> dict[str, NDArray[Any]]:
        columns = np.array(self.curve, float).reshape(-1, len(CURVE)).T
        return dict(zip(CURVE, columns, strict=True))

    @property
    def parameters(self) -> Parameters:
        return self.reached.parameters

    @property
    def cycle(self) -> int:
        return self.reached.cycle

    @property
    def curve(self) -> tuple[tuple[int, float, float], ...]:
        return self.reached.curve

    @property
    def diverged(self) -> bool:
        return self.reached.diverged

    @property
    def finished(self) -> bool:
        return self.diverged or self.cycle >= self.settings.training.cycles

    def learn(self, lessons: _Lessons, validation: Mapping[int, Watched]) -> None:
        """One cycle, all of it or, whatever is raised on the way, nothing."""
        reached = self.reached
        try:
            reached = self._learned(lessons)
        except Diverged:
            reached = reached._replace(diverged=True)
        reached = reached._replace(cycle=self.cycle + 1)
        self.reached = _validated(self.settings, reached, validation)

    def _learned(self, lessons: _Lessons) -> Reached:
        rule, theta, learner = self._rule, self.parameters, self.learner
        if not isinstance(learner, NoisyLearner):
            return self.reached._replace(parameters=lessons(rule, learner, theta))
        nothing = theta.with_vector(np.zeros_like(theta.vector))
        clean, response = self.reached.parts or (theta, nothing)
        clean = lessons(rule, learner.clean, clean)
        response = lessons((rule, "response"), learner.response, response)
        return self.reached._replace(
            parameters=learner.sum(clean, response), parts=(clean, response)
        )

    @cached_property
    def _rule(self) -> Settings:
        """What determines the learning of θ⁰, and of Δ."""
        return self.settings.silent


def train_together(
    trainees: Sequence[Trainee], fields: Float32, words: Float32 | None = None
) -> Iterator[list[Trainee]]:
    """Train to the end on shared paths; yields after every cycle those that took part in it.

    ``fields`` (P, N) and ``words`` (P, L) are those of the patterns. Trainees may have different
    cycles behind them (after an interruption): each takes part from its own next cycle on.
    Interrupts are honoured between the cycles of a trainee, never within one.
    """
    _check_sharing(trainees)
    settings = trainees[0].settings
    machine, seed = settings.built, settings.training.seed
    watched = {t.settings.training.validation_seed: t.settings for t in trainees}
    validation = {
        seed: engine().watch(validation_path(each, fields, words)) for seed, each in watched.items()
    }
    for trainee in trainees:
        theta = trainee.parameters.with_styles_of(words)
        trainee.reached = trainee.reached._replace(parameters=theta)
        if trainee.cycle == 0 and not trainee.curve:
            trainee.reached = _validated(trainee.settings, trainee.reached, validation)
    path: Path | None = None
    while any(not t.finished for t in trainees):
        cycle = min(t.cycle for t in trainees if not t.finished)
        pattern = cycle % len(fields)
        word = None if words is None else words[pattern]
        path = engine().path(machine, fields[pattern], seed, cycle, word, reuse=path)
        present = [t for t in trainees if t.cycle == cycle and not t.finished]
        lessons = _Lessons(path)
        for trainee in present:
            with interrupts_deferred():
                trainee.learn(lessons, validation)
        yield present


def validation_path(settings: Settings, fields: Float32, words: Float32 | None = None) -> Path:
    """The fixed path on which the loss is watched; from the first pattern."""
    seed = settings.training.validation_seed
    word = None if words is None else words[0]
    return engine().path(settings.built, fields[0], seed, 0, word, stream="validation ")


def _validated(settings: Settings, reached: Reached, watched: Mapping[int, Watched]) -> Reached:
    """The same, with one more point on the validation curve of its seed where one is due."""
    every, cycles = settings.training.validation_every, settings.training.cycles
    if reached.diverged or (reached.cycle % every and reached.cycle != cycles):
        return reached
    found = watched[settings.training.validation_seed](reached.parameters)
    return reached._replace(curve=(*reached.curve, (reached.cycle, *found)))


def _check_sharing(trainees: Sequence[Trainee]) -> None:
    """Learners can share paths only if nothing that makes the paths differs."""
    first = trainees[0].settings
    for other in (t.settings for t in trainees[1:]):
        same = (
            other.built == first.built
            and other.prototypes == first.prototypes
            and other.training.seed == first.training.seed
        )
        if not same:
            raise UserError(
                "learners that share paths need equal machine, device, prototypes and training.seed"
            )


@dataclass(frozen=True)
class Trained:
    """Trained parameters with their validation curve."""

    parameters: Parameters
    curve: dict[str, NDArray[Any]]
    diverged_in: int | None = None
    """The cycle in which the parameters ceased to be finite, if they did."""


def train(
    settings: Settings,
    fields: Float32,
    words: Float32 | None = None,
    start: Parameters | None = None,
    on_cycle: Callable[[Trainee], None] | None = None,
) -> Trained:
    """Train one computer from θ = ``start`` (0 if not given), in memory."""
    check_training(settings, fields)
    trainee = Trainee.new(settings, start)
    for _ in train_together([trainee], fields, words):
        if on_cycle:
            with interrupts_deferred():  # whatever it catches, an interrupt is not lost in it
                on_cycle(trainee)
    diverged_in = trainee.cycle if trainee.diverged else None
    return Trained(trainee.parameters, trainee.curve_columns(), diverged_in)
