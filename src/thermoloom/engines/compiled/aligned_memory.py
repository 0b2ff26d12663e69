"""Memory aligned to large pages or to vectors.

Kernels walk down the rows of large matrices. In small pages every row would need an address lookup.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PAGE = 1 << 21
"""Bytes of a large page."""
LINE = 16
"""Float32 numbers in a cache line, and in the widest vector."""


def paged_zeros(size: int) -> NDArray[np.float32]:
    """Zeros that start at a large page; arrays below half a page stay in small pages."""
    byte_count = 4 * size
    if byte_count < PAGE // 2:
        return np.zeros(size, np.float32)
    memory = np.zeros(max(2 * PAGE, byte_count) + PAGE, np.uint8)
    first = -memory.ctypes.data % PAGE
    return memory[first : first + byte_count].view(np.float32)


class Pages:
    """Memory for many arrays side by side in large pages.

    Products walk down the rows of all arrays at once. In small pages that would exceed the address
    cache of the processor.
    """

    def __init__(self) -> None:
        self._free = np.empty(0, np.float32)

    def zeros(self, *shape: int) -> NDArray[np.float32]:
        """Zeros aligned to a cache line."""
        size = int(np.prod(shape))
        padded_size = -(-size // LINE) * LINE
        if padded_size > self._free.size:
            self._free = paged_zeros(max(padded_size, PAGE))
        array, self._free = self._free[:size], self._free[padded_size:]
        return array.reshape(shape)
