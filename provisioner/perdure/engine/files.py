"""Files outside the image: looked at and copied at the snapshot, compared and put back at the restore (docs/files.md).

Everything that touches a user's file is done with that user's rights (`ownerfs.py`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from perdure.domain.errors import NoRoom, PreflightRefused, SnapshotFailed
from perdure.domain.files import Action, Decision, FileNow, decide_all
from perdure.domain.ids import Owner
from perdure.domain.record import OpenFile, Record
from perdure.domain.target import Target

from . import filefacts, fingerprint, imagefile, shm
from . import images as image
from .copying import copy_data
from .limits import CaptureLimits
from .ownerfs import Root, as_owner, owner_of
from .placing import Placing

FOLDER = "files"
_AT_ONCE = 200
"""So many files are opened together: a thread that takes on the owner's rights costs as much as copying a small file."""
_REGULAR_ENTRY, _REG, _MODE = 1, 3, 10
"""fdinfo.proto, regfile.proto: type and field of a regular file's entry, its mode."""


@dataclass(frozen=True)
class Examined:
    """A recorded file and what there is at its path now."""

    then: OpenFile
    now: FileNow | None


def capture_beside(target: Target, images: Path, limits: CaptureLimits, owner: Owner | None = None) -> tuple[OpenFile, ...]:
    """While the tree is frozen and the image is complete: saves /dev/shm, looks at every file that the tree has open or mapped,
    and copies what it could lose. A single file that can't be read or is too large is recorded without a copy.

    `owner`: whose rights to look with, those that a restore will compare with; None: what the kernel's process has now, which is
    less when a program of root's has given its rights up.

    Raises NoRoom, and SnapshotFailed for whatever else the file system says.
    """
    try:
        shm.save(target, images, limits)
        owner = owner or owner_of(target.kernel_pid)
        with Root(f"/proc/{target.shim_pid}/root") as root:
            seen = filefacts.seen(images)
            found, wanted = as_owner(owner, lambda: filefacts.look(root, seen))
            _copy_within(limits, root, owner, found, wanted, images)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "Free some space there; the kernel goes on unharmed."
            raise NoRoom(f"There is no room in {images} for copies of the kernel's files.", hint=hint) from error
        raise SnapshotFailed("The kernel's files could not be looked at.", detail=repr(error)) from error
    return tuple(found)


def _copy_within(
    limits: CaptureLimits, root: Root, owner: Owner, found: list[OpenFile], wanted: Sequence[int], images: Path
) -> None:
    """Replaces those entries of `found` (by index) that fit into the limits by ones with a copy: first what can be written."""
    todo: list[int] = []
    left = limits.files_bytes
    for at in sorted(wanted, key=lambda at: (not found[at].writable, found[at].size)):
        if found[at].size <= min(left, limits.file_bytes):
            left -= found[at].size
            todo.append(at)
    for begin in range(0, len(todo), _AT_ONCE):
        part = todo[begin : begin + _AT_ONCE]
        paths = [found[at].path for at in part]
        with ExitStack() as opened:
            for at, fd in zip(part, as_owner(owner, partial(_open_all, root, paths, opened)), strict=True):
                if fd is not None:
                    found[at] = _copy(fd, found[at], images, f"{FOLDER}/{at}")


def examine(record: Record, root: str | Path = "/") -> list[Examined]:
    """The recorded files as they are now, seen with the owner's rights in `root` (a host's, or a sandbox's)."""
    with Root(root) as opened:
        return as_owner(
            record.owner, lambda: [Examined(then, filefacts.look_again(opened, then, record.owner)) for then in record.files]
        )


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
                warnings.append(decision.sentence)
                if kept:
                    warnings.append(f"What had become of {then.path} is kept as {' and '.join(kept)}.")
            elif decision.action is Action.PATCH_SIZE:
                warnings.append(decision.sentence)
        statuses = as_owner(record.owner, lambda: {then.path: filefacts.status_of(root, then.path) for then, _ in decided})
    _fit(images, statuses)
    shm.put_back(target, images, record.owner)
    return warnings


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


def _open_all(root: Root, paths: Sequence[str], opened: ExitStack) -> list[int | None]:
    """Descriptors that `opened` closes; None for what can't be read."""
    found: list[int | None] = []
    for path in paths:
        try:
            fd = root.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError:
            found.append(None)
            continue
        opened.callback(os.close, fd)
        found.append(fd)
    return found


def _copy(fd: int, then: OpenFile, images: Path, name: str) -> OpenFile:
    """The file with its copy's name and digest."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        return then
    (images / FOLDER).mkdir(mode=0o700, exist_ok=True)
    path = images / name
    with path.open("xb") as out:
        copy_data(fd, out.fileno(), then.size)
        os.fchmod(out.fileno(), status.st_mode & 0o777)
    return replace(then, captured=name, digest=fingerprint.digest(path))
