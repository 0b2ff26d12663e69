"""The stepwise online update as a user would write it in NumPy, PyTorch and JAX.

    r = [−Δx + μΔt (φ(x′) + J x′ + b)] / (2k_BT),   φ(x) = 2J₂x + 4J₄x³
    J ← J − α (r x′ᵀ + x′ rᵀ) without visible–visible and diagonal,   b ← b − α r_h

A peer takes a path and returns a function that trains on it from θ = 0, in float32. Neither drawing
nor converting the path counts towards the peer's time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from thermoloom.machine.machine import Machine
from thermoloom.machine.parameters import Parameters

Float32 = NDArray[np.float32]
Training = Callable[[], Parameters]


class Peer(Protocol):
    def __call__(self, machine: Machine, rate: float, path: Float32) -> Training: ...


def numpy_loop(machine: Machine, rate: float, path: Float32) -> Training:
    """NumPy, the rule as written above: float32, in place, ``np.outer``."""
    n, alpha = machine.visible, np.float32(rate)
    two_j2, four_j4 = np.float32(2 * machine.J2), np.float32(4 * machine.J4)
    drift, inverse_2kT = np.float32(machine.mobility * machine.dt), np.float32(0.5 / machine.kT)

    def train() -> Parameters:
        theta = Parameters.zeros(machine)
        j_vh, j_hh, b = theta.of_stage(0).values()
        for before, x in pairwise(path):
            v, h = x[:n], x[n:]
            force = two_j2 * x + four_j4 * x * x * x
            force[:n] += j_vh @ h
            force[n:] += v @ j_vh + j_hh @ h + b
            r = (before - x + drift * force) * inverse_2kT
            r_v, r_h = r[:n], r[n:]
            j_vh -= alpha * (np.outer(r_v, h) + np.outer(v, r_h))
            update = np.outer(r_h, h)
            j_hh -= alpha * (update + update.T)
            np.fill_diagonal(j_hh, 0)
            b -= alpha * r_h
        return theta

    return train


def numpy_tuned(machine: Machine, rate: float, path: Float32) -> Training:
    """NumPy, tuned: all terms without θ at once, rank-2 updates as products into buffers."""
    n = machine.visible
    alpha, c = np.float32(rate), np.float32(machine.residual_scale)

    def train() -> Parameters:
        theta = Parameters.zeros(machine)
        j_vh, j_hh, b = theta.of_stage(0).values()
        change_vh, change_hh = np.empty_like(j_vh), np.empty_like(j_hh)
        left_v, left_h = np.empty((2, n), np.float32), np.empty((2, len(b)), np.float32)
        right = np.empty((2, len(b)), np.float32)
        for start, x in zip(_onsite_residuals(machine, path), path[1:], strict=True):
            v, h = x[:n], x[n:]
            r_v = start[:n] + c * (j_vh @ h)
            r_h = start[n:] + c * (v @ j_vh + j_hh @ h + b)
            left_v[0], left_v[1], left_h[0], left_h[1] = r_v, v, r_h, h
            np.multiply(alpha, h, out=right[0])
            np.multiply(alpha, r_h, out=right[1])
            np.matmul(left_v.T, right, out=change_vh)
            np.matmul(left_h.T, right, out=change_hh)
            j_vh -= change_vh
            j_hh -= change_hh
            np.fill_diagonal(j_hh, 0)
            b -= right[1]
        return theta

    return train


def torch_loop(machine: Machine, rate: float, path: Float32) -> Training:
    """PyTorch, without autograd: ``addmv`` for the forces, ``addr_`` in place for the updates."""
    import torch

    n, c = machine.visible, machine.residual_scale
    states = torch.from_numpy(path)

    @torch.no_grad()
    def train() -> Parameters:
        j_vh = torch.zeros(n, machine.hidden)
        j_hh = torch.zeros(machine.hidden, machine.hidden)
        b, r_h, r_v = torch.zeros(machine.hidden), torch.empty(machine.hidden), torch.empty(n)
        j_hv = j_vh.T
        x = states[1:]
        onsite = x * (2 * machine.J2 + 4 * machine.J4 * x * x)
        starts = c * onsite - (x - states[:-1]) / (2 * machine.kT)
        rows = zip(starts[:, :n], starts[:, n:], x[:, :n], x[:, n:], strict=True)
        for start_v, start_h, v, h in rows:
            torch.addmv(start_v, j_vh, h, alpha=c, out=r_v)
            torch.addmv(start_h, j_hv, v, alpha=c, out=r_h)
            r_h.addmv_(j_hh, h, alpha=c)
            r_h.add_(b, alpha=c)
            j_vh.addr_(r_v, h, alpha=-rate)
            j_vh.addr_(v, r_h, alpha=-rate)
            j_hh.addr_(r_h, h, alpha=-rate)
            j_hh.addr_(h, r_h, alpha=-rate)
            j_hh.fill_diagonal_(0)
            b.add_(r_h, alpha=-rate)
        return _parameters(machine, j_vh.numpy(), j_hh.numpy(), b.numpy())

    return train


def jax_scan(machine: Machine, rate: float, path: Float32) -> Training:
    """JAX: the step under ``lax.scan``, compiled as a whole."""
    import jax
    import jax.numpy as jnp

    n = machine.visible
    states = jnp.asarray(path)
    off_diagonal = 1 - jnp.eye(machine.hidden, dtype=jnp.float32)

    def step(theta: Any, pair: Any) -> tuple[Any, None]:
        j_vh, j_hh, b = theta
        before, x = pair
        v, h = x[:n], x[n:]
        onsite = x * (2 * machine.J2 + 4 * machine.J4 * x * x)
        coupling = jnp.concatenate([j_vh @ h, v @ j_vh + j_hh @ h + b])
        r = (before - x + machine.mobility * machine.dt * (onsite + coupling)) / (2 * machine.kT)
        r_v, r_h = r[:n], r[n:]
        j_vh = j_vh - rate * (jnp.outer(r_v, h) + jnp.outer(v, r_h))
        j_hh = j_hh - rate * off_diagonal * (jnp.outer(r_h, h) + jnp.outer(h, r_h))
        return (j_vh, j_hh, b - rate * r_h), None

    @jax.jit
    def scan(theta: Any, states: Any) -> Any:
        return jax.lax.scan(step, theta, (states[:-1], states[1:]))[0]

    def train() -> Parameters:
        zeros = tuple(jnp.asarray(a) for a in Parameters.zeros(machine).of_stage(0).values())
        return _parameters(machine, *(np.asarray(array) for array in scan(zeros, states)))

    return train


def numpy_quantized(
    machine: Machine,
    rate: float,
    path: Float32,
    bits: int,
    ranges: tuple[float, float],
    stochastic: bool,
) -> Training:
    """NumPy, vectorized, with couplings on a grid of b bits: n → n + round(move/Δ), clipped.

    J_hh is rounded once per undirected edge and mirrored; n is kept in float32, which is exact.
    """  # fmt: skip
    n, alpha, c = machine.visible, np.float32(rate), np.float32(machine.residual_scale)
    top = 2 ** (bits - 1) - 1
    d_vh, d_hh = (np.float32(span / top) for span in ranges)
    below = np.tri(machine.hidden, k=-1, dtype=np.float32)
    rng = np.random.default_rng(0)

    def move(codes: Float32, change: Float32) -> None:
        """codes ← codes − change, rounded and clipped, in place; ``change`` is overwritten."""
        if stochastic:
            np.subtract(rng.random(codes.shape, np.float32), change, out=change)
            codes += np.floor(change, out=change)
        else:
            codes -= np.rint(change, out=change)
        np.clip(codes, -top, top, out=codes)

    def train() -> Parameters:
        n_vh, n_hh, b = Parameters.zeros(machine).of_stage(0).values()
        for start, x in zip(_onsite_residuals(machine, path), path[1:], strict=True):
            v, h = x[:n], x[n:]
            r_v = start[:n] + c * d_vh * (n_vh @ h)
            r_h = start[n:] + c * (d_vh * (v @ n_vh) + d_hh * (n_hh @ h) + b)
            change = np.outer(alpha / d_vh * r_v, h)
            change += np.outer(v, alpha / d_vh * r_h)
            move(n_vh, change)
            change = np.outer(alpha / d_hh * r_h, h)
            change += change.T.copy()
            move(n_hh, change)
            if stochastic:  # both directions of an edge were drawn; the lower one counts
                n_hh *= below
                n_hh += n_hh.T.copy()
            np.fill_diagonal(n_hh, 0)
            b -= alpha * r_h
        return _parameters(machine, d_vh * n_vh, d_hh * n_hh, b)

    return train


def _parameters(machine: Machine, j_vh: Float32, j_hh: Float32, b: Float32) -> Parameters:
    arrays = {"visible_hidden": j_vh, "hidden_hidden": j_hh, "hidden_bias": b}
    return Parameters.from_arrays(machine, arrays)


def _onsite_residuals(machine: Machine, path: Float32) -> Float32:
    """Residuals at θ = 0 of all steps at once."""
    x = path[1:]
    onsite = x * (np.float32(2 * machine.J2) + np.float32(4 * machine.J4) * x * x)
    increments = (x - path[:-1]) * np.float32(0.5 / machine.kT)
    residuals: Float32 = np.float32(machine.residual_scale) * onsite - increments
    return residuals
