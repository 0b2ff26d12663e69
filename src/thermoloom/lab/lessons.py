"""The small machine that is taught: 14 × 14 pixels, some hidden units, a label for each pattern.

It has the paper's potential, temperature and duration, and a time step five times as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from thermoloom.computers.computer import Computer
from thermoloom.computers.learning import reached_by, solve_computer
from thermoloom.computers.pattern_store import named
from thermoloom.errors import UserError
from thermoloom.generation import generate
from thermoloom.lab.messages import Teach
from thermoloom.lab.scenes import as_bytes, number
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.drive import drive_of
from thermoloom.patterns.patterns import from_images
from thermoloom.settings import Settings
from thermoloom.training.trainer import Reached, Trainee, train

SIDE = 14
SHOW_EVERY = 0.04
"""Seconds between two pictures of the couplings."""
TRY_EVERY = 0.6
"""Seconds between two trial generations."""
TRIAL_SEED = 7

Show = Callable[[dict[str, Any], bytes], None]
"""``show(numbers, bytes)``; raises an exception to end the task."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """A taught computer, its patterns, and the requests that taught it."""

    computer: Computer
    pixels: tuple[bytes, ...]
    taught: tuple[Teach, ...]


def machine_for(patterns: int, hidden: int) -> Machine:
    """The small machine for this number of patterns and hidden units."""
    return Machine(visible=SIDE * SIDE, hidden=hidden, labels=patterns, dt=5e-3)


def training_of(order: Teach, before: int = 0) -> dict[str, Any]:
    """The request as settings of ``[training]``."""
    period = {"period": order.period} if order.rule == "delayed" else {}
    return {"rule": order.rule, "cycles": before + order.cycles,
            "learning_rate_scale": order.rate, "validation_every": 1} | period  # fmt: skip


def teach(order: Teach, before: Lesson | None, show: Show, enough: Callable[[], bool]) -> Lesson:
    """Learn the patterns until done or until ``enough`` returns true; ``show`` the progress."""
    if any(len(pixels) != SIDE * SIDE for pixels in order.patterns):
        raise UserError(f"patterns: must be {SIDE} × {SIDE} pixels")
    machine = machine_for(len(order.patterns), order.hidden)
    images = [np.frombuffer(data, np.uint8).reshape(SIDE, SIDE) for data in order.patterns]
    learned = from_images(np.stack(images), machine, classes=range(len(images)))
    pixels, solving = tuple(order.patterns), order.rule == "optimum"
    goes_on = (
        order.more and not solving and before is not None
        and before.pixels == pixels and before.computer.parameters.machine == machine
        and not before.computer.settings.solved
    )  # fmt: skip
    reached = (
        reached_by(before.computer) if before and goes_on else Reached(Parameters.zeros(machine))
    )
    learning: dict[str, dict[str, Any]] = (
        {"solver": {}} if solving else {"training": training_of(order, reached.cycle)}
    )
    settings = named(Settings(machine=machine).updated(learning), learned)
    watch = _Watch(show)
    if solving:
        computer = solve_computer(settings, learned)
        watch(computer.parameters, [(0, computer.curve["loss"][0])], True)
        return Lesson(computer, pixels, (order,))
    trainee = Trainee(settings, reached)

    def after_cycle(_: list[Trainee]) -> bool:
        over = trainee.finished or enough()
        watch(trainee.parameters, trainee.curve, over)
        return over

    train([trainee], drive_of(learned, machine), after_cycle)
    if trainee.diverged:
        raise UserError(
            f"learning diverged in cycle {trainee.cycle}: the couplings grew without bound; "
            "lower the rate"
        )
    settings = settings.updated({"training": {"cycles": trainee.cycle}})
    done = msgspec.structs.replace(order, cycles=trainee.cycle - reached.cycle)
    taught = (*before.taught, done) if before and goes_on else (done,)
    computer = Computer(settings, trainee.parameters, learned, trainee.curve_columns())
    return Lesson(computer, pixels, taught)


class _Watch:
    """Shows the couplings during training, as often as the eye can follow, and at the end."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._sent = 0
        self._next_look = self._next_trial = 0.0

    def __call__(self, theta: Parameters, curve: Any, last: bool) -> None:
        now = time.monotonic()
        if now < self._next_look and not last:
            return
        numbers: dict[str, Any] = {
            "loss": [[int(point[0]), number(point[1])] for point in curve[self._sent :]],
            "blocks": [],
        }
        self._sent = len(curve)
        data = b""
        for block in theta.layout.blocks:
            grey, largest = couplings_as_bytes(block.dense(theta.vector[-1]))
            columns = block.columns
            numbers["blocks"].append(
                {"name": block.name, "rows": block.rows, "columns": columns,
                 "shape": block.pairs, "largest": number(largest)}
            )  # fmt: skip
            data += grey.tobytes()
        if np.isfinite(theta.vector).all() and (last or now >= self._next_trial):
            data += self._trial(theta, numbers)
            self._next_trial = time.monotonic() + TRY_EVERY
        self._show(numbers, data)
        self._next_look = time.monotonic() + SHOW_EVERY

    def _trial(self, theta: Parameters, numbers: dict[str, Any]) -> bytes:
        """One sample of each pattern at the current θ, always from the same noise."""
        machine = theta.machine
        generated = generate(theta, machine.labels, TRIAL_SEED)
        numbers["trial"] = {"samples": machine.labels, "heat": number(generated.heat.mean())}
        states = generated.final_states[:, None, : machine.visible]
        return as_bytes(states, machine.visible).tobytes()


def couplings_as_bytes(values: NDArray[Any]) -> tuple[NDArray[np.uint8], float]:
    """J as bytes, where 128 is 0, and the largest |J|, which is 255."""
    calm = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    largest = float(np.abs(calm).max(initial=0.0))
    scaled = calm * (127 / max(largest, 1e-30)) + 128
    grey: NDArray[np.uint8] = np.clip(scaled, 1, 255).round().astype(np.uint8)
    return grey, largest
