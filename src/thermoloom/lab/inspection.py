"""Inspection of one unit: the force on it, and the local rule at one of its couplings.

    F_i = −V′_onsite(x_i) − Σ_blocks Σ_j J_ij x_j − b_i          at a moment of a generation
    J_ij ← J_ij − α (r_i x_j′ + r_j x_i′)                    at the same moment of a noising path

Units are numbered in one sequence: free units as in a state, then label units, then the unit held
at 1 whose couplings are the biases.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import engine
from thermoloom.errors import UserError
from thermoloom.inputs import whole_number
from thermoloom.lab.lessons import couplings_as_bytes
from thermoloom.lab.messages import Inspect
from thermoloom.lab.scenes import Scene, learned_drive
from thermoloom.machine.action import drive, residual, step_constants
from thermoloom.machine.device import felt, sensed_gradient
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters, layout
from thermoloom.machine.protocol import generation_windows

STRONGEST = 6
"""Number of partners that are listed."""
AVERAGED = 64
"""Steps of a stage over which an update is averaged."""


def inspect(scene: Scene, order: Inspect) -> tuple[dict[str, Any], bytes]:
    """All numbers of a unit, and its couplings to a group of units as bytes."""
    theta = felt(scene.computer.parameters).both
    machine = theta.machine
    sample = whole_number("sample", order.sample, 0, len(scene.generated.final_states) - 1)
    frame = whole_number("frame", order.frame, 0, scene.frames - 1)
    unit = whole_number("unit", order.unit, 0, machine.units - 1)
    word = None if scene.words is None else scene.words[sample]
    x = _all_states(machine, scene.generated.snapshots[sample, frame], word)
    if not np.isfinite(x).all():
        raise UserError("the machine has diverged; its forces are no longer finite")
    step = scene.steps[frame]
    stage = _stage_at(machine, step)
    J = theta.coupling_matrix(stage)[unit]
    held = scene.clamp is not None and bool(scene.clamp.units(machine)[unit])
    onsite = machine.generating_potential(stage)
    forces = {"onsite": -float(onsite.gradient(x[: machine.units])[unit])}
    forces |= {name: -float(J[where] @ x[where]) for name, where in _wired(theta, unit).items()}
    total = sum(forces.values())
    drift, kick = (np.broadcast_to(each, machine.units) for each in machine.step)
    wired = np.concatenate([np.arange(len(x))[where] for where in _wired(theta, unit).values()])
    by_force = wired[np.argsort(-np.abs(J[wired] * x[wired]), kind="stable")]
    mapped = _mapped(theta, unit)
    grey, largest = couplings_as_bytes(J[layout(machine).positions[mapped]] if mapped else J[:0])
    partner = order.partner
    if partner is None and len(by_force):
        partner = int(by_force[0])
    if not len(scene.computer.patterns) or stage >= machine.stages:
        partner = None  # a table of couplings, or development: nothing is learned
    numbers = {
        "sample": sample, "frame": frame, "step": step, "window": _window(machine, stage),
        "unit": unit, "name": name_of(machine, unit), "x": float(x[unit]), "held": held,
        "forces": forces, "total": total,
        "drift": drift[unit] * total, "kick": kick[unit],
        "largest": largest, "mapped": mapped,
        "partners": [
            {"unit": int(j), "name": name_of(machine, int(j)), "J": float(J[j]), "x": float(x[j]),
             "force": -float(J[j] * x[j])}
            for j in by_force[:STRONGEST]
        ],
        "rule": None if partner is None else local_rule(scene, sample, step, stage, unit, partner),
    }  # fmt: skip
    return numbers, grey.tobytes()


def local_rule(scene: Scene, sample: int, step: int, stage: int, i: int, j: int) -> dict[str, Any]:
    """The update of J_ij in one step of a noising path, and averaged over its stage.

    Generation reverses the noising path: its step g is step K − g of the path, which begins at the
    learned pattern of the requested class.
    """
    computer = scene.computer
    theta = computer.parameters
    machine = theta.machine
    j = whole_number("partner", j, 0, machine.units + machine.size_of("label"))
    if not _joined(theta, i, j):
        return {"partner": j, "name": name_of(machine, j), "wired": False}
    fields, words = learned_drive(computer.patterns, machine)
    word = None if scene.words is None else scene.words[sample]
    pattern = 0
    if words is not None and word is not None:
        pattern = int(np.argmax((words == word).all(axis=1)))
    path = engine().path(machine, fields[pattern], computer.settings.training.seed, 0, word)
    first, last = machine.stage_windows[stage]
    now = min(max(machine.steps - step - 1, first), last - 1)
    others = np.linspace(first, last - 1, min(AVERAGED, last - first)).round().astype(int)
    steps = np.array([now, *others])
    before, after = path.states[steps], path.states[steps + 1]
    constants = step_constants(machine, stage=stage)
    alone = drive(constants, before, after)
    r = residual(constants, alone, sensed_gradient(theta, after, stage, word))
    nothing = np.zeros((len(steps), machine.size_of("label") + 1), np.float32)
    r = np.concatenate([r, nothing], axis=1).astype(np.float64)
    x = np.stack([_all_states(machine, state, word) for state in after])
    alpha = computer.settings.learning_rate
    update = -alpha * (r[:, i] * x[:, j] + r[:, j] * x[:, i])
    spread = update[1:].std(ddof=1) if len(others) > 1 else 0.0
    J = float(theta.coupling_matrix(stage)[i, j])
    return {
        "partner": j, "name": name_of(machine, j), "wired": True, "step": int(now),
        "pattern": computer.patterns.labels[pattern], "alpha": alpha, "J": J,
        "r_i": r[0, i], "r_j": r[0, j], "x_i": x[0, i], "x_j": x[0, j],
        "dx_i": float(after[0, i] - before[0, i]),
        "update": update[0], "after": J + update[0],
        "mean": update[1:].mean(), "error": spread / len(others) ** 0.5, "steps": len(others),
    }  # fmt: skip


def name_of(machine: Machine, unit: int) -> str:
    """Name of a unit: its group and number from 0, or the class and style of a label unit."""
    for group, where in layout(machine).positions.items():
        if where.start <= unit < where.stop:
            place = unit - where.start
            if group == "one":
                return "bias"
            if group == "label" and machine.styles > 1:
                return f"label {place // machine.styles}, style {place % machine.styles}"
            return f"{group} {place}"
    return f"unit {unit}"


def _wired(theta: Parameters, unit: int) -> dict[str, slice]:
    """Energy terms that contain a unit, each with the positions of its partners."""
    group, _ = _group_of(theta.machine, unit)
    return {
        block.part: theta.layout.positions[block.rows if transposed else block.columns]
        for block, transposed in theta.layout.partners(group)
    }


def _joined(theta: Parameters, i: int, j: int) -> bool:
    """Whether a wire or a bias connects a free unit with another unit."""
    group, place = _group_of(theta.machine, i)
    for block, transposed in theta.layout.partners(group):
        where = theta.layout.positions[block.rows if transposed else block.columns]
        if where.start <= j < where.stop and i != j:
            pair = (j - where.start, place) if transposed else (place, j - where.start)
            return block.wires is None or bool(block.wires.number_of(*pair) >= 0)
    return False


def _mapped(theta: Parameters, unit: int) -> str:
    """The free group whose couplings to a unit are shown as a picture, or ""."""
    group, _ = _group_of(theta.machine, unit)
    others = [b.rows if transposed else b.columns for b, transposed in theta.layout.partners(group)]
    return next((name for name in theta.machine.groups if name in others), "")


def _group_of(machine: Machine, unit: int) -> tuple[str, int]:
    group = "visible" if unit < machine.visible else "hidden"
    return group, unit - machine.groups[group].start


def _all_states(
    machine: Machine, free: NDArray[np.float32], word: NDArray[np.float32] | None
) -> NDArray[np.float64]:
    labels = np.zeros(0) if word is None else word
    return np.concatenate([free, labels, [1.0]]).astype(np.float64)


def _window(machine: Machine, stage: int) -> int:
    """Position of a stage among the windows of generation."""
    return [each for each, _, _ in generation_windows(machine)].index(stage)


def _stage_at(machine: Machine, step: int) -> int:
    """The stage that acts from this step of generation on."""
    spans = generation_windows(machine)
    return next((stage for stage, first, last in spans if first <= step < last), spans[-1][0])
