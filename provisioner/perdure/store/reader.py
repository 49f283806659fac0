"""Blocks and recipes out of the packs, each byte checked against its name before anybody sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from . import recipe
from .backend import Absent, Backend
from .blocks import BadBlock, decode
from .envelope import corrupt
from .index import Index, Location
from .manifest import Manifest, StoredFile
from .names import KernelNames

_GAP = 64 << 10
"""Stored bytes between two wanted blocks that are read along rather than with another request."""
_LONGEST_GET = 8 << 20


@dataclass(frozen=True)
class Wanted:
    """A block and where in the file it goes."""

    at: int
    length: int
    name: bytes
    location: Location


class BlockReader:
    """Blocks out of packs, each checked against its name. Thread-safe."""

    def __init__(self, backend: Backend, manifest: Manifest, index: Index) -> None:
        self._backend = backend
        self.index = index
        self.manifest_name = KernelNames(manifest.kernel).manifest(manifest.claim)

    def entries(self, file: StoredFile) -> Iterator[recipe.Entry]:
        """The file's recipe; adds up to the file's size when it ends without an error. Raises Corrupt."""
        total = 0
        for segment in file.recipe:
            for entry in self._segment(segment):
                total += entry.length
                if total > file.size:
                    raise corrupt(self.manifest_name, f"the recipe of {file.name!r} is longer than the file")
                yield entry
        if total != file.size:
            raise corrupt(self.manifest_name, f"the recipe of {file.name!r} has {total} bytes of {file.size}")

    def locate(self, name: bytes) -> Location:
        """Raises Corrupt when no index has it."""
        location = self.index.find(name)
        if location is None and self.index.lost:
            raise self.index.lost[0]
        if location is None:
            raise corrupt(self.manifest_name, f"it names block {name.hex()[:16]}…, which is in no index")
        return location

    def wanted(self, at: int, entry: recipe.Entry) -> Wanted:
        location = self.locate(entry.name)
        if location.plain != entry.length:
            raise corrupt(self.manifest_name, f"block {entry.name.hex()[:16]}… has {location.plain} bytes, not {entry.length}")
        return Wanted(at, entry.length, entry.name, location)

    def read(self, wanted: list[Wanted]) -> Iterator[tuple[int, bytes]]:
        """(place in the file, plain bytes), in the order of the packs. Raises Corrupt, StoreFailed."""
        ordered = sorted(wanted, key=lambda one: (one.location.pack, one.location.offset))
        first = 0
        while first < len(ordered):
            last = self._stretch(ordered, first)
            start = ordered[first].location.offset
            end = max(one.location.offset + one.location.stored for one in ordered[first:last])
            pack = ordered[first].location.pack
            data = memoryview(self._get(pack, start, end - start))
            for one in ordered[first:last]:
                at = one.location.offset - start
                yield one.at, self._open(one, data[at : at + one.location.stored])
            first = last

    def _segment(self, name: bytes) -> list[recipe.Entry]:
        location = self.locate(name)
        [(_, plain)] = self.read([Wanted(0, location.plain, name, location)])
        try:
            return recipe.parse(plain)
        except ValueError as error:
            raise corrupt(self.manifest_name, str(error)) from None

    def _stretch(self, ordered: list[Wanted], first: int) -> int:
        """One past the last block that is read with `first`."""
        start = ordered[first].location
        end = start.offset + start.stored
        last = first + 1
        while last < len(ordered):
            place = ordered[last].location
            if place.pack != start.pack or place.offset > end + _GAP or place.offset + place.stored > start.offset + _LONGEST_GET:
                break
            end = max(end, place.offset + place.stored)
            last += 1
        return last

    def _get(self, pack: str, start: int, length: int) -> bytes:
        try:
            data = self._backend.get(pack, start, length)
        except Absent:
            raise corrupt(pack, "it is missing") from None
        if len(data) != length:
            raise corrupt(pack, "it is cut off")
        return data

    def _open(self, one: Wanted, stored: memoryview) -> bytes:
        try:
            return decode(one.name, one.location.plain, one.location.codec, stored)
        except BadBlock as error:
            raise corrupt(one.location.pack, str(error)) from None
