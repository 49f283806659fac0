"""A live image's memory: what CRIU wrote and what the shadows hold, as the one pages file that CRIU would have written.

CRIU reads pages in the order of the pagemap's entries, which is that of the addresses. So the entries of both are merged by
address, and the bytes are read where they are: nothing is copied before it is stored.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.domain.errors import NotLive

from . import imagefile, pagemap
from .blindfold import Area
from .images import PAGE, run_of
from .protobuf import Message, varint

_FRAME_PAGES = 8
"""A twin's making may touch so many pages below the stack that did not exist before (native/shadow/deadman.c)."""
_ADDRESS, _PAGES, _FLAGS = 1, 2, 4
_PRESENT = 4
_MOST_PAGES = (1 << 32) - 1
_LENGTH_BYTES = 4


@dataclass(frozen=True)
class _Run:
    address: int
    pages: int
    at: int
    """Offset in CRIU's pages file; -1: in the shadow."""


class MergedPages:
    """The content of one pages file. `readinto` may be called from several threads, until `close`."""

    def __init__(self, runs: Sequence[_Run], written: Path, shadow: int) -> None:
        """Raises OSError."""
        self._begins = array("Q")
        """Offsets where runs begin …"""
        self._sources = array("q")
        """… address in the shadow, or -1 - offset in CRIU's file."""
        self.size = 0
        for run in runs:
            self._begins.append(self.size)
            self._sources.append(run.address if run.at < 0 else -1 - run.at)
            self.size += run.pages * PAGE
        self._shadow = os.open(f"/proc/{shadow}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._written = os.open(written, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self._shadow)
            raise

    def close(self) -> None:
        os.close(self._shadow)
        os.close(self._written)

    def readinto(self, offset: int, buffer: memoryview) -> None:
        """Fills all of `buffer`. Raises OSError, also when the shadow is gone."""
        done = 0
        at = bisect_right(self._begins, offset) - 1
        while done < len(buffer):
            end = self._begins[at + 1] if at + 1 < len(self._begins) else self.size
            step = min(len(buffer) - done, end - offset)
            source = self._sources[at]
            within = offset - self._begins[at]
            fd, where = (self._shadow, source + within) if source >= 0 else (self._written, -1 - source + within)
            if step <= 0 or os.preadv(fd, [buffer[done : done + step]], where) != step:
                raise OSError(f"{step} bytes at {where:#x} can't be read any more")
            done += step
            offset += step
            at += 1


def merge(images: Path, pid: int, shadow: int, hidden: Sequence[Area]) -> tuple[str, MergedPages]:
    """Rewrites the pagemap of process `pid` (as in the sandbox) for what CRIU wrote and what `shadow` (a host pid) holds of
    `hidden`. Gives the pages file's name and its content, which the caller closes.

    Raises NotLive when the shadow holds fewer pages than were hidden, Corrupt, OSError.
    """
    path = images / f"pagemap-{pid}.img"
    data = path.read_bytes()
    head, *entries = imagefile.raw_entries(data)
    name = f"pages-{Message.parse(head).number(1)}.img"
    runs = sorted([*_written(entries), *_held(shadow, hidden)], key=lambda run: run.address)
    out = bytearray(data[: imagefile.HEADER_BYTES]) + _entry(bytes(head))
    at = 0
    for run in runs:
        if run.address < at:
            raise NotLive("CRIU saved pages that were hidden from it.", detail=f"process {pid}, address {run.address:#x}")
        at = run.address + run.pages * PAGE
        out += _entry(_fields((_ADDRESS, run.address), (_PAGES, run.pages), (_FLAGS, _PRESENT)))
    content = MergedPages(runs, images / name, shadow)
    path.write_bytes(out)
    return name, content


def _written(entries: Sequence[memoryview]) -> Iterator[_Run]:
    at = 0
    for raw in entries:
        address, pages, flags = run_of(raw)
        if flags != _PRESENT:
            raise NotLive("CRIU's list of pages has entries of an unknown kind.", detail=f"flags {flags}")
        yield _Run(address, pages, at)
        at += pages * PAGE


def _held(shadow: int, hidden: Sequence[Area]) -> Iterator[_Run]:
    pages_of = pagemap.open_pagemap(shadow)
    more = 0
    try:
        for area in hidden:
            count = 0
            for address, pages in pagemap.runs(pages_of, area.start, area.end):
                count += pages
                while pages:
                    step = min(pages, _MOST_PAGES)
                    yield _Run(address, step, -1)
                    address, pages = address + step * PAGE, pages - step
            more += max(0, count - area.pages)
            if count < area.pages or more > _FRAME_PAGES:
                raise NotLive(
                    "The kernel's shadow doesn't hold what was hidden from CRIU.",
                    detail=f"{area.start:#x}-{area.end:#x}: {count} pages of {area.pages}",
                )
    finally:
        os.close(pages_of)


def _entry(message: bytes) -> bytes:
    return len(message).to_bytes(_LENGTH_BYTES, "little") + message


def _fields(*values: tuple[int, int]) -> bytes:
    return b"".join(varint(number << 3) + varint(value) for number, value in values)
