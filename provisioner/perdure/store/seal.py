"""A backend whose objects are encrypted and authentic (docs/format.md, "Sealed objects").

What goes wrong in the world: somebody else reads the bucket, and with it the memory of every kernel; or writes to it, and what is
restored from there becomes a process. So nothing leaves this layer upwards that the key's holder hasn't written under just
this name in just this repository, and nothing goes down in plain. Not promised: that the newest state is shown. Who can
write the store can put an older one back.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from perdure.domain.errors import Corrupt, WrongKey

from . import envelope
from .backend import Absent, Backend, Bytes, Entry, Stat
from .envelope import Envelope, Kind, corrupt
from .keys import Key, Keys

CHUNK = 64 << 10
"""Bytes of content that are sealed together: about a block, so that a range costs little more than itself."""
_TAG = 16
_SEALED = CHUNK + _TAG
_SALT = 32
BEFORE = envelope.SIZE + _SALT
"""Bytes of a sealed object before the first chunk."""
_BOUND = 48
"""So many bytes of the envelope are authentic too: all but the digests, which need no key."""
_REMEMBERED = 4096
"""Objects whose salt is remembered; half a MiB."""


@dataclass(frozen=True)
class _Opener:
    """What opens the chunks of one object."""

    name: str
    cipher: AESGCM
    bound: bytes
    size: int
    """Of the content; bytes."""
    key: bytes

    def chunks(self, data: memoryview, first: int) -> bytearray:
        """The content of the sealed chunks in `data`, which begins with chunk number `first`. Raises Corrupt."""
        content = bytearray()
        last = _chunks(self.size) - 1
        for number, at in enumerate(range(0, len(data), _SEALED), first):
            try:
                content += self.cipher.decrypt(_nonce(number, last=number == last), data[at : at + _SEALED], self.bound)
            except InvalidTag:
                raise corrupt(self.name, "it is not what was written there with this key") from None
        return content


class Sealed:
    """`backend`, with everything in it sealed. `context` is the repository's id: its objects are valid nowhere else.

    Raises Corrupt for what isn't authentic or is plain, WrongKey for what an unknown key has sealed, and what `backend` does.
    """

    def __init__(self, backend: Backend, keys: Keys, context: str) -> None:
        self._backend, self._keys, self._context = backend, keys, context
        self._openers: dict[str, _Opener] = {}

    @property
    def url(self) -> str:
        return self._backend.url

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        if start == 0:
            # One request: an object that is replaced meanwhile is never mixed with its successor.
            most = None if length is None else BEFORE + _chunks(length) * _SEALED
            whole = self._backend.get(name, 0, most)
            return self._open(self._remember(name, whole), memoryview(whole)[BEFORE:], 0, 0, length)
        opener = self._opener(name)
        first = start // CHUNK
        end = opener.size if length is None else min(opener.size, start + length)
        if start >= end:
            return b""
        data = self._backend.get(name, BEFORE + first * _SEALED, (-(-end // CHUNK) - first) * _SEALED)
        return self._open(opener, memoryview(data), first, start, length)

    def put(self, name: str, data: Bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        self._openers.pop(name, None)
        sealed = seal(self._keys.writing, self._context, name, data)
        return self._backend.put(name, sealed, if_absent=if_absent, if_match=if_match)

    def stat(self, name: str) -> Stat:
        found = self._backend.stat(name)
        return Stat(content_size(found.size), found.tag)

    def list(self, prefix: str) -> Iterator[Entry]:
        for entry in self._backend.list(prefix):
            yield entry if entry.name.endswith("/") else Entry(entry.name, content_size(entry.size))

    def delete(self, name: str) -> None:
        self._openers.pop(name, None)
        self._backend.delete(name)

    def outdated(self, name: str) -> bool:
        """Whether another key than the one that writes has sealed the object. Raises Absent, Corrupt, WrongKey."""
        return self._opener(name).key != self._keys.writing.id

    def _opener(self, name: str) -> _Opener:
        return self._openers.get(name) or self._remember(name, self._backend.get(name, 0, BEFORE))

    def _remember(self, name: str, data: bytes) -> _Opener:
        """What opens the object that begins with `data`."""
        opener = self._checked(name, data)
        if len(self._openers) >= _REMEMBERED:
            self._openers.clear()
        self._openers[name] = opener
        return opener

    def _checked(self, name: str, data: bytes) -> _Opener:
        found = envelope.parse_sealed(name, data[: envelope.SIZE])
        key = self._keys.find(found.key)
        if key is None:
            raise WrongKey(
                f"{name} is encrypted with the key {found.key.hex()}, which is not configured.",
                hint="A key file can hold several keys: the first one writes, all of them read.",
                detail=name,
            )
        header, salt = data[: envelope.SIZE], data[envelope.SIZE : BEFORE]
        size = _content_size(found)
        if size is None:
            raise corrupt(name, f"it claims {found.length} bytes")
        return _Opener(name, AESGCM(key.for_object(salt)), _bound(header, salt, self._context, name), size, found.key)

    def _open(self, opener: _Opener, data: memoryview, first: int, start: int, length: int | None) -> bytes:
        """Bytes of the content from `start`, out of the sealed chunks from `first`."""
        end = opener.size if length is None else min(opener.size, start + length)
        content = opener.chunks(data, first)
        if first * CHUNK + len(content) < end:
            raise corrupt(opener.name, "it is cut off")
        if first * CHUNK + len(content) > opener.size:
            raise corrupt(opener.name, "there is more in it than it says")
        return bytes(memoryview(content)[start - first * CHUNK : max(start, end) - first * CHUNK])


def seal(key: Key, context: str, name: str, content: Bytes) -> bytearray:
    """The sealed object."""
    view = memoryview(content).cast("B")
    salt = secrets.token_bytes(_SALT)
    count = _chunks(len(view))
    length = _SALT + len(view) + count * _TAG
    bound = _bound(envelope.header(Kind.SEALED, key.id, length, bytes(32)), salt, context, name)
    cipher = AESGCM(key.for_object(salt))
    whole = bytearray(envelope.SIZE)
    whole += salt
    for number in range(count):
        piece = view[number * CHUNK : (number + 1) * CHUNK]
        whole += cipher.encrypt(_nonce(number, last=number == count - 1), piece, bound)
    digest = blake3(memoryview(whole)[envelope.SIZE :]).digest()
    whole[: envelope.SIZE] = envelope.header(Kind.SEALED, key.id, length, digest)
    return whole


def content_size(sealed: int) -> int:
    """Bytes of content in an object of so many; 0 for a size that no sealed object has."""
    return _content_size(Envelope(Kind.SEALED, sealed - envelope.SIZE, b"")) or 0


def _content_size(found: Envelope) -> int | None:
    stored = found.length - _SALT
    count = -(-stored // _SEALED)
    if stored < _TAG or (count > 1 and stored - (count - 1) * _SEALED <= _TAG):
        return None
    return stored - count * _TAG


def _chunks(size: int) -> int:
    return max(1, -(-size // CHUNK))


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + (b"\1" if last else b"\0")


def _bound(header: bytes, salt: bytes, context: str, name: str) -> bytes:
    return header[:_BOUND] + salt + context.encode("ascii") + b"\0" + name.encode("utf-8", "surrogateescape")


def outdated(backend: Backend, name: str) -> bool:
    """Whether another key than the one that writes has sealed the object, known or not; never where nothing is sealed.

    What is missing or damaged isn't outdated. Raises StoreFailed.
    """
    if not isinstance(backend, Sealed):
        return False
    try:
        return backend.outdated(name)
    except WrongKey:
        return True
    except (Absent, Corrupt):
        return False
