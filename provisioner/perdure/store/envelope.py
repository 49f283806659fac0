"""What every object begins with, and the checks that come before anything is parsed (docs/format.md, "Objects")."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum

from blake3 import blake3

from perdure.domain.errors import Corrupt, NewerFormat

from .backend import Absent, Backend, Bytes

FORMAT = 1
SIZE = 96
_MAGIC = b"PERDURE\n"
_FIELDS = struct.Struct("<8s4sHH16sQQ32s")
_PLAIN = bytes(16)

_MIB = 1 << 20


class Kind(Enum):
    """Kinds of objects: the four bytes, and the longest body that a reader takes."""

    REPOSITORY = (b"REPO", 1 * _MIB)
    HEAD = (b"HEAD", 16 * _MIB)
    MANIFEST = (b"MANI", 256 * _MIB)
    INDEX = (b"INDX", 4096 * _MIB)
    PACK = (b"PACK", 80 * _MIB)
    DAMAGE = (b"DMGD", 0)

    @property
    def mark(self) -> bytes:
        return self.value[0]

    @property
    def limit(self) -> int:
        return self.value[1]


@dataclass(frozen=True)
class Envelope:
    """The header of an object that has been checked."""

    kind: Kind
    length: int
    digest: bytes


def corrupt(name: str, what: str) -> Corrupt:
    return Corrupt(
        f"{name} in the repository is damaged: {what}.",
        hint="An older generation may be whole; `perdure verify` says which.",
        detail=name,
    )


def wrap(kind: Kind, body: Bytes) -> bytearray:
    """The whole object."""
    if len(body) > kind.limit:
        raise ValueError(f"{len(body)} bytes are too many for {kind.name}")
    fields = _FIELDS.pack(_MAGIC, kind.mark, FORMAT, 0, _PLAIN, 0, len(body), blake3(body).digest())
    whole = bytearray(fields)
    whole += blake3(fields).digest(16)
    whole += body
    return whole


def parse(name: str, header: bytes, kind: Kind) -> Envelope:
    """The checked envelope of the object `name`. Raises Corrupt, NewerFormat."""
    if len(header) < SIZE:
        raise corrupt(name, f"{len(header)} bytes are left of it")
    magic, mark, version, flags, key, _fence, length, digest = _FIELDS.unpack_from(header)
    if magic != _MAGIC:
        raise corrupt(name, "it doesn't begin as an object does")
    if blake3(header[: _FIELDS.size]).digest(16) != header[_FIELDS.size : SIZE]:
        raise corrupt(name, "its header doesn't match the header's digest")
    if version > FORMAT or flags:
        raise NewerFormat(
            f"{name} was written in format {version}, and this release reads up to {FORMAT}.",
            hint="Update Perdure on this host.",
            detail=f"{name}: format {version}, flags {flags}",
        )
    if key != _PLAIN:
        raise NewerFormat(
            f"{name} is encrypted, and this release can't decrypt.", hint="Update Perdure on this host.", detail=name
        )
    if version < 1 or mark != kind.mark:
        raise corrupt(name, f"it is {mark!r} in format {version} where {kind.mark!r} is meant to be")
    if length > kind.limit:
        raise corrupt(name, f"it claims {length} bytes")
    return Envelope(kind, length, digest)


def unwrap(name: str, whole: bytes, kind: Kind) -> memoryview:
    """The checked body. Raises Corrupt, NewerFormat."""
    envelope = parse(name, whole[:SIZE], kind)
    if len(whole) != SIZE + envelope.length:
        raise corrupt(name, f"it has {len(whole) - SIZE} bytes of {envelope.length}")
    body = memoryview(whole)[SIZE:]
    if blake3(body).digest() != envelope.digest:
        raise corrupt(name, "its bytes don't match its digest")
    return body


def read(backend: Backend, name: str, kind: Kind) -> memoryview:
    """The checked body of a stored object. Raises Absent, Corrupt, NewerFormat, StoreFailed."""
    whole = backend.get(name, 0, SIZE + kind.limit + 1)
    return unwrap(name, whole, kind)


def read_referenced(backend: Backend, name: str, kind: Kind) -> memoryview:
    """`read` of an object that must be there: its absence is damage."""
    try:
        return read(backend, name, kind)
    except Absent:
        raise corrupt(name, "it is missing") from None
