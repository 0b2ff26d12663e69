"""BLAS calls from kernels against NumPy, on views of every kind and with both libraries."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from scipy.linalg import cython_blas

from thermoloom.engines.compiled import linear_algebra
from thermoloom.engines.compiled.linear_algebra import Blas, _capsule_address, blas

# as it is compiled for other kernels, it cannot be called from here
multiply = njit(linear_algebra.multiply.py_func)


def scipys() -> Blas:
    """The fallback, with 32-bit integers."""
    return Blas(*(_capsule_address(cython_blas.__pyx_capi__[name]) for name in Blas._fields))


@pytest.mark.parametrize("library", [blas, scipys])
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_multiply_into_a_view(library, transpose_a: bool, transpose_b: bool) -> None:
    rng = np.random.default_rng(0)
    big = rng.normal(size=(3, 60, 50)).astype(np.float32)
    a = big[0, 5:17, :9].T if transpose_a else big[0, :9, 5:17]
    b = big[1, 2:22, 3:15].T if transpose_b else big[1, 2:14, 3:23]
    c = big[2, 4:13, 7:27]
    untouched = big[2].copy()
    expected = 1.5 * a.astype(float) @ b + 0.5 * c
    multiply(library(), 1.5, a, b, 0.5, c)
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-5)
    untouched[4:13, 7:27] = c
    assert np.array_equal(big[2], untouched)
