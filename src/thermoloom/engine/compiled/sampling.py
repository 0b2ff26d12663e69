"""Generation: the frozen computer turns thermal noise into images and gives off heat.

    preparation   x = 0, then K steps under the onsite potential alone
    generation    K steps of dx = −μ ∂V_θ dt + √(2μk_BT) dW, through the stages backwards

Sample s is trajectory s of the generation seed, so computers sampled with one seed share all their
random numbers. Cost: 2.1 MFLOP a sample and step for 784 + 512 units, as matrix products; with few
wires, 4 FLOP a wire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from thermoloom.engine.compiled.langevin import noise_block
from thermoloom.engine.compiled.noising import noising_path
from thermoloom.engine.compiled.sparse_forces import SparseForces, few_wires
from thermoloom.engine.compiled.streams import STEPS_PER_BLOCK, stream_key
from thermoloom.engine.compiled.uneven_units import coupled_stepping, stepping
from thermoloom.machine.action import step_constants
from thermoloom.machine.books import Generated
from thermoloom.machine.clamp import Clamp
from thermoloom.machine.definition import Machine
from thermoloom.machine.device import felt
from thermoloom.machine.energy import (
    EnergyParts,
    effective_bias,
    energy_parts,
    switching_work,
)
from thermoloom.machine.parameters import Parameters
from thermoloom.machine.protocol import generation_windows
from thermoloom.threads import breathe, in_threads, threads

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

GROUP = 50
"""Samples that share their matrix products. Fixed, so that results do not depend on the threads."""
CLAMPED_GROUP = 10
"""The same where units follow noising paths, which are held in memory."""
FIRST_LAW = 1e-9
"""A first law that does not hold to this fraction of the energies involved is an error."""


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
) -> Generated:
    """Sample a frozen computer; θ and the first law are verified at the end.

    ``words`` (S, L) are the states of the label units. ``snapshot_steps`` count from 0 (x₀) to K.
    ``on_progress`` is called with the sample-steps done. ``first``: number of the first sample.
    """
    machine = theta.machine
    written, frozen = theta, theta.copy()
    theta, twisted = felt(theta)
    wide = theta.astype(np.float64)
    initial = np.zeros((samples, machine.units), np.float32)
    final = np.empty_like(initial)
    snapshots = np.empty((len(snapshot_samples), len(snapshot_steps), machine.units), np.float32)
    so_far = np.zeros(snapshots.shape[:2])
    parts = theta.layout.parts
    books = {name: np.zeros((samples, machine.stages, len(parts))) for name in ("start", "end")}
    clamp_work = np.zeros((samples, machine.stages))
    path_heat = np.zeros((samples, machine.stages))
    active_work = np.zeros((samples, machine.stages))
    switched = np.zeros((samples, machine.stages - 1))
    forces = [_Forces(theta, stage, twisted) for stage in range(machine.stages)]
    windows = generation_windows(machine)
    size = CLAMPED_GROUP if clamp is not None and clamp.follow else GROUP

    def run_group(begins: int) -> None:
        ends = min(begins + size, samples)
        own, number = slice(begins, ends), first + begins
        word = None if words is None else words[own]
        clamped = None if clamp is None else _Clamped(machine, clamp, seed, number, first + ends)
        _prepare(machine, seed, number, initial[own])
        if clamped is not None:
            clamped.place(initial[own], 0)
        x = final[own]
        x[:] = initial[own]
        keep = [(row, s - begins) for row, s in enumerate(snapshot_samples) if begins <= s < ends]

        def observe(step: int) -> None:
            breathe()
            for column, wanted in enumerate(snapshot_steps):
                if wanted == step:
                    for row, sample in keep:
                        snapshots[row, column] = x[sample]
            if on_progress and step % 100 == 0 and step > 0:
                on_progress(100 * len(x))

        def book(step: int, work: Float64) -> None:
            """Work of moving clamps up to a step: known only once the forces after it are."""
            for column, wanted in enumerate(snapshot_steps):
                if wanted == step:
                    for row, sample in keep:
                        before = clamp_work[begins + sample].sum()
                        so_far[row, column] = before + work[sample]

        observe(0)
        mask = None if clamp is None else clamp.units(machine)
        for position, (stage, begin, end) in enumerate(windows):
            if position > 0:
                left = windows[position - 1][0]
                switched[own, position - 1] = switching_work(wide, x, left, stage, word)
            _enter(books["start"][own, position], energy_parts(wide, x, stage, word, mask))
            bias, row = _bias_rows(theta, stage, word, len(x))
            path_heat[own, position], clamp_work[own, position], active_work[own, position] = (
                _relax(machine, forces[stage], bias, row, seed, number, x, (begin, end), clamped,
                       observe, book)
            )  # fmt: skip
            _enter(books["end"][own, position], energy_parts(wide, x, stage, word, mask))

    # Groups side by side, one BLAS thread each: no waiting for each other at every step.
    in_threads(run_group, [(begins,) for begins in range(0, samples, size)])
    if not written.same_as(frozen):
        raise RuntimeError("parameters changed during generation")
    starts, ends = (
        EnergyParts({part: books[name][..., i] for i, part in enumerate(parts)})
        for name in ("start", "end")
    )
    moving = so_far if clamp is not None and clamp.follow else None
    active = 0.0 if twisted is None else active_work
    generated = Generated(
        initial, final, starts, ends, clamp_work, path_heat, snapshots, moving, active
    )
    _check_books(generated, switched)
    return generated


def _check_books(generated: Generated, switched: Float64) -> None:
    """The first law, with the switching work computed independently: from θ alone."""
    if not np.isfinite(generated.final_states).all():
        return  # a divergence, which shows as such
    missing = np.abs(generated.switching_work - switched).max(initial=0.0)
    size = max(float(np.abs(e.total).max()) for e in (generated.starts, generated.ends))
    error = max(generated.first_law_error, float(missing) / max(size, 1e-300))
    if not error <= FIRST_LAW:
        raise RuntimeError(f"energy is not conserved: error {error:.1e}")


def _enter(book: Float64, parts: EnergyParts) -> None:
    for i, values in enumerate(parts.parts.values()):
        book[:, i] = values


class _Forces:
    """Σ_j J_ij x_j of one stage: one matrix product for each group of units, or wire by wire."""

    def __init__(
        self, theta: Parameters, stage: int, twisted: Parameters | None = None, sign: int = 1
    ) -> None:
        """``twisted``: couplings J_ji = −J_ij beside them, whose forces are ``turned``."""
        machine = theta.machine
        self.products: list[tuple[slice, Float32 | None, slice]] = []
        self.within = theta.of_stage(stage).get("visible_visible")
        self.turned = None if twisted is None else _Forces(twisted, stage, sign=-1)
        symmetric = sign == 1  # couplings that are felt one way only go by whole matrices
        self._sparse = SparseForces(theta, stage) if symmetric and few_wires(machine) else None
        if self._sparse is not None:
            return
        for group, where in machine.groups.items():
            partners = {
                (block.rows if transposed else block.columns): sign
                * block.matrix(theta.vector[stage])
                if transposed
                else block.matrix(theta.vector[stage]).T
                for block, transposed in theta.layout.partners(group)
            }
            free = [name for name in machine.groups if name in partners]
            if not free:
                self.products.append((slice(0, 0), None, where))
                continue
            span = slice(machine.groups[free[0]].start, machine.groups[free[-1]].stop)
            matrix = np.concatenate([partners[name] for name in free])
            self.products.append((span, matrix, where))

    def __call__(self, x: Float32, out: Float32) -> None:
        if self._sparse is not None:
            self._sparse(x, out)
        for span, matrix, where in self.products:
            if matrix is None:
                out[:, where] = 0
            else:
                np.matmul(x[:, span], matrix, out=out[:, where])


class _Clamped:
    """Clamped units of a group of samples: where they are at each step of generation."""

    def __init__(self, machine: Machine, clamp: Clamp, seed: int, first: int, last: int) -> None:
        self.units = np.flatnonzero(clamp.mask)
        self.moves = clamp.follow
        values = clamp.of_samples(first, last)
        if not clamp.follow:
            self._held = values
            return
        paths = []
        field = np.zeros(machine.visible, np.float32)
        with threads(1):
            for sample, fields in enumerate(values, start=first):
                field[self.units] = fields
                path = noising_path(machine, field, seed, sample, stream="clamp ")
                paths.append(path[::-1, self.units])
        self._paths = np.stack(paths)

    def at(self, step: int) -> Float32:
        """States of the clamped units after ``step`` steps of generation."""
        return self._paths[:, step] if self.moves else self._held

    def place(self, x: Float32, step: int) -> None:
        x[:, self.units] = self.at(step)


def _bias_rows(
    theta: Parameters, stage: int, word: Float32 | None, samples: int
) -> tuple[Float32, NDArray[np.int64]]:
    """Effective biases, one row for each different word, and the row of each sample."""
    if word is None:
        return effective_bias(theta, stage)[None], np.zeros(samples, np.int64)
    different, row = np.unique(word, axis=0, return_inverse=True)
    return effective_bias(theta, stage, different), row.reshape(-1).astype(np.int64)


def _prepare(machine: Machine, seed: int, first: int, states: Float32) -> None:
    """Evolve states from zero for t_f under the onsite potential, in place."""
    key = stream_key(seed, "generation preparation")
    constants = step_constants(machine)
    no_force = np.zeros(machine.steps, np.float32)
    field = np.zeros(machine.units, np.float32)
    nothing = np.empty((0, 0), np.float32)
    steps, constants = stepping(machine, constants, 0, machine.units)
    for sample, x in enumerate(states, start=first):
        steps(x, field, no_force, key, sample, 0, constants, nothing)


def _relax(
    machine: Machine,
    forces: _Forces,
    bias: Float32,
    row: NDArray[np.int64],
    seed: int,
    first: int,
    x: Float32,
    span: tuple[int, int],
    clamped: _Clamped | None,
    observe: Callable[[int], None],
    book: Callable[[int, Float64], None],
) -> tuple[Float64, Float64, Float64]:
    """Evolve a group of samples through the steps of one stage, in place.

    Returns the heat of each as a Stratonovich sum over its steps, −Σ ½(∇V_k + ∇V_{k+1})·Δx over
    free units, and the work that moving clamps and couplings J_ji = −J_ij did on it. That of the
    latter is −Σ Δx·Jx_k: Δx·JΔx = 0, so Stratonovich's sum is Itô's.
    """
    key = stream_key(seed, "generation")
    constants = step_constants(machine)
    coupling, moved = np.empty_like(x), np.zeros_like(x)
    free = np.ones(machine.units, np.float32)
    if clamped is not None:
        free[clamped.units] = 0
    z = np.empty((len(x), STEPS_PER_BLOCK, machine.units), np.float32)
    heat, work, active = np.zeros(len(x)), np.zeros(len(x)), np.zeros(len(x))
    pulled: _Pulled | None = None
    turned = np.zeros_like(x)
    coupled_step = coupled_stepping(machine)
    begin, end = span

    def feel() -> None:
        """Forces of couplings on the states as they are, one-way ones among them."""
        forces(x, coupling)
        if forces.turned is not None:
            forces.turned(x, turned)
            np.add(coupling, turned, out=coupling)

    for step in range(begin, end):
        if step == begin or step % STEPS_PER_BLOCK == 0:
            noise_block(key, first, step // STEPS_PER_BLOCK, z)
        feel()
        if pulled is not None:
            pulled.enter(forces, coupling, bias[row], heat, work)
            book(step, work)
        if clamped is not None and clamped.moves:
            pulled = _Pulled(clamped, step, coupling)
        coupled_step(
            x, coupling, bias, row, z, step % STEPS_PER_BLOCK, constants, free, moved, heat
        )
        if forces.turned is not None:
            active -= (turned * moved).sum(axis=1, dtype=np.float64)
        if clamped is not None:
            clamped.place(x, step + 1)
        observe(step + 1)
    feel()
    if pulled is not None:
        pulled.enter(forces, coupling, bias[row], heat, work)
        book(end, work)
    gradient = machine.potential.astype(np.float32).gradient(x) + (coupling + bias[row])
    heat -= 0.5 * (gradient * moved).sum(axis=1, dtype=np.float64)
    return heat, work, active


class _Pulled:
    """A move Δc of clamped units c that follows on a move Δf of the free ones, in one step.

    work   V(f′, c′) − V(f′, c) = Δc·(∇_cV(f′, c′) − ½ J_cc Δc)
    heat   the gradient after the step knows of c′: ½ Δf·J_fc Δc too much, which is given back
    """

    def __init__(self, clamped: _Clamped, step: int, coupling: Float32) -> None:
        self._units = clamped.units
        self._moved = (clamped.at(step + 1) - clamped.at(step)).astype(np.float64)
        self._before = coupling[:, clamped.units].astype(np.float64)

    def enter(
        self, forces: _Forces, coupling: Float32, bias: Float32, heat: Float64, work: Float64
    ) -> None:
        """Add work and heat, given Σ_j J_ij x_j after the step."""
        units, moved = self._units, self._moved
        after = coupling[:, units].astype(np.float64)
        own: Float64 = np.zeros(len(moved))
        if forces.within is not None:
            among = forces.within[np.ix_(units, units)].astype(np.float64)
            own = ((moved @ among) * moved).sum(axis=1)
        work += (moved * (after + bias[:, units])).sum(axis=1) - 0.5 * own
        heat += 0.5 * ((moved * (after - self._before)).sum(axis=1) - own)
