"""What tells two versions of a file apart: its build id, its digest, or (large, not copied) a sample of its pages."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from blake3 import blake3

SAMPLE = "sample-"
_SAMPLES, _SAMPLE_BYTES = 16, 4096
_PIECE = 4 << 20
_PT_NOTE, _GNU_BUILD_ID = 4, 3
_MOST_NOTE_BYTES = 1 << 16
_MOST_KNOWN = 20_000
_known: dict[tuple[int, int, int, int, int], str] = {}


def build_id(fd: int, status: os.stat_result) -> str:
    """An ELF file's build id in hex; for a program or library without one, a sample. Remembered per version of the file."""
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if key not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = _elf_build_id(fd) or sample(fd, status.st_size)
    return _known[key]


def sample(fd: int, size: int) -> str:
    """A digest of pages spread over the first `size` bytes, first and last included. It proves a difference, not equality."""
    digest = blake3(str(size).encode())
    last = max(size - _SAMPLE_BYTES, 0)
    for at in sorted({last * n // _SAMPLES & ~(_SAMPLE_BYTES - 1) for n in range(_SAMPLES)} | {last}):
        digest.update(os.pread(fd, min(_SAMPLE_BYTES, size - at), at))
    return SAMPLE + digest.hexdigest()


def digest(path: Path) -> str:
    """BLAKE3 of a file, as fast as the machine can."""
    return blake3(max_threads=blake3.AUTO).update_mmap(path).hexdigest()


def digest_start(fd: int, size: int) -> str:
    """BLAKE3 of the first `size` bytes."""
    found = blake3(max_threads=blake3.AUTO)
    at = 0
    while at < size:
        piece = os.pread(fd, min(_PIECE, size - at), at)
        if not piece:
            break
        found.update(piece)
        at += len(piece)
    return found.hexdigest()


def begins_with(fd: int, size: int, expected: str) -> bool | None:
    """Whether the first `size` bytes have that digest (or sample); None without an expectation."""
    if not expected:
        return None
    if os.fstat(fd).st_size < size:
        return False
    return (sample(fd, size) if expected.startswith(SAMPLE) else digest_start(fd, size)) == expected


def _elf_build_id(fd: int) -> str:
    """Nothing for what is no 64-bit little-endian ELF file, has no build id, or is damaged."""
    head = os.pread(fd, 64, 0)
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
        return ""
    (offset,) = struct.unpack_from("<Q", head, 32)
    entry_bytes, entries = struct.unpack_from("<HH", head, 54)
    if entry_bytes < 56:
        return ""
    table = os.pread(fd, entry_bytes * entries, offset)
    for at in range(0, len(table) - entry_bytes + 1, entry_bytes):
        kind, _, begin, _, _, size = struct.unpack_from("<IIQQQQ", table, at)
        if kind == _PT_NOTE and size <= _MOST_NOTE_BYTES and begin < 1 << 62:
            found = _note(os.pread(fd, size, begin))
            if found:
                return found
    return ""


def _note(notes: bytes) -> str:
    at = 0
    while at + 12 <= len(notes):
        name_bytes, value_bytes, kind = struct.unpack_from("<III", notes, at)
        value_at = at + 12 + (name_bytes + 3 & ~3)
        if kind == _GNU_BUILD_ID and notes[at + 12 : at + 12 + name_bytes] == b"GNU\0":
            return notes[value_at : value_at + value_bytes].hex()
        at = value_at + (value_bytes + 3 & ~3)
    return ""
