"""Numbers in vector registers, for kernels that are written in LLVM's language."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

_SMALL = ir.IntType(32)


def everywhere(builder: Any, number: Any, lanes: int) -> Any:
    """One number in all lanes of a vector."""
    kind = ir.VectorType(number.type, lanes)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), number, _SMALL(0))
    zeros = ir.Constant(ir.VectorType(_SMALL, lanes), [0] * lanes)
    return builder.shuffle_vector(first, first, zeros)
