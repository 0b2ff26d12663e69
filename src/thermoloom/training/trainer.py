"""Training: one or several learners learn from shared noising paths, one path per cycle.

    cycle i:   path i of the training seed, from pattern i mod P
               θ, state ← learner.update(θ, state, path)

A path does not depend on θ, so learners that differ in rule, learning rate or injected errors share
it, and equal learners share the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import Learner, Path, State, engine, learn_in_turn
from thermoloom.errors import UserError
from thermoloom.feasibility import paths_together
from thermoloom.interrupts import interrupts_deferred
from thermoloom.machine.action import PathLoss
from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.drive import Drive
from thermoloom.settings import Settings
from thermoloom.training.checks import check_training

Watched = Callable[[Parameters], PathLoss]
"""The loss on a validation path as a function of θ."""
OnCycle = Callable[[list["Trainee"]], bool | None]
"""``on_cycle(trainees that took part)``; True ends training early."""

CURVE = ("cycle", "loss", "reduced_loss")
"""Columns of the validation curve: cycles done, L/K, L/K without the squared-increment term."""
STATE = "state_"
"""Prefix of the learner's state in a checkpoint."""


class Reached(NamedTuple):
    """State of a training. It is replaced as one object, so that no cycle is ever half done."""

    parameters: Parameters
    cycle: int = 0
    """Cycles done."""
    curve: tuple[tuple[int, float, float], ...] = ()
    diverged: bool = False
    state: State | None = None
    """State of the learner; None before the first path."""


@dataclass
class Trainee:
    """A computer in training: its settings and the state it has reached."""

    settings: Settings
    reached: Reached

    @classmethod
    def new(cls, settings: Settings, start: Parameters | None = None) -> Trainee:
        """A trainee before its first cycle, at θ = ``start`` (0 by default)."""
        theta = Parameters.zeros(settings.machine) if start is None else start.astype(np.float32)
        return cls(settings, Reached(theta.on(settings.built)))

    @classmethod
    def restore(cls, settings: Settings, arrays: dict[str, NDArray[Any]], cycle: int) -> Trainee:
        """A trainee from the ``arrays`` of a checkpoint; it continues as if never interrupted."""
        theta = Parameters.from_stored(settings.built, arrays)
        columns = [arrays[f"curve_{name}"] for name in CURVE]
        if {(c.dtype.name, c.shape) for c in columns} != {("float64", (len(columns[0]),))}:
            raise ValueError("the columns of the validation curve are not float64 of equal length")
        check_cycles(columns[0])
        curve = tuple(
            (int(c), x, y) for c, x, y in zip(*(c.tolist() for c in columns), strict=True)
        )
        names = [name for name in arrays if name.startswith(STATE)]
        state = {name.removeprefix(STATE): arrays[name] for name in names} or None
        trainee = cls(settings, Reached(theta, cycle, curve, state=state))
        trainee.check_state()
        return trainee

    def check_state(self) -> None:
        """Refuse a state that is not one of this learning rule."""
        state = self.reached.state
        begins = {} if state is None else self.learner.init(self.parameters)
        if any(not _alike(state, name, array) for name, array in begins.items()):
            raise UserError("the state of the learner does not fit this learning rule")

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of a checkpoint."""
        columns, state = self.curve_columns(), self.reached.state or {}
        return (
            self.parameters.arrays
            | {f"curve_{name}": columns[name] for name in CURVE}
            | {f"{STATE}{name}": values for name, values in state.items()}
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

    def learn(self, path: Path, validation: Mapping[int, Watched]) -> None:
        """Learn one cycle completely or, if an exception is raised, not at all."""
        _learn([self], path, validation)

    @cached_property
    def learner(self) -> Learner:
        """The learner of the settings."""
        return engine().learner(self.settings)


def train(trainees: Sequence[Trainee], drive: Drive, on_cycle: OnCycle | None = None) -> None:
    """Train to the end on shared paths.

    After an interruption trainees may have reached different cycles: each joins at its next cycle.
    ``on_cycle`` is called after every cycle. Interrupts take effect between the cycles of a
    trainee, never within a cycle or within ``on_cycle``.
    """
    for trainee in trainees:
        check_training(trainee.settings, drive)
    _check_sharing(trainees)
    settings = trainees[0].settings
    watched = {t.settings.training.validation_seed: t.settings for t in trainees}
    validation = {
        seed: engine().watch(validation_path(each, drive)) for seed, each in watched.items()
    }
    for trainee in trainees:
        theta = trainee.parameters.with_styles_of(drive.words)
        trainee.reached = trainee.reached._replace(parameters=theta)
        if trainee.cycle == 0 and not trainee.curve:
            trainee.reached = _validated(trainee.settings, trainee.reached, validation)
    paths = _TrainingPaths(settings, drive, max(t.settings.training.cycles for t in trainees))
    beside = hasattr(engine(), "learn_together")
    together = paths_together(settings.machine) if beside else 1
    while any(not t.finished for t in trainees):
        cycle = min(t.cycle for t in trainees if not t.finished)
        path = paths.of_cycle(cycle)
        present = [t for t in trainees if t.cycle == cycle and not t.finished]
        for first in range(0, len(present), together):
            with interrupts_deferred():
                _learn(present[first : first + together], path, validation)
        if on_cycle:
            with interrupts_deferred():  # an interrupt cannot get lost in the callback
                ends = on_cycle(present)
            if ends:
                return


def _learn(trainees: Sequence[Trainee], path: Path, validation: Mapping[int, Watched]) -> None:
    """Learn one cycle with several trainees together: either all complete it, or none."""
    learners, thetas = [t.learner for t in trainees], [t.parameters for t in trainees]
    states = [
        learner.init(trainee.parameters) if trainee.reached.state is None else trainee.reached.state
        for learner, trainee in zip(learners, trainees, strict=True)
    ]
    learn = engine().learn_together if len(trainees) > 1 else learn_in_turn
    reached = []
    for trainee, lesson in zip(trainees, learn(learners, thetas, states, path), strict=True):
        after = trainee.reached._replace(cycle=trainee.cycle + 1, diverged=lesson is None)
        if lesson is not None:
            after = after._replace(parameters=lesson[0], state=lesson[1])
        reached.append(_validated(trainee.settings, after, validation))
    for trainee, after in zip(trainees, reached, strict=True):
        trainee.reached = after


class _TrainingPaths:
    """The noising paths of a training seed, in the batches that the engine simulates together.

    Batches begin at multiples of their size, so that a resumed training has the same paths.
    """

    def __init__(self, settings: Settings, drive: Drive, cycles: int) -> None:
        self.machine, self.seed = settings.built, settings.training.seed
        self.drive, self.cycles = drive, cycles
        self.together = min(getattr(engine(), "PATHS", 1), paths_together(self.machine))
        self.ahead: dict[int, Path] = {}
        self.last: Path | None = None

    def of_cycle(self, cycle: int) -> Path:
        if self.together == 1:
            field, word = self._start(cycle)
            self.last = engine().path(self.machine, field, self.seed, cycle, word, reuse=self.last)
            return self.last
        if cycle not in self.ahead:
            first = cycle - cycle % self.together
            numbers = range(first, min(first + self.together, self.cycles))
            fields, words = zip(*map(self._start, numbers), strict=True)
            paths = engine().paths(self.machine, fields, self.seed, numbers, words)
            self.ahead = {path.number: path for path in paths}
        return self.ahead.pop(cycle)

    def _start(self, cycle: int) -> tuple[Any, Any]:
        """Field and label word of the pattern of a cycle."""
        pattern = cycle % len(self.drive.fields)
        return self.drive.fields[pattern], self.drive.word(pattern)


def validation_path(settings: Settings, drive: Drive) -> Path:
    """The fixed path of the validation loss, from the first pattern."""
    seed = settings.training.validation_seed
    field, word = drive.fields[0], drive.word(0)
    return engine().path(settings.built, field, seed, 0, word, purpose="validation")


def _validated(settings: Settings, reached: Reached, watched: Mapping[int, Watched]) -> Reached:
    """The state with another point on its validation curve, if one is due."""
    every, cycles = settings.training.validation_every, settings.training.cycles
    if reached.diverged or (reached.cycle % every and reached.cycle != cycles):
        return reached
    losses = watched[settings.training.validation_seed](reached.parameters)
    return reached._replace(curve=(*reached.curve, (reached.cycle, *losses)))


def _check_sharing(trainees: Sequence[Trainee]) -> None:
    """Refuse trainees whose noising paths differ."""
    first = trainees[0].settings
    for other in (t.settings for t in trainees[1:]):
        same = (
            other.built == first.built
            and other.patterns == first.patterns
            and other.training.seed == first.training.seed
        )
        if not same:
            raise UserError(
                "learners on shared paths need the same machine, device, patterns and training.seed"
            )


def check_cycles(cycles: NDArray[Any]) -> None:
    """Refuse cycles of a validation curve that are not whole and increasing."""
    whole = np.isfinite(cycles).all() and not (cycles % 1).any()
    if not whole or (cycles < 0).any() or (np.diff(cycles) <= 0).any():
        raise ValueError("the cycles of the validation curve do not increase")


def _alike(state: State | None, name: str, array: NDArray[Any]) -> bool:
    """Whether a learner's state has an array of this name, dtype and shape."""
    other = (state or {}).get(name)
    return other is not None and (other.dtype, other.shape) == (array.dtype, array.shape)
