"""Training: cycles of noising paths, fed to one or several learners that share them.

Cycle i uses trajectory i of the training seed, from prototype i mod P. A path never sees θ, so
learners that differ in rule, learning rate or injected errors see the very same path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.config import Settings
from thermoloom.errors import UserError
from thermoloom.feasibility import check_training
from thermoloom.interrupts import interrupts_deferred
from thermoloom.machine.action import PathLoss, path_loss
from thermoloom.machine.computer import Computer
from thermoloom.training.imperfections import residual_errors
from thermoloom.training.learner import Diverged, Learner, drive
from thermoloom.training.noising import noising_path
from thermoloom.training.quantization import UNQUANTIZED, QuantizedLearner
from thermoloom.training.update_noise import UpdateNoiseLearner

AnyLearner = Learner | QuantizedLearner | UpdateNoiseLearner

PARAMETERS = ("visible_hidden", "hidden_hidden", "hidden_bias")
CURVE = ("cycle", "loss", "reduced_loss")
"""Columns of the validation curve: cycles done, L/K, L/K without the squared-increment term."""


def make_learner(
    settings: Settings, start: Computer | None = None, trajectory: int = 0
) -> AnyLearner:
    """The learner that these settings ask for, from θ = ``start`` (0 if not given).

    ``trajectory`` numbers its next noising path: rounding and update noise are counted by it.
    """
    if settings.imperfections.bits != UNQUANTIZED:
        return QuantizedLearner.from_settings(settings, start, trajectory)
    if settings.imperfections.update_noise > 0:
        return UpdateNoiseLearner.from_settings(settings, start, trajectory)
    return Learner.from_settings(settings, start)


class Reached(NamedTuple):
    """What training has reached. Replaced as a whole: a cycle has happened or it has not."""

    learner: AnyLearner
    cycle: int = 0
    """Cycles done."""
    curve: tuple[tuple[int, float, float], ...] = ()
    diverged: bool = False


@dataclass
class Trainee:
    """A computer in training: its settings, and how far it is."""

    settings: Settings
    reached: Reached

    @classmethod
    def new(cls, settings: Settings) -> Trainee:
        return cls(settings, Reached(make_learner(settings)))

    @classmethod
    def restore(cls, settings: Settings, arrays: dict[str, NDArray[Any]], cycle: int) -> Trainee:
        """From what ``arrays`` gave: continues to the bit as if never interrupted."""
        start = Computer(*(arrays[name] for name in PARAMETERS))
        rows = zip(*(arrays[f"curve_{name}"].tolist() for name in CURVE), strict=True)
        learner = make_learner(settings, start, cycle)
        return cls(settings, Reached(learner, cycle, tuple((int(c), x, y) for c, x, y in rows)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that a checkpoint must hold."""
        columns = self.curve_columns()
        return self.computer.arrays | {f"curve_{name}": columns[name] for name in CURVE}

    def curve_columns(self) -> dict[str, NDArray[Any]]:
        columns = np.array(self.curve, float).reshape(-1, len(CURVE)).T
        return dict(zip(CURVE, columns, strict=True))

    @property
    def computer(self) -> Computer:
        return self.reached.learner.computer

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

    def learn(
        self,
        path: NDArray[np.float32],
        drives: NDArray[np.float32],
        validation: Mapping[int, NDArray[np.float32]],
    ) -> None:
        """One cycle, all of it or, whatever is raised on the way, nothing."""
        settings, cycle = self.settings, self.cycle
        learner, diverged = copy(self.reached.learner), False
        seed = settings.training.seed
        errors = residual_errors(settings.machine, settings.imperfections, seed, cycle)
        try:
            learner.learn(path, errors, drives)
        except Diverged:
            diverged = True
        reached = Reached(learner, cycle + 1, self.curve, diverged)
        self.reached = _validated(settings, reached, validation)


def train_together(
    trainees: Sequence[Trainee], fields: NDArray[np.float32]
) -> Iterator[list[Trainee]]:
    """Train to the end on shared paths; yields after every cycle those that took part in it.

    ``fields`` (P, N) are those of the prototypes. Trainees may have different cycles behind them
    (after an interruption): each takes part from its own next cycle on. Interrupts are honoured
    between the cycles of a trainee, never within one.
    """
    _check_sharing(trainees)
    settings = trainees[0].settings
    machine, seed = settings.machine, settings.training.seed
    watched = {t.settings.training.validation_seed: t.settings for t in trainees}
    validation = {seed: validation_path(each, fields) for seed, each in watched.items()}
    for trainee in trainees:
        if trainee.cycle == 0 and not trainee.curve:
            trainee.reached = _validated(trainee.settings, trainee.reached, validation)
    path = np.empty((machine.steps + 1, machine.units), np.float32)
    drives = np.empty((machine.steps, machine.units), np.float32)
    while any(not t.finished for t in trainees):
        cycle = min(t.cycle for t in trainees if not t.finished)
        noising_path(machine, fields[cycle % len(fields)], seed, cycle, out=path)
        drive(machine, path, out=drives)
        present = [t for t in trainees if t.cycle == cycle and not t.finished]
        for trainee in present:
            with interrupts_deferred():
                trainee.learn(path, drives, validation)
        yield present


def validation_path(settings: Settings, fields: NDArray[np.float32]) -> NDArray[np.float32]:
    """The fixed path on which the loss is watched; from the first prototype."""
    seed = settings.training.validation_seed
    return noising_path(settings.machine, fields[0], seed, 0, stream="validation ")


def _validated(
    settings: Settings, reached: Reached, paths: Mapping[int, NDArray[np.float32]]
) -> Reached:
    """The same, with one more point on the validation curve of its seed where one is due."""
    every, cycles = settings.training.validation_every, settings.training.cycles
    if reached.diverged or (reached.cycle % every and reached.cycle != cycles):
        return reached
    path = paths[settings.training.validation_seed]
    loss: PathLoss = path_loss(reached.learner.computer, settings.machine, path)
    return reached._replace(curve=(*reached.curve, (reached.cycle, loss.full, loss.reduced)))


def _check_sharing(trainees: Sequence[Trainee]) -> None:
    """Learners can share paths only if nothing that makes the paths differs."""
    first = trainees[0].settings
    for other in (t.settings for t in trainees[1:]):
        same = (
            other.machine == first.machine
            and other.prototypes == first.prototypes
            and other.training.seed == first.training.seed
        )
        if not same:
            raise UserError(
                "learners that share paths need equal machine, prototypes and training.seed"
            )


@dataclass(frozen=True)
class Trained:
    """A trained computer with its validation curve."""

    computer: Computer
    curve: dict[str, NDArray[Any]]
    diverged_in: int | None = None
    """The cycle in which the parameters ceased to be finite, if they did."""


def train(
    settings: Settings,
    fields: NDArray[np.float32],
    on_cycle: Callable[[Trainee], None] | None = None,
) -> Trained:
    """Train one computer from θ = 0, in memory."""
    check_training(settings, fields)
    trainee = Trainee.new(settings)
    for _ in train_together([trainee], fields):
        if on_cycle:
            with interrupts_deferred():  # whatever it catches, an interrupt is not lost in it
                on_cycle(trainee)
    diverged_in = trainee.cycle if trainee.diverged else None
    return Trained(trainee.computer, trainee.curve_columns(), diverged_in)
