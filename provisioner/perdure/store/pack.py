"""Many blocks in one object, each with a small header, so that an index can be made again from the packs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from . import envelope
from .blocks import BLOCK, Block
from .envelope import Kind, corrupt

FULL = 16 << 20
"""A pack is written when its blocks reach so many bytes: large enough for few requests, small enough to hold some in memory."""
_HEADER = struct.Struct("<32sIIB3x")
BLOCK_HEADER = _HEADER.size
"""Bytes in a pack beside each block's own."""


@dataclass(frozen=True)
class Placed:
    """Where a block lies in a pack; `offset` of its stored bytes from the pack's first byte."""

    name: bytes
    offset: int
    stored: int
    plain: int
    codec: int


class PackWriter:
    """Collects the blocks of one pack."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.placed: list[Placed] = []
        self._body = bytearray()

    @property
    def full(self) -> bool:
        return len(self._body) >= FULL

    def add(self, block: Block) -> None:
        self._body += _HEADER.pack(block.name, len(block.stored), block.plain, block.codec)
        offset = envelope.SIZE + len(self._body)
        self.placed.append(Placed(block.name, offset, len(block.stored), block.plain, int(block.codec)))
        self._body += block.stored

    def wrapped(self) -> bytearray:
        """The object's bytes."""
        return envelope.wrap(Kind.PACK, self._body)


def walk(name: str, body: memoryview) -> Iterator[tuple[Placed, memoryview]]:
    """The blocks in a pack's checked body, with their stored bytes. Raises Corrupt."""
    at = 0
    while at < len(body):
        if len(body) - at < _HEADER.size:
            raise corrupt(name, "its last block is cut off")
        block, stored, plain, codec = _HEADER.unpack_from(body, at)
        at += _HEADER.size
        if stored > BLOCK or len(body) - at < stored:
            raise corrupt(name, f"a block claims {stored} bytes")
        yield Placed(block, envelope.SIZE + at, stored, plain, codec), body[at : at + stored]
        at += stored
