"""Storage of patterns by content: they are loaded once and stored beside the runs that learn them.

    RUNS/patterns-ID/patterns.safetensors

Settings that name the content (``patterns.content``) mean the same patterns on every machine, and
they identify a run without reading an image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from thermoloom.errors import UserError
from thermoloom.machine.machine import SCALES
from thermoloom.patterns.patterns import Patterns, load_patterns
from thermoloom.patterns.scale import Scale
from thermoloom.runs.files import reading, sha256
from thermoloom.runs.formats import array_of, array_sha256, canonical, from_json
from thermoloom.runs.manifest import MANIFEST, run_path
from thermoloom.runs.store import RunDirectory
from thermoloom.settings import Settings

KIND = "patterns"
_MOMENTS = {"mean", "deviation"}
_ARRAYS = {"patterns", "pixels", "code"} | _MOMENTS


def content_sha256(patterns: Patterns) -> str:
    """SHA-256 of the patterns, in their order, and of their names and classes."""
    numbers = pattern_arrays(patterns)
    if patterns.scale.kind != "sample":  # patterns alone do not fix the units of the data
        numbers |= {"mean": patterns.scale.mean, "deviation": patterns.scale.deviation}
    arrays = {name: array_sha256(array) for name, array in numbers.items()}
    return sha256(canonical([arrays, pattern_names(patterns)]).encode())


def named(settings: Settings, patterns: Patterns) -> Settings:
    """The settings with the content of these patterns; refused if they name different content."""
    content, expected = content_sha256(patterns), settings.patterns.content
    if expected not in ("", content):
        raise UserError(
            f"patterns.content = '{expected[:12]}…': the patterns have other content "
            f"({content[:12]}…); restore the images, or leave this setting out"
        )
    return settings.updated({"patterns": {"content": content}})


def identified(settings: Settings) -> Settings:
    """The settings with the content of their patterns; these are loaded only if necessary."""
    if settings.patterns.content:
        return settings
    return named(settings, load_patterns(settings.patterns, settings.machine))


# --- stored in a results folder ------------------------------------------------------------------


def patterns_path(folder: Path, settings: Settings) -> Path:
    """Path of the patterns of these settings in a folder of runs."""
    content = identified(settings).patterns.content
    return run_path(folder, KIND, {"patterns": {"content": content}})


def store_patterns(folder: Path, patterns: Patterns) -> None:
    """Store patterns by their content in a folder of runs, unless they are already there."""
    identity = {"patterns": {"content": content_sha256(patterns)}}
    with RunDirectory.create(run_path(folder, KIND, identity), KIND, identity, wait=10) as run:
        if run.state != "done":
            save_patterns(run, KIND, patterns)
            run.finish({"patterns": len(patterns)})


def patterns_of(settings: Settings, folder: Path) -> Patterns:
    """The patterns of these settings, from a folder of runs if stored there, else from source."""
    path = patterns_path(folder, settings) if settings.patterns.content else None
    if path is not None and (path / MANIFEST).exists():
        patterns = read_patterns(RunDirectory.open(path), KIND)
    else:
        patterns = load_patterns(settings.patterns, settings.machine)
    named(settings, patterns)
    return patterns


def save_patterns(run: RunDirectory, name: str, patterns: Patterns) -> None:
    """Save patterns, with their names and classes, as arrays of a run."""
    run.save_arrays(name, stored_arrays(patterns), pattern_names(patterns))


def read_patterns(run: RunDirectory, name: str) -> Patterns:
    """Read the patterns that ``save_patterns`` wrote."""
    with reading(run.path / f"{name}.safetensors"):
        return patterns_from(run.load_arrays(name), run.load_metadata(name))


class _PatternNames(msgspec.Struct):
    """The values of ``pattern_names``."""

    labels: tuple[str, ...]
    shape: tuple[Annotated[int, msgspec.Meta(ge=1)], ...] | None
    classes: tuple[int, ...]
    digits: bool
    scale: Literal[SCALES] = "sample"  # type: ignore[valid-type]
    class_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


def patterns_from(arrays: Mapping[str, Any], names: Mapping[str, Any]) -> Patterns:
    """Patterns from the values of ``stored_arrays`` and ``pattern_names``, or ValueError."""
    about = from_json(names, _PatternNames)
    if unknown := sorted(set(arrays) - _ARRAYS):
        raise ValueError(f"{unknown[0]} is not an array of patterns")
    if len(_MOMENTS & set(arrays)) == 1:
        raise ValueError("either mean or deviation is missing")
    rows, pixels = len(about.labels), arrays.get("pixels")
    stored = array_of(arrays, *(("patterns", "float32") if pixels is None else ("pixels", "uint8")),
                      rows, math.prod(about.shape) if about.shape else None)  # fmt: skip
    scale = Scale(about.scale)
    if "mean" in arrays:
        one_each: tuple[int, ...] = (rows if about.scale == "sample" else stored.shape[1],)
        shape = one_each if arrays["mean"].ndim else ()
        mean = array_of(arrays, "mean", "float64", *shape)
        deviation = array_of(arrays, "deviation", "float64", *shape)
        if (deviation < 0).any():
            raise ValueError("a deviation is negative")
        scale = replace(scale, mean=mean, deviation=deviation)
    code = None if "code" not in arrays else array_of(arrays, "code", "float32", rows, None)
    patterns = stored if pixels is None else scale.fields(pixels)
    numbers = {"patterns": patterns, "code": code, "mean": scale.mean, "deviation": scale.deviation}
    for name, array in numbers.items():
        if array is not None and not np.isfinite(array).all():
            raise ValueError(f"{name}: not finite")
    return Patterns(
        patterns, about.labels, about.shape or None, about.classes, about.digits, code, pixels,
        scale, about.class_names, about.columns,
    )  # fmt: skip


def stored_arrays(patterns: Patterns) -> dict[str, Any]:
    """Arrays that store the patterns and their scale.

    Where the data are bytes, they are stored instead of the patterns, in a quarter of the space;
    the scale restores the patterns to the bit.
    """
    arrays = pattern_arrays(patterns)
    if patterns.pixels is not None:
        del arrays["patterns"]
        arrays["pixels"] = patterns.pixels
    return arrays | {"mean": patterns.scale.mean, "deviation": patterns.scale.deviation}


def pattern_arrays(patterns: Patterns) -> dict[str, Any]:
    """Arrays of the patterns and of their code."""
    code = {} if patterns.code is None else {"code": patterns.code}
    return {"patterns": patterns.patterns, **code}


def pattern_names(patterns: Patterns) -> dict[str, Any]:
    """Names, shape, classes and kind of scale of the patterns, as JSON.

    Entries added in later versions are left out at their default, so that the SHA-256 of older
    patterns stays the same.
    """
    later = {
        "scale": "" if patterns.scale.kind == "sample" else patterns.scale.kind,
        "class_names": list(patterns.class_names),
        "columns": list(patterns.columns),
    }
    return {name: value for name, value in later.items() if value} | {
        "labels": list(patterns.labels),
        "shape": list(patterns.shape) if patterns.shape else None,
        "classes": list(patterns.classes),
        "digits": patterns.digits,
    }
