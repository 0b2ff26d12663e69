"""The manifest of a run: identity, settings, versions, machine, state, checksums.

id     SHA-256 of the kind, the numerics, and the settings that are not the default
seal   SHA-256 of everything else in the file, which reveals changes by hand
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import platform
import re
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec

from thermoloom.engine_choice import EngineSettings, engine_in_use
from thermoloom.errors import UserError
from thermoloom.inputs import read_file
from thermoloom.numerics import NUMERICS
from thermoloom.runs.files import MOST_BYTES, DamagedFileError, sha256
from thermoloom.runs.formats import canonical
from thermoloom.settings import Settings
from thermoloom.threads import available_cores

SCHEMA = 3
"""Version of the manifest's layout; other versions are refused. Adding a field with a default does
not change it."""
MANIFEST = "manifest.json"
PART_OF = "part_of"
"""Result key of a partial run: RUN/FILE in the same folder, into which its files are joined."""
PATTERN_SOURCE = ("source", "digits", "per_digit", "path", "resize", "code")
"""Settings that name the source of patterns; the identity depends on the patterns' content."""


# --- identity -------------------------------------------------------------------------------------


def run_identity(
    kind: str, settings: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> str:
    """First twelve hexadecimal digits of the SHA-256 of kind, numerics and essential settings.

    An engine other than the compiled one is part of the identity, too.
    """
    identifying = essential(settings, defaults)
    content = {"kind": kind, "numerics": NUMERICS, "settings": identifying}
    if engine_in_use() != EngineSettings():
        content["engine"] = engine_in_use().identity
    return sha256(canonical(content).encode())[:12]


def essential(
    settings: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """``{"section.key": value}`` of the settings that are not the default.

    A setting that is added later, with its default, changes no identity. Patterns count by their
    content (``patterns.content``), not by their source. ``defaults``: by default those of
    ``Settings``.
    """
    usual = usual_settings(defaults)
    flat: dict[str, Any] = json.loads(canonical(flatten(settings)))
    identifying = {key: flat[key] for key in flat if key not in usual or flat[key] != usual[key]}
    if identifying.get("patterns.content"):
        for key in PATTERN_SOURCE:
            identifying.pop(f"patterns.{key}", None)
    return identifying


def is_same_run(
    manifest: Manifest,
    kind: str,
    settings: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> bool:
    """Whether a manifest belongs to the run with these settings.

    The settings are compared in addition to the id: a default that was changed without raising
    ``NUMERICS`` would otherwise go unnoticed.
    """
    same_id = manifest.id == run_identity(kind, settings, defaults)
    return same_id and essential(manifest.settings, defaults) == essential(settings, defaults)


def usual_settings(defaults: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """``{"section.key": value}`` of the defaults, which do not count in an identity."""
    return flatten(Settings().as_dict() if defaults is None else defaults)


def run_path(folder: Path, kind: str, settings: Mapping[str, Any]) -> Path:
    """``folder/kind-id``: the path of a run, derived from its settings alone."""
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


# --- the environment of a run ---------------------------------------------------------------------


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


def host() -> dict[str, Any]:
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


Name = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Name of a kind or a file: never a path out of the run directory."""


class OtherVersionError(UserError):
    """A run that another version of the package wrote."""


class FileRecord(TypedDict):
    """The record of a file."""

    sha256: str
    bytes: Annotated[int, msgspec.Meta(ge=0)]
    arrays: NotRequired[dict[str, str]]
    """SHA-256 of every array."""
    columns: NotRequired[dict[str, str]]
    """dtype of every column."""
    added: NotRequired[bool]
    """Saved after the run was done: the run is complete without it."""
    previous: NotRequired[FileRecord]
    """The version that this one replaces."""


class EnvironmentChange(TypedDict):
    """A software version, or a property of the machine, that differed on resuming."""

    time: str
    key: str
    old: Any
    new: Any


class Manifest(msgspec.Struct, kw_only=True):
    """The content of ``manifest.json``; a field that is added here needs a default."""

    schema: int
    kind: Name
    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{12}$")]
    numerics: int
    engine: str = EngineSettings.name
    """Engine, library, kind of device and precision."""
    settings: dict[str, Any]
    state: Literal["new", "running", "done", "diverged", "failed"] = "new"
    reason: str = ""
    """Why a run diverged or failed."""
    created: str
    updated: str
    versions: dict[str, Any]
    """Software versions at the start; ``changes`` records later ones."""
    host: dict[str, Any]
    changes: list[EnvironmentChange] = msgspec.field(default_factory=list)
    results: dict[str, Any] = msgspec.field(default_factory=dict)
    files: dict[Name, FileRecord] = msgspec.field(default_factory=dict)

    @classmethod
    def new(
        cls, kind: str, settings: dict[str, Any], defaults: Mapping[str, Any] | None = None
    ) -> Manifest:
        """The manifest of a run that begins here and now."""
        return cls(
            schema=SCHEMA,
            kind=kind,
            id=run_identity(kind, settings, defaults),
            numerics=NUMERICS,
            engine=engine_in_use().identity,
            settings=settings,
            created=now(),
            updated=now(),
            versions=software_versions(),
            host=host(),
        )

    def __post_init__(self) -> None:
        for moment in (self.created, self.updated):
            if datetime.fromisoformat(moment).tzinfo is None:
                raise ValueError(f"{moment!r}: a time without a time zone")


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as indented JSON, with its seal."""
    values = json.loads(json.dumps(msgspec.to_builtins(manifest), allow_nan=False))
    sealed = values | {"seal": _seal(values)}
    return json.dumps(sealed, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _seal(values: Mapping[str, Any]) -> str:
    return sha256(canonical({k: v for k, v in values.items() if k != "seal"}).encode())


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of the run directory ``path``; every error is one line.

    Unknown fields are ignored, and missing ones take their default.
    """
    file = path / MANIFEST
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise UserError(f"{file}: is not a regular file; remove it")
        values = json.loads(read_file(file, MOST_BYTES))
        _refuse_other_version(file, values)
        manifest = msgspec.convert(values, Manifest)
        seal = _seal(values)
    except (FileNotFoundError, NotADirectoryError):
        message = f"{path}: no run here ({MANIFEST} is missing); name a run directory"
        raise UserError(message) from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    except UserError:
        raise
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise DamagedFileError(
            f"{file}: damaged ({' '.join(str(error).split())}); {_WAY_OUT}"
        ) from None
    if values.get("seal") != seal:
        raise DamagedFileError(
            f"{file}: was changed by hand or damaged (it does not match its seal); {_WAY_OUT}"
        )
    run_name = f"{manifest.kind}-{manifest.id}"
    any_run_name = rf"{re.escape(manifest.kind)}-[0-9a-f]{{12}}"
    if path.name != run_name and re.fullmatch(any_run_name, path.name):
        raise DamagedFileError(
            f"{path}: contains the run {run_name}; give the folder that name again"
        )
    return manifest


_WAY_OUT = "restore it from a copy, or remove the folder and run again"


def _refuse_other_version(file: Path, values: Any) -> None:
    schema = values.get("schema") if isinstance(values, dict) else None
    if type(schema) is not int or schema == SCHEMA:
        return
    if schema > SCHEMA:
        raise OtherVersionError(
            f"{file}: written by a newer thermoloom (schema {schema}, this version reads "
            f"{SCHEMA}); upgrade thermoloom"
        )
    versions = values.get("versions")
    wrote = versions.get("thermoloom") if isinstance(versions, dict) else None
    raise OtherVersionError(
        f"{file}: written by an older version of thermoloom "
        f"({wrote if isinstance(wrote, str) else f'schema {schema}'}); run it again in another "
        "folder, or read it with that version"
    )


def refuse_file_of_run(path: Path) -> None:
    """Refuse a file in a run directory: only the run store writes there.

    A file that does not exist yet may be one that the run writes later. Tables and netlists of its
    couplings are allowed, because no run writes them.
    """
    if (path.parent / MANIFEST).exists() and not _EXPORT.fullmatch(path.name):
        raise UserError(f"{path}: belongs to the run in {path.parent}; choose another folder")


_EXPORT = re.compile(r"couplings(-\w+)?\.(csv|cir)")
