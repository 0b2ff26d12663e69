"""Bridges of a random walk along a path: what W does inside a block of updates.

    W_k = W_0 + (k/B) W_B + Σ_intervals min(k − a, a + L − k)/√L · Z      for a < k < a + L

By midpoint displacement (Lévy's construction, exact for Gaussian walks) each interval of
L = B, B/2, …, 2 updates from a on adds a tent times a matrix Z of unit normals. Z is needed only in
the directions of the L − 1 states inside its interval, so it is never drawn whole. With orthonormal
bases A_v, A_h of the visible and hidden states and G, G′ of normals

    J_vh   Z A_h = G,   Zᵀ A_v = G′ + A_h (GᵀA_v − A_hᵀG′)
    J_hh   Z A = G + A (C − M),   M = AᵀG,   C = (M + Mᵀ)/√2      for A = A_h, Z = Zᵀ, Var Z_aa = 2
           Z_aa = 2 (ZA)_a·A_a − A_aᵀ C A_a + q_a,   Cov q = 2 P∘P,   P = 1 − AAᵀ

have the law of Z. The diagonal, which J_hh does not have, is taken off: (Z x)_a − Z_aa x_a. All of
it is linear in independent normals: the law is exact (in float32), jointly for all steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.engine.compiled.compiling import jit

Float32 = NDArray[np.float32]
Draw = Callable[[int, int], Float32]
"""(level, count) → normals of a block: level 0 for W_B, level p for its intervals of 2ᵖ updates."""

INDEPENDENT = 1e-8
"""A state counts as new where more than this part of its square is not in the earlier ones."""


def add_bridges(groups: int, visible: int, states: Float32, draw: Draw, out: Float32) -> None:
    """out_k ← out_k + (W_k − W_0 − (k/B) W_B) x′_k (B, N): all intervals of ``groups`` updates."""
    period = len(states) // groups
    wide = states.astype(np.float64)
    of_v, of_h = np.split(wide, [visible], axis=1)
    grams = of_v @ of_v.T, of_h @ of_h.T
    for level in range(1, groups.bit_length()):
        length = 2**level
        shape = (groups // length, length * period, states.shape[1])
        update = np.arange(1, length)
        height = np.minimum(update, length - update) * math.sqrt(period / length)
        v, h = (
            _States(x.reshape(*shape[:2], -1)[:, period:], _inside(gram, shape, period))
            for x, gram in ((of_v, grams[0]), (of_h, grams[1]))
        )
        inside = states.reshape(shape)[:, period:]
        found = out.reshape(shape)[:, period:]
        _add_bridge(v, h, inside, np.repeat(height, period), level, draw, found)


def _inside(gram: NDArray[np.float64], shape: tuple[int, ...], period: int) -> NDArray[np.float64]:
    """Products of the states inside each interval, (I, s, s), from those of all of a block."""
    intervals, steps = shape[:2]
    own: NDArray[np.float64] = np.einsum(
        "iaib->iab", gram.reshape(intervals, steps, intervals, steps)
    )
    return own[:, period:, period:]


@dataclass(frozen=True)
class _States:
    """States inside intervals, and their products."""

    x: NDArray[np.float64]
    """(I, s, N)"""
    gram: NDArray[np.float64]
    """xxᵀ (I, s, s)"""

    def factors(self) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """x = r a with orthonormal rows a (I, d, N), d ≤ s, and coordinates r (I, s, d).

        r is the Cholesky factor of xxᵀ and a = r⁻¹x, not worked out. Where states are too close to
        dependent for that, both come from Householder reflections, which never fail.
        """
        try:
            r = np.linalg.cholesky(self.gram).astype(np.float64, copy=False)
        except np.linalg.LinAlgError:
            r = np.zeros_like(self.gram)
        new_part = np.diagonal(r, axis1=1, axis2=2) ** 2
        if (new_part > INDEPENDENT * np.diagonal(self.gram, axis1=1, axis2=2)).all():
            return r, None
        q, upper = np.linalg.qr(_transposed(self.x))
        return _transposed(upper), _transposed(q)


def _add_bridge(
    v: _States,
    h: _States,
    x: Float32,
    tent: NDArray[np.float64],
    level: int,
    draw: Draw,
    out: Float32,
) -> None:
    """out_k ← out_k + tent_k · Z x_k for the states x (I, s, N) inside I intervals, each with a Z.

    Bases are worked out for hidden states only: r_v A_v = x_v, so that with S = G′A_h and M = AᵀG

        Z_vhᵀ x_v + Z_hh x_h = r_v G′ + r_h G + [x_v Gᵀ_v − r_v S + r_h (C − M)] A_h.
    """
    (intervals, _, n_v), n_h = v.x.shape, h.x.shape[2]
    r_v, _ = v.factors()
    r_h, a_wide = h.factors()
    a = (np.linalg.inv(r_h) @ h.x if a_wide is None else a_wide).astype(np.float32)
    d_v, d_h = r_v.shape[2], r_h.shape[2]
    shapes = [(d_h, n_v), (d_v + d_h, n_h), (d_h, d_h), (1, n_h), (1, n_h)]
    ends = np.cumsum([rows * columns for rows, columns in shapes])
    normals = draw(level, intervals * int(ends[-1])).reshape(intervals, -1)
    g_v, g, inner, own, on_bias = (
        piece.reshape(intervals, *shape)
        for piece, shape in zip(np.split(normals, ends[:-1], axis=1), shapes, strict=True)
    )
    along = g @ _transposed(a)
    m = along[:, d_v:]
    core = (m + _transposed(m)) * np.float32(math.sqrt(0.5))
    risen_v, risen_h = ((tent[:, None] * r).astype(np.float32) for r in (r_v, r_h))
    risen = tent.astype(np.float32)
    mixed = risen[:, None] * (x[..., :n_v] @ _transposed(g_v))
    mixed += risen_h @ (core - m) - risen_v @ along[:, :d_v]
    left_over = 1 - 2 * _dots(a, a)
    own = np.sqrt(np.maximum(left_over, 0)) * own
    for i in np.flatnonzero(left_over.min(axis=(1, 2)) < 0):
        own[i] = normals[i, None, ends[2] : ends[3]] @ _root_of_squares(a[i].astype(np.float64)).T
        inner[i] = 0
    quadratic = core - 2 * m + np.float32(math.sqrt(2)) * inner
    by_a = np.concatenate([mixed, quadratic], axis=1) @ a
    by_g = np.concatenate([risen_v, risen_h], axis=2) @ g
    _gather(risen_h @ g_v, by_g, by_a, a, g[:, d_v:], own[:, 0], on_bias[:, 0], risen, x, out)


@jit
def _gather(of_v, by_g, by_a, a, g, own, on_bias, tent, x, out):  # type: ignore[no-untyped-def]
    """Everything that acts on a state, added to ``out``; Z_aa x_a, which J_hh has not, taken off.

    P∘P = diag(1 − 2|A_a|²) + (AAᵀ)∘(AAᵀ), so q_a = √2 (√(1 − 2|A_a|²) z_a + A_aᵀ M′ A_a) with fresh
    normals z, M′, unless some |A_a|² exceeds ½ (it is about s/N_h): then from the root of P∘P.
    """
    steps, n_v = of_v.shape[1:]
    for i in range(of_v.shape[0]):
        diagonal = np.float32(math.sqrt(2)) * own[i]
        for d in range(a.shape[1]):
            product, basis, normal = by_a[i, steps + d], a[i, d], g[i, d]
            for j in range(diagonal.size):
                diagonal[j] += basis[j] * (2 * normal[j] + product[j])
        for k in range(steps):
            visible, hidden, x_h = out[i, k, :n_v], out[i, k, n_v:], x[i, k, n_v:]
            for j in range(n_v):
                visible[j] += of_v[i, k, j]
            first, second, bias = by_g[i, k], by_a[i, k], on_bias[i]
            for j in range(diagonal.size):
                hidden[j] += first[j] + second[j] + tent[k] * (bias[j] - diagonal[j] * x_h[j])


def _transposed(a: NDArray[Any]) -> NDArray[Any]:
    return a.swapaxes(-1, -2)


def _dots(a: Float32, b: Float32) -> Float32:
    """Σ_d a_db b_db (I, 1, N): products of columns."""
    dots: Float32 = np.einsum("idb,idb->ib", a, b)[:, None]
    return dots


def _root_of_squares(a: NDArray[np.float64]) -> NDArray[np.float64]:
    """A root of P∘P, P = 1 − AAᵀ, positive semidefinite as an elementwise product of such."""
    projector = np.eye(a.shape[1]) - a.T @ a
    values, vectors = np.linalg.eigh(projector**2)
    root: NDArray[np.float64] = vectors * np.sqrt(np.maximum(values, 0))
    return root
