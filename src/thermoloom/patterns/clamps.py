"""Clamps from images: fields, or states, of the known pixels of an image to be completed.

    s_i = m + σ (y_i − ȳ)/sd(y)        over the known pixels i

m and σ are the mean and the standard deviation of the learned patterns on the same pixels. If all
pixels are known, this is the normalization of patterns, m = 0 and σ = 1. Unknown pixels have no
influence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.machine.clamp import Clamp, resting_states
from thermoloom.machine.machine import Machine
from thermoloom.patterns.images import read_npy, read_png
from thermoloom.patterns.patterns import Patterns

Float64 = NDArray[np.float64]


def clamp_of(
    machine: Machine,
    patterns: Patterns,
    images: NDArray[Any],
    samples: int,
    mask: NDArray[Any] | None = None,
    hold: bool = False,
) -> Clamp:
    """The clamp of an image (h, w) or (N_v,), or of several, (n, h, w) or (n, N_v), in turn.

    ``mask``: true where a pixel is known; by default, where it is finite. ``hold``: known pixels
    stay at the rest position of their field instead of following their reversed noising path.
    """
    patterns.needed_for("clamp")
    values = _pixels("clamp", images, machine, patterns)
    if mask is None:
        known: NDArray[np.bool_] = np.asarray(np.isfinite(values).all(axis=0))
    else:
        (known,) = _pixels("mask", mask, machine, patterns).astype(bool)
    if not known.any():
        raise UserError("mask: no pixel is known; generate without a clamp, or mark some")
    if not np.isfinite(values[:, known]).all():
        raise UserError("clamp: has known pixels that are not finite; mask them")
    fields = np.zeros_like(values)
    fields[:, known] = known_fields(values[:, known], patterns.patterns[:, known])
    clamped = (resting_states(machine, fields) if hold else fields).astype(np.float32)
    in_turn = clamped[0] if len(clamped) == 1 else clamped[np.arange(samples) % len(clamped)]
    return Clamp(known, in_turn, follow=not hold)


def known_fields(values: Float64, patterns: NDArray[Any]) -> Float64:
    """Known pixels (n, k) on the scale of the patterns (P, k) there; without contrast, their m."""
    learned = patterns.astype(np.float64)
    mean, deviation = learned.mean(), np.sqrt(learned.var(axis=1).mean())
    centred = values - values.mean(axis=1, keepdims=True)
    spread = values.std(axis=1, keepdims=True)
    flat = values.min(axis=1, keepdims=True) == values.max(axis=1, keepdims=True)
    fields: Float64 = mean + deviation * np.divide(
        centred, spread, out=np.zeros_like(values), where=~flat & (spread > 0)
    )
    return fields


def _pixels(
    name: str, images: NDArray[Any], machine: Machine, patterns: Patterns
) -> NDArray[np.float64]:
    """One row of N_v values for each image."""
    array = np.asarray(images)
    if array.dtype.kind not in "biuf":
        raise UserError(f"{name}: has {array.dtype} values; expected real numbers")
    shape = patterns.shape or (machine.visible,)
    if array.shape == (machine.visible,) or array.shape == shape:
        return array.reshape(1, -1).astype(np.float64)
    is_stack = array.ndim > 1 and array.size == len(array) * machine.visible
    if name == "mask" or not is_stack or not len(array):
        size = " × ".join(str(n) for n in array.shape)
        wanted = " × ".join(str(n) for n in shape)
        raise UserError(f"{name}: is {size or 'one number'}, the patterns are {wanted}; fit it")
    return array.reshape(len(array), -1).astype(np.float64)


# --- files ----------------------------------------------------------------------------------------


def read_picture(name: str, path: Path) -> NDArray[Any]:
    """A PNG image (grey values) or an .npy array, for the option ``name``."""
    if path.suffix.lower() == ".png":
        return read_png(path)
    if path.suffix == ".npy":
        return read_npy(path)
    raise UserError(f"{name} {path}: must be a PNG image or an .npy array")


def read_mask(name: str, path: Path) -> NDArray[np.bool_]:
    """Where pixels are known: the light ones of a PNG image, those not 0 of an .npy array."""
    picture = read_picture(name, path)
    if path.suffix == ".npy":
        return picture.astype(bool)
    half = np.iinfo(picture.dtype).max // 2 if picture.dtype.kind in "iu" else 0.5
    light: NDArray[np.bool_] = picture > half
    return light
