"""What is in a results folder: list it, verify it, and find what can go.

Functions return data and print nothing. A run that a process is writing to right now is listed,
but neither verified nor pruned.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from thermoloom.errors import UserError
from thermoloom.runs.files import LOCK, DamagedFileError, Lock, leftovers, lock_owner, sha256
from thermoloom.runs.formats import unchecked_arrays, wrong_arrays
from thermoloom.runs.manifest import (
    MANIFEST,
    PART_OF,
    FileRecord,
    OtherVersionError,
    flatten,
    read_manifest,
)
from thermoloom.runs.store import checkpoints, lost_files, read_checkpoint
from thermoloom.settings import Settings

# --- list ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSummary:
    """A run at a glance."""

    path: Path
    id: str
    kind: str
    state: str
    """As in the manifest, but ``interrupted`` if no process works on a running run, and
    ``unreadable`` where the manifest is damaged or of another version."""
    reason: str
    age: float
    """Seconds since its manifest was last written."""
    bytes: int
    settings: dict[str, Any] = field(default_factory=dict)
    """``section.key`` of all settings; see ``telling_settings`` for those worth showing."""


def list_runs(folder: Path | str) -> list[RunSummary]:
    """Every run at or under ``folder``, by path, with the settings that tell it from others."""
    runs = [_summary(path) for path in find_runs(folder)]
    return [
        replace(run, settings=told) for run, told in zip(runs, telling_settings(runs), strict=True)
    ]


def find_runs(folder: Path | str) -> list[Path]:
    """Folders with a manifest, at or under ``folder``."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    return sorted(file.parent for file in folder.rglob(MANIFEST))


def _summary(path: Path) -> RunSummary:
    try:
        size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
        age = _age(datetime.fromtimestamp((path / MANIFEST).lstat().st_mtime, UTC))
    except OSError as error:
        return RunSummary(path, "", "", "unreadable", f"{path}: {error.strerror}", 0.0, 0)
    try:
        manifest = read_manifest(path)
    except UserError as error:
        return RunSummary(path, "", "", "unreadable", str(error), age, size)
    idle = manifest.state in ("new", "running") and lock_owner(path) is None
    return RunSummary(
        path,
        manifest.id,
        manifest.kind,
        "interrupted" if idle else manifest.state,
        manifest.reason,
        _age(datetime.fromisoformat(manifest.updated)),
        size,
        flatten(manifest.settings),
    )


def _age(moment: datetime) -> float:
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())


def telling_settings(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """For each run the settings that are not the default, or not the same in all of its kind."""
    defaults = flatten(Settings().as_dict())
    by_kind: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        by_kind[run.kind].append(run.settings)

    def tells(run: RunSummary, key: str) -> bool:
        peers = by_kind[run.kind]
        if any(peer.get(key) != run.settings[key] for peer in peers):
            return True
        return run.settings[key] != defaults[key] if key in defaults else len(peers) == 1

    return [{k: v for k, v in run.settings.items() if tells(run, k)} for run in runs]


# --- verify -------------------------------------------------------------------------------


@dataclass(frozen=True)
class DamagedFile:
    """Something that is not what was recorded."""

    file: Path
    what: str
    array: str = ""
    """The array within the file, where only some are damaged."""

    def __str__(self) -> str:
        return f"{self.file}{f' [{self.array}]' if self.array else ''}: {self.what}"


@dataclass
class Verification:
    """What was checked and what was found."""

    runs: int = 0
    files: int = 0
    bytes: int = 0
    damaged: list[DamagedFile] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Runs in use, with their process, and runs that another version wrote."""


def verify(folder: Path | str) -> Verification:
    """Every recorded file and array, and every checkpoint, against its SHA-256."""
    report = Verification()
    for path in find_runs(folder):
        owner = lock_owner(path)
        if owner:
            report.skipped.append(f"{path}: in use by {owner}")
            continue
        try:
            manifest = read_manifest(path)
        except OtherVersionError as error:
            report.skipped.append(str(error))
            continue
        except UserError as error:
            report.runs += 1
            report.damaged.append(DamagedFile(path / MANIFEST, str(error).partition(": ")[2]))
            continue
        report.runs += 1
        for name, record in manifest.files.items():
            _verify_file(path / name, record, report)
        for _, file in checkpoints(path):
            _verify_checkpoint(file, report)
    return report


def _verify_file(file: Path, record: FileRecord, report: Verification) -> None:
    try:
        data = file.read_bytes()
    except OSError as error:
        report.damaged.append(DamagedFile(file, f"cannot be read ({error.strerror})"))
        return
    report.files += 1
    report.bytes += len(data)
    if sha256(data) in (record["sha256"], record.get("previous", record)["sha256"]):
        return
    what = f"SHA-256 differs from the recorded one ({len(data)} bytes of {record['bytes']})"
    names = _wrong_arrays(data, record.get("arrays", {}))
    report.damaged += [DamagedFile(file, what, name) for name in names] or [DamagedFile(file, what)]


def _wrong_arrays(data: bytes, recorded: Mapping[str, str]) -> list[str]:
    """Which arrays of a damaged file are hit; none if it cannot be told."""
    try:
        return sorted(wrong_arrays(unchecked_arrays(data), recorded))
    except ValueError:
        return []


def _verify_checkpoint(file: Path, report: Verification) -> None:
    report.files += 1
    report.bytes += file.stat().st_size
    try:
        read_checkpoint(file)
    except DamagedFileError as error:
        report.damaged.append(DamagedFile(file, str(error).partition(": ")[2]))


# --- prune --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prunable:
    """A file that can go: it is of no use, or can be recomputed."""

    file: Path
    bytes: int
    why: str


def prunable(folder: Path | str) -> list[Prunable]:
    """Checkpoints of finished runs but the final one, parts of what was joined since, and what
    killed processes left behind.
    """
    find_runs(folder)  # says so if there is no such folder
    places = {file.parent for name in (MANIFEST, LOCK) for file in Path(folder).rglob(name)}
    return [item for path in sorted(places) if not lock_owner(path) for item in _prunable(path)]


def prune(items: Iterable[Prunable]) -> int:
    """Delete these files under their runs' locks; bytes freed. A run in use meanwhile is left."""
    by_run: dict[Path, list[Prunable]] = defaultdict(list)
    for item in items:
        by_run[item.file.parent].append(item)
    return sum(_prune_run(path, wanted) for path, wanted in by_run.items())


def _prune_run(path: Path, wanted: Sequence[Prunable]) -> int:
    try:
        lock = Lock(path, wait=0.0)
    except UserError:
        return 0
    try:
        still = set(_prunable(path))  # it may have gone on since it was looked at
        gone = [item for item in wanted if item in still]
        for item in gone:
            item.file.unlink(missing_ok=True)
        if not any(path.glob("[!.]*")):  # nothing but the lock is left of it
            (path / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                path.rmdir()
        return sum(item.bytes for item in gone)
    finally:
        lock.release()


def _prunable(path: Path) -> list[Prunable]:
    found = [(file, "left by a killed process") for file in leftovers(path)]
    found += [(file, "checkpoint of a finished run") for file in _old_checkpoints(path)]
    found += [(file, "joined with others into one file since") for file in _joined(path)]
    return [Prunable(file, file.stat().st_size, why) for file, why in found]


def _joined(path: Path) -> list[Path]:
    """All files of a run that is part of a file of another run, once that file is there."""
    try:
        whole = Path(read_manifest(path).results.get(PART_OF, ""))
        other = path.parent / whole.parent.name
        kept = whole.name in read_manifest(other).files and (other / whole.name).is_file()
    except UserError:
        return []
    files = [file for file in path.iterdir() if file.is_file() and file.name[0] != "."]
    return sorted(files, key=lambda file: file.name == MANIFEST) if kept else []  # manifest last


def _old_checkpoints(path: Path) -> list[Path]:
    try:
        manifest = read_manifest(path)
    except UserError:
        return []
    if manifest.state != "done" or lost_files(path, manifest):
        return []
    files = [file for _, file in checkpoints(path)]
    final = next((file for file in reversed(files) if _is_good(file)), None)
    return [file for file in files if file != final] if final else []


def _is_good(checkpoint: Path) -> bool:
    try:
        read_checkpoint(checkpoint)
    except DamagedFileError:
        return False
    return True


# --- for people ---------------------------------------------------------------------------


def readable_bytes(count: int) -> str:
    """``1234567`` as ``1.2 MB``."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def readable_age(seconds: float) -> str:
    """``7300`` as ``2 h``."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
