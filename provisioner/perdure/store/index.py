"""Where a kernel's blocks are: one index object per claim, joined in memory.

Memory: about 200 bytes per block, 3 MB per GiB of distinct memory in the repository.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.domain.errors import Corrupt, WrongKey
from perdure.domain.ids import KernelId

from . import envelope
from .backend import Backend
from .blocks import BLOCK
from .envelope import Kind, corrupt
from .names import Claim, KernelNames
from .pack import Placed

_COUNT = struct.Struct("<I")
_PACK = struct.Struct("<III")
_BLOCK = struct.Struct("<32sIIIB")
_LOCATION = struct.Struct("<IIIIB")
"""A location in memory: ordinal of the pack, offset, stored, plain, codec. Bytes are smaller than a tuple of integers."""


@dataclass(frozen=True)
class Location:
    """A block's place: `offset` from the first byte of the object `pack`."""

    pack: str
    offset: int
    stored: int
    plain: int
    codec: int


class Index:
    """All blocks that the head's indexes list. Membership and look-up may be used from several threads."""

    def __init__(self) -> None:
        self.packs: dict[str, int] = {}
        """Pack -> size of the object, in the order in which they were written."""
        self._names: list[str] = []
        self._where: dict[bytes, bytes] = {}
        self.lost: list[Corrupt | WrongKey] = []
        """What is wrong with the index objects that couldn't be read."""

    @classmethod
    def load(cls, backend: Backend, kernel: KernelId, claims: Iterable[Claim]) -> Index:
        """Where a block is there twice, the later claim's counts.

        One that is damaged, or sealed with a key that is gone, ends up in `lost`: what only the others list can still be
        found. Raises NewerFormat, StoreFailed.
        """
        index = cls()
        for claim in claims:
            try:
                index._load(backend, kernel, claim)
            except (Corrupt, WrongKey) as error:
                index.lost.append(error)
        return index

    def forget(self, packs: Iterable[str]) -> None:
        """Leave out the blocks that lie in these packs."""
        gone = {ordinal for ordinal, name in enumerate(self._names) if name in set(packs)}
        if gone:
            self._where = {name: raw for name, raw in self._where.items() if _LOCATION.unpack(raw)[0] not in gone}

    def _load(self, backend: Backend, kernel: KernelId, claim: Claim) -> None:
        names = KernelNames(kernel)
        name = names.index(claim)
        self._add(name, names, claim, envelope.read_referenced(backend, name, Kind.INDEX))

    def __contains__(self, name: bytes) -> bool:
        return name in self._where

    def __len__(self) -> int:
        return len(self._where)

    def find(self, name: bytes) -> Location | None:
        """Where a block is; never a place that its pack can't have."""
        raw = self._where.get(name)
        if raw is None:
            return None
        ordinal, offset, stored, plain, codec = _LOCATION.unpack(raw)
        return Location(self._names[ordinal], offset, stored, plain, codec)

    def _add(self, name: str, names: KernelNames, claim: Claim, body: memoryview) -> None:
        try:
            (count,) = _COUNT.unpack_from(body)
            at = _COUNT.size
            for _ in range(count):
                number, size, blocks = _PACK.unpack_from(body, at)
                at += _PACK.size
                end = at + blocks * _BLOCK.size
                if end > len(body) or size > envelope.SIZE + Kind.PACK.limit:
                    raise corrupt(name, "it lists a pack that can't be")
                self._add_pack(name, names.pack(claim, number), size, body[at:end])
                at = end
        except struct.error:
            raise corrupt(name, "it is cut off") from None
        if at != len(body):
            raise corrupt(name, "there is more in it than it lists")

    def _add_pack(self, name: str, pack: str, size: int, blocks: memoryview) -> None:
        if pack in self.packs:
            raise corrupt(name, f"it lists {pack} twice")
        self.packs[pack] = size
        ordinal = len(self._names)
        self._names.append(pack)
        for block, offset, stored, plain, codec in _BLOCK.iter_unpack(blocks):
            if offset < envelope.SIZE or offset + stored > size or not 0 < stored <= BLOCK or not 0 < plain <= BLOCK:
                raise corrupt(name, f"block {block.hex()[:16]}… lies where it can't")
            self._where[block] = _LOCATION.pack(ordinal, offset, stored, plain, codec)


class IndexWriter:
    """The index object of one claim, pack by pack."""

    def __init__(self) -> None:
        self._packs = 0
        self._body = bytearray(_COUNT.size)

    def add(self, number: int, size: int, placed: Sequence[Placed]) -> None:
        """`size`: the pack object's, in bytes."""
        self._packs += 1
        self._body += _PACK.pack(number, size, len(placed))
        for block in placed:
            self._body += _BLOCK.pack(block.name, block.offset, block.stored, block.plain, block.codec)

    def wrapped(self) -> bytearray:
        """The object's bytes."""
        _COUNT.pack_into(self._body, 0, self._packs)
        return envelope.wrap(Kind.INDEX, self._body)
