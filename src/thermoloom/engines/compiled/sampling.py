"""Generation: the frozen computer turns thermal noise into samples and releases heat.

    preparation   x = 0, then K steps under the onsite potential alone
    generation    K steps of dx = −μ ∂V_θ dt + √(2μk_BT) dW, through the stages in reverse

Sample s is trajectory s of the generation seed, so computers sampled with one seed share all their
random numbers. A thread simulates a group of samples with common matrix products. Cost: 2.1 MFLOP
per sample and step for 784 + 512 units; with few wires, 4 FLOP per wire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines import OnSnapshot
from thermoloom.engines.compiled.dense_forces import DenseForces
from thermoloom.engines.compiled.langevin import coupled_step, noise_block, uncoupled_steps
from thermoloom.engines.compiled.noising import NO_PATH, noising_path
from thermoloom.engines.compiled.sparse_forces import SparseForces
from thermoloom.engines.compiled.streams import STEPS_PER_BLOCK, stream_key
from thermoloom.machine.action import step_constants
from thermoloom.machine.clamp import Clamp, pull
from thermoloom.machine.device import felt
from thermoloom.machine.energy import effective_bias
from thermoloom.machine.generated import Account, Generated, Snapshots, joined
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.protocol import generation_windows
from thermoloom.machine.wires import few_wires
from thermoloom.threads import breathe, in_threads, thread_count, threads

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
    snapshots = Snapshots(theta.machine.units, snapshot_steps, snapshot_samples, on_snapshot)
    sampler = _Sampler(theta, seed, words, clamp, first, snapshots, on_progress)
    accounts = in_threads(sampler.group, _groups(theta.machine.units, samples, clamp))
    if not theta.same_as(frozen):
        raise RuntimeError("parameters changed during generation")
    moving = clamp is not None and clamp.follow
    return joined([account for group in accounts for account in group], snapshots, moving)


def _groups(units: int, samples: int, clamp: Clamp | None) -> list[tuple[int, int]]:
    """Ranges of samples, multiples of ``SHARE`` and as even as possible for the threads."""
    if clamp is not None and clamp.follow:
        size = SHARE
    else:
        most = max(GROUP, STATES // (units * SHARE) * SHARE)
        turns = -(-samples // (thread_count() * most))
        size = SHARE * -(-samples // (thread_count() * turns * SHARE))
    return [(begin, min(begin + size, samples)) for begin in range(0, samples, size)]


class _ClampedUnits:
    """States of the clamped units of a group of samples at each step of generation."""

    def __init__(self, machine: Machine, clamp: Clamp, seed: int, samples: range) -> None:
        self.units = np.flatnonzero(clamp.mask)
        self.moves = clamp.follow
        clamped_states = clamp.of_samples(samples.start, samples.stop)
        if not clamp.follow:
            self._held = clamped_states
            return
        paths = []
        field = np.zeros(machine.visible, np.float32)
        with threads(1):
            for sample, fields in zip(samples, clamped_states, strict=True):
                field[self.units] = fields
                path = noising_path(machine, field, seed, sample, purpose="clamp")
                paths.append(path[::-1, self.units])
        self._paths = np.stack(paths)

    def at(self, step: int) -> Float32:
        """States of the clamped units after ``step`` steps of generation; fixed after t_f."""
        return self._paths[:, min(step, self._paths.shape[1] - 1)] if self.moves else self._held

    def place(self, x: Float32, step: int) -> None:
        x[:, self.units] = self.at(step)


class _Sampler:
    """A frozen computer, a seed and a clamp; samples are generated by the group."""

    def __init__(
        self,
        written: Parameters,
        seed: int,
        words: Float32 | None,
        clamp: Clamp | None,
        first: int,
        snapshots: Snapshots,
        on_progress: Callable[[int], None] | None,
    ) -> None:
        self.machine, self.seed, self.first = written.machine, seed, first
        self.theta, twisted = felt(written)
        self._wide, self._words = self.theta.astype(np.float64), words
        self._snapshots, self._on_progress = snapshots, on_progress
        self._clamp, self._clamped = clamp, None if clamp is None else clamp.units(self.machine)
        self.free = np.ones(self.machine.units, np.float32)
        if self._clamped is not None:
            self.free[self._clamped] = 0
        self._windows = generation_windows(self.machine)
        self.forces = [_Forces(self.theta, stage, twisted) for stage in range(len(self._windows))]

    def group(self, begin: int, end: int) -> list[Account]:
        """Samples begin … end, simulated together; an account for each share of them."""
        x = np.zeros((end - begin, self.machine.units), np.float32)
        word = None if self._words is None else self._words[begin:end]
        numbers = range(self.first + begin, self.first + end)
        clamped = None
        _prepare(self.machine, self.seed, numbers.start, x)
        if self._clamp is not None:
            clamped = _ClampedUnits(self.machine, self._clamp, self.seed, numbers)
            clamped.place(x, 0)
        # shares of fixed size, because BLAS rounding depends on the size
        shares = [slice(at, at + SHARE) for at in range(0, len(x), SHARE)]
        of_shares = [None if word is None else word[share] for share in shares]
        accounts = [Account(self._wide, each, self._clamped) for each in of_shares]
        before, work = None, np.zeros(len(x))
        self._snapshots.see(0, begin, x, work)
        for stage, first, last in self._windows:
            for account, share in zip(accounts, shares, strict=True):
                account.begin(stage, before, x[share].copy())
            relaxation = _Relaxation(self, stage, x, word, numbers.start, clamped)
            for step in range(first, last):
                _advance(relaxation, step, step == first)
                self._snapshots.see(step + 1, begin, x, work + relaxation.work)
                breathe()
                if self._on_progress and (step + 1) % 100 == 0:
                    self._on_progress(100 * len(x))
            sums = relaxation.sums()
            for account, share in zip(accounts, shares, strict=True):
                account.end(stage, x[share].copy(), sums[:, share])
            before, work = stage, work + relaxation.work
        return accounts


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


class _Relaxation:
    """A group of samples in one stage, with its heat and work."""

    def __init__(
        self,
        sampler: _Sampler,
        stage: int,
        x: Float32,
        word: Float32 | None,
        number: int,
        clamped: _ClampedUnits | None,
    ) -> None:
        """``number``: that of the first sample in the streams of the seed."""
        self.x, self.free, self.number, self.clamped = x, sampler.free, number, clamped
        self.forces = sampler.forces[stage]
        self.bias, self.row = _bias_rows(sampler.theta, stage, word, len(x))
        self.key = stream_key(sampler.seed, "generation")
        self.constants = step_constants(sampler.machine, stage=stage)
        self.coupling, self.turned, self.moved = np.zeros((3, *x.shape), np.float32)
        self.z = np.empty((len(x), STEPS_PER_BLOCK, x.shape[1]), np.float32)
        self.heat, self.work, self.active = np.zeros((3, len(x)))
        self.feel()

    def feel(self) -> None:
        """Compute the forces of all couplings on the present states."""
        self.forces.felt(self.x, self.coupling)
        if self.forces.turned is not None:
            self.forces.turned(self.x, self.turned)
            np.add(self.coupling, self.turned, out=self.coupling)

    def sums(self) -> Float64:
        """For each sample, the heat as a Stratonovich sum over steps, −Σ ½(∇V_k + ∇V_{k+1})·Δx
        over free units, the work of moving clamps, and the work of antisymmetric couplings,
        −Σ Δx·Jx_k (Δx·JΔx = 0, so the Stratonovich sum is the Itô sum): (3, S).
        """
        onsite: Any = self.constants.onsite
        gradient = onsite.gradient(self.x) + (self.coupling + self.bias[self.row])
        half_step = 0.5 * (gradient * self.moved).sum(axis=1, dtype=np.float64)
        return np.stack([self.heat - half_step, self.work, self.active])


def _advance(samples: _Relaxation, step: int, begins: bool) -> None:
    """One step of all samples, from x_k to x_{k+1}; ``begins``: the first step of the stage."""
    x, coupling, clamped = samples.x, samples.coupling, samples.clamped
    if begins or step % STEPS_PER_BLOCK == 0:
        noise_block(samples.key, samples.number, step // STEPS_PER_BLOCK, samples.z)
    moving = clamped if clamped is not None and clamped.moves else None
    before: Any = None if moving is None else coupling[:, moving.units].astype(np.float64)
    coupled_step(
        x, coupling, samples.bias, samples.row, samples.z, step % STEPS_PER_BLOCK,
        samples.constants, samples.free, samples.moved, samples.heat,
    )  # fmt: skip
    if samples.forces.turned is not None:
        samples.active -= (samples.turned * samples.moved).sum(axis=1, dtype=np.float64)
    if clamped is not None:
        clamped.place(x, step + 1)
    samples.feel()
    if moving is not None:
        units, within = moving.units, samples.forces.within
        among = None if within is None else within[np.ix_(units, units)]
        displacement = (moving.at(step + 1) - moving.at(step)).astype(np.float64)
        after, bias = coupling[:, units].astype(np.float64), samples.bias[samples.row][:, units]
        heat, work = pull(displacement, among, before, after, bias)
        samples.heat += heat
        samples.work += work
