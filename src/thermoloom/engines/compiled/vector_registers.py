"""Numbers in vector registers, for kernels written in LLVM."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

_SMALL = ir.IntType(32)


def everywhere(builder: Any, number: Any, lanes: int) -> Any:
    """A vector with one number in all lanes."""
    kind = ir.VectorType(number.type, lanes)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, _SMALL(0))
    zeros = ir.Constant(ir.VectorType(_SMALL, lanes), [0] * lanes)
    return builder.shuffle_vector(first, first, zeros)
