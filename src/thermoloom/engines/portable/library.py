"""The array library: the few operations that NumPy, PyTorch and JAX spell differently.

    scan       (carry, output_k) = step(carry, input_k)      for every k
    iterate    v ← f(v)                                      until v no longer changes
    run        a kernel f(library, static, *arrays)          compiled as a whole where that is possible

Everything else in this engine is written once, in operators and in functions that the three
libraries have in common, without assignment into arrays. A loop over steps is a Python loop in
NumPy and PyTorch. In JAX it is ``lax.scan`` under ``jit``: op by op it would take a hundred times as
long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from thermoloom.errors import UserError

Array = Any
"""An array of whichever library."""
PRECISIONS = ("float32", "float64")


class NumPy:
    """NumPy, and what the other libraries have in common with it."""

    def __init__(self, device: str = "cpu", precision: str = "float32") -> None:
        self.precision = precision
        self.xp = self._import()
        self.device = self._find(device)
        self.real, self.single = self._type(precision), self._type("float32")
        self.wide = self._type("float64")
        """The type of sums over many terms."""
        self.word = self._type("int64")
        """The type that holds random words of 32 bits."""

    def _import(self) -> Any:
        return np

    def _find(self, device: str) -> Any:
        if device != "cpu":
            raise UserError(f"engine portable:numpy:{device}: NumPy computes on the cpu alone")
        return device

    def _type(self, name: str) -> Any:
        return getattr(self.xp, name)

    def array(self, values: Any, dtype: Any = None) -> Array:
        """NumPy → an array of this library, real unless another type is named."""
        return np.asarray(values, dtype or self.real)

    def numpy(self, array: Array) -> Any:
        """An array of this library → NumPy."""
        return np.asarray(array)

    def cast(self, array: Array, dtype: Any) -> Array:
        return array.astype(dtype, copy=False)

    def arange(self, count: int, dtype: Any) -> Array:
        return self.xp.arange(count, dtype=dtype)

    def scan(self, step: Callable[..., Any], carry: Any, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
        """The last carry, and the outputs of all steps stacked; an input may be None."""
        length = next(len(values) for values in inputs if values is not None)
        outputs = []
        for k in range(length):
            carry, output = step(carry, tuple(None if v is None else v[k] for v in inputs))
            outputs.append(output)
        stacked = zip(*outputs, strict=True) if outputs and outputs[0] else ()
        return carry, tuple(self.xp.stack(values) for values in stacked)

    def iterate(
        self, step: Callable[[Any], Any], values: dict[str, Array], tolerance: float, most: int
    ) -> dict[str, Array]:
        """v ← step(v) until the largest relative change is within the tolerance."""
        for _ in range(most):
            previous, values = values, step(values)
            if bool(self._change(values, previous) <= tolerance):
                break
        return values

    def _change(self, values: dict[str, Array], previous: dict[str, Array]) -> Array:
        """Largest change, relative to the largest value."""
        xp, names = self.xp, [name for name, each in values.items() if each.shape[-1]]
        change = xp.stack([xp.max(xp.abs(values[name] - previous[name])) for name in names])
        return xp.max(change) / xp.max(xp.stack([xp.max(xp.abs(values[name])) for name in names]))

    def run(self, kernel: Callable[..., Any], static: Any, *arrays: Any) -> Any:
        """kernel(library, static, *arrays); compiled anew for every ``static`` where it is."""
        with np.errstate(all="ignore"):  # a divergence is found in the results
            return kernel(self, static, *arrays)

    def wide_product(self, factor: int, words: Array) -> tuple[Array, Array]:
        """Upper and lower 32 bits of factor × word; the product of 64 bits may wrap around."""
        product = words * factor
        return (product >> 32) & 0xFFFFFFFF, product & 0xFFFFFFFF

    @cached_property
    def epsilon(self) -> float:
        """Relative spacing of real numbers."""
        return float(np.finfo(self.precision).eps)


class PyTorch(NumPy):
    """PyTorch on the CPU or on a GPU (cuda, cuda:1, mps)."""

    def _import(self) -> Any:
        return import_module("torch")

    def _find(self, device: str) -> Any:
        try:
            return self.xp.zeros(1, device=device).device
        except Exception:
            raise UserError(
                f"engine portable:torch:{device}: PyTorch finds no such device; use cpu, or install "
                "a PyTorch build for it (https://pytorch.org)"
            ) from None

    def array(self, values: Any, dtype: Any = None) -> Array:
        if not isinstance(values, self.xp.Tensor):
            values = self.xp.tensor(np.ascontiguousarray(values))
        return values.to(dtype=dtype or self.real, device=self.device)

    def numpy(self, array: Array) -> Any:
        return array.cpu().numpy()

    def cast(self, array: Array, dtype: Any) -> Array:
        return array.to(dtype)

    def arange(self, count: int, dtype: Any) -> Array:
        return self.xp.arange(count, dtype=dtype, device=self.device)


class Jax(NumPy):
    """JAX on the device that it finds or that is named; sums are float64 where x64 is enabled."""

    def __init__(self, device: str = "cpu", precision: str = "float32") -> None:
        self.jax: Any = import_module("jax")
        if precision == "float64":
            self.jax.config.update("jax_enable_x64", True)
        super().__init__(device, precision)
        self.wide = self._type("float64" if self.jax.config.jax_enable_x64 else "float32")
        self.word = self._type("uint32")
        self._compiled: dict[Callable[..., Any], Callable[..., Any]] = {}

    def _import(self) -> Any:
        return import_module("jax.numpy")

    def _find(self, device: str) -> Any:
        platform, _, number = device.partition(":")
        try:
            return self.jax.devices(platform)[int(number or 0)]
        except (RuntimeError, IndexError, ValueError):
            raise UserError(
                f"engine portable:jax:{device}: JAX finds no such device; use cpu, or install a JAX "
                "build for it (https://docs.jax.dev/installation)"
            ) from None

    def array(self, values: Any, dtype: Any = None) -> Array:
        return self.jax.device_put(self.xp.asarray(values, dtype or self.real), self.device)

    def cast(self, array: Array, dtype: Any) -> Array:
        return array.astype(dtype)

    def scan(self, step: Callable[..., Any], carry: Any, inputs: tuple[Any, ...]) -> tuple[Any, Any]:
        result: tuple[Any, Any] = self.jax.lax.scan(step, carry, inputs)
        return result

    def iterate(
        self, step: Callable[[Any], Any], values: dict[str, Array], tolerance: float, most: int
    ) -> dict[str, Array]:
        def unfinished(state: Any) -> Array:
            return (state[0] < most) & ~(state[2] <= tolerance)

        def again(state: Any) -> Any:
            following = step(state[1])
            return state[0] + 1, following, self._change(following, state[1])

        change = self.xp.asarray(self.xp.inf, self.real)
        result: dict[str, Array] = self.jax.lax.while_loop(unfinished, again, (0, values, change))[1]
        return result

    def run(self, kernel: Callable[..., Any], static: Any, *arrays: Any) -> Any:
        if kernel not in self._compiled:
            self._compiled[kernel] = self.jax.jit(partial(kernel, self), static_argnums=0)
        with self.jax.default_matmul_precision("highest"), self.jax.default_device(self.device):
            return self._compiled[kernel](static, *arrays)

    def wide_product(self, factor: int, words: Array) -> tuple[Array, Array]:
        """By limbs of 16 bits: JAX has no 64-bit integers unless they are enabled."""
        half, low = self.xp.uint32(16), self.xp.uint32(0xFFFF)
        factor_low, factor_high = self.xp.uint32(factor & 0xFFFF), self.xp.uint32(factor >> 16)
        words_low, words_high = words & low, words >> half
        middle = factor_high * words_low + ((factor_low * words_low) >> half)
        carry = factor_low * words_high + (middle & low)
        upper = factor_high * words_high + (middle >> half) + (carry >> half)
        return upper, words * self.xp.uint32(factor)


LIBRARIES = {"numpy": NumPy, "torch": PyTorch, "jax": Jax}


@lru_cache
def library(name: str = "numpy", device: str = "cpu", precision: str = "float32") -> NumPy:
    """The library of this name on a device; one that is absent is a ``UserError``."""
    if name not in LIBRARIES:
        raise UserError(f"engine portable:{name}: must be one of {', '.join(LIBRARIES)}")
    if precision not in PRECISIONS:
        raise UserError(f"engine precision {precision}: must be one of {', '.join(PRECISIONS)}")
    try:
        return LIBRARIES[name](device, precision)
    except ImportError:
        raise UserError(f"engine portable:{name}: not installed; run pip install {name}") from None
