"""Random streams, defined once for every engine: a name and a seed → words → normals.

    key                 first 64 bits of SHA-256("thermoloom/{name}/{seed}")
    (w₀, w₁, w₂, w₃)    Philox4x32-10(key, (unit, ⌊k/4⌋, trajectory, 0))
    (z₀, z₁)            √(−2 ln u) (cos 2πt, sin 2πt),   u from w₀, t from w₁; likewise z₂, z₃

are the standard normals of one unit in the steps 4⌊k/4⌋ … 4⌊k/4⌋ + 3 of one trajectory. Nothing is
stateful: any normal can be computed alone, whatever the block size, the thread or the order.

The functions below are written for any array library (``engines.library``). Words are
equal in every library and on every device. Normals are equal to round-off, since libraries round
logarithm, sine and cosine differently; u is rounded to float32 everywhere. The compiled engine has
its own kernels for the same streams.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from thermoloom.inputs import seed_number

Purpose = Literal["training", "validation", "clamp"]
"""The purpose of a noising path."""
PATH_STREAMS: dict[Purpose, tuple[str, str]] = {
    "training": ("preparation", "noising"),
    "validation": ("validation preparation", "validation noising"),
    "clamp": ("clamp preparation", "clamp noising"),
}
"""Streams of preparation and noising."""
STREAMS = (
    *(name for names in PATH_STREAMS.values() for name in names),
    "generation preparation",
    "generation",
    "residual error",
    "update error",
    "rounding",
)
"""All streams. Streams of different names are independent at equal seeds."""

STEPS_PER_BLOCK = 4
"""One Philox counter serves one unit for this many consecutive steps."""
PHILOX = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85
"""Multipliers and Weyl constants of Philox4x32."""
ROUNDS = 10
_WORD = 0xFFFFFFFF

Array = Any
"""An array of any library."""


def stream_key(seed: int, name: str) -> np.uint64:
    """Key of a stream: the first 64 bits of SHA-256 of its name and seed."""
    if name.partition("/")[0] not in STREAMS:
        raise ValueError(f"{name!r} is not a stream; known: {', '.join(STREAMS)}")
    digest = hashlib.sha256(f"thermoloom/{name}/{seed_number('seed', seed)}".encode()).digest()
    return np.uint64(int.from_bytes(digest[:8], "little"))


def round_keys(key: int | np.uint64) -> list[tuple[int, int]]:
    """The two words of the key in each of the ten rounds."""
    low, high = int(key) & _WORD, int(key) >> 32
    weyl_low, weyl_high = PHILOX[2:]
    return [((low + n * weyl_low) & _WORD, (high + n * weyl_high) & _WORD) for n in range(ROUNDS)]


def wide_product(library: Any, factor: int, words: Array) -> tuple[Array, Array]:
    """Upper and lower 32 bits of factor × word.

    In JAX, where words have 32 bits, the product is formed from limbs of 16 bits; elsewhere in 64
    bits that wrap around, of which the lower 32 count.
    """
    if library.word != getattr(library.xp, "uint32", None):
        product = (words & _WORD) * factor
        return product >> 32, product
    high, low = library.word(factor >> 16), library.word(factor & 0xFFFF)
    words_high, words_low = words >> 16, words & 0xFFFF
    middle = high * words_low + ((low * words_low) >> 16)
    carry = low * words_high + (middle & 0xFFFF)
    return high * words_high + (middle >> 16) + (carry >> 16), words * library.word(factor)


def philox(library: Any, keys: Array, counter: Sequence[Array]) -> tuple[Array, ...]:
    """Philox4x32-10 (Salmon et al., SC11): four words of 32 bits for every counter.

    ``keys`` (10, 2): the two words of the key in each of the ten rounds.
    """
    c0, c1, c2, c3 = counter
    for key in keys:
        upper, lower = wide_product(library, PHILOX[0], c0)
        other_upper, other_lower = wide_product(library, PHILOX[1], c2)
        c0, c1, c2, c3 = other_upper ^ c1 ^ key[0], other_lower, upper ^ c3 ^ key[1], lower
    lower_bits = library.array(_WORD, library.word)
    return c0 & lower_bits, c1 & lower_bits, c2 & lower_bits, c3 & lower_bits


def box_muller(library: Any, radial: Array, angular: Array) -> tuple[Array, Array]:
    """Two words → two standard normals.

    u takes the upper 31 bits of the first word. Of the second, the lower 30 bits are a signed angle
    within ±1/8 turn, bit 31 is the sign of the cosine and bit 30 exchanges the two.
    """
    xp = library.xp
    u = (library.cast(radial >> 1, xp.float32) + 0.5) * 2.0**-31
    angle = library.cast(angular & (2**30 - 1), xp.int32)
    turn = library.cast(angle - (angle >> 29) * 2**30, xp.float32) * 2.0**-32
    radius = xp.sqrt(-2 * xp.log(library.cast(u, library.real)))
    phase = 2 * math.pi * library.cast(turn, library.real)
    # products with 0, 1 and −1 are exact, and faster than a choice by random bits
    sign = 1 - 2 * library.cast(angular >> 31, library.real)
    exchanged = library.cast((angular >> 30) & 1, library.real)
    cosine, sine, same = sign * radius * xp.cos(phase), radius * xp.sin(phase), 1 - exchanged
    return same * cosine + exchanged * sine, exchanged * cosine + same * sine


def draw_normals(
    library: Any, shape: tuple[int, int], keys: Array, trajectories: Array, first: Array
) -> Array:
    """Normals (4 · blocks, trajectories, units) from block ``first``; shape: blocks, units."""
    blocks, units = (library.array(np.arange(number), library.word) for number in shape)
    counter = units, first + blocks[:, None, None], trajectories[:, None], 0 * units
    words = philox(library, keys, counter)
    of_steps = [*box_muller(library, *words[:2]), *box_muller(library, *words[2:])]
    return library.xp.stack(of_steps, 1).reshape(STEPS_PER_BLOCK * shape[0], -1, shape[1])


def rounding_uniforms(library: Any, machine: Any, keys: Array, counter: Array) -> list[Array]:
    """u = (128 m + l + ½)/2²³ of J_vh and J_hh in one step; u of J_hh is symmetric.

    Each coupling has its own 16 bits m; all couplings of a row share seven bits l.

    Eight Philox counters serve a tile of 4 rows and 16 columns: each serves two columns, with half
    a word for each coupling. ``counter``: step and trajectory.
    """
    visible, hidden = machine.visible, machine.hidden
    xp, tiles, first = library.xp, -(-hidden // 16), -(-visible // 4)
    rows = library.array(np.arange(first + -(-hidden // 4)), library.word)
    pairs = library.array(np.arange(len(rows) * tiles * 8), library.word)
    words = philox(library, keys, (pairs, *counter, 0 * pairs))
    common = philox(library, keys, (rows, *counter, 0 * rows + 1))
    two_words = [words[i : i + 2] for i in (0, 2)]
    halves = [[(w >> shift) & 0xFFFF for w in two] for two in two_words for shift in (0, 16)]
    m = xp.stack([xp.stack(pair, -1).reshape(len(rows), tiles * 16) for pair in halves], 1)
    bits = m * 128 + (xp.stack(common, -1) >> 25)[:, :, None]
    u = (library.cast(bits.reshape(len(rows) * 4, -1), library.real) + 0.5) * 2.0**-23
    lower = xp.tril(u[first * 4 :][:hidden, :hidden], -1)
    return [u[:visible, :hidden], lower + lower.T]


@dataclass(frozen=True)
class Stream:
    """The stream of a seed and a name, in an array library."""

    library: Any
    seed: int
    name: str

    @property
    def keys(self) -> Array:
        """The words of the key in the ten rounds, (10, 2)."""
        return self.library.array(round_keys(stream_key(self.seed, self.name)), self.library.word)

    def normals(self, trajectories: Sequence[int], first: int, steps: int, units: int) -> Array:
        """Standard normals (steps, trajectories, units) from step ``first`` and unit 0."""
        begin, end = first // STEPS_PER_BLOCK, -(-(first + steps) // STEPS_PER_BLOCK)
        counters = (self.library.array(n, self.library.word) for n in (list(trajectories), begin))
        z = self.library.run(draw_normals, (end - begin, units), self.keys, *counters)
        skipped = first - begin * STEPS_PER_BLOCK
        return z[skipped : skipped + steps]
