"""What is in an image: the processes, the files that they had open or mapped, where blocks of memory begin."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from . import imagefile
from .protobuf import BYTES, VARINT, MalformedMessage, Message, read_varint

PAGE = 4096
BLOCK = 64 << 10
"""Memory is cut at multiples of this of virtual address (docs/format.md)."""

_REGULAR = 1
"""fdinfo.proto: type of a regular file's entry."""
_PRESENT, _PARENT = 4, 1
"""pagemap.proto: the run's bytes are in this image's pages file; in a parent image."""
_LINKED, _GHOST = 0, 1
"""remap-file-path.proto: what became of a file that has no name: kept under another one, or in the image."""
_TASK, _SUBREAPER = 3, 18
"""core.proto: the field of what all threads share, and in it PR_SET_CHILD_SUBREAPER."""
_HIGHEST_PID = 1 << 22
"""Linux's limit; an image has -1 for the group and session of a zombie."""
_PROT_EXEC = 4
_AREAS = 14
"""mm.proto: the field that the areas are in."""
_NUMBER = rb"[\x80-\xff]*[\x00-\x7f]"
_AREA = re.compile(
    rb"\x08%b\x10%b\x18%b\x20(%b)\x28(%b)\x30%b\x38(%b)".replace(b"%b", _NUMBER)  # start, end, pgoff, shmid, prot, flags, status
)
_MAPPED_FILE = 1 << 6 | 1 << 7
"""vma.proto: status bits of a private and of a shared mapping of a file."""


@dataclass(frozen=True)
class RegularFile:
    """One entry of the image's file table (one open file description, or what a mapping refers to)."""

    id: int
    path: str
    """Absolute, as seen in the sandbox. `link_remap` names are CRIU's stand-ins for files that had lost their name."""
    flags: int
    """O_* flags; `flags & os.O_ACCMODE` tells whether it could write."""
    pos: int
    size: int | None
    """Size at the dump; CRIU refuses to restore when the file's size differs. None: CRIU doesn't look."""
    mode: int
    """st_mode, 0 when the image doesn't say."""
    opened: bool
    """Some process has it as a descriptor (else it is only mapped, or a working folder)."""
    mapped: bool
    executable: bool
    """Mapped with PROT_EXEC."""
    ghost: bool
    """It had lost this name at the dump: its content comes with the image, whatever stands at the path now."""

    @property
    def writable(self) -> bool:
        return self.flags & os.O_ACCMODE != os.O_RDONLY

    @property
    def append(self) -> bool:
        return bool(self.flags & os.O_APPEND)


@dataclass(frozen=True)
class ImageProcess:
    """Pids as in the sandbox."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    threads: tuple[int, ...]


def open_files(images: Path) -> list[RegularFile]:
    """The regular files and folders in the image's file table. Raises Corrupt."""
    opened = _opened_ids(images)
    mapped, executable = _mapped_ids(images)
    ghosts = _ghost_ids(images)
    found = []
    for entry in _file_table(images)[1]:
        regular = entry.message(3) if entry.number(1) == _REGULAR else None
        if regular is None:
            continue
        number = regular.number(1)
        found.append(
            RegularFile(
                id=number,
                path="/" + regular.text(6).lstrip("/"),
                flags=regular.number(2),
                pos=regular.number(3),
                size=regular.number(8) if 8 in regular else None,
                mode=regular.number(10),
                opened=number in opened,
                mapped=number in mapped,
                executable=number in executable,
                ghost=number in ghosts,
            )
        )
    return found


def patch_file_sizes(images: Path, sizes: Mapping[int, int | None]) -> None:
    """Sets the size that CRIU expects of entries (by `RegularFile.id`); None: it doesn't look at the size."""
    header, entries = _file_table(images)
    for entry in entries:
        regular = entry.message(3) if entry.number(1) == _REGULAR else None
        if regular is None or regular.number(1) not in sizes:
            continue
        size = sizes[regular.number(1)]
        entry.set(3, regular.remove(8) if size is None else regular.set(8, size))
    imagefile.write_entries(images / "files.img", header, entries)


def processes(images: Path) -> list[ImageProcess]:
    """The tree, parents first. Raises Corrupt."""
    _, entries = imagefile.read_entries(images / "pstree.img")
    return [
        ImageProcess(
            pid=entry.number(1),
            ppid=entry.number(2),
            pgid=entry.number(3),
            sid=entry.number(4),
            threads=tuple(entry.numbers(5)),
        )
        for entry in entries
    ]


def subreapers(images: Path) -> list[int]:
    """Processes that become the parents of their descendants' orphans. Raises Corrupt."""
    found = []
    for process in processes(images):
        path = images / f"core-{process.pid}.img"
        task = imagefile.read_entries(path)[1][0].message(_TASK) if path.exists() else None
        if task is not None and task.number(_SUBREAPER):
            found.append(process.pid)
    return found


def taken_pids(images: Path) -> set[int]:
    """Every number that a restore must find free."""
    taken: set[int] = set()
    for process in processes(images):
        taken.update((process.pid, process.pgid, process.sid, *process.threads))
    return {number for number in taken if 0 < number <= _HIGHEST_PID}


def logical_bytes(images: Path) -> int:
    """Size of everything in the folder."""
    return sum(path.stat().st_size for path in images.rglob("*") if path.is_file() and not path.is_symlink())


def check(images: Path) -> None:
    """Raises Corrupt when the memory in the image is not as long as it says; CRIU would wait for ever for the rest."""
    cuts(images)


def cuts(images: Path, elsewhere: Mapping[str, int] = MappingProxyType({})) -> dict[str, list[int]]:
    """For each pages file: ascending offsets where its blocks begin. `elsewhere`: sizes of those whose content lies elsewhere.

    A block is what the file holds of one 64 KiB window of virtual address. So an unchanged array gives the same blocks in every
    generation, however much the packed file shifts, and pages that come or go elsewhere change no other block.
    """
    found: dict[str, list[int]] = {}
    for path in sorted(images.glob("pagemap-*.img")):
        data = path.read_bytes()
        try:
            entries = imagefile.raw_entries(data)
            head = next(entries, None)
            if head is None:
                continue
            offsets = array("Q")
            at, window = 0, -1
            for raw in entries:
                address, pages, flags = run_of(raw)
                if flags & _PARENT or not flags & _PRESENT:
                    continue
                end = address + pages * PAGE
                while address < end:
                    if address // BLOCK != window:
                        window = address // BLOCK
                        offsets.append(at)
                    step = min(end, (window + 1) * BLOCK) - address
                    address += step
                    at += step
            pages_file = f"pages-{Message.parse(head).number(1)}.img"
        except MalformedMessage as error:
            raise imagefile.damaged(path, error) from error
        size = elsewhere.get(pages_file)
        if size is None:
            size = (images / pages_file).stat().st_size if (images / pages_file).exists() else 0
        if size != at:
            raise imagefile.damaged(path, f"lists {at} bytes, {pages_file} has {size}")
        found[pages_file] = offsets.tolist()
    return found


def run_of(raw: memoryview) -> tuple[int, int, int]:
    """(address, pages, flags) of a pagemap entry; by hand, since there may be hundreds of thousands."""
    address = pages = pages64 = 0
    flags, parent, at = -1, 0, 0
    while at < len(raw):
        key, at = read_varint(raw, at)
        if key & 7:
            raise MalformedMessage(f"wire type {key & 7} in a pagemap entry")
        value, at = read_varint(raw, at)
        match key >> 3:
            case 1:
                address = value
            case 2:
                pages = value
            case 3:
                parent = value
            case 4:
                flags = value
            case 5:
                pages64 = value
    if flags < 0:
        flags = _PARENT if parent else _PRESENT
    return address, pages64 or pages, flags


def _file_table(images: Path) -> tuple[bytes, list[Message]]:
    return imagefile.read_entries(images / "files.img")


def _opened_ids(images: Path) -> set[int]:
    found: set[int] = set()
    for path in images.glob("fdinfo-*.img"):
        if re.fullmatch(r"fdinfo-\d+\.img", path.name):
            found.update(entry.number(1) for entry in imagefile.read_entries(path)[1])
    return found


def _mapped_ids(images: Path) -> tuple[set[int], set[int]]:
    """(entries that are mapped, those of them with PROT_EXEC)."""
    mapped: set[int] = set()
    executable: set[int] = set()
    for path in images.glob("mm-*.img"):
        data = path.read_bytes()
        try:
            for raw in imagefile.raw_entries(data):
                for status, number, prot in _areas(bytes(raw)):
                    if status & _MAPPED_FILE:
                        mapped.add(number)
                        if prot & _PROT_EXEC:
                            executable.add(number)
        except MalformedMessage as error:
            raise imagefile.damaged(path, error) from error
    return mapped, executable


def _areas(memory: bytes) -> Iterator[tuple[int, int, int]]:
    """(status, shmid, prot) of each distinct kind of area. This runs while the kernel stands still and there may be tens of
    thousands of them, so they are matched as CRIU writes them; what looks otherwise is parsed."""
    seen: set[tuple[bytes, ...]] = set()
    at, end = 0, len(memory)
    while at < end:
        key, at = read_varint(memory, at)
        if key & 7 == VARINT:
            _, at = read_varint(memory, at)
            continue
        if key & 7 != BYTES:
            raise MalformedMessage(f"wire type {key & 7} in the memory's description")
        size, at = read_varint(memory, at)
        if size > end - at:
            raise MalformedMessage(f"an area is cut off at byte {at}")
        if key >> 3 == _AREAS:
            match = _AREA.match(memory, at, at + size)
            if match is None:
                area = Message.parse(memory[at : at + size])
                yield area.number(7), area.number(4), area.number(5)
            elif (found := match.group(3, 1, 2)) not in seen:
                seen.add(found)
                status, number, prot = (read_varint(one, 0)[0] for one in found)
                yield status, number, prot
        at += size


def _ghost_ids(images: Path) -> set[int]:
    path = images / "remap-fpath.img"
    if not path.exists():
        return set()
    return {entry.number(1) for entry in imagefile.read_entries(path)[1] if entry.number(3) in (_GHOST, _LINKED)}
