"""Which pages of a process exist: Linux's PAGEMAP_SCAN, asked as CRIU asks it, so that both find the same pages."""

from __future__ import annotations

import fcntl
import os
import struct
from array import array
from collections.abc import Iterator

PAGE = 4096
_SCAN = 0xC0606610
_ARGUMENT = struct.Struct("<12Q")
_FILE, _PRESENT, _SWAPPED, _ZERO = 1 << 2, 1 << 3, 1 << 4, 1 << 5
_AT_ONCE = 8192
_FIELDS = 3
"""Of a struct page_region: start, end, categories."""


def supported() -> bool:
    """Linux has it since 6.7."""
    try:
        with open("/proc/self/pagemap", "rb") as file:
            list(runs(file.fileno(), 0, PAGE))
    except OSError:
        return False
    return True


def runs(pagemap: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """(address, pages) of private pages with content, in memory or swapped out; ascending, adjoining ones are one run.

    `pagemap`: a descriptor of /proc/PID/pagemap. Raises OSError.
    """
    regions = array("Q", bytes(8 * _FIELDS * _AT_ONCE))
    where = regions.buffer_info()[0]
    begun = ended = 0
    while start < end:
        question = bytearray(
            _ARGUMENT.pack(
                _ARGUMENT.size, 0, start, end, 0, where, _AT_ONCE, 0, _ZERO | _FILE, _ZERO | _FILE, _PRESENT | _SWAPPED, _PRESENT
            )
        )
        count = fcntl.ioctl(pagemap, _SCAN, question)
        for at in range(0, count * _FIELDS, _FIELDS):
            if regions[at] != ended:
                if ended:
                    yield begun, (ended - begun) // PAGE
                begun = regions[at]
            ended = regions[at + 1]
        start = _ARGUMENT.unpack(question)[4]
    if ended:
        yield begun, (ended - begun) // PAGE


def open_pagemap(pid: int) -> int:
    """The caller closes it. Raises OSError."""
    return os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
