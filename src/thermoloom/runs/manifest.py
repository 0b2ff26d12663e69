"""What a run was, in ``manifest.json``: identity, settings, versions, machine, state, checksums."""

from __future__ import annotations

import functools
import importlib
import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from thermoloom.errors import UserError
from thermoloom.runs.files import DamagedFileError, sha256
from thermoloom.runs.formats import canonical
from thermoloom.threads import available_cores

SCHEMA = 1
"""Version of the manifest's layout; a higher one is refused."""
MANIFEST = "manifest.json"


# --- identity -------------------------------------------------------------------------------------


def run_identity(kind: str, settings: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits of the SHA-256 of a run's kind and sorted settings."""
    return sha256(canonical({"kind": kind, "settings": settings}).encode())[:12]


def run_path(folder: Path, kind: str, settings: Mapping[str, Any]) -> Path:
    """``folder/kind-id``: where a run is found by its settings alone."""
    return folder / f"{kind}-{run_identity(kind, settings)}"


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{section: {key: value}}`` as ``{"section.key": value}``, at any depth."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """``{"section.key": (old, new)}`` where two nested dictionaries differ."""
    before, after = flatten(old), flatten(new)
    return {
        key: (before.get(key), after.get(key))
        for key in before | after
        if before.get(key) != after.get(key)
    }


# --- what a run depended on -----------------------------------------------------------------------


@functools.cache
def package_version(package: str = "thermoloom") -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def software_versions() -> dict[str, Any]:
    """Versions that can change the last bits of a result, linear algebra threads included."""
    packages = ("thermoloom", "numpy", "scipy", "numba")
    return {
        "python": platform.python_version(),
        **{package: package_version(package) for package in packages},
        "blas": _linear_algebra(),
    }


def _linear_algebra() -> list[dict[str, Any]]:
    """The BLAS libraries of NumPy and SciPy with their number of threads."""
    importlib.import_module("scipy.linalg")  # its BLAS shows only once it is loaded
    loaded = importlib.import_module("threadpoolctl").threadpool_info()
    names = {"internal_api": "name", "version": "version", "num_threads": "threads"}
    blas = [library for library in loaded if library["user_api"] == "blas"]
    ours = [library for library in blas if re.search("numpy|scipy", library["filepath"])] or blas
    return sorted(
        ({name: library[key] for key, name in names.items()} for library in ours), key=canonical
    )


def machine() -> dict[str, Any]:
    return {"cpu": _cpu_model(), "cores": available_cores(), "platform": platform.platform()}


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- manifest -------------------------------------------------------------------------------------


@dataclass
class Manifest:
    """The small JSON page that says what a run is."""

    kind: str
    settings: dict[str, Any]
    id: str
    schema: int = SCHEMA
    state: str = "new"
    """``new``, ``running``, ``done``, ``diverged`` or ``failed``."""
    reason: str = ""
    """Why a run diverged or failed."""
    created: str = field(default_factory=now)
    updated: str = field(default_factory=now)
    versions: dict[str, Any] = field(default_factory=software_versions)
    """Software at the start; what changed on resuming is in ``changes``."""
    machine: dict[str, Any] = field(default_factory=machine)
    changes: list[dict[str, Any]] = field(default_factory=list)
    """``{"time", "key", "old", "new"}`` of versions and machine on resuming."""
    results: dict[str, Any] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """``{name: {"sha256", "bytes", "arrays" or "columns", "previous"}}``."""


def read_manifest(path: Path) -> Manifest:
    """The manifest of the run directory ``path``; one line for everything that can be wrong."""
    file = path / MANIFEST
    try:
        values = json.loads(file.read_bytes())
        schema = values["schema"]
        known = {f.name for f in fields(Manifest)}
        if isinstance(schema, int) and schema > SCHEMA:
            raise UserError(
                f"{file}: written by a newer thermoloom (schema {schema}, this version reads "
                f"{SCHEMA}); upgrade thermoloom"
            )
        if set(values) != known or schema != SCHEMA:
            raise ValueError(f"missing or unknown keys {sorted(set(values) ^ known)}")
        if not all(isinstance(values[key], dict) for key in ("settings", "results", "files")):
            raise ValueError("settings, results and files must be tables")
        return Manifest(**values)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: no run here ({MANIFEST} is missing)") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(
            f"{file}: damaged ({type(error).__name__}: {error}); restore it from a copy, or "
            "remove the folder and run again"
        ) from None
