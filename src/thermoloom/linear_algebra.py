"""Matrix products into memory that is already there: the BLAS that SciPy ships, called directly.

    multiply(α, A, B, β, C)            C ← α A B + β C
    multiply_symmetric(α, A, B, β, C)  lower triangle of C ← α (AᵀB + BᵀA) + β C

NumPy has no β and no triangle; SciPy's wrappers copy views and keep the interpreter lock. Arrays
are float32 views of any two-dimensional array whose rows or columns are contiguous; nothing is
copied.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char, c_float, c_int, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas

Float32 = NDArray[np.float32]


def _routine(name: str, arguments: int) -> Any:
    """A Fortran BLAS routine as a function that releases the interpreter lock."""
    capsule = cython_blas.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *[c_void_p] * arguments)(address)


_sgemm = _routine("sgemm", 13)
_ssyr2k = _routine("ssyr2k", 12)


def _layout(a: Float32) -> tuple[bytes, int]:
    """How Fortran, which sees rows as columns, must read ``a``, and its leading dimension."""
    rows, columns = a.strides
    if columns == 4 and rows >= 4 * a.shape[1]:
        return b"N", max(rows // 4, 1)
    if rows == 4 and columns >= 4 * a.shape[0]:
        return b"T", max(columns // 4, 1)
    raise ValueError("a matrix needs contiguous rows or columns")


def _address(a: Float32) -> int:
    address: int = a.__array_interface__["data"][0]  # quicker than a.ctypes.data
    return address


def multiply(alpha: float, a: Float32, b: Float32, beta: float, c: Float32) -> None:
    """C ← α A B + β C, in place."""
    (m, k), n = a.shape, b.shape[1]
    layout_a, ld_a = _layout(a)
    layout_b, ld_b = _layout(b)
    layout_c, ld_c = _layout(c)
    if layout_c != b"N" or b.shape[0] != k or c.shape != (m, n):
        raise ValueError(f"shapes or layout do not fit: {a.shape} {b.shape} {c.shape}")
    _sgemm(
        byref(c_char(layout_b)),
        byref(c_char(layout_a)),
        byref(c_int(n)),
        byref(c_int(m)),
        byref(c_int(k)),
        byref(c_float(alpha)),
        _address(b),
        byref(c_int(ld_b)),
        _address(a),
        byref(c_int(ld_a)),
        byref(c_float(beta)),
        _address(c),
        byref(c_int(ld_c)),
    )


def multiply_symmetric(alpha: float, a: Float32, b: Float32, beta: float, c: Float32) -> None:
    """Lower triangle of C ← α (AᵀB + BᵀA) + β C for A, B of shape (k, n); the upper one stays."""
    k, n = a.shape
    if b.shape != a.shape or c.shape != (n, n):
        raise ValueError(f"shapes do not fit: {a.shape} {b.shape} {c.shape}")
    (layout_a, ld_a), (layout_b, ld_b), (layout_c, ld_c) = _layout(a), _layout(b), _layout(c)
    if not layout_a == layout_b == layout_c == b"N":
        raise ValueError("rows must be contiguous")
    _ssyr2k(
        byref(c_char(b"U")),  # the upper triangle of what Fortran sees is the lower one of C
        byref(c_char(b"N")),
        byref(c_int(n)),
        byref(c_int(k)),
        byref(c_float(alpha)),
        _address(a),
        byref(c_int(ld_a)),
        _address(b),
        byref(c_int(ld_b)),
        byref(c_float(beta)),
        _address(c),
        byref(c_int(ld_c)),
    )
