"""Training and solving of computers in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from thermoloom.computers.computer import Computer
from thermoloom.computers.pattern_store import named
from thermoloom.engines import engine
from thermoloom.errors import UserError
from thermoloom.inputs import whole_number
from thermoloom.machine.device import Device
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.patterns.drive import drive_of
from thermoloom.patterns.patterns import Patterns
from thermoloom.patterns.sources import Source as Source
from thermoloom.patterns.sources import patterns_from_source
from thermoloom.presentation.call_progress import call_progress, solver_progress
from thermoloom.settings import Imperfections, Settings, Solver, Training
from thermoloom.theory.solver import solve_optimum
from thermoloom.training.checks import check_learning
from thermoloom.training.trainer import CURVE, Reached, Trainee, train, validation_path

Array = NDArray[Any]
Code = Array | Callable[[Array], ArrayLike]
"""Fields of the hidden units, (P, N_h), or a function that returns them for patterns (P, N_v)."""
OnCycle = Callable[[int, float], None]
"""``on_cycle(cycles done, latest validation loss)``"""
OnIteration = Callable[[int, float], None]
"""``on_iteration(iterations done, relative gradient)``"""
SOLVER_SETTINGS = {entry.name for entry in fields(Solver)} | {"seed", "validation_seed"}
"""Settings of a solution: the seeds are those of its samples and of its validation path."""


# --- training -------------------------------------------------------------------------------------


def train_machine(
    machine: Machine,
    images: Source,
    classes: ArrayLike | None,
    *,
    device: Device | None,
    on_cycle: OnCycle | None,
    data: dict[str, Any],
    **settings: Any,
) -> Computer:
    """Train a machine from θ = 0; ``settings`` are those of [training] and [imperfections]."""
    patterns = patterns_from_source(images, classes, machine, **data)
    machine = _learning(machine, patterns)
    learning = _settings(machine, device, (Training, Imperfections), settings)
    return train_computer(learning, patterns, Reached(Parameters.zeros(learning.built)), on_cycle)


def continue_training(
    computer: Computer,
    images: Source | None,
    classes: ArrayLike | None,
    cycles: int,
    *,
    resize: bool,
    code: Code | None,
    on_cycle: OnCycle | None,
    **settings: Any,
) -> Computer:
    """Another computer, trained further; without images, on the learned patterns."""
    machine, device = computer.machine, computer.settings.device
    before, reached = computer.settings, reached_by(computer)
    if before.solved:
        before = Settings(machine=machine)
    learning = asdict(before.training) | asdict(before.imperfections) | settings
    if learning["rule"] in ("online", "batch") and "period" not in settings:
        learning["period"] = None
    learning["cycles"] = reached.cycle + whole_number("cycles", cycles, 1)
    further = _settings(machine, device, (Training, Imperfections), learning)
    same_rule = further.training.rule == before.training.rule
    if not same_rule or further.imperfections != before.imperfections:
        reached = reached._replace(state=None)
    if images is None:
        if classes is not None or code is not None:
            raise UserError("classes, code: belong to new images; pass images too")
        computer.patterns.needed_for("train")
        patterns = computer.patterns
    else:
        scale = computer.patterns.scale
        patterns = patterns_from_source(images, classes, machine, resize, code, scale)
    return train_computer(further, patterns, reached, on_cycle)


def reached_by(computer: Computer) -> Reached:
    """The state from which training continues; a solved computer starts at cycle 0."""
    if computer.settings.solved:
        return Reached(computer.parameters)
    points = zip(*computer.curve.values(), strict=True)
    curve = tuple((int(cycle), float(x), float(y)) for cycle, x, y in points)
    cycles = computer.settings.training.cycles
    return Reached(computer.parameters, cycles, curve, state=computer.memory or None)


def train_computer(
    settings: Settings, patterns: Patterns, reached: Reached, on_cycle: OnCycle | None = None
) -> Computer:
    """Continue training until ``training.cycles``; a divergence raises ``UserError``."""
    trainee = Trainee(settings, reached)
    trainee.check_state()
    with call_progress("training", settings.training.cycles, "cycles") as report:

        def after_cycle(_: list[Trainee]) -> None:
            report(trainee.cycle)
            if on_cycle and trainee.curve:
                on_cycle(trainee.cycle, trainee.curve[-1][1])

        train([trainee], drive_of(patterns, settings.machine), after_cycle)
    if trainee.diverged:
        raise UserError(
            f"training diverged in cycle {trainee.cycle}; try a smaller learning rate "
            "(learning_rate_scale)"
        )
    curve, memory = trainee.curve_columns(), dict(trainee.reached.state or {})
    learned = named(settings, patterns)
    return Computer(learned, trainee.parameters, patterns, curve, memory=memory)


# --- solving --------------------------------------------------------------------------------------


def solve_machine(
    machine: Machine,
    images: Source,
    classes: ArrayLike | None,
    *,
    on_iteration: OnIteration | None,
    data: dict[str, Any],
    **settings: Any,
) -> Computer:
    """A machine with the parameters of least expected loss.

    ``settings``: those of [solver] and the seeds of [training], by name. Other settings of training
    would have no effect.
    """
    for key in settings:
        if key not in SOLVER_SETTINGS:
            known = ", ".join(sorted(SOLVER_SETTINGS))
            raise UserError(f"{key}: no such argument; known: {known}")
    patterns = patterns_from_source(images, classes, machine, **data)
    machine = _learning(machine, patterns)
    learning = _settings(machine, None, (Solver, Training), settings)
    solved = learning.updated({"solver": {}})
    return solve_computer(solved, patterns, on_iteration)


def solve_computer(
    settings: Settings,
    patterns: Patterns,
    on_iteration: OnIteration | None = None,
    tolerance: float = 1e-6,
) -> Computer:
    """The computer of least expected loss; its curve is a single point, the validation loss."""
    drive = drive_of(patterns, settings.machine)
    check_learning(settings, drive)
    solver = settings.solver or Solver()
    with solver_progress(tolerance) as report:

        def after_iteration(iteration: int, gradient: float) -> None:
            report(iteration, gradient)
            if on_iteration:
                on_iteration(iteration, gradient)

        solution = solve_optimum(
            settings.machine,
            drive,
            tolerance,
            progress=after_iteration,
            heat_weight=solver.heat_weight,
            ridge=solver.ridge,
        )
    terms = engine().terms(solution.parameters, validation_path(settings, drive))
    point = (0.0, terms.loss, terms.reduced_loss)
    curve = {name: np.array([number]) for name, number in zip(CURVE, point, strict=True)}
    return Computer(named(settings, patterns), solution.parameters, patterns, curve, solution)


def _learning(machine: Machine, patterns: Patterns) -> Machine:
    """The machine with the scale of these patterns, and with their code if they have one."""
    code = machine.code if patterns.code is None else "given"
    return replace(machine, scale=patterns.scale.kind, code=code)


def _settings(
    machine: Machine,
    device: Device | None,
    sections: tuple[type, ...],
    arguments: dict[str, Any],
) -> Settings:
    """Settings of a machine; arguments become settings of these sections by their names."""
    tables: dict[str, dict[str, Any]] = {}
    for section in sections:
        names = {entry.name for entry in fields(section)}
        table = {key: value for key, value in arguments.items() if key in names}
        if table:
            tables[section.section] = table  # type: ignore[attr-defined]
    known = {entry.name for section in sections for entry in fields(section)}
    for key in arguments:
        if key not in known:
            raise UserError(f"{key}: no such argument; known: {', '.join(sorted(known))}")
    start = Settings(machine=machine, device=Device() if device is None else device)
    return start.updated(tables)
