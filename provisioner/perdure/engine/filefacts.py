"""Facts about the files that a tree has open or mapped: at the snapshot, and at the restore.

All but `seen` must run with the owner's rights (`ownerfs.as_owner`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from perdure.domain.files import COMPANIONS, FileNow
from perdure.domain.ids import Owner
from perdure.domain.record import OpenFile

from . import fingerprint
from . import images as image
from .ownerfs import Root
from .placing import Placing

_PSEUDO = ("/proc/", "/sys/", "/dev/")
_SYSTEM = ("/usr/", "/lib/", "/lib64/", "/bin/", "/sbin/", "/etc/", "/opt/", "/nix/", "/snap/", "/boot/", "/var/cache/")
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")


def seen(images: Path) -> list[OpenFile]:
    """One for each path that the image refers to and that is to be found at the restore; facts still empty."""
    found: dict[str, OpenFile] = {}
    for entry in image.open_files(images):
        if entry.ghost or not stat.S_ISREG(entry.mode or stat.S_IFREG) or entry.path.startswith(_PSEUDO):
            continue
        if Path(entry.path).name.startswith("link_remap."):
            continue
        before = found.get(entry.path)
        append = entry.append or not entry.writable
        found[entry.path] = OpenFile(
            path=entry.path,
            size=entry.size or 0,
            mtime_ns=0,
            inode=0,
            writable=entry.writable or bool(before and before.writable),
            append=append and (before is None or before.append),
            mapped=entry.mapped or bool(before and before.mapped),
            executable=entry.executable or bool(before and before.executable),
        )
    return [replace(one, append=one.append and one.writable) for one in found.values()]


def look(root: Root, files: Sequence[OpenFile]) -> tuple[list[OpenFile], list[int]]:
    """The facts of each, and of the companions of databases among them; which of these are worth a copy.

    What can't be found keeps what the image knows.
    """
    found: list[OpenFile] = []
    in_image = {one.path for one in files}
    names, todo = set(in_image), list(files)
    for one in files:
        if one.writable and not one.executable:
            for path in (one.path + suffix for suffix in COMPANIONS):
                if path not in names:
                    names.add(path)
                    todo.append(OpenFile(path, 0, 0, 0, writable=True, append=False, mapped=False, executable=False))
    for one in todo:
        status = status_of(root, one.path, symlinks=False)
        if status is None and one.path in in_image:
            found.append(one)
        elif status is not None and stat.S_ISREG(status.st_mode):
            found.append(_with_content(root, _with_status(one, status)))
    return found, [at for at, one in enumerate(found) if _worth_copying(root, one)]


def look_again(root: Root, then: OpenFile, owner: Owner) -> FileNow | None:
    """What there is at the recorded file's path now."""
    try:
        status = root.stat(then.path, symlinks=True)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        return FileNow(0, 0, 0, regular=False, stuck=error.strerror or str(error))
    now = FileNow(status.st_size, status.st_mtime_ns, status.st_ino, regular=stat.S_ISREG(status.st_mode))
    if not now.regular:
        return now
    now = replace(now, stuck="" if then.executable else Placing(root, owner).stuck(then.path))
    try:
        fd = root.open(then.path, os.O_RDONLY | os.O_NONBLOCK, symlinks=True)
    except OSError:
        return now
    try:
        if then.executable:
            return replace(now, build_id=fingerprint.build_id(fd, status))
        return replace(now, begins_same=fingerprint.begins_with(fd, then.size, then.digest))
    finally:
        os.close(fd)


def status_of(root: Root, path: str, *, symlinks: bool = True) -> os.stat_result | None:
    """None for what isn't there or can't be reached."""
    try:
        return root.stat(path, symlinks=symlinks)
    except (OSError, ValueError):
        return None


def _with_status(one: OpenFile, status: os.stat_result) -> OpenFile:
    return replace(one, size=status.st_size, mtime_ns=status.st_mtime_ns, inode=status.st_ino)


def _with_content(root: Root, one: OpenFile) -> OpenFile:
    """With build id or sample; without, where the owner may not read it (a program that may only be run)."""
    try:
        fd = root.open(one.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return one
    try:
        status = os.fstat(fd)
        one = _with_status(one, status)
        if one.executable:
            return replace(one, build_id=fingerprint.build_id(fd, status))
        return replace(one, digest=fingerprint.sample(fd, status.st_size))
    finally:
        os.close(fd)


def _worth_copying(root: Root, one: OpenFile) -> bool:
    """What may change or vanish: everything that is open for writing, and the owner's own data; not what packages brought."""
    if one.executable or not one.inode:
        return False
    if one.writable:
        return True
    if one.path.startswith(_SYSTEM) or not _PACKAGES.isdisjoint(Path(one.path).parts):
        return False
    return not any(_exists(root, f"{folder}/{mark}") for folder in Path(one.path).parents for mark in _ENVIRONMENT_MARKS)


def _exists(root: Root, path: str) -> bool:
    return status_of(root, path) is not None
