"""A second engine in plain NumPy, float64, one step and one sample after the other.

It knows ``thermoloom.machine`` and the random streams, and nothing of kernels. What it cannot do it
refuses. ``thermoloom.engines.ENGINES["plain"] = "plain_engine"`` makes it known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from plain_rules import energy_gradient, learn_stepwise

from thermoloom.engines import Diverged, OnSnapshot, Path
from thermoloom.engines.compiled.streams import normals
from thermoloom.errors import UserError
from thermoloom.machine.action import PathLoss, PathTerms, path_terms
from thermoloom.machine.clamp import Clamp
from thermoloom.machine.device import felt
from thermoloom.machine.energy import EnergyParts, coupling_gradient, energy_parts
from thermoloom.machine.generated import Generated
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.protocol import generation_windows, preparation, ramp
from thermoloom.settings import Settings

CALLS: list[str] = []
"""What was asked of this engine."""


def warm_up(models: object = None, learning: bool = True, generating: bool = True) -> None:
    """There is nothing to compile."""
    CALLS.append("warm_up")


def path(
    machine: Machine,
    field: np.ndarray,
    seed: int,
    number: int,
    word: np.ndarray | None = None,
    stream: str = "",
    reuse: Path | None = None,
) -> Path:
    CALLS.append("path")
    x = np.zeros(machine.units)
    states, (drift, kick) = [x], machine.step
    for name, amplitude in (("preparation", preparation(machine)), ("noising", ramp(machine))):
        states = [x]
        kicks = normals(seed, stream + name, number, machine.steps, machine.units)
        for a, z in zip(amplitude, kicks, strict=True):
            force = a * field - machine.potential.gradient(x)
            x = x + drift * force + kick * z
            states.append(x)
    return Path(machine, np.array(states, np.float32), number, word)


@dataclass
class PlainLearner:
    settings: Settings

    def learn(self, theta: Parameters, path: Path) -> Parameters:
        CALLS.append("learn")
        rate, period = self.settings.learning_rate, self.settings.period
        with np.errstate(all="ignore"):
            written = theta.on(self.settings.built)
            learned = learn_stepwise(written, path.states, rate, period, word=path.word)
            narrow = learned.astype(np.float32)
        if not np.isfinite(narrow.vector).all():
            raise Diverged
        return narrow


def learner(settings: Settings) -> PlainLearner:
    if settings.imperfections != Settings().imperfections:
        raise UserError("imperfections: not in the plain engine")
    return PlainLearner(settings)


def terms(theta: Parameters, path: Path, field: np.ndarray | None = None) -> PathTerms:
    CALLS.append("terms")
    return path_terms(theta.on(path.machine), path.states, field, path.word)


def watch(path: Path) -> Callable[[Parameters], PathLoss]:
    def loss(theta: Parameters) -> PathLoss:
        found = terms(theta, path)
        return PathLoss(found.loss, found.reduced_loss)

    return loss


def generate(
    theta: Parameters,
    samples: int,
    seed: int,
    words: np.ndarray | None = None,
    clamp: Clamp | None = None,
    snapshot_steps: Sequence[int] = (),
    snapshot_samples: Sequence[int] = (),
    on_progress: Callable[[int], None] | None = None,
    first: int = 0,
    on_snapshot: OnSnapshot | None = None,
) -> Generated:
    CALLS.append("generate")
    if clamp is not None:
        raise UserError("clamp: not in the plain engine")
    machine = theta.machine
    drift, kick = machine.step
    wide, twisted = felt(theta.astype(np.float64))

    def one_way(x: np.ndarray, stage: int, word: np.ndarray | None) -> np.ndarray | float:
        """The part of the gradient that has no potential."""
        return 0.0 if twisted is None else coupling_gradient(twisted, x, stage, word, twisted=True)

    trajectories = np.empty((samples, machine.steps + 1, machine.units))
    for sample, states in enumerate(trajectories):
        x, number = np.zeros(machine.units), first + sample
        for z in normals(seed, "generation preparation", number, machine.steps, machine.units):
            x = x - drift * machine.potential.gradient(x) + kick * z
        states[0] = x
        kicks = normals(seed, "generation", number, machine.steps, machine.units)
        word = None if words is None else words[sample]
        for stage, begin, end in generation_windows(machine):
            for k in range(begin, end):
                slope = energy_gradient(wide, states[k], stage, word)
                slope = slope + one_way(states[k], stage, word)
                states[k + 1] = states[k] - drift * slope + kick * kicks[k]
        for step in sorted(set(snapshot_steps) if on_snapshot else ()):
            on_snapshot(step, sample, states[step, None].astype(np.float32))
    stages = generation_windows(machine)
    starts, ends = (
        [energy_parts(wide, trajectories[:, window[edge]], window[0], words) for window in stages]
        for edge in (1, 2)
    )
    path_heat, active = np.zeros((2, samples, machine.stages))
    for position, (stage, begin, end) in enumerate(stages):
        for s, states in enumerate(trajectories[:, begin : end + 1]):
            word = None if words is None else words[s]
            turned = np.broadcast_to(one_way(states, stage, word), states.shape)
            slope = energy_gradient(wide, states, stage, word) + turned
            for force, book in ((slope, path_heat), (turned, active)):
                moved = np.diff(states, axis=0)
                book[s, position] = -0.5 * np.sum((force[1:] + force[:-1]) * moved)
    narrow = trajectories.astype(np.float32)
    chosen = narrow[list(snapshot_samples)][:, list(snapshot_steps)]
    return Generated(
        narrow[:, 0],
        narrow[:, -1],
        _columns(starts),
        _columns(ends),
        np.zeros((samples, machine.stages)),
        path_heat,
        chosen,
        active_work=active,
    )


def _columns(each: list[EnergyParts]) -> EnergyParts:
    """Of every stage → (S, T)."""
    return EnergyParts({p: np.stack([e[p] for e in each], axis=1) for p in each[0].parts})
