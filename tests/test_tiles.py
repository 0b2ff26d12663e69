"""Products and transposes, tile by tile: against float64, at every edge."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from thermoloom.engines.compiled import tiles
from thermoloom.engines.compiled.tiles import FLAT, LANES, TALL, Extent, Operand

# as they are compiled for other kernels, they cannot be called from here
product_of_addresses = njit(tiles.add_product.py_func)
transpose = njit(tiles.transpose.py_func)
SCALE = np.float32(-0.3)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


Part = tuple[np.ndarray, int, int, int, int]
"""An array, its first number, and those from row to row, f to f and k to k."""


def add_product(a: Part, b: Part, c: Part, extent: Extent) -> None:
    a, b, c = (Operand(array.ctypes.data + 4 * at, *apart) for array, at, *apart in (a, b, c))
    product_of_addresses(a, b, c, extent, SCALE)


@pytest.mark.parametrize("rows", [0, 1, FLAT, TALL - 1, TALL, 2 * TALL + FLAT + 2])
@pytest.mark.parametrize("near", [0, 1, 37])
@pytest.mark.parametrize("begins", [False, True])
def test_product_of_arrays_in_any_order(rows: int, near: int, begins: bool) -> None:
    """A by columns, in two parts; C inside a larger matrix, of which nothing else changes."""
    a, b, c = numbers(2, near, rows + 3), numbers(2, near, LANES + 5), numbers(rows + 2, LANES + 9)
    m, n, to = rows + 3, LANES + 5, LANES + 9
    product = np.einsum("fkr,fkc->rc", a[:, :, 2 : 2 + rows].astype(float), b[:, :, 3 : 3 + LANES])
    expected = c.astype(float)
    own = expected[1 : 1 + rows, 4 : 4 + LANES]
    own[:] = SCALE * product + (0 if begins else own)
    left, right, out = (a, 2, 1, near * m, m), (b, 3, 0, near * n, n), (c, to + 4, to, 0, 0)
    add_product(left, right, out, Extent(rows, 2, near, begins))
    np.testing.assert_allclose(c, expected, atol=1e-5)


def test_a_sum_is_the_same_in_any_tile() -> None:
    a, b = numbers(TALL + FLAT + 1, 50), numbers(50, LANES)
    right, (together, alone) = (b, 0, 0, 0, LANES), np.zeros((2, len(a), LANES), np.float32)
    out = together, 0, LANES, 0, 0
    add_product((a, 0, 50, 0, 1), right, out, Extent(len(a), 1, 50, True))
    for row in range(len(a)):
        out = alone, row * LANES, LANES, 0, 0
        add_product((a, 50 * row, 50, 0, 1), right, out, Extent(1, 1, 50, True))
    assert np.array_equal(together, alone)


@pytest.mark.skipif(not tiles.WIDE, reason="registers are narrow here")
def test_tiles_for_narrow_registers(tmp_path: Path) -> None:
    """These tests again, in a process whose processor is said to have narrow registers."""
    script = f"""
import pytest
from thermoloom.engines.compiled import tiles
assert not tiles.WIDE
raise SystemExit(pytest.main([{__file__!r}, "-qx", "-p", "no:cacheprovider"]))
"""
    few = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma"}
    environment = os.environ | few | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("features", "wide"), [("+avx2,+fma", False), ("+avx512f", True)])
def test_tiles_are_those_of_the_processor_that_kernels_are_compiled_for(
    features: str, wide: bool
) -> None:
    """A tall tile of AVX-512 does not fit into the registers of AVX2."""
    script = "from thermoloom.engines.compiled.tiles import WIDE; print(WIDE)"
    environment = os.environ | {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": features}
    said = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == [str(wide)]


@pytest.mark.parametrize("rows", [0, 3, LANES, 2 * LANES + 1])
@pytest.mark.parametrize("columns", [1, LANES, 3 * LANES - 2])
def test_transpose_into_a_view(rows: int, columns: int) -> None:
    a, b = numbers(rows + 2, columns + 3), numbers(columns + 4, rows + 5)
    expected = b.copy()
    expected[1 : 1 + columns, 3 : 3 + rows] = a[1 : 1 + rows, 2 : 2 + columns].T
    transpose(a[1 : 1 + rows, 2 : 2 + columns], b[1 : 1 + columns, 3 : 3 + rows])
    assert np.array_equal(b, expected)
