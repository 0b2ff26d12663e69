"""Named, counter-based random streams.

    (z₀, z₁, z₂, z₃) = BoxMuller(Philox4x32-10(key, counter))
    key = (seed, stream name),   counter = (unit, ⌊k/4⌋, trajectory, 0)

are the standard normals of one unit in four consecutive steps, 4⌊k/4⌋ to 4⌊k/4⌋ + 3, of one
trajectory. Streams have no state: any normal can be computed alone, independently of block size,
thread, worker and order.

The normals use integer arithmetic and correctly rounded float32 operations only (no library
logarithm or sine, no fused multiply–add), so a stream is bit-identical on every machine
with IEEE arithmetic.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thermoloom.engines.compiled.compiling import inline, jit
from thermoloom.streams import PHILOX as PHILOX
from thermoloom.streams import STEPS_PER_BLOCK as STEPS_PER_BLOCK
from thermoloom.streams import STREAMS as STREAMS
from thermoloom.streams import stream_key as stream_key

# Words are kept in the lower halves of 64-bit lanes: one 32 × 32 → 64 multiplication then
# gives both halves of the product, and the upper halves never matter.
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
_M0, _M1, _W0, _W1 = (np.uint64(number) for number in PHILOX)


@inline
def philox(key, c0, c1, c2, c3):  # type: ignore[no-untyped-def]
    """Philox4x32-10 (Salmon et al., SC11): four words in the lower halves of uint64."""
    k0 = key & LOW
    k1 = key >> HALF
    for _ in range(10):
        p0 = _M0 * (c0 & LOW)
        p1 = _M1 * (c2 & LOW)
        c0 = (p1 >> HALF) ^ c1 ^ k0
        c1 = p1
        c2 = (p0 >> HALF) ^ c3 ^ k1
        c3 = p0
        k0 = (k0 + _W0) & LOW
        k1 = (k1 + _W1) & LOW
    return c0, c1, c2, c3


_F = np.float32
# log(1 + f) = f − f²/2 + f³ P(f) for √½ − 1 ≤ f ≤ √2 − 1, relative error 2e-8
_L0, _L1, _L2, _L3 = _F(0.33333330728), _F(-0.25000306422), _F(0.20001045102), _F(-0.16641281476)
_L4, _L5, _L6, _L7 = _F(0.14214495754), _F(-0.12998183458), _F(0.12622320902), _F(-0.07902745907)
_LN2 = _F(0.69314718056)
_SQRT_HALF_BITS = np.int32(0x3F3504F3)
# sin 2πt = t S(t²) and cos 2πt = C(t²) for |t| ≤ 1/8 of a turn, error 3e-8
_S0, _S1, _S2, _S3 = _F(6.2831852878), _F(-41.341662570), _F(81.592542871), _F(-75.401612699)
_C0, _C1, _C2, _C3, _C4 = (
    _F(0.99999999995), _F(-19.739208650), _F(64.939316136), _F(-85.442844673), _F(59.220168970),
)  # fmt: skip
_ONE, _HALF_F, _MINUS_TWO = _F(1.0), _F(0.5), _F(-2.0)
_TO_UNIT, _TO_TURN = _F(2.0**-31), _F(2.0**-34)


@inline
def _log(u):  # type: ignore[no-untyped-def]
    """Natural logarithm of a positive normal float32."""
    bits = np.float32(u).view(np.int32)
    exponent = np.int32(np.int32(bits - _SQRT_HALF_BITS) >> 23)
    f = np.int32(bits - np.int32(exponent << 23)).view(np.float32) - _ONE
    p = ((((((_L7 * f + _L6) * f + _L5) * f + _L4) * f + _L3) * f + _L2) * f + _L1) * f + _L0
    return np.float32(exponent) * _LN2 + (f + f * f * (p * f - _HALF_F))


@inline
def box_muller(w0, w1):  # type: ignore[no-untyped-def]
    """Two words (int32) → two standard normals, √(−2 ln u) (cos 2πt, sin 2πt); |z| < 6.7.

    u takes 31 bits of w₀. Of w₁, 30 bits are an angle within ±1/8 turn, two choose the quadrant.
    """
    u = (np.float32(np.int32(np.int32(w0 >> 1) & 0x7FFFFFFF)) + _HALF_F) * _TO_UNIT
    radius = np.sqrt(_MINUS_TWO * _log(u))
    t = np.float32(np.int32(w1 << 2)) * _TO_TURN
    q = t * t
    sine = radius * (t * (((_S3 * q + _S2) * q + _S1) * q + _S0))
    cosine = radius * ((((_C4 * q + _C3) * q + _C2) * q + _C1) * q + _C0)
    signed = cosine if w1 >= 0 else -cosine
    swap = np.int32(w1 << 1) < 0
    return (sine if swap else signed), (signed if swap else sine)


@inline
def fill_normals(key, trajectory, block, first_unit, z):  # type: ignore[no-untyped-def]
    """z[j, i] = normal of unit first_unit + i in step 4·block + j of a trajectory; z is (4, n)."""
    c1, c2 = np.uint64(block), np.uint64(trajectory)
    # Two passes, words first (their bits kept in z), because one pass runs out of registers.
    for i in range(z.shape[1]):
        w0, w1, w2, w3 = philox(key, np.uint64(first_unit + i), c1, c2, np.uint64(0))
        z[0, i] = np.uint32(w0).view(np.float32)
        z[1, i] = np.uint32(w1).view(np.float32)
        z[2, i] = np.uint32(w2).view(np.float32)
        z[3, i] = np.uint32(w3).view(np.float32)
    for j in range(0, STEPS_PER_BLOCK, 2):
        for i in range(z.shape[1]):
            w0 = np.float32(z[j, i]).view(np.int32)
            w1 = np.float32(z[j + 1, i]).view(np.int32)
            z[j, i], z[j + 1, i] = box_muller(w0, w1)


_CHUNK = 1024
"""Units whose words and normals stay in the first-level cache between the passes over them."""


@jit
def _flat_normals(key, trajectory, block, out):  # type: ignore[no-untyped-def]
    for first in range(0, out.shape[1], _CHUNK):
        fill_normals(key, trajectory, block, first, out[:, first : first + _CHUNK])


def flat_normals(
    key: np.uint64, trajectory: int, block: int, blocks: int, units: int
) -> NDArray[np.float32]:
    """``streams.draw_normals`` of one trajectory, (4 · blocks, 1, units)."""
    out = np.empty((blocks, STEPS_PER_BLOCK, units), np.float32)
    for number, of_steps in enumerate(out, start=block):
        _flat_normals(key, trajectory, number, of_steps)
    return out.reshape(-1, 1, units)


def normals(seed: int, name: str, trajectory: int, steps: int, units: int) -> NDArray[np.float32]:
    """Standard normals (steps, units) of one trajectory of a stream, from step and unit 0."""
    blocks = -(-steps // STEPS_PER_BLOCK)
    return flat_normals(stream_key(seed, name), trajectory, 0, blocks, units)[:steps, 0]
