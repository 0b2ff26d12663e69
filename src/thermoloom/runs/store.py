"""The run directory: what lasts of a run, written so that no crash can spoil it.

    RUN/manifest.json                   settings, versions, machine, state, results, checksums
    RUN/checkpoint-000120.safetensors   the last two, each carrying its own checksum
    RUN/*.safetensors, RUN/*.csv        arrays and tables, their SHA-256 in the manifest
    RUN/.lock                           held (flock) while a process writes here

Every file is written beside its place, synced and renamed over it: a reader, a SIGKILL or a full
disk sees the old file or the new one, never half of one. A file's checksum and the file itself
cannot change in one step, so an overwritten file is announced in the manifest first, together
with the record of the version it replaces: one of the two always fits.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import fcntl
import functools
import hashlib
import importlib
import io
import json
import math
import os
import platform
import re
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import numpy as safetensors_numpy

from thermoloom.errors import UserError
from thermoloom.threads import available_cores

SCHEMA = 1
"""Version of the manifest's layout; a higher one is refused."""
MANIFEST = "manifest.json"
LOCK = ".lock"
CHECKPOINTS_KEPT = 2

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_CHECKPOINT = re.compile(r"checkpoint-(\d{6,})\.safetensors")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HEADER_KEY = "thermoloom"  # one key only: safetensors keeps no order among several

AnyArray = NDArray[Any]


class DamagedFileError(UserError):
    """A file whose content does not match its checksum, or cannot be read at all."""


# --- bytes on disk ------------------------------------------------------------------------


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """``data`` at ``path``, or the file that was there before: nothing between."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)
    except OSError as error:
        raise _write_error(path, error) from None


def _sync_directory(path: Path) -> None:
    """A rename lasts only once its directory is on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_error(path: Path, error: OSError) -> UserError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return UserError(
            f"{path}: no space left to write it ({error.strerror}); what was there before is "
            "intact: free some space and run the same command again"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return UserError(
            f"{path}: no permission to write there ({error.strerror}); choose another --out"
        )
    return UserError(f"{path}: cannot be written ({error.strerror or error})")


def leftovers(path: Path) -> list[Path]:
    """Temporary files that a killed process left in a run directory."""
    return sorted(p for p in path.iterdir() if _TEMPORARY.fullmatch(p.name))


# --- arrays and tables as bytes -----------------------------------------------------------


def array_sha256(array: AnyArray) -> str:
    """SHA-256 of ``dtype shape`` and the little-endian C-order bytes, so that neither can slip."""
    digest = hashlib.sha256(f"{array.dtype.name} {array.shape}".encode())
    digest.update(_plain(array).tobytes())
    return digest.hexdigest()


def _plain(array: AnyArray) -> AnyArray:
    """C order and little endian: safetensors writes the memory as it lies."""
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def encode_arrays(arrays: Mapping[str, AnyArray], metadata: Mapping[str, Any]) -> bytes:
    """A safetensors file that carries the SHA-256 of every array and of its metadata."""
    plain = {name: _plain(np.asarray(array)) for name, array in arrays.items()}
    header = {
        "metadata": jsonable(metadata),
        "sha256": [[name, array_sha256(array)] for name, array in plain.items()],  # in order
    }
    header["content"] = sha256(_canonical(header).encode())
    return safetensors_numpy.save(plain, metadata={_HEADER_KEY: _canonical(header)})


def decode_arrays(data: bytes) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Arrays and metadata of ``encode_arrays``; ValueError names what does not match."""
    arrays, header = _unpack(data)
    recorded = dict(header["sha256"])
    damaged = sorted(wrong_arrays(arrays, recorded))
    if damaged:
        raise ValueError(f"array {', '.join(damaged)} does not match its checksum")
    metadata: dict[str, Any] = header["metadata"]
    return {name: arrays[name] for name in recorded}, metadata


def wrong_arrays(arrays: Mapping[str, AnyArray], recorded: Mapping[str, str]) -> set[str]:
    """Names that are missing, unexpected or changed."""
    same = {n for n in recorded if n in arrays and array_sha256(arrays[n]) == recorded[n]}
    return (set(arrays) | set(recorded)) - same


def unchecked_arrays(data: bytes) -> dict[str, AnyArray]:
    """Arrays of a file that may be damaged, as far as its header can be read; else ValueError."""
    try:
        return safetensors_numpy.load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a complete safetensors file ({error})") from None


def _unpack(data: bytes) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Arrays, unchecked, and the header, whose own checksum is checked."""
    arrays = unchecked_arrays(data)
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_HEADER_KEY])
        content = header.pop("content")
        intact = content == sha256(_canonical(header).encode())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a complete thermoloom array file ({error})") from None
    if not intact:
        raise ValueError("header does not match its checksum")
    return arrays, header


def encode_table(columns: Mapping[str, Sequence[Any] | AnyArray]) -> bytes:
    """CSV with a header; floats as ``repr``: the shortest text that reads back bit by bit."""
    plain = {name: _column(name, values) for name, values in columns.items()}
    lengths = {name: len(values) for name, values in plain.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"table columns differ in length: {lengths}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(plain)
    writer.writerows(
        [repr(v) if isinstance(v, float) else v for v in row]
        for row in zip(*(values.tolist() for values in plain.values()), strict=True)
    )
    return text.getvalue().encode()


def _column(name: str, values: Sequence[Any] | AnyArray) -> AnyArray:
    """One-dimensional array of numbers, truth values or texts; None among numbers is NaN."""
    if not isinstance(values, np.ndarray) and any(v is None for v in values):
        values = [math.nan if v is None else v for v in values]
    column = np.asarray(values)
    if column.ndim != 1 or column.dtype.kind not in "biufU":
        raise ValueError(f"table column {name}: {column.dtype} {column.shape} is not a column")
    return column


def decode_table(data: bytes, kinds: Mapping[str, str] | None = None) -> dict[str, AnyArray]:
    """Columns by name; a dtype that is not in ``kinds`` is read from the text."""
    header, *rows = csv.reader(io.StringIO(data.decode(), newline=""))
    columns = zip(*rows, strict=True) if rows else ([] for _ in header)
    return {
        name: _parse(list(texts), (kinds or {}).get(name))
        for name, texts in zip(header, columns, strict=True)
    }


def _parse(texts: list[str], kind: str | None) -> AnyArray:
    if kind == "bool" or (kind is None and texts and set(texts) <= {"True", "False"}):
        return np.array([text == "True" for text in texts], dtype=bool)
    if kind is not None:
        return np.array(texts, dtype=np.str_) if kind == "str" else np.array(texts).astype(kind)
    for dtype in (np.int64, np.float64):
        try:
            return np.array(texts, dtype=np.str_).astype(dtype)
        except (ValueError, OverflowError):
            continue
    return np.array(texts, dtype=np.str_)


def read_table(path: Path) -> dict[str, AnyArray]:
    """A CSV table by itself, outside of any run: whole numbers, floats, truth values, texts."""
    try:
        return decode_table(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path}: no such table") from None
    except (OSError, ValueError) as error:
        raise DamagedFileError(f"{path}: not a complete table ({error})") from None


# --- JSON ---------------------------------------------------------------------------------


def jsonable(value: Any) -> Any:
    """``value`` in plain JSON types: NumPy numbers unwrapped, non-finite numbers as null."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, (list, tuple)):
        return [jsonable(entry) for entry in value]
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def run_identity(kind: str, settings: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits of the SHA-256 of a run's kind and sorted settings."""
    return sha256(_canonical({"kind": kind, "settings": settings}).encode())[:12]


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


# --- what a run depended on ---------------------------------------------------------------


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
        ({name: library[key] for key, name in names.items()} for library in ours), key=_canonical
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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- manifest -----------------------------------------------------------------------------


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
    created: str = field(default_factory=_now)
    updated: str = field(default_factory=_now)
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


# --- lock ---------------------------------------------------------------------------------


class Lock:
    """Exclusive flock on RUN/.lock: it vanishes with its process, so none is ever stale."""

    def __init__(self, path: Path, wait: float) -> None:
        try:
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise _write_error(path, error) from None
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        deadline = time.monotonic() + max(wait, 0.1)  # a listing may hold it for an instant
        while not self._take(path):
            if time.monotonic() > deadline:
                owner = self._file.read().decode().strip() or "another process"
                self._file.close()
                raise UserError(f"{path}: in use by {owner}; wait for it or choose another --out")
            time.sleep(0.02)
        with contextlib.suppress(OSError):  # on a full disk the owner stays unnamed
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())

    def _take(self, path: Path) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise UserError(
                f"{path}: this file system has no file locks ({error.strerror}); choose an --out "
                "on another one"
            ) from None
        return True

    def release(self) -> None:
        self._file.close()


def lock_owner(path: Path) -> str | None:
    """``process PID on HOST`` that writes to a run directory now, or None."""
    try:
        with open(path / LOCK, encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().strip() or "another process"
    except OSError:
        pass
    return None


# --- the run directory --------------------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """Where a run can go on from."""

    name: str
    cycle: int
    arrays: dict[str, AnyArray]
    metadata: dict[str, Any]


class RunDirectory:
    """A run on disk. ``create`` and ``open(write=True)`` hold its lock until closed:

    with RunDirectory.create(path, "training", settings.as_dict()) as run:
        if run.state != "done":
            start = run.latest_checkpoint()
            ...
            run.finish({"loss": loss})
    """

    def __init__(self, path: Path, manifest: Manifest, lock: Lock | None) -> None:
        self.path = path
        self.manifest = manifest
        self.warnings: list[str] = []
        """Lines the user should see: damaged checkpoints, versions that changed on resuming."""
        self._lock = lock
        self._trusted: list[int] = []  # cycles of checkpoints saved or verified here, oldest first

    @classmethod
    def create(
        cls, path: Path | str, kind: str, settings: Mapping[str, Any], wait: float = 1.0
    ) -> RunDirectory:
        """A new run, or the same run to be continued; locked for writing.

        Another run or foreign files at ``path`` are refused. ``wait``: seconds to wait for
        a process that writes there.
        """
        path = Path(path)
        wanted = json.loads(json.dumps(settings, allow_nan=False))
        _refuse_foreign(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _write_error(path, error) from None
        lock = Lock(path, wait)
        try:
            if (path / MANIFEST).exists():
                manifest = read_manifest(path)
                _refuse_other_run(path, manifest, kind, wanted)
                run = cls(path, manifest, lock)
                run._continue()
                return run
            run = cls(path, Manifest(kind, wanted, run_identity(kind, wanted)), lock)
            run._clean()
            run._write_manifest()
        except BaseException:
            lock.release()
            raise
        return run

    @classmethod
    def open(cls, path: Path | str, write: bool = False, wait: float = 1.0) -> RunDirectory:
        """An existing run: to read, without a lock, or to add to, locked."""
        path = Path(path)
        manifest = read_manifest(path)
        if not write:
            return cls(path, manifest, None)
        lock = Lock(path, wait)
        try:
            run = cls(path, read_manifest(path), lock)  # it may have changed before the lock
            run._continue()
        except BaseException:
            lock.release()
            raise
        return run

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the lock; an error (not an interruption) is recorded as the run's failure."""
        try:
            if self._lock and isinstance(error, Exception) and self.state in ("new", "running"):
                self.fail(str(error) if isinstance(error, UserError) else repr(error))
        except UserError:
            pass  # a full disk: the error on its way says so already
        finally:
            self.close()

    def close(self) -> None:
        if self._lock:
            self._lock.release()
            self._lock = None

    @property
    def id(self) -> str:
        return self.manifest.id

    @property
    def kind(self) -> str:
        return self.manifest.kind

    @property
    def settings(self) -> dict[str, Any]:
        return self.manifest.settings

    @property
    def state(self) -> str:
        return self.manifest.state

    @property
    def results(self) -> dict[str, Any]:
        return self.manifest.results

    # state

    def finish(self, results: Mapping[str, Any]) -> None:
        """Done: everything is on disk, with these results (small, JSON)."""
        self._end("done", "", results)

    def diverged(self, cycle: int, results: Mapping[str, Any] | None = None) -> None:
        """A result like any other: the states became non-finite in this cycle."""
        self._end(
            "diverged", f"non-finite in cycle {cycle}", {"cycle": cycle} | dict(results or {})
        )

    def fail(self, reason: str) -> None:
        """Ended by an error; the run can be continued once its reason is gone."""
        self._end("failed", reason, {})

    def _end(self, state: str, reason: str, results: Mapping[str, Any]) -> None:
        self.manifest.state, self.manifest.reason = state, " ".join(reason.split())
        self.manifest.results = jsonable(results)
        self._write_manifest()

    # arrays, tables and other files

    def save_arrays(
        self,
        name: str,
        arrays: Mapping[str, AnyArray],
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Arrays and JSON metadata as ``name.safetensors``."""
        data = encode_arrays(arrays, metadata or {})
        hashes = {key: array_sha256(np.asarray(array)) for key, array in arrays.items()}
        self._save(_with_suffix(name, ".safetensors"), data, {"arrays": hashes})

    def load_arrays(self, name: str) -> dict[str, AnyArray]:
        return self._load_arrays(name)[0]

    def load_metadata(self, name: str) -> dict[str, Any]:
        return self._load_arrays(name)[1]

    def _load_arrays(self, name: str) -> tuple[dict[str, AnyArray], dict[str, Any]]:
        name = _with_suffix(name, ".safetensors")
        try:
            return decode_arrays(self.load_bytes(name))
        except ValueError as error:
            raise DamagedFileError(f"{self.path / name}: damaged ({error})") from None

    def save_table(self, name: str, columns: Mapping[str, Sequence[Any] | AnyArray]) -> None:
        """Columns of equal length as ``name.csv``; floats keep every bit."""
        kinds = {key: _column(key, values).dtype for key, values in columns.items()}
        named = {key: "str" if kind.kind == "U" else kind.name for key, kind in kinds.items()}
        self._save(_with_suffix(name, ".csv"), encode_table(columns), {"columns": named})

    def load_table(self, name: str) -> dict[str, AnyArray]:
        name = _with_suffix(name, ".csv")
        data = self.load_bytes(name)
        return decode_table(data, (self._record_of(name, data) or {}).get("columns"))

    def save_bytes(self, name: str, data: bytes) -> None:
        """Any other file, its SHA-256 recorded like that of arrays and tables."""
        self._save(name, data, {})

    def load_bytes(self, name: str) -> bytes:
        """A recorded file, checked against its SHA-256."""
        file = self.path / name
        if name not in self.manifest.files:
            raise UserError(f"{file}: this run has no such file (state: {self.state})")
        try:
            data = file.read_bytes()
        except OSError as error:
            raise DamagedFileError(f"{file}: cannot be read ({error.strerror})") from None
        if self._record_of(name, data) is None:
            expected = self.manifest.files[name]["bytes"]
            raise DamagedFileError(
                f"{file}: damaged ({len(data)} bytes of {expected}, SHA-256 differs); remove it "
                "and run again, or restore it from a copy"
            )
        return data

    def has(self, name: str) -> bool:
        """Whether a file of this name was saved, whatever its state now."""
        return name in self.manifest.files

    def _record_of(self, name: str, data: bytes) -> dict[str, Any] | None:
        """The manifest's record that ``data`` fits: the current or the replaced version."""
        record = self.manifest.files.get(name)
        digest = sha256(data)
        while record is not None and record["sha256"] != digest:
            record = record.get("previous")
        return record

    def _save(self, name: str, data: bytes, extra: Mapping[str, Any]) -> None:
        if not _NAME.fullmatch(name) or name == MANIFEST:
            raise ValueError(f"{name!r}: not a file name for a run directory")
        self._begin()
        file = self.path / name
        record = {"sha256": sha256(data), "bytes": len(data), **extra}
        replaced = self._record_of(name, file.read_bytes()) if file.exists() else None
        if replaced is None:  # unknown to the manifest until it is there
            write_atomically(file, data)
            self.manifest.files[name] = record
            self._write_manifest()
            return
        replaced = {key: value for key, value in replaced.items() if key != "previous"}
        self.manifest.files[name] = record | {"previous": replaced}
        self._write_manifest()
        write_atomically(file, data)

    # checkpoints

    def save_checkpoint(
        self, cycle: int, arrays: Mapping[str, AnyArray], metadata: Mapping[str, Any] | None = None
    ) -> None:
        """State after ``cycle`` cycles, complete in one file; the one before it is kept too.

        Not recorded in the manifest: a checkpoint carries its own checksum, so there is no
        moment at which a kill leaves the two in disagreement.
        """
        self._begin()
        data = encode_arrays(arrays, {"cycle": cycle, "metadata": dict(metadata or {})})
        write_atomically(self.path / checkpoint_name(cycle), data)
        self._trusted = [*(c for c in self._trusted if c != cycle), cycle][-CHECKPOINTS_KEPT:]
        for old, file in checkpoints(self.path):
            if old not in self._trusted:
                file.unlink(missing_ok=True)

    def latest_checkpoint(self) -> Checkpoint | None:
        """The last good checkpoint; damaged ones are passed over and named in ``warnings``."""
        good: list[Checkpoint] = []
        for _, file in reversed(checkpoints(self.path)):
            try:
                good.append(read_checkpoint(file))
            except DamagedFileError as error:
                if file.exists():  # else its writer has just replaced it by a later one
                    self.warnings.append(f"{error}; passed over")
        self._trusted = [checkpoint.cycle for checkpoint in reversed(good)][-CHECKPOINTS_KEPT:]
        return good[0] if good else None

    # inside

    def _begin(self) -> None:
        if self._lock is None:
            raise RuntimeError(f"{self.path}: opened for reading only")
        if self.state in ("new", "failed"):
            self.manifest.state, self.manifest.reason = "running", ""
            self._write_manifest()

    def _continue(self) -> None:
        """Clean up after a killed process and note what changed around the run since."""
        self._clean()
        lost = lost_files(self.path, self.manifest)
        for name in lost:
            del self.manifest.files[name]
        if lost and self.state == "done":
            self.manifest.state = "running"
            self.warnings.append(f"{self.path}: {', '.join(lost)} is missing or cut; made again")
        changed = {} if self.state in ("done", "diverged") else self._changed_environment()
        self.manifest.changes += [
            {"time": _now(), "key": key, "old": old, "new": new}
            for key, (old, new) in changed.items()
        ]
        if changed:
            listed = ", ".join(f"{key} {old} → {new}" for key, (old, new) in changed.items())
            self.warnings.append(
                f"{self.path}: continued with other software or machine than before ({listed}); "
                "the last bits of its results may differ from an uninterrupted run"
            )
        if lost or changed:
            self._write_manifest()

    def _changed_environment(self) -> dict[str, tuple[Any, Any]]:
        """Versions and machine that are not those the run was last computed with."""
        seen = {"versions": self.manifest.versions, "machine": self.manifest.machine}
        for change in self.manifest.changes:
            _assign(seen, change["key"], change["new"])
        changed = differences(seen, {"versions": software_versions(), "machine": machine()})
        changed.pop("machine.cores", None)  # changes nothing but the speed
        return changed

    def _clean(self) -> None:
        for file in leftovers(self.path):
            file.unlink(missing_ok=True)

    def _write_manifest(self) -> None:
        if self._lock is None:
            raise RuntimeError(f"{self.path}: opened for reading only")
        self.manifest.updated = _now()
        text = json.dumps(asdict(self.manifest), indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(self.path / MANIFEST, text.encode() + b"\n")


def lost_files(path: Path, manifest: Manifest) -> list[str]:
    """Recorded files that are gone or have another length: seen at a glance, without hashing."""

    def lost(name: str, record: Mapping[str, Any]) -> bool:
        lengths = {record["bytes"], record.get("previous", record)["bytes"]}
        file = path / name
        return not file.is_file() or file.stat().st_size not in lengths

    return [name for name, record in manifest.files.items() if lost(name, record)]


def finished_results(
    path: Path | str, kind: str, settings: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Results of this very run if it is done and its files are there, else None.

    A task asks this before it begins, so that doing it twice costs nothing.
    """
    if not (Path(path) / MANIFEST).exists():
        return None
    manifest = read_manifest(Path(path))
    same = manifest.id == run_identity(kind, json.loads(_canonical(settings)))
    done = same and manifest.state == "done" and not lost_files(Path(path), manifest)
    return manifest.results if done else None


def checkpoint_name(cycle: int) -> str:
    return f"checkpoint-{cycle:06d}.safetensors"


def checkpoints(path: Path) -> list[tuple[int, Path]]:
    """(cycle, file) of the checkpoints in a run directory, oldest first, unchecked."""
    found = ((_CHECKPOINT.fullmatch(file.name), file) for file in path.iterdir())
    return sorted((int(match[1]), file) for match, file in found if match)


def read_checkpoint(file: Path) -> Checkpoint:
    """A checkpoint that matches its own checksum and its name."""
    try:
        arrays, header = decode_arrays(file.read_bytes())
        if file.name != checkpoint_name(header["cycle"]):
            raise ValueError(f"it is the one of cycle {header['cycle']}")
    except (OSError, ValueError, KeyError) as error:
        raise DamagedFileError(f"{file}: damaged checkpoint ({error})") from None
    return Checkpoint(file.name, header["cycle"], arrays, header["metadata"])


def _with_suffix(name: str, suffix: str) -> str:
    return name if name.endswith(suffix) else name + suffix


def _assign(tree: dict[str, Any], key: str, value: Any) -> None:
    """``tree[a][b] = value`` for the key ``a.b``, without changing the nested originals."""
    first, _, rest = key.partition(".")
    if rest:
        tree[first] = dict(tree[first])
        _assign(tree[first], rest, value)
    else:
        tree[first] = value


def _refuse_foreign(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise UserError(f"{path}: is a file, not a run directory; choose another --out")
    if not path.exists() or (path / MANIFEST).exists():
        return
    foreign = [
        p.name for p in path.iterdir() if p.name != LOCK and not _TEMPORARY.fullmatch(p.name)
    ]
    if foreign:
        raise UserError(
            f"{path}: holds other files ({min(foreign)}) and no run; choose another --out"
        )


def _refuse_other_run(path: Path, old: Manifest, kind: str, settings: dict[str, Any]) -> None:
    if old.kind != kind:
        raise UserError(f"{path}: holds a run of {old.kind}, not {kind}; choose another --out")
    changed = differences(old.settings, settings)
    if changed:
        shown = [f"{k} = {was!r}, not {now!r}" for k, (was, now) in list(changed.items())[:3]]
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise UserError(
            f"{path}: holds a run with {'; '.join(shown)}{more}; take the same settings to "
            "continue it, or choose another --out"
        )
