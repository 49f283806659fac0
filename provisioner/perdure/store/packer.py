"""New blocks on their way into packs, and the recipes that name them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from perdure.domain.errors import Conflict
from perdure.domain.ids import KernelId

from .backend import Absent, Backend, Changed
from .blocks import Block, encode, name_of
from .head import Head
from .index import Index, IndexWriter
from .names import KernelNames
from .pack import PackWriter
from .recipe import SegmentWriter
from .source import Piece


class Segments:
    """One file's recipe on its way into blocks."""

    def __init__(self, packer: Packer) -> None:
        self._packer = packer
        self._writer = SegmentWriter()
        self._names: list[bytes] = []

    def add(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if piece.block is not None:
                self._packer.keep(piece.block)
            for segment in self._writer.add(piece.length, piece.name):
                self._keep(segment)

    def finish(self) -> tuple[bytes, ...]:
        for segment in self._writer.finish():
            self._keep(segment)
        return tuple(self._names)

    def _keep(self, segment: bytes) -> None:
        name = name_of(segment)
        self._names.append(name)
        if name not in self._packer:
            self._packer.keep(encode(name, segment))


class Packer:
    """New blocks into packs, written by a thread of its own, one at a time."""

    def __init__(self, backend: Backend, claimed: Head, known: Index) -> None:
        self.index = IndexWriter()
        self.bytes_written = 0
        self.blocks = 0
        self.packs = 0
        self._backend = backend
        self._claimed = claimed
        self._known = known
        self._new = set[bytes]()
        self._pack = PackWriter(0)
        self._writer = ThreadPoolExecutor(1, "perdure-pack")
        self._writing: Future[None] | None = None

    def __enter__(self) -> Packer:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.shutdown(wait=True, cancel_futures=True)

    def __contains__(self, name: bytes) -> bool:
        return name in self._known or name in self._new

    def keep(self, block: Block) -> None:
        """Store it, unless a twin came first. Raises what writing the pack before raised."""
        if block.name in self:
            return
        self._new.add(block.name)
        self._pack.add(block)
        self.blocks += 1
        if self._pack.full:
            self._send()

    def finish(self) -> None:
        """Every pack is durable."""
        if self._pack.placed:
            self._send()
        self._wait()

    def put(self, name: str, data: bytearray) -> None:
        """A new object of this claim. Raises Conflict when another publish has locked this one out."""
        names = KernelNames(self._claimed.kernel)
        try:
            if self._backend.stat(names.head).tag != self._claimed.tag:
                raise overtaken(self._claimed.kernel)
            self._backend.put(name, data, if_absent=True)
        except (Absent, Changed):
            raise overtaken(self._claimed.kernel) from None

    def _send(self) -> None:
        self._wait()
        pack, self._pack = self._pack, PackWriter(self._pack.number + 1)
        self._writing = self._writer.submit(self._write, pack)

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _write(self, pack: PackWriter) -> None:
        data = pack.wrapped()
        self.put(KernelNames(self._claimed.kernel).pack(self._claimed.claim, pack.number), data)
        self.index.add(pack.number, len(data), pack.placed)
        self.bytes_written += len(data)
        self.packs += 1


def overtaken(kernel: KernelId) -> Conflict:
    return Conflict(
        f"Another snapshot of kernel {kernel} was being stored at the same time.", hint="That one goes on; try again after it."
    )
