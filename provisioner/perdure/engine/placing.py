"""Puts a captured file back where it was, as its owner would. Nothing is ever lost: what stands there now is kept beside it.

The content is complete and on disk under another name before the old name changes hands, so whenever this is interrupted
there is one whole file under the name, and running it again does the rest.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from perdure.domain.errors import Corrupt, NoRoom, PreflightRefused
from perdure.domain.files import COMPANIONS
from perdure.domain.ids import Owner
from perdure.domain.record import OpenFile

from . import fingerprint
from .copying import copy_data
from .ownerfs import Root, as_owner, may

_CAPTURED = re.compile(r"files/\d+")
_NAME_BYTES = 255
_SQLITE, _DUCKDB = b"SQLite format 3\0", b"DUCK"
_DUCKDB_AT = 8


class Placing:
    """Works in one root for one owner."""

    def __init__(self, root: Root, owner: Owner) -> None:
        self._root, self._owner = root, owner

    def stuck(self, path: str) -> str:
        """Why this thread, which has the owner's rights, can't replace the file there; nothing when it can."""
        try:
            fd = self._root.open(path, os.O_PATH | os.O_NOFOLLOW)
        except OSError as error:
            return "its path leads through a symbolic link" if error.errno == errno.ELOOP else f"{error.strerror}"
        try:
            if os.fstat(fd).st_uid != self._owner.uid:
                return "it belongs to another user"
            if not may(fd, os.W_OK):
                return "it is write-protected"
        finally:
            os.close(fd)
        folder = self._root.open(str(PurePosixPath(path).parent), os.O_PATH | os.O_DIRECTORY)
        try:
            return "" if may(folder, os.W_OK | os.X_OK) else "its folder is write-protected"
        finally:
            os.close(folder)

    def put_back(self, then: OpenFile, images: Path, mode: int, recorded: frozenset[str]) -> list[str]:
        """Gives the names under which newer versions are kept. `mode`: st_mode at the snapshot, 0 = as the copy has it.

        `recorded`: paths of all recorded files; companions of a database that are none of them are from later, and would
        break it, so they are moved aside too. Raises Corrupt, NoRoom, PreflightRefused naming the file.
        """
        copy = images / then.captured
        if not _CAPTURED.fullmatch(then.captured) or not _plain(then.path) or copy.is_symlink() or not copy.is_file():
            raise _damaged(then, then.captured)
        if copy.stat().st_size != then.size or fingerprint.digest(copy) != then.digest:
            raise _damaged(then, "the copy is not what was recorded")
        with copy.open("rb") as source:
            bits = (mode or os.fstat(source.fileno()).st_mode) & 0o777
            head = os.pread(source.fileno(), 16, 0)
            later = [then.path + end for end in COMPANIONS if then.path + end not in recorded] if _is_database(head) else []
            try:
                return as_owner(self._owner, lambda: self._place(then, source.fileno(), bits, later))
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    hint = "Free some space there and restore again."
                    raise NoRoom(f"There is no room to put {then.path} back.", hint=hint) from error
                raise PreflightRefused(
                    f"{then.path} can't be put back: {error.strerror}.",
                    hint="Make its folder writable for the kernel's owner, or bring the old file back.",
                    detail=str(error),
                ) from error

    def _place(self, then: OpenFile, source: int, bits: int, later: list[str]) -> list[str]:
        path = PurePosixPath(then.path)
        folder = self._folder(path.parent)
        kept = []
        temporary = f".perdure-{secrets.token_hex(8)}"
        try:
            out = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
            try:
                copy_data(source, out, then.size)
                os.fchmod(out, bits)
                os.utime(out, ns=(then.mtime_ns, then.mtime_ns))
                os.fsync(out)
            finally:
                os.close(out)
            kept += _set_aside(folder, path.name)
            os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            for name in (PurePosixPath(other).name for other in later):
                kept += _set_aside(folder, name, away=True)
            os.fsync(folder)
        except BaseException:
            try:
                os.unlink(temporary, dir_fd=folder)
            except FileNotFoundError:
                pass
            raise
        finally:
            os.close(folder)
        return [str(path.parent / name) for name in kept]

    def _folder(self, path: PurePosixPath) -> int:
        """A descriptor of the folder; made (private) with those above it where it is gone."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        try:
            return self._root.open(str(path), flags)
        except FileNotFoundError:
            above = self._folder(path.parent)
            try:
                os.mkdir(path.name, 0o700, dir_fd=above)
            finally:
                os.close(above)
            return self._root.open(str(path), flags)


def _set_aside(folder: int, name: str, *, away: bool = False) -> list[str]:
    """Gives the file a second name, NAME.perdure-TIME with the time of its last change in UTC. `away`: it loses the first."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return []
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EEXIST, "something that is no regular file stands in its place", name)
    when = datetime.fromtimestamp(status.st_mtime_ns // 10**9, UTC).strftime("%Y%m%dT%H%M%SZ")
    for number in range(1, 1000):
        end = f".perdure-{when}" + (f"-{number}" if number > 1 else "")
        aside = os.fsdecode(os.fsencode(name)[: _NAME_BYTES - len(end)]) + end
        try:
            os.link(name, aside, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
            # No hard links here: the name is free for a moment. A file of that other name can't be overwritten unseen.
            if _exists(folder, aside):
                continue
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
            return [aside]
        if away:
            os.unlink(name, dir_fd=folder)
        return [aside]
    raise OSError(errno.EEXIST, "there are too many kept versions of it", name)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_database(head: bytes) -> bool:
    """A database, or an empty file: that is how a new database looks until its first transaction ends."""
    return not head or head == _SQLITE or head[_DUCKDB_AT : _DUCKDB_AT + len(_DUCKDB)] == _DUCKDB


def _plain(path: str) -> bool:
    parts = path.split("/")
    return path.startswith("/") and "\0" not in path and all(part not in ("", ".", "..") for part in parts[1:])


def _damaged(then: OpenFile, why: str) -> Corrupt:
    return Corrupt(f"The snapshot's copy of {then.path} is damaged.", hint="Restore an older generation.", detail=why)
