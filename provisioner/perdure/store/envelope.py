"""What every object begins with, and the checks that come before anything is parsed (docs/format.md, "Objects")."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum

from blake3 import blake3

from perdure.domain.errors import Corrupt, NewerFormat, WrongKey

from .backend import Absent, Backend, Bytes
from .names import REPOSITORY

FORMAT = 1
SIZE = 96
_MAGIC = b"PERDURE\n"
_FIELDS = struct.Struct("<8s4sHH16sQQ32s")
PLAIN = bytes(16)
"""The key id of a body that isn't sealed."""

_MIB = 1 << 20


class Kind(Enum):
    """Kinds of objects: the four bytes, and the longest body that a reader takes."""

    REPOSITORY = (b"REPO", 1 * _MIB)
    HEAD = (b"HEAD", 16 * _MIB)
    MANIFEST = (b"MANI", 256 * _MIB)
    INDEX = (b"INDX", 4096 * _MIB)
    PACK = (b"PACK", 80 * _MIB)
    DAMAGE = (b"DMGD", 0)
    SEALED = (b"SEAL", 4200 * _MIB)
    """Any of the others, sealed (seal.py)."""

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
    key: bytes = PLAIN


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
    whole = bytearray(header(kind, PLAIN, len(body), blake3(body).digest()))
    whole += body
    return whole


def header(kind: Kind, key: bytes, length: int, digest: bytes) -> bytes:
    """The envelope of a body that the caller adds."""
    fields = _FIELDS.pack(_MAGIC, kind.mark, FORMAT, 0, key, 0, length, digest)
    return fields + blake3(fields).digest(16)


def parse(name: str, header: bytes, kind: Kind) -> Envelope:
    """The checked envelope of the plain object `name`. Raises Corrupt, NewerFormat, WrongKey."""
    mark, found = _checked(name, header, kind)
    if found.key != PLAIN:
        raise WrongKey(f"{name} is encrypted, and no key is configured.", hint="Configure the key that it was written with.")
    return _fitting(name, mark, found)


def parse_sealed(name: str, header: bytes) -> Envelope:
    """The checked envelope of the sealed object `name`. Raises Corrupt, NewerFormat, WrongKey."""
    mark, found = _checked(name, header, Kind.SEALED)
    if found.key == PLAIN and name == REPOSITORY:
        raise WrongKey(
            "The repository is not encrypted, and a key is configured.",
            hint="Use an empty place for encrypted snapshots; to go on in plain, take the key out of the settings.",
        )
    if found.key == PLAIN:
        raise corrupt(name, "it is in plain, in a repository that is encrypted")
    return _fitting(name, mark, found)


def _checked(name: str, header: bytes, kind: Kind) -> tuple[bytes, Envelope]:
    """What an envelope says that is whole and of a format that is known: the kind's mark, and the rest."""
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
    if version < 1:
        raise corrupt(name, f"it is in format {version}")
    return mark, Envelope(kind, length, digest, key)


def _fitting(name: str, mark: bytes, found: Envelope) -> Envelope:
    if mark != found.kind.mark:
        raise corrupt(name, f"it is {mark!r} where {found.kind.mark!r} is meant to be")
    if found.length > found.kind.limit:
        raise corrupt(name, f"it claims {found.length} bytes")
    return found


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
