"""Protocol buffers without schemas: enough to talk to CRIU and to edit its images.

A message is a list of (field number, wire type, value). Whatever we don't know is kept as it is and in its place, so an image
that a newer CRIU wrote survives our edits. Bytes that aren't a message raise MalformedMessage, never anything else: images come
from a repository and may be damaged or hostile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
_UINT64 = (1 << 64) - 1


class MalformedMessage(ValueError):
    """The bytes are not a protocol buffer."""


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """(value, offset after it)."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise MalformedMessage(f"a number is cut off or too long at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _UINT64, at
        shift += 7


def varint(value: int) -> bytes:
    """A number as it is written; a negative one as its 64-bit two's complement, as protobuf's int32/int64 have it."""
    value &= _UINT64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def signed(value: int) -> int:
    """A varint as protobuf's int32/int64."""
    return value - (1 << 64) if value >> 63 else value


def zigzag(value: int) -> int:
    """A varint as protobuf's sint32/sint64."""
    return (value >> 1) ^ -(value & 1)


@dataclass
class Message:
    """A decoded message. The accessors give the last value of a field, as the protobuf rules want."""

    fields: list[tuple[int, int, int | bytes]] = field(default_factory=list)

    @classmethod
    def parse(cls, data: bytes | memoryview) -> Message:
        fields: list[tuple[int, int, int | bytes]] = []
        at, end = 0, len(data)
        while at < end:
            key, at = read_varint(data, at)
            number, wire = key >> 3, key & 7
            if number == 0:
                raise MalformedMessage("field number 0")
            if wire == VARINT:
                number_value, at = read_varint(data, at)
                fields.append((number, wire, number_value))
                continue
            if wire == BYTES:
                size, at = read_varint(data, at)
            elif wire in _FIXED:
                size = _FIXED[wire]
            else:
                raise MalformedMessage(f"wire type {wire} at byte {at}")
            if size > end - at:
                raise MalformedMessage(f"field {number} is cut off at byte {at}")
            fields.append((number, wire, bytes(data[at : at + size])))
            at += size
        return cls(fields)

    def encode(self) -> bytes:
        out = bytearray()
        for number, wire, value in self.fields:
            out += varint(number << 3 | wire)
            if isinstance(value, int):
                out += varint(value)
                continue
            if wire == BYTES:
                out += varint(len(value))
            out += value
        return bytes(out)

    def __contains__(self, number: int) -> bool:
        return any(entry[0] == number for entry in self.fields)

    def number(self, number: int, default: int = 0) -> int:
        for name, _, value in reversed(self.fields):
            if name == number and isinstance(value, int):
                return value
        return default

    def blob(self, number: int, default: bytes = b"") -> bytes:
        for name, _, value in reversed(self.fields):
            if name == number and isinstance(value, bytes):
                return value
        return default

    def text(self, number: int, default: str = "") -> str:
        """File names are bytes in Linux, so what isn't UTF-8 comes as surrogates (as os.fsdecode does)."""
        return self.blob(number).decode("utf-8", "surrogateescape") if number in self else default

    def message(self, number: int) -> Message | None:
        return Message.parse(self.blob(number)) if number in self else None

    def messages(self, number: int) -> Iterator[Message]:
        for name, wire, value in self.fields:
            if name == number and wire == BYTES and isinstance(value, bytes):
                yield Message.parse(value)

    def numbers(self, number: int) -> list[int]:
        """A repeated number, written singly or packed."""
        out: list[int] = []
        for name, wire, value in self.fields:
            if name != number:
                continue
            if isinstance(value, int):
                out.append(value)
            elif wire == BYTES:
                at = 0
                while at < len(value):
                    one, at = read_varint(value, at)
                    out.append(one)
        return out

    def set(self, number: int, value: int | bool | bytes | str | Message) -> Message:
        """Replaces the field where it stands, or appends it. Gives the message back, so that calls can be chained."""
        entry = _entry(number, value)
        for at, existing in enumerate(self.fields):
            if existing[0] == number:
                self.fields[at:] = [entry, *(other for other in self.fields[at + 1 :] if other[0] != number)]
                return self
        self.fields.append(entry)
        return self

    def add(self, number: int, value: int | bool | bytes | str | Message) -> Message:
        """Appends one value of a repeated field."""
        self.fields.append(_entry(number, value))
        return self

    def remove(self, number: int) -> Message:
        self.fields = [entry for entry in self.fields if entry[0] != number]
        return self


def _entry(number: int, value: int | bool | bytes | str | Message) -> tuple[int, int, int | bytes]:
    if isinstance(value, Message):
        return number, BYTES, value.encode()
    if isinstance(value, str):
        return number, BYTES, value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return number, BYTES, value
    return number, VARINT, int(value) & _UINT64
