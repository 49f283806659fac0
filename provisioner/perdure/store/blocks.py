"""Blocks: named, packed small, and opened again without trust (docs/format.md, "Objects")."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import IntEnum

import zstandard
from blake3 import blake3

BLOCK = 64 << 10
"""Longest block, in bytes, plain and stored."""
ZEROS = bytes(BLOCK)
NO_NAME = bytes(32)
"""Stands for zeros in a recipe; no bytes are known whose BLAKE3 it is."""

_LEVEL = 1
"""zstd's fastest ordinary level: memory of kernels is rarely worth more, and the copy runs beside the user's work."""
_WORTH = 32
"""Compressed only when that saves at least a 32nd: reading it costs time too."""
_own = threading.local()


class Codec(IntEnum):
    RAW = 0
    ZSTD = 1


class BadBlock(Exception):
    """A block's bytes are not what its name says. The text is a clause that fits after "damaged:"."""


@dataclass(frozen=True)
class Block:
    """A block as it is stored."""

    name: bytes
    plain: int
    codec: Codec
    stored: bytes


def name_of(plain: bytes | bytearray | memoryview) -> bytes:
    return blake3(plain).digest()


def encode(name: bytes, plain: bytes) -> Block:
    compressor: zstandard.ZstdCompressor | None = getattr(_own, "compressor", None)
    if compressor is None:
        compressor = _own.compressor = zstandard.ZstdCompressor(level=_LEVEL)
    packed = compressor.compress(plain)
    if len(packed) <= len(plain) - len(plain) // _WORTH - 1:
        return Block(name, len(plain), Codec.ZSTD, packed)
    return Block(name, len(plain), Codec.RAW, plain)


def decode(name: bytes, plain: int, codec: int, stored: bytes | memoryview) -> bytes:
    """The plain bytes. Raises BadBlock. Never makes more than BLOCK bytes, whatever a frame declares."""
    if plain > BLOCK or len(stored) > BLOCK:
        raise BadBlock(f"a block claims {plain} bytes")
    if codec == Codec.RAW:
        opened = bytes(stored)
    elif codec == Codec.ZSTD:
        opened = _decompress(plain, stored)
    else:
        raise BadBlock(f"a block has the unknown codec {codec}")
    if len(opened) != plain or name_of(opened) != name:
        raise BadBlock(f"block {name.hex()[:16]}… has other bytes than its name says")
    return opened


def _decompress(plain: int, stored: bytes | memoryview) -> bytes:
    decompressor: zstandard.ZstdDecompressor | None = getattr(_own, "decompressor", None)
    if decompressor is None:
        decompressor = _own.decompressor = zstandard.ZstdDecompressor()
    try:
        # The library allocates what the frame declares, so that is compared first.
        if zstandard.frame_content_size(stored) != plain:
            raise BadBlock("a block declares another size than the index")
        return decompressor.decompress(stored, max_output_size=plain)
    except zstandard.ZstdError as error:
        raise BadBlock(f"a block can't be decompressed ({error})") from None
