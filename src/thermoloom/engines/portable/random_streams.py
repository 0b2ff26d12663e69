"""Random words and normals of the streams (``thermoloom.streams``) in any array library.

    (w₀, w₁, w₂, w₃) = Philox4x32-10(key, (unit, ⌊k/4⌋, trajectory, 0))
    z = √(−2 ln u) (cos 2πt, sin 2πt)          u from w₀, t from w₁; likewise w₂ and w₃

Words are equal in every library and on every device. Normals are equal to round-off, since libraries
round logarithm, sine and cosine differently. u is rounded to float32 as in the compiled engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from thermoloom.engines.portable.library import Array, NumPy
from thermoloom.streams import PHILOX, STEPS_PER_BLOCK, round_keys, stream_key


def philox(library: NumPy, keys: Array, counter: Sequence[Array]) -> tuple[Array, ...]:
    """The four words of every counter; ``keys`` (10, 2) are those of the ten rounds."""
    c0, c1, c2, c3 = counter
    for key in keys:
        upper, lower = library.wide_product(PHILOX[0], c0)
        other_upper, other_lower = library.wide_product(PHILOX[1], c2)
        c0, c1, c2, c3 = other_upper ^ c1 ^ key[0], other_lower, upper ^ c3 ^ key[1], lower
    return c0, c1, c2, c3


def box_muller(library: NumPy, radial: Array, angular: Array) -> tuple[Array, Array]:
    """Two words → two normals; bit 31 of the second is a sign, bit 30 exchanges the two."""
    xp = library.xp
    u = (library.cast(radial >> 1, library.single) + 0.5) * 2.0**-31
    angle = library.cast(angular & (2**30 - 1), xp.int32)
    turn = library.cast(angle - (angle >> 29) * 2**30, library.single) * 2.0**-32
    radius = xp.sqrt(-2 * xp.log(library.cast(u, library.real)))
    phase = 2 * math.pi * library.cast(turn, library.real)
    cosine, sine = radius * xp.cos(phase), radius * xp.sin(phase)
    cosine = xp.where(angular >> 31 == 1, -cosine, cosine)
    exchanged = (angular >> 30) & 1 == 1
    return xp.where(exchanged, sine, cosine), xp.where(exchanged, cosine, sine)


def draw_normals(
    library: NumPy, shape: tuple[int, int], keys: Array, trajectories: Array, first: Array
) -> Array:
    """(4 · blocks, trajectories, units) normals from block ``first`` on; shape = (blocks, units)."""
    blocks, units = library.count(shape[0])[:, None, None], library.count(shape[1])
    words = philox(library, keys, (units, first + blocks, trajectories[:, None], 0 * units))
    of_steps = [*box_muller(library, *words[:2]), *box_muller(library, *words[2:])]
    return library.xp.stack(of_steps, 1).reshape(STEPS_PER_BLOCK * shape[0], -1, shape[1])


@dataclass(frozen=True)
class Stream:
    """The stream of a seed and a name."""

    library: NumPy
    seed: int
    name: str

    @property
    def keys(self) -> Array:
        return self.library.array(round_keys(stream_key(self.seed, self.name)), self.library.word)

    def normals(self, trajectories: Sequence[int], first: int, steps: int, units: int) -> Array:
        """(steps, trajectories, units) from step ``first`` on."""
        begin, end = first // STEPS_PER_BLOCK, -(-(first + steps) // STEPS_PER_BLOCK)
        counters = (self.library.array(n, self.library.word) for n in (list(trajectories), begin))
        z = self.library.run(draw_normals, (end - begin, units), self.keys, *counters)
        skipped = first - begin * STEPS_PER_BLOCK
        return z[skipped : skipped + steps]
