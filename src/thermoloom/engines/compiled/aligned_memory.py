"""Memory that begins where a large page or a vector does.

Small pages would have to be looked up one by one, row after row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PAGE = 1 << 21
"""Bytes of a large page."""
LINE = 16
"""Numbers in a line of the cache, and in a vector at most."""


def paged_zeros(size: int) -> NDArray[np.float32]:
    """Zeros that begin at a large page, as NumPy asks for where an array is large.

    What would fill less than half of one is left in small pages.
    """
    wanted = 4 * size
    if wanted < PAGE // 2:
        return np.zeros(size, np.float32)
    memory = np.zeros(max(2 * PAGE, wanted) + PAGE, np.uint8)
    first = -memory.ctypes.data % PAGE
    return memory[first : first + wanted].view(np.float32)


def aligned(*shape: int) -> NDArray[np.float32]:
    """Memory that begins where a vector does: no load then takes two lines of the cache."""
    size = int(np.prod(shape))
    memory = np.empty(size + LINE, np.float32)
    skipped = -memory.ctypes.data // 4 % LINE
    return memory[skipped : skipped + size].reshape(shape)


class Pages:
    """Memory for many arrays side by side in large pages: products go down the rows of all of them,
    which in small ones would be more pages than a processor has at hand.

    Ask for all arrays of ``Pages()`` first, then again of ``Pages(wanted)``.
    """

    def __init__(self, size: int | None = None) -> None:
        self._counting = size is None
        self._free = paged_zeros(size or 0)
        self.wanted = 0
        """Numbers that were asked for."""

    def zeros(self, *shape: int) -> NDArray[np.float32]:
        """Zeros that begin where a vector does; anywhere if there is no room."""
        size = int(np.prod(shape))
        taken = -(-size // LINE) * LINE
        self.wanted += taken
        if self._counting:
            return np.broadcast_to(np.float32(0), shape)
        if taken > self._free.size:
            return np.zeros(shape, np.float32)
        found, self._free = self._free[:size], self._free[taken:]
        return found.reshape(shape)


def padded(rows: int, columns: int) -> NDArray[np.float32]:
    """Room for a matrix, its rows 16 floats longer than a multiple of 32: at a distance of a power
    of two, the rows of a column would all fall into the same few places of the cache.
    """
    longer = 32 * (columns // 32 + 1) + 16 if columns else 0
    return paged_zeros(rows * longer).reshape(rows, longer)
