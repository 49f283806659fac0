"""The sandbox's /dev/shm: saved beside the image, made again in the new sandbox.

It is a tmpfs that dies with its sandbox, so everything with a name in it (POSIX semaphores and shared memory, arrays that loky or
torch put there) exists nowhere else. What was unlinked and is still open or mapped is CRIU's part. The copies are numbered files
and the names are in an index, so that no name from an image is ever used as a path on the host; owners and modes are there too.
Not kept: sockets (CRIU binds them again) and device files (a kernel can't have made one).
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.domain.errors import Corrupt, NoRoom, PreflightRefused
from perdure.domain.ids import Owner
from perdure.domain.target import Target

from .copying import copy_but_zeros, copy_data
from .limits import CaptureLimits
from .ownerfs import Root

FOLDER, _INDEX = "shm", "index.json"
_BLOCK = 512
"""st_blocks counts these."""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = ("file", "link", "folder", "symlink", "fifo")


def save(target: Target, images: Path, limits: CaptureLimits) -> None:
    """While the tree is frozen. Raises NoRoom with the figures. Writes nothing when there is nothing."""
    with Root(f"/proc/{target.shim_pid}/root/dev/shm") as root:
        _save(root, images, limits)


def _save(root: Root, images: Path, limits: CaptureLimits) -> None:
    """A process that has cut itself loose from the kernel is not frozen: nothing here follows a symbolic link that it may put in
    a folder's place."""
    shm = root.open("/", _FOLDER_FLAGS)
    try:
        found = list(_walk(shm, ""))
        if not found:
            return
        _check_room(sum(status.st_blocks * _BLOCK for _, status in found if stat.S_ISREG(status.st_mode)), images, limits)
        (images / FOLDER).mkdir(mode=0o700)
        index: list[dict[str, Any]] = []
        first: dict[int, str] = {}
        for number, (name, status) in enumerate(found):
            entry: dict[str, Any] = {
                "name": name,
                "mode": stat.S_IMODE(status.st_mode),
                "uid": status.st_uid,
                "gid": status.st_gid,
                "mtime_ns": status.st_mtime_ns,
            }
            if stat.S_ISREG(status.st_mode):
                if status.st_ino in first:
                    index.append({"kind": "link", **entry, "to": first[status.st_ino]})
                    continue
                first[status.st_ino] = name
                with _read(root, name) as source, (images / FOLDER / str(number)).open("xb") as out:
                    copy_data(source.fileno(), out.fileno(), status.st_size)
                entry.update(kind="file", data=number, size=status.st_size)
            elif stat.S_ISDIR(status.st_mode):
                entry.update(kind="folder")
            elif stat.S_ISLNK(status.st_mode):
                entry.update(kind="symlink", to=os.readlink(name, dir_fd=shm))
            elif stat.S_ISFIFO(status.st_mode):
                entry.update(kind="fifo")
            else:
                continue
            index.append(entry)
        (images / FOLDER / _INDEX).write_bytes(os.fsencode(json.dumps(index, ensure_ascii=False)))
    finally:
        os.close(shm)


def put_back(target: Target, images: Path, owner: Owner) -> None:
    """Into a new sandbox, where /dev/shm is empty. Raises Corrupt, PreflightRefused (an entry is not the owner's), NoRoom."""
    index = read_index(images, owner)
    shm = os.open(f"/proc/{target.shim_pid}/root/dev/shm", _FOLDER_FLAGS)
    try:
        for entry in index:
            _make(shm, entry, images)
        for entry in reversed(index):
            if entry["kind"] == "folder":
                os.utime(entry["name"], ns=(entry["mtime_ns"], entry["mtime_ns"]), dir_fd=shm, follow_symlinks=False)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.ENOMEM):
            hint = "Free some memory, or restore on another host."
            raise NoRoom("There is not enough memory for the kernel's /dev/shm.", hint=hint) from error
        raise
    finally:
        os.close(shm)


def read_index(images: Path, owner: Owner) -> list[dict[str, Any]]:
    """The checked index, folders before what is in them; empty when nothing was saved. Raises Corrupt, PreflightRefused."""
    path = images / FOLDER / _INDEX
    if not path.exists():
        return []
    try:
        index = json.loads(os.fsdecode(path.read_bytes()))
        kinds: dict[str, str] = {}
        for entry in index:
            _check(entry, owner)
            _check_place(entry, kinds)
            if entry["kind"] == "file" and not (images / FOLDER / str(entry["data"])).is_file():
                raise ValueError(f"{entry['name']}: no data")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        sentence = "The image's list of /dev/shm is damaged."
        raise Corrupt(sentence, hint="Restore an older generation.", detail=str(error)) from error
    return list(index)


def _check(entry: dict[str, Any], owner: Owner) -> None:
    name, numbers = entry["name"], [entry[key] for key in ("mode", "uid", "gid", "mtime_ns")]
    names = [name, *([entry["to"]] if entry["kind"] == "link" else [])]
    if entry["kind"] not in _KINDS or not all(isinstance(number, int) for number in numbers):
        raise ValueError(f"{name!r}: {entry['kind']!r}")
    for one in names:
        parts = one.split("/")
        if "\0" in one or any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"a name that can't be: {one!r}")
    if entry["kind"] == "file" and not (re.fullmatch(r"\d+", str(entry["data"])) and isinstance(entry["size"], int)):
        raise ValueError(f"{name!r}: data {entry['data']!r}")
    if owner.uid != 0 and (entry["uid"] != owner.uid or entry["gid"] not in (owner.gid, *owner.groups)):
        raise PreflightRefused(
            f"The snapshot has a file in /dev/shm that is not its owner's: {name} of uid {entry['uid']}, gid {entry['gid']}.",
            hint="Restore an older generation.",
        )


def _check_place(entry: dict[str, Any], kinds: dict[str, str]) -> None:
    """Everything is in folders that the index itself makes: a symbolic link on the way would lead out of /dev/shm."""
    name = entry["name"]
    above = name.rpartition("/")[0]
    if name in kinds or (above and kinds.get(above) != "folder"):
        raise ValueError(f"a name that can't be: {name!r}")
    if entry["kind"] == "link" and kinds.get(entry["to"]) != "file":
        raise ValueError(f"{name!r}: a link to {entry['to']!r}")
    kinds[name] = entry["kind"]


def _make(shm: int, entry: dict[str, Any], images: Path) -> None:
    name, kind, mode = entry["name"], entry["kind"], entry["mode"] & 0o7777
    if kind == "link":
        os.link(entry["to"], name, src_dir_fd=shm, dst_dir_fd=shm, follow_symlinks=False)
        return
    if kind == "symlink":
        os.symlink(entry["to"], name, dir_fd=shm)
        os.chown(name, entry["uid"], entry["gid"], dir_fd=shm, follow_symlinks=False)
        return
    if kind == "file":
        with _made(shm, name) as out, (images / FOLDER / str(entry["data"])).open("rb") as source:
            # It becomes memory: a fetched image may have lost its holes.
            copy_but_zeros(source.fileno(), out.fileno(), entry["size"])
    elif kind == "folder":
        os.mkdir(name, 0o700, dir_fd=shm)
    else:
        os.mkfifo(name, 0o600, dir_fd=shm)
    os.chown(name, entry["uid"], entry["gid"], dir_fd=shm, follow_symlinks=False)
    os.chmod(name, mode, dir_fd=shm)
    os.utime(name, ns=(entry["mtime_ns"], entry["mtime_ns"]), dir_fd=shm, follow_symlinks=False)


def _walk(folder: int, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    """(name below /dev/shm, status), a folder before what is in it. Other file systems mounted there are left out."""
    device = os.fstat(folder).st_dev
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if status.st_dev != device:
            continue
        yield prefix + name, status
        if stat.S_ISDIR(status.st_mode):
            inner = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
            try:
                yield from _walk(inner, f"{prefix}{name}/")
            finally:
                os.close(inner)


def _read(root: Root, name: str) -> Any:
    return os.fdopen(root.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


def _made(shm: int, name: str) -> Any:
    return os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=shm), "wb")


def _check_room(need: int, images: Path, limits: CaptureLimits) -> None:
    if need > limits.shm_bytes:
        raise NoRoom(
            f"The kernel's /dev/shm holds {need >> 20} MiB; {limits.shm_bytes >> 20} MiB are the limit for a snapshot.",
            hint="Delete what is not needed there, or raise the limit.",
        )
    disk = os.statvfs(images)
    free = disk.f_bavail * disk.f_frsize
    if free < need + limits.disk_margin_bytes:
        raise NoRoom(
            f"The kernel's /dev/shm holds {need >> 20} MiB and {images} has {free >> 20} MiB left.",
            hint="Free some space there; the kernel goes on unharmed.",
        )
