"""A generation back into files."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from perdure.domain.errors import NoRoom, StoreFailed

from .backend import Backend
from .index import Index
from .local import NO_ROOM
from .manifest import Manifest, StoredFile
from .place import Folder
from .reader import BlockReader, Wanted

THREADS = 2
_AHEAD = 6
"""Batches on their way at once: enough that no thread waits, few enough to bound the memory."""
_BATCH = 4 << 20
"""Plain bytes that one thread fetches at a time."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class _Batch:
    """Blocks of one file and the stretch of it, zeros included, that is done with them; `last` of the file."""

    wanted: list[Wanted]
    covered: int
    last: bool


def fetch(backend: Backend, manifest: Manifest, index: Index, into: Path, *, progress: Progress | None = None) -> None:
    """Write the manifest's files below `into`, which is made if need be. On any failure what was written is removed again.

    Raises Corrupt, NoRoom, StoreFailed.
    """
    reader = BlockReader(backend, manifest, index)
    needed = sum(entry.length for file in manifest.files for entry in reader.entries(file) if not entry.zeros)
    try:
        with Folder(into) as folder:
            if needed > folder.free_bytes():
                raise NoRoom(
                    f"The snapshot needs {needed} bytes in {into}, and {folder.free_bytes()} are free.",
                    hint="Make room and try again.",
                )
            _write_files(reader, manifest, folder, progress)
            folder.keep()
    except OSError as error:
        raise _failure(error, into) from error


def _write_files(reader: BlockReader, manifest: Manifest, folder: Folder, progress: Progress | None) -> None:
    done = 0
    waiting: deque[tuple[int, _Batch, Future[None]]] = deque()

    def settle() -> None:
        nonlocal done
        fd, batch, future = waiting[0]
        future.result()
        waiting.popleft()
        if batch.last:
            os.close(fd)
        done += batch.covered
        if progress is not None:
            progress(done, manifest.bytes_logical)

    with ThreadPoolExecutor(THREADS, "perdure-fetch") as pool:
        try:
            for file in manifest.files:
                fd = folder.create(file.name, file.size, file.mode)
                for batch in _batches(reader, file):
                    waiting.append((fd, batch, pool.submit(_write_batch, reader, fd, batch)))
                    if len(waiting) >= _AHEAD:
                        settle()
            while waiting:
                settle()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            for fd in {fd for fd, _, _ in waiting}:
                os.close(fd)


def _batches(reader: BlockReader, file: StoredFile) -> Iterator[_Batch]:
    """The whole file; the last batch, maybe an empty one, is marked."""
    wanted: list[Wanted] = []
    at, size, since = 0, 0, 0
    for entry in reader.entries(file):
        if not entry.zeros:
            if size + entry.length > _BATCH:
                yield _Batch(wanted, at - since, last=False)
                wanted, size, since = [], 0, at
            wanted.append(reader.wanted(at, entry))
            size += entry.length
        at += entry.length
    yield _Batch(wanted, at - since, last=True)


def _write_batch(reader: BlockReader, fd: int, batch: _Batch) -> None:
    for at, plain in reader.read(batch.wanted):
        written = 0
        while written < len(plain):
            written += os.pwrite(fd, plain[written:] if written else plain, at + written)


def _failure(error: OSError, into: Path) -> NoRoom | StoreFailed:
    detail = f"{into}: {error}"
    if error.errno in NO_ROOM:
        return NoRoom(f"There is no space left in {into}.", hint="Make room and try again.", detail=detail)
    return StoreFailed(f"Can't write the snapshot's files into {into}: {os.strerror(error.errno or 0)}.", detail=detail)
