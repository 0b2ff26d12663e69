"""Solve J C + C J = X for J, with a covariance C and, if required, with a zero diagonal of J.

In the eigenvectors U of C the solution is X_kl/(λ_k + λ_l). With few patterns, the covariance is of
low rank apart from nearly isotropic thermal noise, C ≈ c + U (Λ − c) Uᵀ. Then only these vectors
are computed, by subspace iteration, and

    J = X/2c + U W + (U W)ᵀ,      W = p a + ½ (s ∘ a U) Uᵀ,      a = Uᵀ X,
    p_k = 1/(λ_k + c) − 1/2c,     s_kl = 1/(λ_k + λ_l) − 1/(λ_k + c) − 1/(λ_l + c) + 1/2c

A zero diagonal needs forces diag(d) that hold it: J C + C J = X + diag(d). The diagonal of J is a
linear function of d with a positive matrix, so that conjugate gradients find d in a few steps of
8 N k² operations each. All products are in float32, which is enough for a search direction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thermoloom.theory.marginals import Array64

Float32 = NDArray[np.float32]

COMPLETE = 1024
"""Units up to which all eigenvectors are computed."""
FEW = 0.5
"""Largest rank, as a fraction of the units, for which subspace iteration takes less time."""
_DIAGONAL_ERROR = 1e-4
"""The diagonal of J is reduced by this factor: it is an error of the search direction."""
_MOST_STEPS = 30


class Lyapunov:
    """X ↦ J for one C, of this ``rank`` above ``noise`` times the unit matrix.

    ``start``: eigenvectors of a similar matrix.
    """

    def __init__(self, C: Array64, noise: float, rank: int, start: Float32 | None = None) -> None:
        count = rank + rank // 32 + 16
        if len(C) <= COMPLETE or count > FEW * len(C):
            values, vectors = np.linalg.eigh(C)
            self.vectors: Float32 = vectors.astype(np.float32)
        else:
            values, self.vectors = _leading(C, noise, count, start)
        values = np.maximum(values, 1e-12 * values.max())
        others = len(C) - len(values)
        rest = (np.trace(C) - values.sum()) / others if others else values.mean()
        self._rest = float(max(rest, 1e-12 * values.max()))
        half, mixed = 0.5 / self._rest, 1 / (values + self._rest)
        self._p = (mixed - half).astype(np.float32)
        both = 1 / np.add.outer(values, values) - np.add.outer(mixed, mixed) + half
        self._s = both.astype(np.float32)
        self._half = np.float32(half)
        self._diagonal_weights: Float32 = self.vectors**2 @ self._p

    def with_zero_diagonal(self, X: Float32) -> Float32:
        """J of X + diag(d), d such that J_ii = 0, for a symmetric X."""
        U = self.vectors
        image = U.T @ X
        diagonal = self._half * np.diagonal(X) + 2 * np.einsum("ik,ki->i", U, self._weights(image))
        d = self._holding_forces(-diagonal)
        image += U.T * d
        half: Float32 = U @ self._weights(image)
        half += np.float32(0.5) * self._half * X
        J = half + half.T
        np.fill_diagonal(J, 0)
        return J

    def _weights(self, image: Float32) -> Float32:
        """W of a = Uᵀ X."""
        U = self.vectors
        outer = (self._s * (image @ U)) @ U.T
        weights: Float32 = self._p[:, None] * image + np.float32(0.5) * outer
        return weights

    def _diagonal(self, d: Float32) -> Float32:
        """Diagonal of J where X = diag(d)."""
        U = self.vectors
        inner = self._s * (U.T @ (d[:, None] * U))
        total: Float32 = d * (self._half + 2 * self._diagonal_weights)
        total += np.einsum("ik,ik->i", U, U @ inner)
        return total

    def _holding_forces(self, diagonal: Float32) -> Float32:
        """d that changes the diagonal of J by ``diagonal``, by conjugate gradients."""
        d = np.zeros_like(diagonal)
        residual = diagonal.copy()
        direction = residual.copy()
        size = first = float(residual @ residual)
        for _ in range(_MOST_STEPS):
            if size <= _DIAGONAL_ERROR**2 * first:
                break
            image = self._diagonal(direction)
            curvature = float(direction @ image)
            if not curvature > 0:  # forces below the smallest float32: nothing left to hold
                break
            step = np.float32(size / curvature)
            d += step * direction
            residual -= step * image
            previous, size = size, float(residual @ residual)
            direction = residual + np.float32(size / previous) * direction
        return d


def _leading(
    C: Array64, noise: float, count: int, start: Float32 | None
) -> tuple[Array64, Float32]:
    """The largest eigenvalues of C and their vectors, by subspace iteration.

    Less the noise, the other eigenvalues are nearly 0, so that one step separates them.
    """
    signal = C.astype(np.float32)
    signal.flat[:: len(C) + 1] -= np.float32(noise)
    if start is None or start.shape != (len(C), count):
        start = np.random.default_rng(0).standard_normal((len(C), count), np.float32)
        start = np.linalg.qr(signal @ start)[0]
    basis = np.linalg.qr(signal @ start)[0]
    values, rotation = np.linalg.eigh(basis.T @ (signal @ basis))
    vectors: Float32 = basis @ rotation
    return values.astype(np.float64) + noise, vectors
