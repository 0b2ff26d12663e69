"""Random streams, defined once for every engine: a name and a seed → words → normals.

    key                 first 64 bits of SHA-256("thermoloom/{name}/{seed}")
    (w₀, w₁, w₂, w₃)    Philox4x32-10(key, (unit, ⌊k/4⌋, trajectory, 0))
    z of four steps     BoxMuller(w₀, w₁), BoxMuller(w₂, w₃)

are the standard normals of one unit in the steps 4⌊k/4⌋ … 4⌊k/4⌋ + 3 of one trajectory. Nothing is
stateful: any normal can be computed alone, whatever the block size, the thread or the order. The
functions below are the definition in plain NumPy; engines implement it in their own arithmetic,
with equal words and with normals that are equal to round-off.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.inputs import seed_number

STREAMS = (
    "preparation",
    "noising",
    "generation preparation",
    "generation",
    "residual error",
    "update error",
    "rounding",
    "validation preparation",
    "validation noising",
    "clamp preparation",
    "clamp noising",
)
"""Every stream there is. Streams of different names are independent at equal seeds."""

STEPS_PER_BLOCK = 4
"""One Philox counter serves one unit for this many consecutive steps."""
PHILOX = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85
"""Multipliers and Weyl constants of Philox4x32."""
ROUNDS = 10
_WORD = 0xFFFFFFFF

Words = NDArray[np.uint64]


def stream_key(seed: int, name: str) -> np.uint64:
    """Key of a stream: the first 64 bits of SHA-256 of its name and seed."""
    if name not in STREAMS:
        raise ValueError(f"{name!r} is not a stream; known: {', '.join(STREAMS)}")
    digest = hashlib.sha256(f"thermoloom/{name}/{seed_number('seed', seed)}".encode()).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))


def round_keys(key: int | np.uint64) -> list[tuple[int, int]]:
    """The two words of the key in each of the ten rounds."""
    low, high = int(key) & _WORD, int(key) >> 32
    weyl_low, weyl_high = PHILOX[2:]
    return [((low + n * weyl_low) & _WORD, (high + n * weyl_high) & _WORD) for n in range(ROUNDS)]


def philox(key: int | np.uint64, *counter: Any) -> tuple[Words, Words, Words, Words]:
    """Philox4x32-10 (Salmon et al., SC11): four words of 32 bits, held in uint64."""
    word, half = np.uint64(_WORD), np.uint64(32)
    c0, c1, c2, c3 = (np.asarray(c, np.uint64) for c in counter)
    for low, high in round_keys(key):
        first, second = np.uint64(PHILOX[0]) * c0, np.uint64(PHILOX[1]) * c2
        c0, c1, c2, c3 = (
            (second >> half) ^ c1 ^ np.uint64(low),
            second & word,
            (first >> half) ^ c3 ^ np.uint64(high),
            first & word,
        )
    return c0, c1, c2, c3


def box_muller(radial: Words, angular: Words) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two words → two standard normals, √(−2 ln u) (cos 2πt, sin 2πt).

    u takes the upper 31 bits of the first word. Of the second, the lower 30 bits are a signed angle
    within ±1/8 turn, bit 31 is the sign of the cosine and bit 30 exchanges the two.
    """
    u = (np.float32(radial >> np.uint64(1)) + np.float32(0.5)) * np.float32(2.0**-31)
    angle = (angular & np.uint64(2**30 - 1)).astype(np.int64)
    turn = (angle - 2**30 * (angle >> 29)) / 2.0**32
    radius = np.sqrt(-2 * np.log(u.astype(np.float64)))
    sign = 1 - 2 * (angular >> np.uint64(31)).astype(np.int64)
    cosine, sine = radius * sign * np.cos(2 * np.pi * turn), radius * np.sin(2 * np.pi * turn)
    swap = (angular >> np.uint64(30)) & np.uint64(1) == 1
    return np.where(swap, sine, cosine), np.where(swap, cosine, sine)


def normals(seed: int, name: str, trajectory: int, steps: int, units: int) -> NDArray[np.float64]:
    """Standard normals (steps, units) of one trajectory of a stream, from step and unit 0."""
    blocks = -(-steps // STEPS_PER_BLOCK)
    words = philox(
        stream_key(seed, name), np.arange(units), np.arange(blocks)[:, None], trajectory, 0
    )
    of_steps = [*box_muller(*words[:2]), *box_muller(*words[2:])]
    return np.stack(of_steps, axis=1).reshape(-1, units)[:steps]
