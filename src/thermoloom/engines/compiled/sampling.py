"""Generation: the frozen computer turns thermal noise into samples and releases heat.

    preparation   x = 0, then K steps under the onsite potential alone
    generation    K steps of dx = −μ ∂V_θ dt + √(2μk_BT) dW, through the stages in reverse

Sample s is trajectory s of the generation seed, so computers sampled with one seed share all their
random numbers. A thread simulates a group of samples with common matrix products. Cost: 2.1 MFLOP
per sample and step for 784 + 512 units; with few wires, 4 FLOP per wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import OnSnapshot
from thermoloom.engines.compiled.clamped_units import ClampedUnits, Pulled
from thermoloom.engines.compiled.dense_forces import DenseForces
from thermoloom.engines.compiled.langevin import coupled_step, noise_block, uncoupled_steps
from thermoloom.engines.compiled.noising import NO_PATH
from thermoloom.engines.compiled.sparse_forces import SparseForces
from thermoloom.engines.compiled.streams import STEPS_PER_BLOCK, stream_key
from thermoloom.machine.action import step_constants
from thermoloom.machine.clamp import Clamp
from thermoloom.machine.device import felt
from thermoloom.machine.energy import effective_bias
from thermoloom.machine.generated import Account, Generated, joined
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.protocol import generation_windows
from thermoloom.machine.wires import few_wires
from thermoloom.threads import breathe, in_threads, thread_count

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

GROUP = 50
"""Samples of a large machine in a group: their states stay in the second-level cache."""
STATES = 1 << 16
"""States of all units in a group of a small machine: fewer would wait for Python most of the time.
"""
SHARE = 10
"""Samples whose energies are computed together. Groups are multiples of it, so that bits do not
depend on the threads. Also the size of a group whose clamps follow noising paths held in memory."""


def generate(
    theta: Parameters,
    samples: int,
    seed: int,
    words: Float32 | None = None,
    clamp: Clamp | None = None,
    snapshot_steps: Sequence[int] = (),
    snapshot_samples: Sequence[int] = (),
    on_progress: Callable[[int], None] | None = None,
    first: int = 0,
    on_snapshot: OnSnapshot | None = None,
) -> Generated:
    """Sample a frozen computer; θ and the first law are verified at the end.

    ``words`` (S, L) are the states of the label units. ``snapshot_steps`` count from 0 (x₀) to K.
    ``on_progress`` receives the number of new sample-steps. ``first``: index of the first sample.
    """
    frozen = theta.copy()
    plan = _Plan(theta, seed, words, clamp, first)
    watch = _Watch(plan.machine, snapshot_steps, snapshot_samples, on_progress, on_snapshot)
    groups = _groups(plan.machine.units, samples, clamp)
    accounts = in_threads(lambda begin, end: _Group(plan, watch, begin, end).run(), groups)
    if not theta.same_as(frozen):
        raise RuntimeError("parameters changed during generation")
    generated = joined([account for group in accounts for account in group], (), (), False)
    moving = watch.work if clamp is not None and clamp.follow else None
    return replace(generated, snapshots=watch.states, clamp_work_so_far=moving)


def _groups(units: int, samples: int, clamp: Clamp | None) -> list[tuple[int, int]]:
    """Ranges of samples, multiples of ``SHARE`` and as even as possible for the threads."""
    if clamp is not None and clamp.follow:
        size = SHARE
    else:
        most = max(GROUP, STATES // (units * SHARE) * SHARE)
        turns = -(-samples // (thread_count() * most))
        size = SHARE * -(-samples // (thread_count() * turns * SHARE))
    return [(begin, min(begin + size, samples)) for begin in range(0, samples, size)]


class _Plan:
    """Parameters, forces and windows that all groups of samples share."""

    def __init__(
        self,
        written: Parameters,
        seed: int,
        words: Float32 | None,
        clamp: Clamp | None,
        first: int,
    ) -> None:
        self.machine = written.machine
        self.theta, self.twisted = felt(written)
        self.wide = self.theta.astype(np.float64)
        self.seed, self.words, self.clamp, self.first = seed, words, clamp, first
        self.clamped = None if clamp is None else clamp.units(self.machine)
        self.free = np.ones(self.machine.units, np.float32)
        if self.clamped is not None:
            self.free[self.clamped] = 0
        self.windows = generation_windows(self.machine)
        stages = range(len(self.windows))
        self.forces = [_Forces(self.theta, stage, self.twisted) for stage in stages]


class _Watch:
    """Snapshots of selected samples at selected steps, and progress of all samples."""

    def __init__(
        self,
        machine: Machine,
        steps: Sequence[int],
        samples: Sequence[int],
        on_progress: Callable[[int], None] | None,
        on_snapshot: OnSnapshot | None,
    ) -> None:
        self._steps, self._samples = list(steps), list(samples)
        self._on_progress, self._on_snapshot = on_progress, on_snapshot
        self.states = np.empty((len(samples), len(steps), machine.units), np.float32)
        self.work = np.zeros((len(samples), len(steps)))
        """Work of moving clamps up to each snapshot."""

    def _wanted(self, step: int, first: int, count: int) -> Iterator[tuple[tuple[int, int], int]]:
        """Index of each snapshot of this step, and its sample among ``count`` from ``first``."""
        if step not in self._steps:
            return
        for row, sample in enumerate(self._samples):
            if first <= sample < first + count:
                for column, snapshot_step in enumerate(self._steps):
                    if snapshot_step == step:
                        yield (row, column), sample - first

    def see(self, step: int, first: int, x: Float32) -> None:
        """Record the states of the samples from ``first`` on after a step."""
        breathe()
        for place, sample in self._wanted(step, first, len(x)):
            self.states[place] = x[sample]
        if self._on_snapshot and step in self._steps:
            self._on_snapshot(step, first, x)
        if self._on_progress and step % 100 == 0 and step > 0:
            self._on_progress(100 * len(x))

    def enter(self, step: int, first: int, work: Float64) -> None:
        """Record the work up to a step, which is known once the forces after the step are."""
        for place, sample in self._wanted(step, first, len(work)):
            self.work[place] = work[sample]


class _Group:
    """Samples begin … end of a generation, simulated together."""

    def __init__(self, plan: _Plan, watch: _Watch, begin: int, end: int) -> None:
        self.plan, self._watch, self._begin = plan, watch, begin
        self.number = plan.first + begin
        """Index of the first sample in the streams of the seed."""
        self.x = np.zeros((end - begin, plan.machine.units), np.float32)
        self.word = None if plan.words is None else plan.words[begin:end]
        self.clamped: ClampedUnits | None = None
        if plan.clamp is not None:
            last = plan.first + end
            self.clamped = ClampedUnits(plan.machine, plan.clamp, plan.seed, self.number, last)
        self._clamp_work = np.zeros(end - begin)
        # shares of fixed size, because BLAS rounding depends on the size
        self._shares = [slice(at, at + SHARE) for at in range(0, end - begin, SHARE)]
        words = [None if self.word is None else self.word[share] for share in self._shares]
        self._accounts = [Account(plan.wide, word, plan.clamped) for word in words]

    def run(self) -> list[Account]:
        """Prepare the states, then run all stages."""
        _prepare(self.plan.machine, self.plan.seed, self.number, self.x)
        if self.clamped is not None:
            self.clamped.place(self.x, 0)
        self.seen(0)
        before = None
        for stage, begin, end in self.plan.windows:
            for account, share in zip(self._accounts, self._shares, strict=True):
                account.begin(stage, before, self.x[share].copy())
            sums = _relax(self, stage, (begin, end))
            for account, share in zip(self._accounts, self._shares, strict=True):
                account.end(stage, self.x[share].copy(), sums[:, share])
            self._clamp_work += sums[1]
            before = stage
        return self._accounts

    def seen(self, step: int) -> None:
        """Record the states after a step."""
        self._watch.see(step, self._begin, self.x)

    def pulled(self, step: int, work: Float64) -> None:
        """Record the work of moving clamps in this stage, up to a step."""
        self._watch.enter(step, self._begin, self._clamp_work + work)


class _Forces:
    """Σ_j J_ij x_j of one stage: a matrix product per group of units, or wire by wire."""

    def __init__(self, theta: Parameters, stage: int, twisted: Parameters | None) -> None:
        """``twisted``: additional antisymmetric couplings J_ji = −J_ij with forces ``turned``."""
        within, form = "visible_visible", theta.layout
        self.within = form[within].matrix(theta.vector[stage]) if within in form else None
        forces = SparseForces if few_wires(theta.machine) else DenseForces
        self.felt = forces(theta, stage)
        self.turned = None if twisted is None else forces(twisted, stage, sign=-1)


def _bias_rows(
    theta: Parameters, stage: int, word: Float32 | None, samples: int
) -> tuple[Float32, NDArray[np.int64]]:
    """Effective biases, one row per distinct word, and the row of each sample."""
    if word is None:
        return effective_bias(theta, stage)[None], np.zeros(samples, np.int64)
    different, row = np.unique(word, axis=0, return_inverse=True)
    return effective_bias(theta, stage, different), row.reshape(-1).astype(np.int64)


def _prepare(machine: Machine, seed: int, first: int, states: Float32) -> None:
    """Evolve states from zero for t_f under the onsite potential, in place."""
    key, constants = stream_key(seed, "generation preparation"), step_constants(machine)
    no_force, field = np.zeros(machine.steps, np.float32), np.zeros(machine.units, np.float32)
    for sample, x in enumerate(states, start=first):
        uncoupled_steps(x, field, no_force, key, sample, 0, 0, constants, NO_PATH)


def _relax(group: _Group, stage: int, span: tuple[int, int]) -> Float64:
    """Evolve a group of samples through the steps of one stage, in place.

    Returns, for each sample, the heat as a Stratonovich sum over steps, −Σ ½(∇V_k + ∇V_{k+1})·Δx
    over free units, the work of moving clamps, and the work of antisymmetric couplings, −Σ Δx·Jx_k
    (Δx·JΔx = 0, so the Stratonovich sum is the Itô sum): (3, S).
    """
    relaxing = _Relaxing(group, stage)
    for step in range(*span):
        relaxing.step(step, begins=step == span[0])
        group.seen(step + 1)
    relaxing.end(span[1])
    return np.stack([relaxing.heat, relaxing.work, relaxing.active])


class _Relaxing:
    """A group of samples in one stage, with its heat and work."""

    def __init__(self, group: _Group, stage: int) -> None:
        plan, x = group.plan, group.x
        self._group, self._x, self._free = group, x, plan.free
        self._forces, self._clamped = plan.forces[stage], group.clamped
        self._bias, self._row = _bias_rows(plan.theta, stage, group.word, len(x))
        self._key = stream_key(plan.seed, "generation")
        self._constants = step_constants(plan.machine, stage=stage)
        self._coupling, self._turned, self._moved = np.zeros((3, *x.shape), np.float32)
        self._z = np.empty((len(x), STEPS_PER_BLOCK, x.shape[1]), np.float32)
        self._pulled: Pulled | None = None
        self.heat, self.work, self.active = np.zeros((3, len(x)))

    def step(self, step: int, begins: bool) -> None:
        """One step of all samples, from x_k to x_{k+1}; ``begins``: the first step of the stage."""
        if begins or step % STEPS_PER_BLOCK == 0:
            noise_block(self._key, self._group.number, step // STEPS_PER_BLOCK, self._z)
        self._feel(step)
        if self._clamped is not None and self._clamped.moves:
            self._pulled = Pulled(self._clamped, step, self._coupling)
        coupled_step(
            self._x,
            self._coupling,
            self._bias,
            self._row,
            self._z,
            step % STEPS_PER_BLOCK,
            self._constants,
            self._free,
            self._moved,
            self.heat,
        )
        if self._forces.turned is not None:
            self.active -= (self._turned * self._moved).sum(axis=1, dtype=np.float64)
        if self._clamped is not None:
            self._clamped.place(self._x, step + 1)

    def end(self, step: int) -> None:
        """Add the half of the last step's heat that needs the gradient at its end."""
        self._feel(step)
        onsite: Any = self._constants.onsite
        gradient = onsite.gradient(self._x) + (self._coupling + self._bias[self._row])
        self.heat -= 0.5 * (gradient * self._moved).sum(axis=1, dtype=np.float64)

    def _feel(self, step: int) -> None:
        """Compute the forces of all couplings on the present states.

        They also determine the work of the last displacement of clamped units.
        """
        self._forces.felt(self._x, self._coupling)
        if self._forces.turned is not None:
            self._forces.turned(self._x, self._turned)
            np.add(self._coupling, self._turned, out=self._coupling)
        if self._pulled is not None:
            bias = self._bias[self._row]
            self._pulled.enter(self._forces.within, self._coupling, bias, self.heat, self.work)
            self._group.pulled(step, self.work)
