"""Bytes on disk: written whole or not at all, and a lock on the directory that they are in.

Every file is written beside its place, synced and renamed over it: a reader, a SIGKILL or a full
disk sees the old file or the new one, never half of one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import socket
import time
from pathlib import Path

from thermoloom.errors import UserError

LOCK = ".lock"
"""Held (flock) while a process writes in a directory."""

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")


class DamagedFileError(UserError):
    """A file whose content does not match its checksum, or cannot be read at all."""


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
        raise write_error(path, error) from None


def _sync_directory(path: Path) -> None:
    """A rename lasts only once its directory is on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_error(path: Path, error: OSError) -> UserError:
    """Why a file could not be written, and what to do about it."""
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


class Lock:
    """Exclusive flock on RUN/.lock: it vanishes with its process, so none is ever stale."""

    def __init__(self, path: Path, wait: float) -> None:
        try:
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise write_error(path, error) from None
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
