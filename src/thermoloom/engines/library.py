"""The array library: the few operations that NumPy, PyTorch and JAX spell differently.

    scan       (carry, output_k) = step(carry, input_k)      for every k
    repeat     v ← f(v)                                      while a condition holds
    run        f(library, static, *arrays)                   compiled as a whole by JAX

Everything else in this engine is written once, in operators and functions that the three libraries
have in common, without assignment into arrays. A loop over steps is a Python loop in NumPy and
PyTorch. In JAX it is ``lax.scan`` under ``jit``: op by op, JAX would take a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from thermoloom.errors import UserError

Array = Any  # of the library in use


class NumPy:
    """NumPy, and the operations that the other libraries share with it."""

    namespace, words = "numpy", "int64"
    normals_at_once = 40_000  # drawn together: more would exceed the cache

    def __init__(self, device: str, precision: str) -> None:
        self.xp: Any = import_module(self.namespace)
        self.device = self.find(device)
        self.real, self.word = getattr(self.xp, precision), getattr(self.xp, self.words)
        self.epsilon, self.zero = float(np.finfo(precision).eps), self.array(0.0)
        self.on_cpu = device == "cpu" and self.namespace != "jax.numpy"  # JAX has its own threads

    def find(self, device: str) -> Any:
        if device != "cpu":
            raise RuntimeError("NumPy runs on the cpu only")
        return device

    def array(self, values: Any, dtype: Any = None) -> Array:
        """NumPy → an array of this library, real unless another type is named."""
        return np.asarray(values, dtype or self.real)

    def numpy(self, array: Array) -> Any:
        """An array of this library → NumPy."""
        return np.asarray(array)

    def cast(self, array: Array, dtype: Any) -> Array:
        return array.astype(dtype)

    def transposed(self, array: Array) -> Array:
        return self.xp.swapaxes(array, -1, -2)

    def scan(self, step: Callable[..., Any], carry: Any, inputs: tuple[Any, ...]) -> Any:
        """The last carry, and the outputs of all steps stacked; an input may be None."""
        outputs = []
        for k in range(len(inputs[0])):
            carry, output = step(carry, tuple(None if each is None else each[k] for each in inputs))
            outputs.append(output)
        return carry, tuple(self.xp.stack(each) for each in zip(*outputs, strict=True))

    def iterate(self, step: Callable[[Any], Any], values: Any, most: int) -> Any:
        """v ← step(v) until the error of v (arrays by name) is round-off, in every training.

        The error after a step is about its change times the ratio of this change to the last one.
        """
        size = self.distance(values, dict.fromkeys(values, 0.0))

        def again(state: Any) -> Any:
            following = step(state[1])
            change = self.distance(following, state[1])
            return state[0] + 1, following, change, change * (change / state[2])

        def unfinished(state: Any) -> Any:
            change, error = state[2] > 8 * self.epsilon * size, state[3] > self.epsilon / 4 * size
            return (state[0] < most) & (change & error).any()

        return self.repeat(unfinished, again, (0, values, size, size))[1]

    def repeat(self, condition: Callable[[Any], Any], step: Callable[[Any], Any], v: Any) -> Any:
        """v ← step(v) while a condition holds."""
        while bool(condition(v)):
            v = step(v)
        return v

    def distance(self, a: dict[str, Array], b: dict[str, Array]) -> Array:
        """Σ max |a − b| of every training over arrays that are not empty."""
        filled = [name for name in a if a[name].shape[-1]]
        return sum(self.xp.amax(self.xp.abs(a[name] - b[name]), (-2, -1)) for name in filled)

    def run(self, kernel: Callable[..., Any], static: Any, *arrays: Any) -> Any:
        """kernel(library, static, *arrays); JAX compiles it for every ``static`` and shape."""
        with np.errstate(all="ignore"):  # a divergence shows in the results
            return kernel(self, static, *arrays)


class PyTorch(NumPy):
    """PyTorch on the CPU or on a GPU (cuda, cuda:1, mps)."""

    namespace = "torch"
    normals_at_once = 160_000  # with fewer, calls take most of the time

    def find(self, device: str) -> Any:
        return self.xp.zeros(1, device=device).device

    def array(self, values: Any, dtype: Any = None) -> Array:
        values = np.array(values, order="C")  # a copy, which the tensor may share
        return self.xp.as_tensor(values, dtype=dtype or self.real, device=self.device)

    def numpy(self, array: Array) -> Any:
        return array.cpu().numpy()

    def cast(self, array: Array, dtype: Any) -> Array:
        return array.to(dtype)


class Jax(NumPy):
    """JAX on the CPU or on a GPU (cuda, cuda:1)."""

    namespace, words = "jax.numpy", "uint32"

    def __init__(self, device: str, precision: str) -> None:
        self.jax: Any = import_module("jax")
        if precision == "float64":
            self.jax.config.update("jax_enable_x64", True)
        self.kernels: dict[Any, Any] = {}
        super().__init__(device, precision)

    def find(self, device: str) -> Any:
        platform, _, number = device.partition(":")
        return self.jax.devices(platform)[int(number or 0)]

    def array(self, values: Any, dtype: Any = None) -> Array:
        return self.xp.asarray(values, dtype or self.real, device=self.device)

    def scan(self, step: Callable[..., Any], carry: Any, inputs: tuple[Any, ...]) -> Any:
        return self.jax.lax.scan(step, carry, inputs)

    def repeat(self, condition: Callable[[Any], Any], step: Callable[[Any], Any], v: Any) -> Any:
        return self.jax.lax.while_loop(condition, step, v)

    def run(self, kernel: Callable[..., Any], static: Any, *arrays: Any) -> Any:
        if kernel not in self.kernels:
            self.kernels[kernel] = self.jax.jit(partial(kernel, self), static_argnums=0)
        with self.jax.default_matmul_precision("highest"):
            return self.kernels[kernel](static, *arrays)


LIBRARIES: dict[str, type[NumPy]] = {"numpy": NumPy, "torch": PyTorch, "jax": Jax}


@lru_cache
def library(name: str, device: str, precision: str) -> NumPy:
    """The library of this name on a device; raises a ``UserError`` if one of them is missing."""
    try:
        return LIBRARIES[name](device, precision)
    except ImportError:
        raise UserError(f"engine portable:{name}: not installed; run pip install {name}") from None
    except (RuntimeError, AssertionError, IndexError, ValueError):
        way_out = f"use cpu, or install the build of {name} for this device"
        raise UserError(f"engine portable:{name}:{device}: no such device; {way_out}") from None
