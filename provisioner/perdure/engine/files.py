"""Files outside the image: looked at and copied at the snapshot, compared and put back at the restore (docs/files.md).

Everything that touches a user's file is done with that user's rights (`ownerfs.py`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.domain.errors import PreflightRefused
from perdure.domain.files import COMPANIONS, Action, Decision, FileNow, decide_all
from perdure.domain.ids import Owner
from perdure.domain.record import OpenFile, Record
from perdure.domain.target import Target

from . import fingerprint, imagefile, shm
from . import images as image
from .copying import copy_data
from .limits import CaptureLimits
from .ownerfs import Root, as_owner, owner_of
from .placing import Placing

FOLDER = "files"
_PSEUDO = ("/proc/", "/sys/", "/dev/")
_SYSTEM = ("/usr/", "/lib/", "/lib64/", "/bin/", "/sbin/", "/etc/", "/opt/", "/nix/", "/snap/", "/boot/", "/var/cache/")
_PACKAGES = frozenset({"site-packages", "dist-packages"})
_ENVIRONMENT_MARKS = ("pyvenv.cfg", "conda-meta")
_REGULAR_ENTRY, _REG, _MODE = 1, 3, 10
"""fdinfo.proto, regfile.proto: type and field of a regular file's entry, its mode."""


@dataclass(frozen=True)
class Examined:
    """A recorded file and what there is at its path now."""

    then: OpenFile
    now: FileNow | None


def capture_beside(target: Target, images: Path, limits: CaptureLimits) -> tuple[OpenFile, ...]:
    """While the tree is frozen and the image is complete: saves /dev/shm, looks at every file that the tree has open or mapped,
    and copies what it could lose. Raises NoRoom; a single file that can't be read or is too large is recorded without a copy."""
    shm.save(target, images, limits)
    owner = owner_of(target.kernel_pid)
    with Root(f"/proc/{target.shim_pid}/root") as root:
        seen = _seen(images)
        found = as_owner(owner, lambda: _look(root, seen))
        left = limits.files_bytes
        wanted = as_owner(owner, lambda: {one.path for one in found if _worth_copying(root, one)})
        for at in sorted(range(len(found)), key=lambda at: (not found[at].writable, found[at].size)):
            then = found[at]
            if then.path in wanted and then.size <= min(left, limits.file_bytes):
                copied = _copy(root, owner, then, images, f"{FOLDER}/{at}")
                left -= then.size if copied.captured else 0
                found[at] = copied
    return tuple(found)


def examine(record: Record, root: str | Path = "/") -> list[Examined]:
    """The recorded files as they are now, seen with the owner's rights in `root` (a host's, or a sandbox's)."""
    with Root(root) as opened:
        return as_owner(record.owner, lambda: [Examined(then, _now(opened, then, record.owner)) for then in record.files])


def decisions(record: Record, root: str | Path = "/", *, accept_changed: bool = False) -> list[tuple[OpenFile, Decision]]:
    """What a restore would do with each recorded file."""
    return decide_all([(one.then, one.now) for one in examine(record, root)], accept_changed=accept_changed)


def put_back(target: Target, images: Path, record: Record, *, accept_changed: bool = False) -> Sequence[str]:
    """Before CRIU restores: files become what they were, as docs/files.md says, and /dev/shm is filled. Gives warnings.

    Raises PreflightRefused (nothing has been written then) naming the file, Corrupt, NoRoom.
    """
    root_path = f"/proc/{target.shim_pid}/root"
    decided = decisions(record, root_path, accept_changed=accept_changed)
    for _, decision in decided:
        if decision.action is Action.REFUSE:
            raise PreflightRefused(decision.sentence, hint=decision.hint)
    entries = {entry.path: entry for entry in image.open_files(images)}
    recorded = frozenset(then.path for then, _ in decided)
    warnings = []
    with Root(root_path) as root:
        placing = Placing(root, record.owner)
        for then, decision in decided:
            if decision.action is Action.PUT_BACK:
                mode = entries[then.path].mode if then.path in entries else 0
                kept = placing.put_back(then, images, mode, recorded)
                warnings.append(decision.sentence + "".join(f" The newer version is kept as {name}." for name in kept))
            elif decision.action is Action.PATCH_SIZE:
                warnings.append(decision.sentence)
        statuses = as_owner(record.owner, lambda: {then.path: _status(root, then.path) for then, _ in decided})
    _fit(images, statuses)
    shm.put_back(target, images, record.owner)
    return warnings


def _seen(images: Path) -> list[OpenFile]:
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


def _look(root: Root, seen: Sequence[OpenFile]) -> list[OpenFile]:
    """The facts of each, and of the companions of databases among them. What can't be read keeps what the image knows."""
    found: list[OpenFile] = []
    in_image = {one.path for one in seen}
    names, todo = set(in_image), list(seen)
    for one in seen:
        if one.writable and not one.executable:
            for path in (one.path + suffix for suffix in COMPANIONS):
                if path not in names:
                    names.add(path)
                    todo.append(OpenFile(path, 0, 0, 0, writable=True, append=False, mapped=False, executable=False))
    for one in todo:
        try:
            fd = root.open(one.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            if one.path in in_image:
                found.append(one)
            continue
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                continue
            one = replace(one, size=status.st_size, mtime_ns=status.st_mtime_ns, inode=status.st_ino)
            if one.executable:
                one = replace(one, build_id=fingerprint.build_id(fd, status))
            else:
                one = replace(one, digest=fingerprint.sample(fd, status.st_size))
            found.append(one)
        finally:
            os.close(fd)
    return found


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
    return _status(root, path) is not None


def _status(root: Root, path: str) -> os.stat_result | None:
    try:
        return root.stat(path, symlinks=True)
    except (OSError, ValueError):
        return None


def _fit(images: Path, statuses: Mapping[str, os.stat_result | None]) -> None:
    """CRIU compares size and mode with what the image says; what was decided here already is made to fit."""
    sizes: dict[int, int | None] = {}
    modes: set[int] = set()
    for entry in image.open_files(images):
        status = statuses.get(entry.path)
        if status is None or entry.ghost:
            continue
        if entry.size is not None and entry.size != status.st_size:
            sizes[entry.id] = status.st_size
        if entry.mode and entry.mode != status.st_mode:
            modes.add(entry.id)
    if sizes:
        image.patch_file_sizes(images, sizes)
    if modes:
        _forget_modes(images, modes)


def _forget_modes(images: Path, ids: Set[int]) -> None:
    header, entries = imagefile.read_entries(images / "files.img")
    for entry in entries:
        regular = entry.message(_REG) if entry.number(1) == _REGULAR_ENTRY else None
        if regular is not None and regular.number(1) in ids:
            entry.set(_REG, regular.remove(_MODE))
    imagefile.write_entries(images / "files.img", header, entries)


def _copy(root: Root, owner: Owner, then: OpenFile, images: Path, name: str) -> OpenFile:
    """The file with its copy's name and digest; unchanged when it could not be read."""
    try:
        fd = as_owner(owner, lambda: root.open(then.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW))
    except OSError:
        return then
    with os.fdopen(fd, "rb") as source:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return then
        (images / FOLDER).mkdir(mode=0o700, exist_ok=True)
        path = images / name
        with path.open("xb") as out:
            copy_data(source.fileno(), out.fileno(), then.size)
            os.fchmod(out.fileno(), status.st_mode & 0o777)
    return replace(then, captured=name, digest=fingerprint.digest(path))


def _now(root: Root, then: OpenFile, owner: Owner) -> FileNow | None:
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
