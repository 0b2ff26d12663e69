"""Patterns by their content: loaded once, kept beside the runs that learn them, read from there.

    RUNS/patterns-ID/patterns.safetensors

Settings that name the content (``prototypes.content``) mean the same patterns on every machine, and
a run is found by them without reading an image.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thermoloom.config import Settings
from thermoloom.errors import UserError
from thermoloom.prototypes import Prototypes, load_prototypes
from thermoloom.runs.files import sha256
from thermoloom.runs.formats import array_sha256, canonical
from thermoloom.runs.manifest import MANIFEST, run_path
from thermoloom.runs.store import RunDirectory

KIND = "patterns"


def content_sha256(prototypes: Prototypes) -> str:
    """SHA-256 of the patterns, to the bit and in their order, and of what they are called."""
    return sha256(canonical([array_sha256(prototypes.patterns), _names(prototypes)]).encode())


def named(settings: Settings, prototypes: Prototypes) -> Settings:
    """Settings that name the content of these patterns; refused if they name another one."""
    found, wanted = content_sha256(prototypes), settings.prototypes.content
    if wanted not in ("", found):
        raise UserError(
            f"prototypes.content = '{wanted[:12]}…': the patterns are others ({found[:12]}…); "
            "restore the images, or leave this setting out"
        )
    return settings.updated({"prototypes": {"content": found}})


def identified(settings: Settings) -> Settings:
    """Settings that name the content of their patterns, which are loaded only to find that out."""
    if settings.prototypes.content:
        return settings
    return named(settings, load_prototypes(settings.prototypes, settings.physics))


# --- kept in a results folder -------------------------------------------------------------------


def patterns_path(folder: Path, settings: Settings) -> Path:
    """Where the patterns of these settings are kept in a folder of runs."""
    content = identified(settings).prototypes.content
    return run_path(folder, KIND, {"prototypes": {"content": content}})


def keep_patterns(folder: Path, prototypes: Prototypes) -> None:
    """Save patterns under their content in a folder of runs; done already, nothing happens."""
    identity = {"prototypes": {"content": content_sha256(prototypes)}}
    with RunDirectory.create(run_path(folder, KIND, identity), KIND, identity, wait=10) as run:
        if run.state != "done":
            save_patterns(run, KIND, prototypes)
            run.finish({"patterns": len(prototypes)})


def patterns_of(settings: Settings, folder: Path) -> Prototypes:
    """The patterns of these settings: those kept in a folder of runs, else from their source."""
    path = patterns_path(folder, settings) if settings.prototypes.content else None
    if path is not None and (path / MANIFEST).exists():
        prototypes = read_patterns(RunDirectory.open(path), KIND)
    else:
        prototypes = load_prototypes(settings.prototypes, settings.physics)
    named(settings, prototypes)
    return prototypes


def save_patterns(run: RunDirectory, name: str, prototypes: Prototypes) -> None:
    """Patterns and what they are called, as arrays of a run."""
    run.save_arrays(name, {"patterns": prototypes.patterns}, _names(prototypes))


def read_patterns(run: RunDirectory, name: str) -> Prototypes:
    """What ``save_patterns`` kept."""
    patterns, names = run.load_arrays(name)["patterns"], run.load_metadata(name)
    shape = tuple(names["shape"]) if names["shape"] else None
    return Prototypes(patterns, tuple(names["labels"]), shape, tuple(names["classes"]))


def _names(prototypes: Prototypes) -> dict[str, Any]:
    return {
        "labels": list(prototypes.labels),
        "shape": list(prototypes.shape) if prototypes.shape else None,
        "classes": list(prototypes.classes),
    }
