"""What CRIU, being root, would open, make or remove because an image says so, and whether the kernel's owner could.

A path in an image is opened by root and the descriptor given to the kernel; a deleted file is made again beside its old name; a
Unix socket's old name is removed and bound anew. So each of these is tried with the owner's rights first, and what an ordinary
kernel can't have is refused: raw and packet sockets, descriptors of namespaces, a changed root folder, files of another uid.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from perdure.domain.compat import Finding, Severity
from perdure.domain.ids import Owner

from . import imagefile
from . import images as image
from .credentials import only
from .ownerfs import Root, as_owner, may
from .protobuf import MalformedMessage, Message

_HINT = "Restore an older generation, or give the kernel's owner that access again."
_FIELD = {1: 3, 3: 17, 4: 4, 5: 16, 11: 19}
"""fdinfo.proto: type of an entry -> its field, for those that are looked into."""
_REGULAR, _INET, _UNIX = 1, 4, 5
_FORBIDDEN = {
    10: "a packet socket",
    12: "a fanotify watch of file systems",
    14: "a namespace",
    15: "a network tunnel",
    16: "something that only CRIU's plugins restore",
    19: "a BPF map",
}
_SOCK_RAW = 3
_FORBIDDEN_IMAGES = re.compile(
    r"(mountpoints|userns|netns|netdev|ifaddr|route6?|rule|ip6?tables|nftables|utsns|ipcns|tmpfs|autofs|binfmt-misc|apparmor"
    r"|reg-files|ext-files|ns-files|packetsk|tunfile|fanotify-mark|bpfmap-file)(-.*)?\.(img|.*gz)"
)
"""Namespaces and their contents are never in our images; the second line is how old CRIUs stored what files.img holds now."""
_MAKING = os.O_CREAT | os.O_EXCL | os.O_TRUNC
"""Linux forgets these once a file is open: no image that CRIU wrote has them."""
_KERNELS = ("/proc/", "/sys/")
_PRIVATE = ("/dev/shm/", "/dev/pts/")
"""The sandbox's own: nothing of the host is there."""


@dataclass(frozen=True)
class _Image:
    """What is looked at, read with root's rights: the owner can't read an image."""

    names: list[str]
    objects: list[Message]
    table: list[image.RegularFile]
    pids: set[int]
    roots: list[int]
    remaps: list[Message]
    ghosts: dict[str, Message]

    @classmethod
    def read(cls, images: Path) -> _Image:
        remaps = images / "remap-fpath.img"
        heads = {path.name: next(imagefile.raw_entries(path.read_bytes()), None) for path in images.glob("ghost-file-*.img")}
        return cls(
            names=sorted(path.name for path in images.iterdir()),
            objects=imagefile.read_entries(images / "files.img")[1],
            table=image.open_files(images),
            pids=image.taken_pids(images),
            roots=[fs.number(2) for path in sorted(images.glob("fs-*.img")) for fs in imagefile.read_entries(path)[1]],
            remaps=imagefile.read_entries(remaps)[1] if remaps.exists() else [],
            ghosts={name: Message.parse(head) if head is not None else Message() for name, head in sorted(heads.items())},
        )


def check(images: Path, owner: Owner, root: str | Path = "/") -> list[Finding]:
    """What stands in the way, each naming the file or object. Raises Corrupt. An image of root's may reach everything."""
    if owner.uid == 0:
        return []
    try:
        read = _Image.read(images)
        with Root(root) as opened:
            return as_owner(owner, lambda: list(_refusals(read, owner, opened)))
    except MalformedMessage as error:
        raise imagefile.damaged(images / "files.img", error) from error


def _refusals(read: _Image, owner: Owner, root: Root) -> Iterator[Finding]:
    for name in read.names:
        if _FORBIDDEN_IMAGES.fullmatch(name):
            yield _blocker(name, f"The image holds more than processes: {name}.")
    yield from _objects(read, owner, root)
    for entry in read.table:
        why = _regular(entry, read.pids, root)
        if why:
            yield _blocker(entry.path, f"{entry.path} {why}.")
    by_id = {entry.id: entry for entry in read.table}
    yield from _remade(read, owner, root, by_id)
    for number in read.roots:
        folder = by_id.get(number)
        if folder is None or folder.path != "/":
            named = folder.path if folder else "nothing"
            yield _blocker(named, f"A process of the image has another root folder: {named}.")


def _objects(read: _Image, owner: Owner, root: Root) -> Iterator[Finding]:
    for entry in read.objects:
        kind = entry.number(1)
        if kind in _FORBIDDEN:
            yield _blocker(_FORBIDDEN[kind], f"The image holds {_FORBIDDEN[kind]}, which the kernel's owner can't have.")
        inner = only(entry, _FIELD[kind]) if kind in _FIELD else None
        if kind == _INET and inner is not None and inner.number(4) == _SOCK_RAW:
            yield _blocker("raw socket", "The image holds a raw socket, which the kernel's owner can't have.")
        if kind == _UNIX and inner is not None:
            yield from _unix(inner, owner, root)


def _unix(entry: Message, owner: Owner, root: Root) -> Iterator[Finding]:
    """A socket with a name in a folder: CRIU removes what has that name, binds, and gives it to whoever the image says."""
    name = entry.blob(11).split(b"\0")[0]
    if not name:
        return
    path = str(PurePosixPath(entry.text(14) or "/") / os.fsdecode(name))
    if path.startswith(_PRIVATE):
        return
    permissions = only(entry, 13)
    if permissions is not None and not _is_owners(permissions.number(2), permissions.number(3), owner):
        yield _blocker(path, f"The socket {path} is another user's in the image.")
    if _folder_is_closed(root, path):
        yield _blocker(path, f"The socket {path} can't be made by the kernel's owner.")
    try:
        status = root.stat(path)
    except OSError:
        return
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != owner.uid:
        hint = "Move it away, then restore."
        yield _blocker(path, f"Where the kernel had the socket {path}, there is something else.", hint)


def _regular(entry: image.RegularFile, pids: set[int], root: Root) -> str:
    """Why the owner can't have that open, or nothing."""
    if entry.flags & _MAKING:
        return "would be made or emptied by the restore"
    if ".." in entry.path.split("/"):
        return "is a path that can't be"
    if entry.ghost or entry.path.startswith(_PRIVATE) or PurePosixPath(entry.path).name.startswith("link_remap."):
        return ""  # made again: see _remade
    if entry.path.startswith("/proc/"):
        first = entry.path.split("/")[2]
        if first.isdigit() and int(first) in pids:
            return ""
        if first.isdigit() or first in ("self", "thread-self"):
            return "is of a process that is not the kernel's"
    try:
        fd = root.open(entry.path, os.O_PATH, symlinks=True)
    except FileNotFoundError:
        return ""  # the files' own policy says what then
    except OSError as error:
        return f"can't be reached by the kernel's owner: {error.strerror}"
    try:
        mode = os.fstat(fd).st_mode
        wanted = _wanted(entry, mode)
        if entry.path.startswith(_KERNELS) and wanted & ~mode:
            # Linux asks for the whole thread's uid there, not for the one that it has for files: only what all may do is sure.
            return "may not be opened like that by the kernel's owner"
        if may(fd, wanted) or (entry.executable and wanted == os.R_OK and may(fd, os.X_OK)):
            return ""
        return "may not be written by the kernel's owner" if wanted & os.W_OK else "may not be read by the kernel's owner"
    finally:
        os.close(fd)


def _wanted(entry: image.RegularFile, mode: int) -> int:
    if entry.flags & os.O_PATH:
        return os.F_OK
    if stat.S_ISDIR(mode) and not entry.opened:
        return os.X_OK
    access = entry.flags & os.O_ACCMODE
    return (os.R_OK if access != os.O_WRONLY else 0) | (os.W_OK if access != os.O_RDONLY else 0)


def _remade(read: _Image, owner: Owner, root: Root, by_id: dict[int, image.RegularFile]) -> Iterator[Finding]:
    """Files that had lost their name: CRIU makes one, for a moment, in the folder where it was."""
    for remap in read.remaps:
        ids = (remap.number(1),) if remap.number(3) else (remap.number(1), remap.number(2))
        for entry in (by_id.get(number) for number in ids):
            if entry is not None and not entry.path.startswith((*_PRIVATE, "/proc/")) and _folder_is_closed(root, entry.path):
                yield _blocker(entry.path, f"{entry.path} was deleted, and the kernel's owner can't make it again.")
    for name, ghost in read.ghosts.items():
        if not _is_owners(ghost.number(1), ghost.number(2), owner):
            yield _blocker(name, f"A deleted file in the image is another user's ({name}).")


def _folder_is_closed(root: Root, path: str) -> bool:
    try:
        folder = root.open(str(PurePosixPath(path).parent), os.O_PATH | os.O_DIRECTORY, symlinks=True)
    except FileNotFoundError:
        above = str(PurePosixPath(path).parent)
        return above == "/" or _folder_is_closed(root, above)
    except OSError:
        return True
    try:
        return not may(folder, os.W_OK | os.X_OK)
    finally:
        os.close(folder)


def _is_owners(uid: int, gid: int, owner: Owner) -> bool:
    return uid == owner.uid and gid in (owner.gid, *owner.groups)


def _blocker(subject: str, sentence: str, hint: str = _HINT) -> Finding:
    return Finding(Severity.BLOCKER, subject, sentence, hint)
