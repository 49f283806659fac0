"""Durable publication of a file, once for everybody: temporary file, write, fsync, link or rename, fsync of the folder.

What goes wrong in the world: a rename without fsync gives an empty file after a power cut; a crash leaves temporary files, and
who removes those by age or by pid removes a living writer's some day. So a writer holds `flock` on its temporary file, which
the kernel drops when the process dies, and only files whose lock is free are swept.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = ".new-"
FILE_MODE = 0o600
FOLDER_MODE = 0o700
_TRIES = 100
"""A folder may be removed between its making and its use, by another one's deletion; more often than this it is an error."""


class Unsure(OSError):
    """It is there, but may not outlive a power cut."""


def write(path: Path, data: bytes | bytearray | memoryview, *, replace: bool, root: Path) -> None:
    """`path`, which is below `root`, holds `data`, durably; folders are made as needed.

    Raises FileExistsError (unless `replace`), Unsure, and OSError when nothing has changed.
    """
    for attempt in range(_TRIES):
        try:
            make_folders(path.parent, root)
            with _temporary(root) as (fd, temporary):
                _write_all(fd, data)
                os.fsync(fd)
                if replace:
                    os.rename(temporary, path)
                else:
                    os.link(temporary, path)
            try:
                sync_folder(path.parent)
            except OSError as error:
                raise Unsure(error.errno, error.strerror, str(path)) from error
            return
        except FileNotFoundError:
            if attempt == _TRIES - 1 or not root.is_dir():
                raise


def make_folders(folder: Path, root: Path) -> None:
    """`folder` and its parents below `root` exist, 0700, durably."""
    missing: list[Path] = []
    at = folder
    while at != root and not at.is_dir():
        missing.append(at)
        at = at.parent
    for path in reversed(missing):
        try:
            path.mkdir(FOLDER_MODE)
        except FileExistsError:
            pass
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sweep(root: Path) -> None:
    """Remove temporary files whose writer is dead. Raises OSError."""
    with os.scandir(root) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(PREFIX)]
    for name in names:
        path = root / name
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        except (BlockingIOError, FileNotFoundError):
            pass
        finally:
            os.close(fd)


@contextmanager
def _temporary(root: Path) -> Iterator[tuple[int, Path]]:
    """A file of one's own, locked; gone afterwards unless it was renamed."""
    while True:
        path = root / f"{PREFIX}{secrets.token_hex(8)}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink == 0:
                continue  # swept between open and flock
            try:
                yield fd, path
                return
            finally:
                try:
                    os.unlink(path)
                except FileNotFoundError:
                    pass
        finally:
            os.close(fd)


def _write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    with memoryview(data) as view:
        at = 0
        while at < len(view):
            at += os.write(fd, view[at:])
