"""One CRIU image file: two magic numbers, then entries, each a length (32 bits) and a message.

Some kinds carry raw bytes after an entry (TCP queues, pipe contents, ghost files); those are never read with `read_entries`,
which would take the raw bytes for entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from perdure.domain.errors import Corrupt

from .protobuf import MalformedMessage, Message

HEADER_BYTES = 8
_LENGTH = struct.Struct("<I")


def read_entries(path: Path) -> tuple[bytes, list[Message]]:
    """(the header as it is, the entries). Raises Corrupt naming the file."""
    data = path.read_bytes()
    try:
        return data[:HEADER_BYTES], [Message.parse(entry) for entry in raw_entries(data)]
    except MalformedMessage as error:
        raise damaged(path, error) from error


def raw_entries(data: bytes) -> Iterator[memoryview]:
    """The bytes of each entry. Raises MalformedMessage."""
    view, at = memoryview(data), HEADER_BYTES
    if len(view) < HEADER_BYTES:
        raise MalformedMessage("no header")
    while at < len(view):
        if len(view) - at < _LENGTH.size:
            raise MalformedMessage(f"cut off at byte {at}")
        (size,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if size > len(view) - at:
            raise MalformedMessage(f"an entry is cut off at byte {at}")
        yield view[at : at + size]
        at += size


def write_entries(path: Path, header: bytes, entries: Iterable[Message]) -> None:
    """Replaces the file's content. The folder is a snapshot in the making: durability comes with its publication."""
    out = bytearray(header)
    for entry in entries:
        raw = entry.encode()
        out += _LENGTH.pack(len(raw)) + raw
    path.write_bytes(out)


def damaged(path: Path, why: object) -> Corrupt:
    return Corrupt(f"The image file {path.name} is damaged.", hint="Restore an older generation.", detail=f"{path}: {why}")
