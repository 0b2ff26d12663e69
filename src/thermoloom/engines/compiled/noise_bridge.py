"""Bridges of a random walk along a path: the walk W inside a block of updates.

    W_k = W_0 + (k/B) W_B + Σ_intervals min(k − a, a + L − k)/√L · Z      for a < k < a + L

By midpoint displacement (Lévy's construction, exact for Gaussian walks) each interval of
L = B, B/2, …, 2 updates from a on adds a tent times a matrix Z of unit normals. Z is needed only in
the directions of the s states inside its interval, so it is never drawn completely. With
orthonormal bases A_v, A_h of the visible and hidden states and G, G′ of normals

    J_vh   Z A_h = G,   Zᵀ A_v = G′ + A_h (GᵀA_v − A_hᵀG′)
    J_hh   Z A = G + A (C − M),   M = AᵀG,   C = (M + Mᵀ)/√2      for A = A_h, Z = Zᵀ, Var Z_aa = 2
           Z_aa = 2 (ZA)_a·A_a − A_aᵀ C A_a + q_a,   Cov q = 2 P∘P,   P = 1 − AAᵀ

have the law of Z. The diagonal, which J_hh does not have, is subtracted: (Z x)_a − Z_aa x_a. All
expressions are linear in independent normals: the law is exact (in float32), jointly for all steps.

Bases are those of Gram and Schmidt, of the first state and then the moves from state to state,
which are far from dependent where the states themselves are nearly parallel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines.compiled.compiling import copy, fast_loops, inner, jit
from thermoloom.engines.compiled.linear_algebra import blas, multiply

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Draw = Callable[[int, int], Float32]
"""(level, count) → normals of a block: level 0 for W_B, level p for its intervals of 2ᵖ updates."""

INDEPENDENT = 1e-8
"""Smallest new fraction of a move's square for which the Gram matrix is accurate enough."""
NOTHING = 1e-20
"""New fraction of a move's square below which the move adds no direction."""
_ROOT_HALF, _ROOT_TWO = np.float32(math.sqrt(0.5)), np.float32(math.sqrt(2))


class _Path(NamedTuple):
    """States of a block, and the quantities that all its intervals share."""

    states: Float32
    """(B, N)"""
    moves: Float32
    """(B, N): each state minus the previous one."""
    visible: Float64
    """(B, B): products of the visible states; likewise hidden."""
    hidden: Float64


def add_bridges(groups: int, visible: int, states: Float32, draw: Draw, out: Float32) -> None:
    """out_k ← out_k + (W_k − W_0 − (k/B) W_B) x′_k (B, N): all intervals of ``groups`` updates."""
    moves, wide = states.copy(), states.astype(np.float64)
    moves[1:] -= states[:-1]
    of_v, of_h = wide[:, :visible], wide[:, visible:]
    path = _Path(states, moves, of_v @ of_v.T, of_h @ of_h.T)
    period, hidden = len(states) // groups, states.shape[1] - visible
    for level in range(1, groups.bit_length()):
        length = 2**level
        update = np.arange(1, length)
        height = np.minimum(update, length - update) * math.sqrt(period / length)
        tent = np.repeat(height, period).astype(np.float32)
        s = len(tent)
        count = s * visible + 2 * s * hidden + s * s + 2 * hidden
        normals = draw(level, groups // length * count).reshape(-1, count)
        _add_level(blas(), path, visible, length * period, tent, normals, out)


@jit
def _add_level(routines, path, n_v, spacing, tent, normals, out):  # type: ignore[no-untyped-def]
    """Intervals of one length, at a ``spacing`` in steps, with one row of normals each."""
    for interval in range(normals.shape[0]):
        last = (interval + 1) * spacing
        _add_interval(routines, path, n_v, last - tent.size, tent, normals[interval], out)


@inner
def _add_interval(routines, path, n_v, first, tent, normals, out):  # type: ignore[no-untyped-def]
    """out_k ← out_k + tent_k · Z x_k for the states inside an interval.

    Only the coordinates of visible states are needed, r_v A_v = x_v. With M′ = G′A_h and M = AᵀG

        Z_vhᵀ x_v + Z_hh x_h = r_v G′ + r_h G + [x_v Gᵀ_v − r_v M′ + r_h (C − M)] A_h.
    """
    s, n_h = tent.size, out.shape[1] - n_v
    last = first + s
    x, moves, projected = path.states[first:last], path.moves[first:last], out[first:last]
    ends = s * n_v, s * (n_v + 2 * n_h), s * (n_v + 2 * n_h + s)
    g_v, g = normals[: ends[0]].reshape(s, n_v), normals[ends[0] : ends[1]].reshape(2 * s, n_h)
    inner, on_diagonal = normals[ends[1] : ends[2]].reshape(s, s), normals[ends[2] : ends[2] + n_h]
    on_bias = normals[ends[2] + n_h :]

    risen, lower = np.empty((s, 2 * s), np.float32), np.empty((s, s))
    basis = np.empty((s, n_h), np.float32)
    if not _cholesky(path.visible, first, lower):
        _gram_schmidt(x[:, :n_v], moves[:, :n_v], lower, np.empty((s, n_v)))
    _coordinates(lower, tent, risen[:, :s])
    if _cholesky(path.hidden, first, lower):
        _work_out(routines, x[0, n_v:], moves[:, n_v:], lower, basis)
    else:
        wide = np.empty((s, n_h))
        _gram_schmidt(x[:, n_v:], moves[:, n_v:], lower, wide)
        for k in range(s):
            copy(wide[k], basis[k])
    _coordinates(lower, tent, risen[:, s:])

    along, change = np.empty((2 * s, s), np.float32), np.empty((s, s), np.float32)
    mixed, quadratic = np.empty((s, s), np.float32), np.empty((s, s), np.float32)
    multiply(routines, 1.0, g, basis.T, 0.0, along)
    diagonal = np.empty(n_h, np.float32)
    weight = _ROOT_TWO if _leftover(basis, on_diagonal, diagonal) else np.float32(0)
    multiply(routines, 1.0, x[:, :n_v], g_v.T, 0.0, mixed)
    for i in range(s):
        for j in range(s):
            m = along[s + i, j]
            change[i, j] = (m + along[s + j, i]) * _ROOT_HALF - m
            quadratic[i, j] = change[i, j] - m + weight * inner[i, j]
            mixed[i, j] *= tent[i]
    multiply(routines, 1.0, risen[:, s:], change, 1.0, mixed)
    multiply(routines, -1.0, risen[:, :s], along[:s], 1.0, mixed)

    multiply(routines, 1.0, risen[:, s:], g_v, 1.0, projected[:, :n_v])
    multiply(routines, 1.0, risen, g, 1.0, projected[:, n_v:])
    multiply(routines, 1.0, mixed, basis, 1.0, projected[:, n_v:])
    squares = np.empty((s, n_h), np.float32)
    multiply(routines, 1.0, quadratic, basis, 0.0, squares)
    for d in range(s):
        a, normal, square = basis[d], g[s + d], squares[d]
        for j in range(n_h):
            diagonal[j] += a[j] * (2 * normal[j] + square[j])
    for k in range(s):
        hidden, x_h = projected[k, n_v:], x[k, n_v:]
        for j in range(n_h):
            hidden[j] += tent[k] * (on_bias[j] - diagonal[j] * x_h[j])


@fast_loops
def _cholesky(gram, first, lower):  # type: ignore[no-untyped-def]
    """Coordinates of the first state and the later moves in their orthonormal basis.

    Computed from the Gram matrix; returns whether the moves are independent enough for that.
    """
    for i in range(lower.shape[0]):
        row, g = lower[i], gram[first + i]
        before = gram[first + i - 1] if i else np.zeros_like(g)
        for j in range(i + 1):
            product = g[first + j] - before[first + j]
            if j:
                product -= g[first + j - 1] - before[first + j - 1]
            other, known = lower[j], 0.0
            for m in range(j):
                known += row[m] * other[m]
            if j < i:
                row[j] = (product - known) / other[j]
            elif product - known > INDEPENDENT * product:
                row[i] = np.sqrt(product - known)
            else:
                return False
        row[i + 1 :] = 0
    return True


@fast_loops
def _gram_schmidt(states, moves, lower, basis):  # type: ignore[no-untyped-def]
    """The same with the basis, each vector orthogonalized twice; dependent vectors become 0."""
    lower[:] = 0
    for i in range(lower.shape[0]):
        vector, square = basis[i], 0.0
        copy(moves[i] if i else states[0], vector)
        for n in range(vector.size):
            square += vector[n] ** 2
        for _ in range(2):
            for j in range(i):
                other, along = basis[j], 0.0
                for n in range(vector.size):
                    along += vector[n] * other[n]
                for n in range(vector.size):
                    vector[n] -= along * other[n]
                lower[i, j] += along
        new = 0.0
        for n in range(vector.size):
            new += vector[n] ** 2
        lower[i, i] = np.sqrt(new) if new > NOTHING * square else 0.0
        for n in range(vector.size):
            vector[n] = vector[n] / lower[i, i] if lower[i, i] > 0 else 0.0


@inner
def _coordinates(lower, tent, out):  # type: ignore[no-untyped-def]
    """tent_k · r_k: each state is the first state plus all moves since."""
    total = np.zeros(tent.size)
    for k in range(tent.size):
        for j in range(tent.size):
            total[j] += lower[k, j]
            out[k, j] = tent[k] * total[j]


@inner
def _work_out(routines, state, moves, lower, basis):  # type: ignore[no-untyped-def]
    """The basis in which the first state and the later moves have these coordinates."""
    s = lower.shape[0]
    inverse, inverse_32 = np.zeros((s, s)), np.empty((s, s), np.float32)
    for i in range(s):
        row = inverse[i]
        for j in range(i):
            factor, other = lower[i, j], inverse[j]
            for m in range(j + 1):
                row[m] -= factor * other[m]
        row[i] = 1.0
        for m in range(i + 1):
            row[m] /= lower[i, i]
        copy(row, inverse_32[i])
    move = moves[0].copy()
    copy(state, moves[0])
    multiply(routines, 1.0, inverse_32, moves, 0.0, basis)
    copy(move, moves[0])


@inner
def _leftover(basis, normals, out):  # type: ignore[no-untyped-def]
    """√2 times the independent part of q; returns whether q has another part.

    P∘P = diag(1 − 2|A_a|²) + (AAᵀ)∘(AAᵀ), so q_a = √2 (√(1 − 2|A_a|²) z_a + A_aᵀ M′ A_a) with fresh
    normals z, M′, unless some |A_a|² exceeds ½ (it is about s/N_h): then from a root of P∘P.
    """
    out[:] = 1
    for d in range(basis.shape[0]):
        a = basis[d]
        for j in range(out.size):
            out[j] -= 2 * a[j] * a[j]
    if out.min() < 0:
        _root_of_squares(basis, normals, out)
        return False
    for j in range(out.size):
        out[j] = _ROOT_TWO * np.sqrt(out[j]) * normals[j]
    return True


@inner
def _root_of_squares(basis, normals, out):  # type: ignore[no-untyped-def]
    """√2 L z, L Lᵀ = P∘P, which is positive semidefinite as an elementwise product of such."""
    n = out.size
    lower = np.zeros((n, n))
    out[:] = 0
    for j in range(n):
        for i in range(j, n):
            product, known = 1.0 if i == j else 0.0, 0.0
            for d in range(basis.shape[0]):
                product -= np.float64(basis[d, i]) * basis[d, j]
            for m in range(j):
                known += lower[i, m] * lower[j, m]
            lower[i, j] = product * product - known
        new = lower[j, j]
        for i in range(j, n):
            lower[i, j] = lower[i, j] / np.sqrt(new) if new > 1e-12 else 0.0
            out[i] += np.float32(lower[i, j]) * _ROOT_TWO * normals[j]
