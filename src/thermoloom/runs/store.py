"""The run directory: the files of a run, written so that no crash can damage them.

    RUN/manifest.json                   settings, versions, machine, state, results, checksums
    RUN/checkpoint-000120.safetensors   the last two, each with its checksum inside
    RUN/*.safetensors, RUN/*.csv        arrays and tables, their SHA-256 in the manifest
    RUN/.lock                           locked while a process writes here

Every file is written under a temporary name, synced and renamed. After a SIGKILL or on a full disk,
either the old or the new file exists, never half of one. A file and its checksum cannot change in
one step. The manifest therefore announces an overwritten file first and keeps the record of the
version that it replaces: one of the two records always matches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from thermoloom.engine_choice import engine_in_use
from thermoloom.errors import UserError
from thermoloom.numerics import NUMERICS
from thermoloom.runs.files import (
    LOCK,
    DamagedFileError,
    Lock,
    leftovers,
    read_bytes,
    reading,
    sha256,
    write_atomically,
    write_error,
)
from thermoloom.runs.formats import (
    AnyArray,
    array_sha256,
    column_of,
    decode_arrays,
    decode_table,
    encode_arrays,
    encode_table,
    from_json,
    jsonable,
)
from thermoloom.runs.manifest import (
    MANIFEST,
    PATTERN_SOURCE,
    FileRecord,
    Manifest,
    differences,
    encode_manifest,
    essential,
    flatten,
    host,
    is_same_run,
    now,
    read_manifest,
    software_versions,
    usual_settings,
)

CHECKPOINTS_KEPT = 2

_CHECKPOINT = re.compile(r"checkpoint-(\d{6,})\.safetensors")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Checkpoint:
    """A state from which a run can continue."""

    name: str
    cycle: int
    arrays: dict[str, AnyArray]
    metadata: dict[str, Any]


class _CheckpointMetadata(msgspec.Struct):
    cycle: Annotated[int, msgspec.Meta(ge=0)]
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
        """Lines for the user: damaged checkpoints, versions that changed on resuming."""
        self._lock = lock
        self._trusted: list[int] = []  # cycles of checkpoints saved or verified here, oldest first

    @classmethod
    def create(
        cls,
        path: Path | str,
        kind: str,
        settings: Mapping[str, Any],
        wait: float = 1.0,
        defaults: Mapping[str, Any] | None = None,
    ) -> RunDirectory:
        """A new run, or the same run to be continued; locked for writing.

        Another run or foreign files at ``path`` are refused. ``wait``: seconds to wait for a
        process that writes there. ``defaults``: default values of the settings, which do not count
        in the run's identity; if not given, those of ``Settings``.
        """
        path = Path(path)
        wanted = json.loads(json.dumps(settings, allow_nan=False))
        _refuse_foreign(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(path, error) from None
        lock = Lock(path, wait)
        try:
            if (path / MANIFEST).exists():
                manifest = read_manifest(path)
                _refuse_other_run(path, manifest, kind, wanted, defaults)
                run = cls(path, manifest, lock)
                run._continue()
                return run
            run = cls(path, Manifest.new(kind, wanted, defaults), lock)
            run._clean()
            run._write_manifest()
        except BaseException:
            lock.release()
            raise
        return run

    @classmethod
    def open(cls, path: Path | str, write: bool = False, wait: float = 1.0) -> RunDirectory:
        """An existing run: to read, without a lock, or to extend, locked."""
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
            pass  # a full disk: the error being raised says so already
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
        """Mark the run as done, with these results (small, JSON)."""
        self._drop_old_checkpoints()  # a kill may have come between the last save and this
        self._end("done", "", results)

    def diverged(self, cycle: int, results: Mapping[str, Any] | None = None) -> None:
        """Mark the run as diverged: the states became non-finite in this cycle."""
        self._end(
            "diverged", f"non-finite in cycle {cycle}", {"cycle": cycle} | dict(results or {})
        )

    def fail(self, reason: str) -> None:
        """Mark the run as failed; it can be continued once the reason is removed."""
        self._end("failed", reason, {})

    def _end(
        self, state: Literal["done", "diverged", "failed"], reason: str, results: Mapping[str, Any]
    ) -> None:
        self.manifest.state, self.manifest.reason = state, " ".join(reason.split())
        self.manifest.results = jsonable(results)
        self._write_manifest()

    # arrays, tables and other files

    def save_arrays(
        self, name: str, arrays: Mapping[str, AnyArray], metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Save arrays and JSON metadata as ``name.safetensors``."""
        data = encode_arrays(arrays, metadata or {})
        hashes = {key: array_sha256(np.asarray(array)) for key, array in arrays.items()}
        self._save(_with_suffix(name, ".safetensors"), data, arrays=hashes)

    def load_arrays(self, name: str) -> dict[str, AnyArray]:
        return self._load_arrays(name)[0]

    def load_metadata(self, name: str) -> dict[str, Any]:
        return self._load_arrays(name)[1]

    def _load_arrays(self, name: str) -> tuple[dict[str, AnyArray], dict[str, Any]]:
        name = _with_suffix(name, ".safetensors")
        data = self.load_bytes(name)
        with reading(self.path / name):
            return decode_arrays(data)

    def save_table(self, name: str, columns: Mapping[str, Sequence[Any] | AnyArray]) -> None:
        """Save columns of equal length as ``name.csv``; floats keep every bit."""
        kinds = {key: column_of(key, values).dtype for key, values in columns.items()}
        named = {key: "str" if kind.kind == "U" else kind.name for key, kind in kinds.items()}
        self._save(_with_suffix(name, ".csv"), encode_table(columns), columns=named)

    def load_table(self, name: str) -> dict[str, AnyArray]:
        name = _with_suffix(name, ".csv")
        data = self.load_bytes(name)
        record = self._record_of(name, data)
        with reading(self.path / name):
            return decode_table(data, record.get("columns") if record else None)

    def save_bytes(self, name: str, data: bytes) -> None:
        """Save any other file and record its SHA-256."""
        self._save(name, data)

    def load_bytes(self, name: str) -> bytes:
        """Read a recorded file and check it against its SHA-256."""
        file = self.path / name
        if name not in self.manifest.files:
            raise UserError(f"{file}: this run has no such file (state: {self.state})")
        data = read_bytes(file)
        if self._record_of(name, data) is None:
            record = self.manifest.files[name]
            again = "repeat the command that created it" if record.get("added") else "run again"
            raise DamagedFileError(
                f"{file}: damaged ({len(data)} bytes of {record['bytes']}, SHA-256 differs); "
                f"remove it and {again}, or restore it from a copy"
            )
        return data

    def has(self, name: str) -> bool:
        """Whether a file of this name was saved, even if it is lost now."""
        return name in self.manifest.files

    def is_lost(self, name: str) -> bool:
        """Whether a file of this name was saved, but is missing or truncated."""
        return self.has(name) and _is_lost(self.path / name, self.manifest.files[name])

    def _record_of(self, name: str, data: bytes) -> FileRecord | None:
        """The manifest's record that ``data`` fits: the current or the replaced version."""
        record = self.manifest.files.get(name)
        digest = sha256(data)
        while record is not None and record["sha256"] != digest:
            record = record.get("previous")
        return record

    def _save(
        self,
        name: str,
        data: bytes,
        arrays: dict[str, str] | None = None,
        columns: dict[str, str] | None = None,
    ) -> None:
        if not _NAME.fullmatch(name) or name == MANIFEST:
            raise ValueError(f"{name!r}: not a file name for a run directory")
        self._begin()
        file = self.path / name
        record: FileRecord = {"sha256": sha256(data), "bytes": len(data)}
        if arrays is not None:
            record["arrays"] = arrays
        if columns is not None:
            record["columns"] = columns
        known = self.manifest.files.get(name)
        if self.state == "done" and (known is None or known.get("added")):
            record["added"] = True
        # anything but a regular file, such as a pipe, is not one of ours
        replaced = self._record_of(name, file.read_bytes()) if file.is_file() else None
        if replaced is None:  # unknown to the manifest until the file exists
            write_atomically(file, data)
            self.manifest.files[name] = record
            self._write_manifest()
            return
        record["previous"] = replaced.copy()
        record["previous"].pop("previous", None)
        self.manifest.files[name] = record
        self._write_manifest()
        write_atomically(file, data)

    # checkpoints

    def save_checkpoint(
        self, cycle: int, arrays: Mapping[str, AnyArray], metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Save the state after ``cycle`` cycles in one file, beside the previous checkpoint.

        A checkpoint contains its checksum and is not recorded in the manifest, so a kill cannot
        leave the two in disagreement.
        """
        self._begin()
        data = encode_arrays(arrays, {"cycle": cycle, "metadata": dict(metadata or {})})
        write_atomically(self.path / checkpoint_name(cycle), data)
        self._trusted = [*(c for c in self._trusted if c != cycle), cycle][-CHECKPOINTS_KEPT:]
        self._drop_old_checkpoints()

    def _drop_old_checkpoints(self) -> None:
        """Delete checkpoints other than those saved or verified by this object, if it has any."""
        for cycle, file in checkpoints(self.path) if self._trusted else ():
            if cycle not in self._trusted:
                file.unlink(missing_ok=True)

    def latest_checkpoint(self) -> Checkpoint | None:
        """The last good checkpoint; ``warnings`` names damaged ones, which are skipped."""
        good: list[Checkpoint] = []
        for _, file in reversed(checkpoints(self.path)):
            try:
                good.append(read_checkpoint(file))
            except DamagedFileError as error:
                if file.exists():  # else its writer has just replaced it by a later one
                    self.warnings.append(f"{error}; skipped")
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
        """Clean up after a killed process; note lost files and changes of software or machine."""
        self._clean()
        incomplete = lost_files(self.path, self.manifest)
        lost = [name for name in self.manifest.files if self.is_lost(name)]
        for name in lost:
            del self.manifest.files[name]
        if incomplete and self.state == "done":
            self.manifest.state = "running"
            names = ", ".join(incomplete)
            self.warnings.append(
                f"{self.path}: files are missing or truncated ({names}); recomputing"
            )
        changed = {} if self.state in ("done", "diverged") else self._changed_environment()
        self.manifest.changes += [
            {"time": now(), "key": key, "old": old, "new": new}
            for key, (old, new) in changed.items()
        ]
        if changed:
            listed = ", ".join(f"{key} {old} → {new}" for key, (old, new) in changed.items())
            self.warnings.append(
                f"{self.path}: continued with other software or on another machine ({listed}); "
                "the last bits of its results may differ from an uninterrupted run"
            )
        if lost or changed:
            self._write_manifest()

    def _changed_environment(self) -> dict[str, tuple[Any, Any]]:
        """Versions and machine properties that differ from those of the last computation."""
        seen = {"versions": self.manifest.versions, "host": self.manifest.host}
        for change in self.manifest.changes:
            _assign(seen, change["key"], change["new"])
        changed = differences(seen, {"versions": software_versions(), "host": host()})
        changed.pop("host.cores", None)  # changes nothing but the speed
        return changed

    def _clean(self) -> None:
        for file in leftovers(self.path):
            file.unlink(missing_ok=True)

    def _write_manifest(self) -> None:
        if self._lock is None:
            raise RuntimeError(f"{self.path}: opened for reading only")
        self.manifest.updated = now()
        write_atomically(self.path / MANIFEST, encode_manifest(self.manifest))


def lost_files(path: Path, manifest: Manifest) -> list[str]:
    """Recorded files that the run needs to be complete, but that are missing or truncated.

    Files added to a finished run, such as samples of a trained computer, do not count: they are
    generated again on request.
    """
    return [
        name
        for name, record in manifest.files.items()
        if not record.get("added") and _is_lost(path / name, record)
    ]


def _is_lost(file: Path, record: FileRecord) -> bool:
    """Whether a file is missing or has another length; cheaper than hashing it."""
    lengths = {record["bytes"], record.get("previous", record)["bytes"]}
    return not file.is_file() or file.stat().st_size not in lengths


def finished_results(
    path: Path | str, kind: str, settings: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Results of this run if it is done and its files are present, else None.

    Every task checks this first, so that running a task twice costs nothing.
    """
    if not (Path(path) / MANIFEST).exists():
        return None
    manifest = read_manifest(Path(path))
    same = is_same_run(manifest, kind, settings)
    done = same and manifest.state == "done" and not lost_files(Path(path), manifest)
    return manifest.results if done else None


def refuse_claimed(
    path: Path, kind: str, settings: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
) -> None:
    """Refuse a path that contains another run or foreign files; nothing is written."""
    _refuse_foreign(path)
    if (path / MANIFEST).exists():
        wanted = json.loads(json.dumps(settings))
        _refuse_other_run(path, read_manifest(path), kind, wanted, defaults)


def checkpoint_name(cycle: int) -> str:
    return f"checkpoint-{cycle:06d}.safetensors"


def checkpoints(path: Path) -> list[tuple[int, Path]]:
    """(cycle, file) of the checkpoints in a run directory, oldest first, unchecked."""
    matches = ((_CHECKPOINT.fullmatch(file.name), file) for file in path.iterdir())
    return sorted((int(match[1]), file) for match, file in matches if match)


def read_checkpoint(file: Path) -> Checkpoint:
    """Read a checkpoint and check it against its checksum and its name."""
    with reading(file):
        arrays, metadata = decode_arrays(read_bytes(file))
        about = from_json(metadata, _CheckpointMetadata)
        if file.name != checkpoint_name(about.cycle):
            raise ValueError(f"it belongs to cycle {about.cycle}")
    return Checkpoint(file.name, about.cycle, arrays, about.metadata)


def _with_suffix(name: str, suffix: str) -> str:
    return name if name.endswith(suffix) else name + suffix


def _assign(tree: dict[str, Any], key: str, value: Any) -> None:
    """``tree[a][b] = value`` for the key ``a.b``, without changing the nested originals."""
    first, _, rest = key.partition(".")
    if rest:
        branch = tree.get(first)
        tree[first] = dict(branch) if isinstance(branch, Mapping) else {}
        _assign(tree[first], rest, value)
    else:
        tree[first] = value


def _refuse_foreign(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise UserError(f"{path}: is a file, not a run directory; choose another --out")
    if not path.exists() or (path / MANIFEST).exists():
        return
    foreign = set(path.iterdir()) - {path / LOCK, *leftovers(path)}
    if foreign:
        raise UserError(
            f"{path}: contains other files ({min(foreign).name}) but no run; choose another --out"
        )


def _refuse_other_run(
    path: Path,
    old: Manifest,
    kind: str,
    settings: dict[str, Any],
    defaults: Mapping[str, Any] | None,
) -> None:
    if old.kind != kind:
        raise UserError(f"{path}: contains a run of {old.kind}, not {kind}; choose another --out")
    refuse_other_numerics(RunDirectory(path, old, None))
    if is_same_run(old, kind, settings, defaults):
        return
    was, is_ = (usual_settings(defaults) | flatten(each) for each in (old.settings, settings))
    changed = list(differences(essential(old.settings, defaults), essential(settings, defaults)))
    if "patterns.content" in changed:  # also show where the other patterns come from
        source = [f"patterns.{key}" for key in PATTERN_SOURCE]
        changed += [key for key in source if was.get(key) != is_.get(key)]
    shown = [f"{k} = {_short(was.get(k))}, not {_short(is_.get(k))}" for k in changed[:3]]
    rest = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    if not shown:
        raise UserError(
            f"{path}: contains a run of the engine {old.engine}, not {engine_in_use().identity}; "
            f"continue it with --engine {old.engine}, or choose another --out"
        )
    raise UserError(
        f"{path}: contains a run with {'; '.join(shown)}{rest}; use the same settings to continue "
        "it, or choose another --out"
    )


def _short(value: Any) -> str:
    """A value for messages; long ones, such as a SHA-256, are shortened."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:13]}…"


def refuse_other_numerics(run: RunDirectory) -> None:
    """Refuse a run that was computed by a version with other numerics."""
    old = run.manifest
    if old.numerics != NUMERICS:
        wrote = old.versions.get("thermoloom", "of another version")
        raise UserError(
            f"{run.path}: computed by thermoloom {wrote}, whose numbers differ from this version's "
            f"(numerics {old.numerics}, now {NUMERICS}); run it again in another folder, or "
            "continue with that version"
        )
