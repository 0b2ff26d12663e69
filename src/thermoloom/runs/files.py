"""Atomic writing of files, and a lock on their directory.

Every file is written under a temporary name, synced and renamed. After a SIGKILL or on a full disk,
either the old or the new file exists, never half of one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import filelock

from thermoloom.errors import MissingExtensionError, UserError
from thermoloom.inputs import read_file

LOCK = ".lock"
"""Locked while a process writes in a directory."""
MOST_BYTES = 1 << 40

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")


class DamagedFileError(UserError):
    """A file whose content does not match its checksum, or that cannot be read at all."""


def read_bytes(file: Path) -> bytes:
    """The bytes of a regular file; anything else, such as a pipe, counts as damaged."""
    try:
        return read_file(file, MOST_BYTES)
    except UserError as error:
        raise DamagedFileError(str(error)) from None


@contextlib.contextmanager
def reading(file: Path, way_out: str = "") -> Iterator[None]:
    """A block that decodes a file: errors in it become a ``DamagedFileError`` of the file."""
    try:
        yield
    except DamagedFileError:
        raise
    except MissingExtensionError as error:
        raise MissingExtensionError(f"{file}: {error}") from None
    except (ValueError, KeyError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DamagedFileError(f"{file}: damaged ({reason}){way_out}") from None


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``; if that fails, the previous file stays unchanged."""
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
        raise write_error(path, error) from None


def _sync_directory(path: Path) -> None:
    """Sync a directory, so that a rename in it lasts; Windows cannot open directories."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_error(path: Path, error: OSError) -> UserError:
    """The user error for a file that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", None)):
        return UserError(
            f"{path}: no space left to write it ({error.strerror}); the previous file is "
            "intact: free some space and try again"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return UserError(
            f"{path}: no permission to write there ({error.strerror}); choose another folder"
        )
    if error.errno == errno.ENOENT and not path.parent.exists():
        return UserError(f"{path}: the folder {path.parent} does not exist; create it first")
    if error.errno == errno.EISDIR:
        return UserError(f"{path}: is a folder; name a file")
    return UserError(f"{path}: cannot be written ({error.strerror or error})")


def leftovers(path: Path) -> list[Path]:
    """Temporary files that a killed process left in a run directory."""
    return sorted(p for p in path.iterdir() if _TEMPORARY.fullmatch(p.name))


class Lock:
    """Exclusive lock on RUN/.lock; it ends with its process, so it is never stale."""

    def __init__(self, path: Path, wait: float) -> None:
        self._lock = _lock_of(path)
        try:
            self._lock.acquire(timeout=max(wait, 0.1))  # a listing may hold it for an instant
        except filelock.Timeout:
            raise UserError(
                f"{path}: in use by {_owner(path)}; wait for it or choose another folder"
            ) from None
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP):
                raise UserError(
                    f"{path}: this file system has no file locks ({error.strerror}); choose a "
                    "folder on another one"
                ) from None
            raise write_error(path, error) from None
        with contextlib.suppress(OSError):  # on a full disk the owner stays unnamed
            note = f"process {os.getpid()} on {socket.gethostname()}\n"
            (path / LOCK).write_text(note, encoding="utf-8")

    def release(self) -> None:
        self._lock.release()


def _lock_of(path: Path) -> filelock.BaseFileLock:
    # Never a soft lock, which would outlive a killed process; and no state by thread, as the
    # thread that releases it need not be the one that took it.
    return filelock.FileLock(
        path / LOCK, thread_local=False, poll_interval=0.02, fallback_to_soft=False
    )


def _owner(path: Path) -> str:
    try:
        return read_file(path / LOCK, 1000).decode().strip() or "another process"
    except ValueError:  # Windows lets nobody read a locked file
        return "another process"


def lock_owner(path: Path) -> str | None:
    """``process PID on HOST`` that writes to a run directory now, or None."""
    if not (path / LOCK).exists():
        return None
    try:
        with _lock_of(path).acquire(blocking=False):
            return None
    except filelock.Timeout:
        return _owner(path)
    except OSError:
        return None
