"""Which blocks the published generations of a kernel refer to.

Recipes are read once per distinct segment: generations that share their memory share its segments, so sixteen of them cost little
more than one. Memory: about 150 bytes per distinct block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from threading import Event

from perdure.domain.errors import Conflict, Corrupt, WrongKey
from perdure.domain.ids import Generation

from . import manifest, recipe
from .backend import Backend
from .envelope import corrupt
from .head import Head
from .index import Index
from .manifest import Manifest
from .names import Claim, KernelNames, generation_of
from .reader import BlockReader, Wanted

_AT_ONCE = 128
"""Segments that are read together: 7 MiB of recipes at most."""

Shares = Mapping[frozenset[Generation], int]
"""Stored bytes of the blocks that exactly these generations need."""


class Reach:
    """`unreadable`: generations whose manifest is damaged, or sealed with a key that is gone; nobody knows what they refer to.

    Raises StoreFailed, NewerFormat.
    """

    def __init__(self, backend: Backend, current: Head, cancelled: Event | None = None) -> None:
        self._backend = backend
        self._cancelled = cancelled
        self.head = current
        self.manifests: dict[Claim, Manifest] = {}
        self.unreadable: dict[Claim, Corrupt | WrongKey] = {}
        for claim in current.generations:
            try:
                self.manifests[claim] = manifest.load(backend, current.kernel, claim)
            except (Corrupt, WrongKey) as error:
                self.unreadable[claim] = error
        self.index = Index.load(backend, current.kernel, current.indexes)
        self.users: dict[bytes, int] = {}
        """Block, a recipe's segments included -> its generations, a bit for each in the head's order."""

    def walk(self) -> Reach:
        """Fills `users`. Raises Corrupt or WrongKey when that can't be known in full, Conflict when cancelled.

        An index that can't be read is no reason: its blocks are needed only if no other one has them.
        """
        for error in self.unreadable.values():
            raise error
        segments = self._segments()
        users: defaultdict[bytes, int] = defaultdict(int, segments)
        for name, entries in self._entries(list(segments)):
            mask = segments[name]
            for entry in entries:
                if not entry.zeros:
                    users[entry.name] |= mask
        for name in users:
            if name not in self.index:
                for error in self.index.lost:
                    raise error
                raise corrupt(KernelNames(self.head.kernel).folder, f"block {name.hex()[:16]}… is in no index")
        self.users = dict(users)
        return self

    def shares(self) -> Shares:
        """After `walk`."""
        sizes: defaultdict[int, int] = defaultdict(int)
        for name, mask in self.users.items():
            location = self.index.find(name)
            sizes[mask] += location.stored if location is not None else 0
        return {frozenset(self._generations(mask)): size for mask, size in sizes.items()}

    def _generations(self, mask: int) -> Iterator[Generation]:
        for at, claim in enumerate(self.head.generations):
            if mask >> at & 1:
                yield generation_of(claim)

    def _segments(self) -> dict[bytes, int]:
        found: defaultdict[bytes, int] = defaultdict(int)
        for at, claim in enumerate(self.head.generations):
            for file in self.manifests[claim].files:
                for segment in file.recipe:
                    found[segment] |= 1 << at
        return dict(found)

    def _entries(self, segments: Sequence[bytes]) -> Iterator[tuple[bytes, list[recipe.Entry]]]:
        if not segments:
            return
        reader = BlockReader(self._backend, next(reversed(self.manifests.values())), self.index)
        for first in range(0, len(segments), _AT_ONCE):
            go_on(self._cancelled)
            some = segments[first : first + _AT_ONCE]
            wanted = []
            for at, name in enumerate(some):
                location = reader.locate(name)
                wanted.append(Wanted(at, location.plain, name, location))
            for at, plain in reader.read(wanted):
                try:
                    yield some[at], recipe.parse(plain)
                except ValueError as error:
                    raise corrupt(reader.manifest_name, str(error)) from None


def go_on(cancelled: Event | None) -> None:
    """Raises Conflict when `cancelled` is set."""
    if cancelled is not None and cancelled.is_set():
        raise Conflict("The collection was called off.", hint="The next one goes on.")
