"""List, verify and prune the runs of a results folder.

Functions return data and print nothing. A run that a process is writing to is listed, but
neither verified nor pruned.
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
from thermoloom.runs.files import (
    LOCK,
    DamagedFileError,
    Lock,
    leftovers,
    lock_owner,
    read_bytes,
    sha256,
)
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
    """``section.key`` of all settings; ``distinguishing_settings`` selects those worth showing."""


def list_runs(folder: Path | str) -> list[RunSummary]:
    """Every run at or under ``folder``, by path, with the settings that distinguish it."""
    runs = [_summary(path) for path in find_runs(folder)]
    distinguishing = distinguishing_settings(runs)
    return [
        replace(run, settings=settings) for run, settings in zip(runs, distinguishing, strict=True)
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


def distinguishing_settings(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Settings of each run that differ from the default or between runs of its kind."""
    defaults = flatten(Settings().as_dict())
    by_kind: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for run in runs:
        by_kind[run.kind].append(run.settings)

    def distinguishes(run: RunSummary, key: str) -> bool:
        peers = by_kind[run.kind]
        if any(peer.get(key) != run.settings[key] for peer in peers):
            return True
        return run.settings[key] != defaults[key] if key in defaults else len(peers) == 1

    return [{k: v for k, v in run.settings.items() if distinguishes(run, k)} for run in runs]


# --- verify -------------------------------------------------------------------------------


@dataclass(frozen=True)
class DamagedFile:
    """A file, or one of its arrays, that differs from its record."""

    file: Path
    what: str
    array: str = ""
    """The array within the file, where only some are damaged."""

    def __str__(self) -> str:
        return f"{self.file}{f' [{self.array}]' if self.array else ''}: {self.what}"


@dataclass
class Verification:
    """Counts of the checked runs and files, and the damage."""

    runs: int = 0
    files: int = 0
    bytes: int = 0
    damaged: list[DamagedFile] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Runs in use, with their process, and runs that another version wrote."""


def verify(folder: Path | str) -> Verification:
    """Check every recorded file and array, and every checkpoint, against its SHA-256."""
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
        data = read_bytes(file)
    except UserError as error:
        report.damaged.append(DamagedFile(file, str(error).partition(": ")[2]))
        return
    report.files += 1
    report.bytes += len(data)
    if sha256(data) in (record["sha256"], record.get("previous", record)["sha256"]):
        return
    problem = f"SHA-256 differs from the recorded one ({len(data)} bytes of {record['bytes']})"
    names = _wrong_arrays(data, record.get("arrays", {}))
    report.damaged += [DamagedFile(file, problem, name) for name in names or [""]]


def _wrong_arrays(data: bytes, recorded: Mapping[str, str]) -> list[str]:
    """Names of the damaged arrays in a file; empty if the file cannot be decoded."""
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
    """A file that can be deleted: it is no longer needed, or can be recomputed."""

    file: Path
    bytes: int
    why: str


def prunable(folder: Path | str) -> list[Prunable]:
    """Files that can be deleted.

    These are superseded checkpoints of finished runs, parts that were joined into one file, and
    temporary files of killed processes.
    """
    find_runs(folder)  # refuses a folder that does not exist
    places = {file.parent for name in (MANIFEST, LOCK) for file in Path(folder).rglob(name)}
    return [file for path in sorted(places) if not lock_owner(path) for file in _prunable(path)]


def prune(files: Iterable[Prunable]) -> int:
    """Delete these files under the locks of their runs and return the bytes freed.

    A run that has come into use meanwhile is skipped.
    """
    by_run: dict[Path, list[Prunable]] = defaultdict(list)
    for each in files:
        by_run[each.file.parent].append(each)
    return sum(_prune_run(path, wanted) for path, wanted in by_run.items())


def _prune_run(path: Path, wanted: Sequence[Prunable]) -> int:
    try:
        lock = Lock(path, wait=0.0)
    except UserError:
        return 0
    try:
        still = set(_prunable(path))  # the run may have continued since it was listed
        gone = [each for each in wanted if each in still]
        for each in gone:
            each.file.unlink(missing_ok=True)
        if not any(path.glob("[!.]*")):  # only the lock remains
            (path / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                path.rmdir()
        return sum(each.bytes for each in gone)
    finally:
        lock.release()


def _prunable(path: Path) -> list[Prunable]:
    files = [(file, "left by a killed process") for file in leftovers(path)]
    files += [(file, "checkpoint of a finished run") for file in _old_checkpoints(path)]
    files += [(file, "already joined with others into one file") for file in _joined(path)]
    return [Prunable(file, file.stat().st_size, why) for file, why in files]


def _joined(path: Path) -> list[Path]:
    """All files of a run that is part of a file of another run, once that file exists."""
    try:
        target = Path(read_manifest(path).results.get(PART_OF, ""))
        other = path.parent / target.parent.name
        is_joined = target.name in read_manifest(other).files and (other / target.name).is_file()
    except UserError:
        return []
    files = [file for file in path.iterdir() if file.is_file() and file.name[0] != "."]
    manifest_last = sorted(files, key=lambda file: file.name == MANIFEST)
    return manifest_last if is_joined else []


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
