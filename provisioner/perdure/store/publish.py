"""A new generation, in the order of docs/format.md: claim, leftovers, packs, index, manifest, head.

What goes wrong in the world: the disk fills up, the process is killed between any two writes, another process publishes the same
kernel. None of it may touch what is published, or show something that isn't whole. So everything is written under names that
nobody else uses, and one compare-and-swap at the end makes it count.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Any

from perdure.domain.errors import BadRequest, NoRoom
from perdure.domain.ids import KernelId

from . import damage, envelope, leftovers, manifest, rescue, source
from .backend import Backend, Changed
from .head import Head
from .index import Index
from .manifest import MODE_BITS, Manifest, StoredFile
from .names import KernelNames, generation_of
from .packer import Packer, Segments, overtaken
from .source import Batch, Measured, Piece, SourceFile

THREADS = 2
_AHEAD = 4
"""Batches being read at once: enough that no thread waits, few enough to bound the memory."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PublishStats:
    """What was stored, known before the manifest is written. Bytes; `bytes_added` is packs and index."""

    bytes_logical: int
    bytes_added: int
    blocks_added: int
    packs: int


MakeRecord = Callable[[PublishStats], dict[str, Any]]


def publish(
    backend: Backend,
    kernel: KernelId,
    files: Sequence[SourceFile],
    record: MakeRecord,
    *,
    progress: Progress | None = None,
    cancelled: Event | None = None,
    niceness: int = 0,
) -> Manifest:
    """The published manifest. When it raises, nothing is published.

    BadRequest, Conflict, NoRoom, StoreFailed, SnapshotFailed when cancelled, and whatever `record` and `progress` raise.
    """
    measured = source.measure(files)
    if cancelled is not None and cancelled.is_set():
        raise source.called_off()
    try:
        claimed = rescue.load(backend, kernel).claiming().store(backend)
    except Changed:
        raise overtaken(kernel) from None
    try:
        leftovers.remove(backend, claimed)
        new = _write(backend, claimed, measured, record, progress, cancelled, niceness)
        if cancelled is not None and cancelled.is_set():
            raise source.called_off()
    except BaseException:
        leftovers.withdraw(backend, claimed)
        raise
    try:
        claimed.publishing().store(backend)
    except Changed:
        leftovers.withdraw(backend, claimed)
        raise overtaken(kernel) from None
    except NoRoom:
        leftovers.withdraw(backend, claimed)
        raise
    return new


def _write(
    backend: Backend,
    claimed: Head,
    measured: list[Measured],
    record: MakeRecord,
    progress: Progress | None,
    cancelled: Event | None,
    niceness: int,
) -> Manifest:
    """Steps 3 to 5."""
    names = KernelNames(claimed.kernel)
    index = Index.load(backend, claimed.kernel, claimed.indexes)
    damage.distrust(backend, claimed, index)
    with Packer(backend, claimed, index) as packer:
        stored = _store_files(packer, measured, progress, cancelled, niceness)
        packer.finish()
    logical = sum(file.size for file in stored)
    index_object = packer.index.wrapped()
    stats = PublishStats(logical, packer.bytes_written + len(index_object), packer.blocks, packer.packs)
    new = Manifest(claimed.kernel, generation_of(claimed.claim), claimed.claim, stored, logical, stats.bytes_added, record(stats))
    try:
        manifest_object = new.wrapped()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest("The snapshot's record can't be stored.", detail=str(error)) from error
    name = names.manifest(claimed.claim)
    body = envelope.unwrap(name, bytes(manifest_object), envelope.Kind.MANIFEST)
    readable = manifest.parse(name, body, claimed.kernel, claimed.claim)
    packer.put(names.index(claimed.claim), index_object)
    packer.put(name, manifest_object)
    return readable


def _store_files(
    packer: Packer, measured: list[Measured], progress: Progress | None, cancelled: Event | None, niceness: int
) -> tuple[StoredFile, ...]:
    total = sum(one.size for one in measured)
    done = 0
    segments = {id(one): Segments(packer) for one in measured}
    with ThreadPoolExecutor(THREADS, "perdure-read", _become_nice, (niceness,)) as readers:
        try:
            for batch, pieces in _read_ahead(readers, measured, packer, cancelled):
                if cancelled is not None and cancelled.is_set():
                    raise source.called_off()
                segments[id(batch.source)].add(pieces)
                done += batch.length
                if progress is not None:
                    progress(done, total)
        finally:
            readers.shutdown(wait=True, cancel_futures=True)
    return tuple(StoredFile(one.file.name, one.size, one.file.mode & MODE_BITS, segments[id(one)].finish()) for one in measured)


def _become_nice(niceness: int) -> None:
    """For the calling thread alone: on Linux each has a priority of its own."""
    if niceness:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


def _read_ahead(
    readers: ThreadPoolExecutor, measured: list[Measured], packer: Packer, cancelled: Event | None
) -> Iterator[tuple[Batch, list[Piece]]]:
    """Everything in its order, a few batches ahead of who consumes it."""
    waiting: deque[tuple[Batch, Future[list[Piece]]]] = deque()
    for one in measured:
        for batch in source.batches(one):
            waiting.append((batch, readers.submit(source.read, batch, packer, cancelled)))
            if len(waiting) >= _AHEAD:
                first, pieces = waiting.popleft()
                yield first, pieces.result()
    for first, pieces in waiting:
        yield first, pieces.result()
