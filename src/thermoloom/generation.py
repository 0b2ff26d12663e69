"""Generation: the frozen computer turns thermal noise into images and gives off heat.

    preparation   x = 0, then K steps under the onsite potential alone
    generation    K steps of dx = −μ ∂V_θ dt + √(2μk_BT) dW with θ frozen
    heat          Q = V_θ(x₀) − V_θ(x_tf), positive towards the environment

Sample s is trajectory s of the generation seed, so computers sampled with one seed share all their
random numbers. Cost: 2.1 MFLOP a sample and step for 784 + 512 units, as matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thermoloom.config import Physics
from thermoloom.errors import UserError
from thermoloom.feasibility import check_generation
from thermoloom.inputs import whole
from thermoloom.physics.computer import Computer, EnergyParts, energy_parts
from thermoloom.physics.langevin import (
    coupled_step,
    noise_block,
    step_constants,
    uncoupled_steps,
)
from thermoloom.streams import STEPS_PER_BLOCK, stream_key
from thermoloom.threads import breathe, in_threads

GROUP = 50
"""Samples that share their matrix products. Fixed, so that results do not depend on the threads."""


@dataclass(frozen=True)
class Generated:
    """What one generation call leaves behind."""

    initial_states: NDArray[np.float32]
    """x₀ after preparation, (S, N)."""
    final_states: NDArray[np.float32]
    """x_tf, (S, N), visible units first."""
    initial_energy: EnergyParts
    """V_θ(x₀) in its parts, float64."""
    final_energy: EnergyParts
    """V_θ(x_tf) in its parts, float64."""
    snapshots: NDArray[np.float32]
    """States at the chosen steps of the chosen samples, (samples, steps, N)."""

    @property
    def heat(self) -> NDArray[np.float64]:
        """Q = V(x₀) − V(x_tf) of every sample, in E₀."""
        return np.asarray(self.initial_energy.total - self.final_energy.total, np.float64)

    def visible(self, physics: Physics) -> NDArray[np.float32]:
        """Generated images, (S, N_v)."""
        return self.final_states[:, : physics.visible]


def generate(
    physics: Physics,
    computer: Computer,
    samples: int,
    seed: int,
    snapshot_steps: Sequence[int] = (),
    snapshot_samples: Sequence[int] = (),
    on_progress: Callable[[int], None] | None = None,
) -> Generated:
    """Sample a frozen computer; the parameters are verified to be unchanged at the end.

    ``snapshot_steps`` count from 0 (x₀) to K. ``on_progress`` is told of sample-steps done.
    """
    computer.check(physics)
    _check_finite(computer)
    samples = check_generation(physics, samples, len(snapshot_steps) * len(snapshot_samples))
    _check_snapshots(physics, samples, snapshot_steps, snapshot_samples)
    frozen = computer.copy()
    initial = np.zeros((samples, physics.units), np.float32)
    final = np.empty_like(initial)
    snapshots = np.empty((len(snapshot_samples), len(snapshot_steps), physics.units), np.float32)

    def run_group(first: int) -> None:
        last = min(first + GROUP, samples)
        _prepare(physics, seed, first, initial[first:last])
        final[first:last] = initial[first:last]
        keep = [(row, s - first) for row, s in enumerate(snapshot_samples) if first <= s < last]

        def observe(step: int, states: NDArray[np.float32]) -> None:
            breathe()
            for column, wanted in enumerate(snapshot_steps):
                if wanted == step:
                    for row, sample in keep:
                        snapshots[row, column] = states[sample]
            if on_progress and step % 100 == 0 and step > 0:
                on_progress(100 * len(states))

        _relax(physics, computer, seed, first, final[first:last], observe)

    # Groups side by side, one BLAS thread each: no waiting for each other at every step.
    in_threads(run_group, [(first,) for first in range(0, samples, GROUP)])
    if not computer.same_as(frozen):
        raise RuntimeError("parameters changed during generation")
    return Generated(
        initial,
        final,
        energy_parts(computer, physics, initial),
        energy_parts(computer, physics, final),
        snapshots,
    )


def _check_finite(computer: Computer) -> None:
    for name, array in computer.arrays.items():
        if not np.isfinite(array).all():
            raise UserError(
                f"the computer's {name.replace('_', '-')} parameters are not finite, so it cannot "
                "be sampled; train it with a smaller training.learning_rate"
            )


def _check_snapshots(
    physics: Physics, samples: int, steps: Sequence[int], chosen: Sequence[int]
) -> None:
    for step in steps:
        whole("snapshot steps", step, 0, physics.steps)
    for sample in chosen:
        whole("snapshot samples", sample, 0, samples - 1)


def _prepare(physics: Physics, seed: int, first: int, states: NDArray[np.float32]) -> None:
    """Evolve states from zero for t_f under the onsite potential, in place."""
    key = stream_key(seed, "generation preparation")
    constants = step_constants(physics)
    no_force = np.zeros(physics.steps, np.float32)
    field = np.zeros(physics.units, np.float32)
    nothing = np.empty((0, 0), np.float32)
    for sample, x in enumerate(states, start=first):
        uncoupled_steps(x, field, no_force, key, sample, 0, constants, nothing)


def _relax(
    physics: Physics,
    computer: Computer,
    seed: int,
    first: int,
    states: NDArray[np.float32],
    observe: Callable[[int, NDArray[np.float32]], None],
) -> None:
    """Evolve a group of samples for t_f under the frozen computer, in place."""
    key = stream_key(seed, "generation")
    constants = step_constants(physics)
    n = physics.visible
    to_hidden = np.concatenate([computer.visible_hidden, computer.hidden_hidden])
    to_visible = np.ascontiguousarray(computer.visible_hidden.T)
    bias = np.concatenate([np.zeros(n, np.float32), computer.hidden_bias])
    coupling = np.empty_like(states)
    z = np.empty((len(states), STEPS_PER_BLOCK, physics.units), np.float32)
    observe(0, states)
    for step in range(physics.steps):
        if step % STEPS_PER_BLOCK == 0:
            noise_block(key, first, step // STEPS_PER_BLOCK, z)
        np.matmul(states[:, n:], to_visible, out=coupling[:, :n])
        np.matmul(states, to_hidden, out=coupling[:, n:])
        coupled_step(states, coupling, bias, z, step % STEPS_PER_BLOCK, constants)
        observe(step + 1, states)


def replay_differs(physics: Physics, computer: Computer, seed: int, archive: Generated) -> str:
    """Generate an archive again and compare: "" if states and heats are equal to the bit."""
    again = generate(physics, computer, len(archive.final_states), seed)
    for name in ("initial_states", "final_states", "heat"):
        then, now = getattr(archive, name), getattr(again, name)
        if not np.array_equal(then, now):
            sample = int(np.argmax((then != now).reshape(len(then), -1).any(axis=1)))
            return f"{name} of sample {sample} differs by {np.abs(then - now).max():.3g}"
    return ""
