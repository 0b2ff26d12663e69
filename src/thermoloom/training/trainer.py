"""Training: cycles of noising paths, fed to one or several learners that share them.

Cycle i uses trajectory i of the training seed, from prototype i mod P. A path never sees θ, so
learners that differ in rule, learning rate or injected errors see the very same path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.config import Settings
from thermoloom.errors import UserError
from thermoloom.feasibility import check_training
from thermoloom.physics.action import PathLoss, path_loss
from thermoloom.physics.computer import Computer
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


@dataclass
class Trainee:
    """A computer in training: its settings, learner, cycles done and validation curve."""

    settings: Settings
    learner: AnyLearner
    cycle: int = 0
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    diverged: bool = False

    @classmethod
    def new(cls, settings: Settings) -> Trainee:
        return cls(settings, make_learner(settings))

    @classmethod
    def restore(cls, settings: Settings, arrays: dict[str, NDArray[Any]], cycle: int) -> Trainee:
        """From what ``arrays`` gave: continues to the bit as if never interrupted."""
        start = Computer(*(arrays[name] for name in PARAMETERS))
        rows = zip(*(arrays[f"curve_{name}"].tolist() for name in CURVE), strict=True)
        learner = make_learner(settings, start, cycle)
        return cls(settings, learner, cycle, [(int(c), x, y) for c, x, y in rows])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that a checkpoint must hold."""
        columns = self.curve_columns()
        return self.computer.arrays | {f"curve_{name}": columns[name] for name in CURVE}

    def curve_columns(self) -> dict[str, NDArray[Any]]:
        columns = np.array(self.curve, float).reshape(-1, len(CURVE)).T
        return dict(zip(CURVE, columns, strict=True))

    @property
    def computer(self) -> Computer:
        return self.learner.computer

    @property
    def finished(self) -> bool:
        return self.diverged or self.cycle >= self.settings.training.cycles


def train_together(
    trainees: Sequence[Trainee], fields: NDArray[np.float32]
) -> Iterator[list[Trainee]]:
    """Train to the end on shared paths; yields after every cycle those that took part in it.

    ``fields`` (P, N) are those of the prototypes. Trainees may have different cycles behind them
    (after an interruption): each takes part from its own next cycle on.
    """
    _check_sharing(trainees)
    settings = trainees[0].settings
    physics, seed = settings.physics, settings.training.seed
    validation = validation_path(settings, fields)
    for trainee in trainees:
        if trainee.cycle == 0 and not trainee.curve:
            _validate(trainee, validation)
    path = np.empty((physics.steps + 1, physics.units), np.float32)
    drives = np.empty((physics.steps, physics.units), np.float32)
    while any(not t.finished for t in trainees):
        cycle = min(t.cycle for t in trainees if not t.finished)
        noising_path(physics, fields[cycle % len(fields)], seed, cycle, out=path)
        drive(physics, path, out=drives)
        present = [t for t in trainees if t.cycle == cycle and not t.finished]
        for trainee in present:
            errors = residual_errors(physics, trainee.settings.imperfections, seed, cycle)
            try:
                trainee.learner.learn(path, errors, drives)
            except Diverged:
                trainee.diverged = True
            trainee.cycle = cycle + 1
            _validate(trainee, validation)
        yield present


def validation_path(settings: Settings, fields: NDArray[np.float32]) -> NDArray[np.float32]:
    """The fixed path on which the loss is watched; from the first prototype."""
    seed = settings.training.validation_seed
    return noising_path(settings.physics, fields[0], seed, 0, stream="validation ")


def _validate(trainee: Trainee, path: NDArray[np.float32]) -> None:
    """Append to the validation curve where one is due."""
    every, cycles = trainee.settings.training.validation_every, trainee.settings.training.cycles
    if trainee.diverged or (trainee.cycle % every and trainee.cycle != cycles):
        return
    loss: PathLoss = path_loss(trainee.computer, trainee.settings.physics, path)
    trainee.curve.append((trainee.cycle, loss.full, loss.reduced))


def _check_sharing(trainees: Sequence[Trainee]) -> None:
    """Learners can share paths only if nothing that makes the paths differs."""
    first = trainees[0].settings
    for other in (t.settings for t in trainees[1:]):
        same = (
            other.physics == first.physics
            and other.prototypes == first.prototypes
            and other.training.seed == first.training.seed
        )
        if not same:
            raise UserError(
                "learners that share paths need equal physics, prototypes and training.seed"
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
            on_cycle(trainee)
    diverged_in = trainee.cycle if trainee.diverged else None
    return Trained(trainee.computer, trainee.curve_columns(), diverged_in)
