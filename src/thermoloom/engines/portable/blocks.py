"""Blocks of steps: θ after each of them, stepwise and exact.

    J_ij ← J_ij − α Σ (r_i x_j′ + r_j x_i′)                        every M steps, over them

M = 1 is the online rule, M = K the batch rule. The path is independent of θ, the residual is linear
in θ and an update is a masked rank-2 change. So the residuals of a block of B steps obey, with
c = μΔt/(2k_BT), R⁰ the residuals under the θ at the block's start and U[k, l] = 1 where the update
of step l is already applied at step k,

    R_v = R⁰_v − αc [(U∘X_hX_hᵀ) R_v + (U∘X_hR_hᵀ) X_v]
    R_h = R⁰_h − αc [(U∘(X_vX_vᵀ + X_hX_hᵀ + 1)) R_h + (U∘(X_hR_hᵀ + X_vR_vᵀ)) X_h
                     − 2 (U(R_h∘X_h))∘X_h]

for the paper's wiring; in general a group has such terms for every group it is coupled to. U is
strictly causal, so sweeps R ← R⁰ − αc[…] are exact after B of them; three reach round-off. Then θ
takes one rank-2B update. All of these are products of matrices, while a loop over steps would read
and write θ at every step. Other linear rules, such as momentum, have other weights in U and
remember more than θ (``thermoloom.rules``).

If wires are missing or a device distorts the couplings, the products do not factorize; a user's own
rule or error may not be linear. Then a block is one period of M steps, within which θ does not
change.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from thermoloom.engines.library import Array, NumPy
from thermoloom.engines.own_objects import OwnObjects, own_error, own_rule, require_shape
from thermoloom.engines.portable import couplings
from thermoloom.engines.portable.couplings import Blocks, Groups
from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import layout
from thermoloom.machine.quantization import Grid
from thermoloom.rules import Learning, in_block
from thermoloom.streams import rounding_uniforms

Memory = dict[str, Blocks]
"""θ, and the other numbers that a rule remembers for every coupling, by name."""
THETA = "0 θ"
"""Name of θ, which sorts before all others: JAX sorts names."""


class Rule(NamedTuple):
    """The settings for which a kernel is compiled."""

    machine: Machine
    period: int
    grid: Grid | None
    own: OwnObjects = OwnObjects()


def solve_block(
    library: NumPy, rule: Rule, feedback: Array, causal: Array, x: Groups, start: Groups
) -> Any:
    """R of a block from R⁰ (``start``); ``feedback`` = αc, ``causal`` = U."""
    transposed, weight, coupled, overlap = library.transposed, feedback * causal, {}, {}
    squares = {group: states @ transposed(states) for group, states in x.items()}
    for group in start:
        pairs = layout(rule.machine).partners(group)
        rates = {
            b.rows if turned else b.columns: rule.own.linear.rate(b.name) for b, turned in pairs
        }
        products = [scaled(rate, squares[other]) for other, rate in rates.items()]
        coupled[group], overlap[group] = rates, weight * sum(products)

    def sweep(r: Groups) -> Groups:
        crossed = {group: x[group] @ transposed(r[group]) for group in r}
        following = {}
        for group, rates in coupled.items():
            change = overlap[group] @ r[group]
            if moving := [scaled(rates[other], crossed[other]) for other in rates if other in r]:
                change = change + (weight * sum(moving)) @ x[group]
            if group in rates:  # no unit is coupled to itself
                change = change - (2 * rates[group] * weight @ (r[group] * x[group])) * x[group]
            following[group] = start[group] - change
        return following

    return library.iterate(sweep, start, int(causal.shape[0]))


def scaled(factor: float, array: Array) -> Array:
    return array if factor == 1 else factor * array


def learn_blocks(
    library: NumPy, rule: Rule, z: Memory, wires: Blocks, sensing: list[list[Blocks]] | None,
    rate: Array, word: Array | None, keys: Array, blocks: tuple[Array, ...],
) -> Any:  # fmt: skip
    """θ, and all else that the rule remembers, after blocks of steps.

    ``blocks``: x′, uncoupled residuals and normals of the error, each (blocks, trainings, B, N),
    and the counters of the rounding stream (blocks, 2), which are used on a grid only, where B = 1.
    """
    machine, scale, xp = rule.machine, rule.machine.residual_scale, library.xp

    def update(r: Groups, x: Groups) -> Blocks:
        return couplings.update(library, machine, wires, x, r)

    def learn_block(z: Memory, inputs: tuple[Array, ...]) -> tuple[Memory, tuple[()]]:
        states, alone, normals, counter = inputs
        x = couplings.all_groups(library, machine, states, word)
        block = in_block(rule.own.linear, states.shape[-2], rule.period)
        force = couplings.forces(library, machine, x, *couplings.sensed(sensing, z[THETA]))
        if not (block.response == block.response[0]).all():  # θ changes even without updates
            rest = [couplings.forces(library, machine, x, z[name]) for name in z if name != THETA]
            response = library.array(block.response.T[:, :, None])
            force = sum(f * each for f, each in zip(response, [force, *rest], strict=True))
        residuals = alone + scale * force
        if rule.own.error:
            measured = xp.broadcast_to(states, residuals.shape)
            erroneous = own_error(rule.own.error).residual(residuals, measured, normals)
            require_shape("imperfections.errors: residual()", erroneous, residuals)
            residuals = erroneous
        r = couplings.free_groups(machine, residuals)
        if rule.own.step:
            learning, state = Learning(rate, xp, update), {n: z[n] for n in z if n != THETA}
            theta, state = own_rule(rule.own.step).step(z[THETA], state, r, x, learning)
            for name, J in z[THETA].items():
                require_shape(f"training.rule: step(), {name}", theta.get(name), J)
            theta = {name: J * wires[name] if name in wires else J for name, J in theta.items()}
            return {THETA: theta, **state}, ()
        if states.shape[-2] > rule.period:
            r = solve_block(library, rule, rate * scale, library.array(block.causal), x, r)
        r = {group: rate * each for group, each in r.items()}
        if rule.grid is not None:
            u = [rounding_uniforms(library, machine, keys, counter)] if rule.grid.stochastic else []
            return {THETA: rule.grid.moved(xp, z[THETA], update(r, x), *u)}, ()
        following, effects = {}, library.array(block.effects[:, :, None])
        for name, effect, factors in zip(z, effects, block.power.tolist(), strict=True):
            after = update({group: effect * each for group, each in r.items()}, x)
            for factor, before in zip(factors, z.values(), strict=True):
                if factor:
                    after = {n: u + scaled(factor, before[n]) for n, u in after.items()}
            following[name] = after
        return following, ()

    return library.scan(learn_block, z, blocks)[0]
