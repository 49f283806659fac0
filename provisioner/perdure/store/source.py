"""Files on their way into the repository: cut into pieces, read, named, packed small. Runs in several threads.

The bulk of a snapshot is memory that hasn't changed since the last one: it is read and hashed, and nothing else happens to it.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Protocol

from perdure.domain.errors import BadRequest, SnapshotFailed, StoreFailed

from .blocks import BLOCK, NO_NAME, ZEROS, Block, encode, name_of
from .manifest import LARGEST_FILE, MOST_FILES
from .names import clash, unsafe_file_name

BATCH = 1 << 20
"""Bytes that one thread reads at a time, always into the same memory: copies, and pages that are new to the process, would cost
more than the reading and the hashing. Longer reads would no longer stay in the processor's cache until they are hashed."""
_LOOK = 64
"""So many zeros at the beginning of a piece, and it is worth a look whether all of it is zero."""
_own = threading.local()


class Content(Protocol):
    """Bytes that lie in no file: the memory of a process. They don't change while they are read, from several threads."""

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def readinto(self, offset: int, buffer: memoryview) -> None:
        """Fills all of `buffer`. Raises OSError."""
        ...


@dataclass(frozen=True)
class SourceFile:
    """A file to be stored under `name` (components joined by `/`).

    `source`: a regular file's path, or what gives the bytes. `mode`: only its permission bits (0777) are kept; a whole `st_mode`
    will do. `cuts`: ascending offsets in bytes where blocks begin. Cut where equal content begins, it is found again wherever it
    lies.
    """

    name: str
    source: Path | Content
    mode: int
    cuts: Sequence[int] | None = None


class Known(Protocol):
    """Names of blocks that need not be stored again."""

    def __contains__(self, name: bytes, /) -> bool: ...


@dataclass(frozen=True)
class Measured:
    """A source file as it was when the publish began; it must not change until it ends."""

    file: SourceFile
    size: int
    identity: tuple[int, int, int]


@dataclass(frozen=True)
class Batch:
    """Adjoining pieces of one file."""

    source: Measured
    offset: int
    pieces: Sequence[int]
    """Their lengths."""
    length: int


@dataclass(frozen=True)
class Piece:
    """What became of one piece. `block` is there when its name was not known."""

    length: int
    name: bytes
    block: Block | None


def measure(files: Sequence[SourceFile]) -> list[Measured]:
    """Raises BadRequest for what can't be stored, StoreFailed for what can't be read."""
    if len(files) > MOST_FILES:
        raise BadRequest(f"{len(files)} files are too many for one snapshot.", hint=f"The most is {MOST_FILES}.")
    for file in files:
        why = unsafe_file_name(file.name)
        if why is not None:
            raise BadRequest(f"{file.name!r} can't be a file in a snapshot: {why}.")
    twice = clash(file.name for file in files)
    if twice is not None:
        raise BadRequest(f"{twice!r} would be in the snapshot twice, or is a folder too.")
    return [_measure(file) for file in files]


def batches(source: Measured) -> Iterator[Batch]:
    """The file from its beginning to its end. Raises BadRequest for cuts that aren't."""
    offset, length = 0, 0
    pieces: list[int] = []
    for piece in _pieces(source):
        if length + piece > BATCH:
            yield Batch(source, offset, pieces, length)
            offset, length, pieces = offset + length, 0, []
        pieces.append(piece)
        length += piece
    if pieces:
        yield Batch(source, offset, pieces, length)


def read(batch: Batch, known: Known, cancelled: Event | None) -> list[Piece]:
    """Read, name and compress. Raises StoreFailed, SnapshotFailed when cancelled."""
    data = _buffer()[: batch.length]
    if not _fill(data, batch):
        return [Piece(batch.length, NO_NAME, None)]
    found: list[Piece] = []
    at = 0
    for length in batch.pieces:
        if cancelled is not None and cancelled.is_set():
            raise called_off()
        plain = data[at : at + length]
        at += length
        if _zero(plain):
            found.append(Piece(length, NO_NAME, None))
            continue
        name = name_of(plain)
        found.append(Piece(length, name, None if name in known else encode(name, bytes(plain))))
    return found


def _buffer() -> memoryview:
    """The calling thread's own."""
    buffer: memoryview | None = getattr(_own, "buffer", None)
    if buffer is None:
        buffer = _own.buffer = memoryview(bytearray(BATCH))
    return buffer


def _zero(plain: memoryview) -> bool:
    """Python compares views number by number, so only their beginnings are compared as such."""
    return plain[:_LOOK] == ZEROS[: min(_LOOK, len(plain))] and bytes(plain) == ZEROS[: len(plain)]


def called_off() -> SnapshotFailed:
    return SnapshotFailed("The snapshot was cancelled.", detail="while it was stored")


def _measure(file: SourceFile) -> Measured:
    if not isinstance(file.source, Path):
        return _sized(file, file.source.size, (0, 0, file.source.size))
    try:
        found = os.stat(file.source, follow_symlinks=False)
    except OSError as error:
        raise _unreadable(file, error) from error
    if not stat.S_ISREG(found.st_mode):
        raise BadRequest(f"{file.name!r} is not a regular file, so it can't be stored.", detail=str(file.source))
    return _sized(file, found.st_size, (found.st_dev, found.st_ino, found.st_size))


def _sized(file: SourceFile, size: int, identity: tuple[int, int, int]) -> Measured:
    if size > LARGEST_FILE:
        raise BadRequest(f"{file.name!r} is too large for a snapshot ({size} bytes).")
    return Measured(file, size, identity)


def _pieces(source: Measured) -> Iterator[int]:
    at = 0
    for cut in source.file.cuts or ():
        if cut < at or cut > source.size:
            raise BadRequest(f"{source.file.name!r} is cut at {cut}, which is not in it or not in order.")
        yield from _fixed(cut - at)
        at = cut
    yield from _fixed(source.size - at)


def _fixed(length: int) -> Iterator[int]:
    while length > 0:
        yield min(length, BLOCK)
        length -= BLOCK


def _fill(data: memoryview, batch: Batch) -> bool:
    """The batch's bytes; False where the file has a hole all along."""
    file = batch.source.file
    try:
        if not isinstance(file.source, Path):
            file.source.readinto(batch.offset, data)
            return True
        fd = os.open(file.source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            if (found.st_dev, found.st_ino, found.st_size) != batch.source.identity:
                raise _changed(file)
            if _hole(fd, batch):
                return False
            count = os.preadv(fd, [data], batch.offset)
        finally:
            os.close(fd)
    except OSError as error:
        raise _unreadable(file, error) from error
    if count != batch.length:
        raise _changed(file)
    return True


def _hole(fd: int, batch: Batch) -> bool:
    try:
        return os.lseek(fd, batch.offset, os.SEEK_DATA) >= batch.offset + batch.length
    except OSError as error:
        return error.errno == errno.ENXIO  # no data from here to the end; a file system that doesn't know says something else


def _changed(file: SourceFile) -> StoreFailed:
    return StoreFailed(f"{file.name!r} changed while it was stored.", hint="Take the snapshot again.", detail=str(file.source))


def _unreadable(file: SourceFile, error: OSError) -> StoreFailed:
    return StoreFailed(
        f"{file.name!r} can't be read to be stored: {os.strerror(error.errno or 0)}.", detail=f"{file.source}: {error}"
    )
