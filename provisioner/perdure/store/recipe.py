"""A file as a list of blocks, cut into segments that stay the same where the file does (docs/format.md, "Cutting")."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .blocks import BLOCK, NO_NAME

LONGEST_RUN = 1 << 30
"""Of zeros, in one entry; bytes."""
_ENTRY = struct.Struct("<I32s")
_MEAN = 512
_FEWEST = 64
_MOST = 1536
"""Entries per segment. 1536 of them fit into one block."""


@dataclass(frozen=True)
class Entry:
    """`length` bytes: the block `name`, or zeros where it is NO_NAME."""

    length: int
    name: bytes

    @property
    def zeros(self) -> bool:
        return self.name == NO_NAME


class SegmentWriter:
    """Collects entries; gives a segment's bytes whenever one is complete."""

    def __init__(self) -> None:
        self._entries = bytearray()
        self._zeros = 0

    def add(self, length: int, name: bytes) -> Iterator[bytes]:
        if name == NO_NAME:
            self._zeros += length
            return
        yield from self._flush_zeros()
        self._entries += _ENTRY.pack(length, name)
        count = len(self._entries) // _ENTRY.size
        if count >= _MOST or (count >= _FEWEST and int.from_bytes(name[-2:], "little") % _MEAN == 0):
            yield self._cut()

    def finish(self) -> Iterator[bytes]:
        yield from self._flush_zeros()
        if self._entries:
            yield self._cut()

    def _flush_zeros(self) -> Iterator[bytes]:
        while self._zeros:
            run = min(self._zeros, LONGEST_RUN)
            self._zeros -= run
            self._entries += _ENTRY.pack(run, NO_NAME)
            if len(self._entries) // _ENTRY.size >= _MOST:
                yield self._cut()

    def _cut(self) -> bytes:
        segment = bytes(self._entries)
        self._entries.clear()
        return segment


def parse(segment: bytes) -> list[Entry]:
    """Raises ValueError with a clause that says what is wrong."""
    if not segment or len(segment) % _ENTRY.size:
        raise ValueError("a recipe's segment is cut off")
    entries = [Entry(length, name) for length, name in _ENTRY.iter_unpack(segment)]
    for entry in entries:
        if not 0 < entry.length <= (LONGEST_RUN if entry.zeros else BLOCK):
            raise ValueError(f"a recipe's entry claims {entry.length} bytes")
    return entries
