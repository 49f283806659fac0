"""Files made below one folder and nowhere else, whatever their names say."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """`path` as a place for new files. Without `keep`, all that was made is removed at the end. Every method raises OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._made: list[tuple[str, bool]] = []
        self._made_itself = False
        self._kept = False

    def __enter__(self) -> Folder:
        try:
            os.mkdir(self._path, 0o700)
            self._made_itself = True
        except FileExistsError:
            pass
        self._fd = os.open(self._path, _FOLDER)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if not self._kept:
                self._remove()
        finally:
            os.close(self._fd)
        if not self._kept and self._made_itself:
            os.rmdir(self._path)

    def create(self, name: str, size: int, mode: int) -> int:
        """An open new file of `size` zeros; `name` has been checked (names.unsafe_file_name). The caller closes it."""
        *parents, last = name.split("/")
        parent = self._descend(parents)
        try:
            fd = os.open(last, _FILE, 0o600, dir_fd=parent)
        finally:
            os.close(parent)
        self._made.append((name, False))
        try:
            os.fchmod(fd, mode)
            os.ftruncate(fd, size)
        except OSError:
            os.close(fd)
            raise
        return fd

    def free_bytes(self) -> int:
        found = os.fstatvfs(self._fd)
        return found.f_bavail * found.f_frsize

    def keep(self) -> None:
        self._kept = True

    def _descend(self, parts: list[str], *, make: bool = True) -> int:
        """A descriptor of the folder that `parts` lead to, never through a symbolic link."""
        fd = os.dup(self._fd)
        for depth, part in enumerate(parts):
            try:
                if make:
                    try:
                        os.mkdir(part, 0o700, dir_fd=fd)
                        self._made.append(("/".join(parts[: depth + 1]), True))
                    except FileExistsError:
                        pass
                deeper = os.open(part, _FOLDER, dir_fd=fd)
            finally:
                os.close(fd)
            fd = deeper
        return fd

    def _remove(self) -> None:
        for name, folder in reversed(self._made):
            *parents, last = name.split("/")
            parent = self._descend(parents, make=False)
            try:
                if folder:
                    os.rmdir(last, dir_fd=parent)
                else:
                    os.unlink(last, dir_fd=parent)
            finally:
                os.close(parent)
