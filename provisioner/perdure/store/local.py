"""A repository in a folder."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blake3 import blake3

from perdure.domain.errors import NoRoom, StoreFailed

from . import durable
from .backend import Absent, Bytes, Changed, Entry, Stat

_LOCK = ".lock"
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class LocalBackend:
    """Objects are files below `root`, which must exist. Tags are the BLAKE3 of the bytes."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        with self._failing("read", name):
            try:
                fd = os.open(self._path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                raise Absent(name) from None
            try:
                there = max(0, os.fstat(fd).st_size - start)
                return _read(fd, start, there if length is None else min(length, there))
            finally:
                os.close(fd)

    def put(self, name: str, data: Bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        path = self._path(name)
        tag = _tag(data)
        with self._failing("write", name):
            if if_match is None:
                durable.sweep(self._root)
                try:
                    durable.write(path, data, replace=not if_absent, root=self._root)
                except FileExistsError:
                    raise Changed(name) from None
                return tag
            with self._locked():
                durable.sweep(self._root)
                try:
                    found = self.stat(name).tag
                except Absent:
                    raise Changed(name) from None
                if found != if_match:
                    raise Changed(name)
                durable.write(path, data, replace=True, root=self._root)
        return tag

    def stat(self, name: str) -> Stat:
        data = self.get(name)
        return Stat(len(data), _tag(data))

    def list(self, prefix: str) -> Iterator[Entry]:
        folder = self._path(prefix)
        with self._failing("list", prefix):
            try:
                with os.scandir(folder) as scanned:
                    found = sorted(scanned, key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                return
            entries: list[Entry] = []
            for entry in found:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    entries.append(Entry(f"{prefix}{entry.name}/", 0))
                    continue
                try:
                    entries.append(Entry(f"{prefix}{entry.name}", entry.stat(follow_symlinks=False).st_size))
                except FileNotFoundError:
                    continue
        yield from entries

    def delete(self, name: str) -> None:
        path = self._path(name)
        with self._failing("delete from", name), self._locked():
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                pass
            else:
                durable.sync_folder(path.parent)
            durable.sweep(self._root)
            self._prune(path.parent)

    def _prune(self, folder: Path) -> None:
        """Folders that have become empty go: a prefix exists only as long as something is below it."""
        while folder != self._root:
            for child in _folders(folder):
                _remove_empty(child)
            if not _remove_empty(folder):
                return
            folder = folder.parent

    def _path(self, name: str) -> Path:
        parts = [part for part in name.split("/") if part]
        if any(part.startswith(".") or "\0" in part for part in parts) or name.startswith("/"):
            raise ValueError(f"not an object's name: {name!r}")
        return self._root.joinpath(*parts)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One at a time among all processes; the kernel lets go when the holder dies."""
        fd = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, durable.FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    @contextmanager
    def _failing(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise failure(error, verb, self._root, name) from error


def failure(error: OSError, verb: str, root: Path, name: str = "") -> StoreFailed | NoRoom:
    """What the machine said, as one of ours."""
    detail = f"{verb} {name or '.'} in {root}: {error}"
    if error.errno in NO_ROOM and not isinstance(error, durable.Unsure):
        what = "quota" if error.errno == errno.EDQUOT else "space"
        return NoRoom(
            f"There is no {what} left in the repository {root}.", hint="Make room or use another repository.", detail=detail
        )
    if error.errno == errno.EROFS:
        return StoreFailed(
            f"The repository {root} is read-only.", hint="Mount it for writing or use another repository.", detail=detail
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return StoreFailed(
            f"No permission to {verb} the repository {root}.", hint="It must belong to the user the agent runs as.", detail=detail
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return StoreFailed(f"There is no repository at {root}.", hint="Is the file system mounted?", detail=detail)
    return StoreFailed(
        f"Can't {verb} the repository {root}: {os.strerror(error.errno or 0)}.",
        hint="The system's log may know more.",
        detail=detail,
    )


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _remove_empty(folder: Path) -> bool:
    """False where something is in it."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
            return False
        raise
    return True


def _read(fd: int, start: int, length: int) -> bytes:
    first = os.pread(fd, length, start)
    if len(first) == length or not first:
        return first
    parts = [first]
    at = len(first)
    while at < length:
        part = os.pread(fd, length - at, start + at)
        if not part:
            break
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _tag(data: Bytes) -> str:
    return blake3(data).hexdigest()
