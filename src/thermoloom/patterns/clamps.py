"""Clamps from images: fields, or states, of the known pixels of an image to be completed.

    s_i = m + σ (y_i − ȳ)/sd(y)        over the known pixels i

m and σ are the mean and the standard deviation of the learned patterns on the same pixels. If all
pixels are known, this is the normalization of patterns, m = 0 and σ = 1. Unknown pixels have no
influence. With a scale other than ``sample``, known values are scaled as the data were.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thermoloom.errors import UserError
from thermoloom.inputs import is_folder
from thermoloom.machine.clamp import Clamp, resting_states
from thermoloom.machine.machine import Machine
from thermoloom.patterns import images as files
from thermoloom.patterns.images import read_npy
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
    values = _pixels("clamp", _unmasked(images), machine, patterns)
    if len(values) > samples:
        raise UserError(f"clamp: {len(values)} images for {samples} samples; generate more samples")
    if mask is None:
        known = _finite(values)
    else:
        if np.ma.is_masked(mask):
            raise UserError("mask: has masked values; fill them with true or false")
        known = _known(_pixels("mask", mask, machine, patterns))
    if not known.any():
        raise UserError("mask: no pixel is known; generate without a clamp, or mark some")
    if not np.isfinite(values[:, known]).all():
        raise UserError("clamp: has known pixels that are masked or not finite; leave them out")
    fields = np.zeros_like(values)
    if patterns.scale.kind == "sample":
        fields[:, known] = known_fields(values[:, known], patterns.patterns[:, known])
    else:
        fields[:, known] = patterns.scale.fields(np.where(known, values, 0.0))[:, known]
    clamped = (resting_states(machine, fields) if hold else fields).astype(np.float32)
    in_turn = clamped[0] if len(clamped) == 1 else clamped[np.arange(samples) % len(clamped)]
    return Clamp(known, in_turn, follow=not hold)


def known_fields(values: Float64, patterns: NDArray[Any]) -> Float64:
    """Known pixels (n, k) on the scale of these pixels of patterns (P, k); m without contrast."""
    learned = patterns.astype(np.float64)
    mean, deviation = learned.mean(), np.sqrt(learned.var(axis=1).mean())
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    largest = np.maximum(abs(low), abs(high))
    # squares of values beyond 1e±154 are not float64 numbers; a power of two changes no digit
    values = np.ldexp(values, -np.frexp(largest)[1])
    centred = values - values.mean(axis=1, keepdims=True)
    spread = values.std(axis=1, keepdims=True)
    contrast = np.divide(
        centred, spread, out=np.zeros_like(values), where=(low < high) & (spread > 0)
    )
    fields: Float64 = mean + deviation * contrast
    return fields


def _unmasked(images: NDArray[Any]) -> NDArray[Any]:
    """Unknown values of a masked array as NaN."""
    if not isinstance(images, np.ma.MaskedArray) or images.dtype.kind not in "biuf":
        return images
    return np.where(np.ma.getmaskarray(images), np.nan, np.asarray(images))


def _finite(values: Float64) -> NDArray[np.bool_]:
    """The known pixels of all images, which must be the same: a clamp has one set of units."""
    finite = np.isfinite(values)
    known: NDArray[np.bool_] = finite[0]
    if (finite != known).any():
        raise UserError("clamp: images with different known pixels; complete them one at a time")
    return known


def _known(mask: Float64) -> NDArray[np.bool_]:
    """Where a mask is true; a mask with intermediate values is refused."""
    if not np.isfinite(mask).all():
        raise UserError("mask: has values that are not finite; must be true where a pixel is known")
    known: NDArray[np.bool_] = mask[0] != 0
    if len(np.unique(mask[0][known])) > 1:
        raise UserError("mask: has values between true and false; must be one or the other")
    return known


def _pixels(
    name: str, images: NDArray[Any], machine: Machine, patterns: Patterns
) -> NDArray[np.float64]:
    """One row of N_v values for each image."""
    array = np.asarray(images)
    if array.dtype.kind not in "biuf":
        kind = "is text" if array.dtype.kind in "US" else f"has {array.dtype} values"
        raise UserError(f"{name}: {kind}; expected an array of real numbers")
    with np.errstate(over="ignore"):
        numbers = array.astype(np.float64)
    if (np.isfinite(array) & ~np.isfinite(numbers)).any():
        raise UserError(f"{name}: has values that are not float64 numbers; scale them")
    array = numbers
    shape = patterns.shape or (machine.visible,)
    if len(shape) == 3 and array.shape == shape[:2]:  # the same for all colours
        array = np.repeat(array[..., None], shape[2], axis=2)
    if array.shape == (machine.visible,) or array.shape == shape:
        return array.reshape(1, -1)
    is_stack = array.ndim > 1 and array.shape[1:] in ((machine.visible,), shape)
    if name == "mask" or not is_stack or not len(array):
        size = " × ".join(str(n) for n in array.shape)
        wanted = " × ".join(str(n) for n in shape)
        raise UserError(
            f"{name}: is {size or 'one number'}, but the patterns are {wanted}; resize it"
        )
    return array.reshape(len(array), -1)


# --- files ----------------------------------------------------------------------------------------


def read_picture(name: str, path: Path, grey: bool = False) -> NDArray[Any]:
    """A picture or an .npy array, for the option ``name``."""
    if is_folder(name, path):
        raise UserError(f"{name} {path}: must be a picture or an .npy array")
    return read_npy(path) if path.suffix == ".npy" else files.read_picture(path, grey)


def read_mask(name: str, path: Path) -> NDArray[Any]:
    """Where pixels are known: light pixels of a picture, values other than 0 of an .npy array."""
    picture = read_picture(name, path, grey=True)
    if path.suffix == ".npy":
        return picture
    half = np.iinfo(picture.dtype).max // 2 if picture.dtype.kind in "iu" else 0.5
    light: NDArray[np.bool_] = picture > half
    return light
