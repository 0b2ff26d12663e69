"""Generation: the frozen computer turns thermal noise into samples and releases heat.

    preparation   x = 0, then K steps under the onsite potential alone
    generation    K steps of dx = −μ ∂V_θ dt + √(2μk_BT) dW with θ frozen, stage by stage
    heat          Q = V_θ(x₀) − V_θ(x_tf), positive towards the environment

Arguments are checked here, once for all engines; the engine then computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import OnSnapshot, engine
from thermoloom.engines.memory import SAMPLES, generation_memory
from thermoloom.errors import UserError
from thermoloom.feasibility import check_step, require_memory
from thermoloom.inputs import seed_number, whole_number
from thermoloom.machine.clamp import Clamp
from thermoloom.machine.device import felt
from thermoloom.machine.energy import energy_parts, label_word
from thermoloom.machine.generated import Generated
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Array, Parameters
from thermoloom.machine.protocol import generation_windows, watched_steps


def check_generation(machine: Machine, samples: int, kept_states: int = 0) -> int:
    """``samples`` as a whole number; refuse too little memory or an unstable time step."""
    count = whole_number(SAMPLES, samples, 1)
    require_memory(generation_memory(machine, count, kept_states))
    check_step(machine)
    return count


def generate(
    theta: Parameters,
    samples: int,
    seed: int,
    classes: Sequence[int] | int | None = None,
    clamp: Clamp | None = None,
    snapshot_steps: Sequence[int] = (),
    snapshot_samples: Sequence[int] = (),
    on_progress: Callable[[int], None] | None = None,
    first: int = 0,
    styles: Sequence[int] | None = None,
    on_snapshot: OnSnapshot | None = None,
) -> Generated:
    """Sample a frozen computer; verify at the end that θ is unchanged and the first law holds.

    ``classes``: one for all samples, one per sample, or a list that is used in turn, on machines
    with labels. If a class has several styles, one is drawn for each sample unless ``styles``
    names it.
    ``snapshot_steps`` count from 0 (x₀) to the last step of generation. ``on_progress`` is called
    with the number of new sample-steps.
    ``first``: number of the first sample, to continue a generation.
    ``on_snapshot`` receives samples at the snapshot steps while they are computed.
    """
    machine = theta.machine
    theta.check()
    snapshots = len(snapshot_steps) * len(snapshot_samples)
    samples = check_generation(machine, samples, snapshots)
    seed = seed_number("generation.seed", seed)
    for step in snapshot_steps:
        whole_number("snapshot steps", step, 0, machine.generation_steps)
    for sample in snapshot_samples:
        whole_number("snapshot samples", sample, 0, samples - 1)
    if clamp is not None:
        clamp.check(machine, first + samples)
        if felt(theta).twisted is not None:
            raise UserError(
                "device.non_reciprocity: the work of clamps needs a potential; generate without "
                "a clamp, or on a reciprocal device"
            )
    words = drawn_words(theta, first + samples, seed, classes, styles)
    words = None if words is None else words[first:]
    return engine().generate(
        theta,
        samples,
        seed,
        words,
        clamp,
        snapshot_steps,
        snapshot_samples,
        on_progress,
        first,
        on_snapshot,
    )


def requested_classes(
    theta: Parameters, samples: int, classes: Sequence[int] | int | None
) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """Class of each sample: the requested ones in turn, by default all classes of the machine."""
    labels = theta.machine.labels
    if labels == 0:
        label_word(theta.machine, classes)
        return None
    numbers = np.atleast_1d(np.arange(labels) if classes is None else np.asarray(classes))
    if numbers.ndim != 1 or not numbers.size or numbers.dtype.kind not in "iu":
        raise UserError(f"classes: must be whole numbers from 0 to {labels - 1}")
    label_word(theta.machine, numbers)
    return np.resize(numbers, samples).astype(np.int64)


def drawn_styles(theta: Parameters, requested: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """A random style of each requested class: sample s takes draw s of the seed."""
    machine = theta.machine
    if machine.styles == 1:
        return np.zeros_like(requested)
    weights = theta.style_weights
    even = np.ones((machine.labels, machine.styles))
    cumulative = np.cumsum(even if weights is None else weights, axis=1)
    throws = np.random.default_rng([seed, 20261117]).random(len(requested))
    reached = throws[:, None] * cumulative[requested, -1:] >= cumulative[requested]
    styles: NDArray[np.int64] = np.minimum(reached.sum(axis=1), machine.styles - 1)
    return styles


def drawn_words(
    theta: Parameters,
    samples: int,
    seed: int,
    classes: Sequence[int] | int | None,
    styles: Sequence[int] | None = None,
) -> NDArray[np.float32] | None:
    """States of the label units of each sample, (S, L); None without label units."""
    requested = requested_classes(theta, samples, classes)
    if requested is None:
        return None
    if styles is None:
        return label_word(theta.machine, requested, drawn_styles(theta, requested, seed))
    if len(styles) != samples:
        raise UserError(f"styles: {len(styles)} for {samples} samples; give one for each")
    return label_word(theta.machine, requested, np.asarray(styles))


def course(
    theta: Parameters,
    generated: Generated,
    steps: Sequence[int],
    words: Array | None = None,
    clamp: Clamp | None = None,
) -> dict[str, Any]:
    """Energy in its parts, heat and work so far at every snapshot, each (samples, points).

    ``generated`` has snapshots of all its samples at these ``steps``, which increase and include
    every switch of stages. A switch is two points at one time: one with the stage that ends and one
    with the stage that begins. ``frame`` and ``stage`` give the snapshot of each point, and its
    stage in the order of generation.
    """
    theta, twisted = felt(theta)
    if twisted is not None:
        raise UserError(
            "device.non_reciprocity: without a potential, heat up to a moment is not known"
        )
    where: list[int] = []
    stages: list[int] = []
    parts, heat, work = [], [], []
    mask = None if clamp is None else clamp.units(theta.machine)
    pulling_work = generated.clamp_work_so_far
    if pulling_work is None:
        pulling_work = np.zeros(generated.snapshots.shape[:2])
    for order, (stage, first, last) in enumerate(generation_windows(theta.machine)):
        in_stage = [i for i, step in enumerate(steps) if first <= step <= last]
        word = None if words is None else words[:, None]
        energy = energy_parts(theta, generated.snapshots[:, in_stage], stage, word, mask)
        pulled_before = generated.clamp_work[:, :order].sum(axis=1, keepdims=True)
        pulled = pulling_work[:, in_stage] - pulled_before
        heat_before = generated.stage_heat[:, :order].sum(axis=1, keepdims=True)
        heat.append(heat_before + generated.starts.total[:, order, None] - energy.total + pulled)
        switched = generated.switching_work[:, :order].sum(axis=1, keepdims=True)
        work.append(switched + pulling_work[:, in_stage])
        parts.append(energy.parts)
        where += in_stage
        stages += [order] * len(in_stage)
    return {
        "frame": where,
        "stage": stages,
        "parts": {name: np.concatenate([p[name] for p in parts], axis=1) for name in parts[0]},
        "heat": np.concatenate(heat, axis=1),
        "work": np.concatenate(work, axis=1),
    }


class LiveCourse:
    """Energy in its parts, heat and work so far of samples that are still being computed.

        Q = W − (V − V₀),    W = Σ V_t(x) − V_{t+1}(x) over the switches so far

    It must see every sample at step 0 and at every switch. Heat and work are NaN on machines
    without a potential and where clamps move: the work of a move needs the forces after it.
    """

    def __init__(
        self, theta: Parameters, samples: int, words: Array | None, clamp: Clamp | None
    ) -> None:
        common, twisted = felt(theta)
        self._theta = common.astype(np.float64)
        self._words = words
        self._mask = None if clamp is None else clamp.units(theta.machine)
        self._windows = generation_windows(theta.machine)
        self._start, self._work = np.zeros((2, samples))
        if twisted is not None or (clamp is not None and clamp.follow):
            self._work[:] = np.nan

    def needs(self, step: int) -> bool:
        """Whether samples must be seen at this step."""
        return any(step == first for _, first, _ in self._windows)

    def at(self, step: int, first: int, states: Array) -> dict[str, Any]:
        """Like ``course``, for samples from ``first`` at one step: a point, or two at a switch."""
        rows = slice(first, first + len(states))
        word = None if self._words is None else self._words[rows]
        stages: list[int] = []
        parts, heat, work = [], [], []
        before: Array | None = None
        for order, (stage, begin, end) in enumerate(self._windows):
            if not begin <= step <= end:
                continue
            energy = energy_parts(self._theta, states, stage, word, self._mask)
            if before is not None:
                self._work[rows] += energy.total - before
            elif step == 0:
                self._start[rows] = energy.total
            before = energy.total
            stages.append(order)
            parts.append(energy.parts)
            work.append(self._work[rows].copy())
            heat.append(work[-1] - (before - self._start[rows]))
        return {
            "stage": stages,
            "parts": {name: np.stack([p[name] for p in parts], axis=1) for name in parts[0]},
            "heat": np.stack(heat, axis=1),
            "work": np.stack(work, axis=1),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Trajectories:
    """States of samples from noise to image, with heat and work so far."""

    times: NDArray[np.float64]
    """(n,), from 0 to the end of generation, in the time unit of μ."""
    states: NDArray[np.float32]
    """(samples, n, N), visible units first."""
    heat: NDArray[np.float64]
    """Q up to each time, (samples, n), in E₀; NaN where couplings are not reciprocal."""
    work: NDArray[np.float64]
    """W up to each time, (samples, n), in E₀; a switch at a time counts at later times only."""

    def __repr__(self) -> str:
        samples, count, units = self.states.shape
        return (
            f"Trajectories({samples} samples, {count} times to {self.times[-1]:g}, {units} units)"
        )


def trajectories(
    theta: Parameters,
    samples: int,
    seed: int,
    steps: Sequence[int],
    classes: Sequence[int] | int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Trajectories:
    """Sample a computer; return its states at increasing steps, with heat and work up to each."""
    machine = theta.machine
    watched = sorted({*steps, *watched_steps(machine, 1)})
    every = range(samples)
    generated = generate(theta, samples, seed, classes, None, watched, every, on_progress)
    places = [watched.index(step) for step in steps]
    heat = work = np.full((samples, len(steps)), np.nan)
    if felt(theta).twisted is None:
        energies = course(theta, generated, watched, drawn_words(theta, samples, seed, classes))
        points = [energies["frame"].index(place) for place in places]
        heat, work = energies["heat"][:, points], energies["work"][:, points]
    times = np.asarray(steps) * machine.dt
    return Trajectories(times, generated.snapshots[:, places], heat, work)


def samples_together() -> int:
    """Samples that the engine computes together; splitting at multiples of it changes no bit."""
    return engine().GROUP


def differing_samples(archive: Generated, again: Generated) -> list[int]:
    """Numbers of the samples whose start, end or heat differs in any bit."""
    differs = np.zeros(len(archive.heat), bool)
    for name in ("initial_states", "final_states", "heat"):
        then, now = getattr(archive, name), getattr(again, name)
        differs |= (then != now).reshape(len(then), -1).any(axis=1)
    return [int(i) for i in np.flatnonzero(differs)]
