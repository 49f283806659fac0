"""Blocks that are needed, out of packs that mostly aren't or are small, into new packs under a claim of the collection's own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from threading import Event

from perdure.domain.errors import Corrupt

from . import damage, leftovers
from .backend import Backend, Changed
from .blocks import encode
from .head import Head
from .index import Index
from .names import KernelNames
from .packer import Packer, overtaken
from .reach import Reach, go_on
from .reader import BlockReader, Wanted
from .waste import Waste

_AT_ONCE = 64
"""Blocks that are read together; 4 MiB."""


def rewrite(
    backend: Backend, current: Head, reach: Reach, waste: Waste, condemned: Sequence[str], now: int, cancelled: Event | None
) -> Head:
    """The head in which `waste.moved` lie in new packs and `condemned` are condemned. When it raises, nothing has changed.

    Raises Conflict, Corrupt, NoRoom, StoreFailed.
    """
    try:
        claimed = current.claiming().store(backend)
    except Changed:
        raise overtaken(current.kernel) from None
    try:
        leftovers.remove(backend, claimed)
        _copy(backend, claimed, reach, waste.moved, cancelled)
    except BaseException as error:
        if isinstance(error, Corrupt):
            damage.mark(backend, current.kernel, error.detail)
        leftovers.withdraw(backend, claimed)
        raise
    used = claimed.condemning(condemned, now).without_indexes(waste.emptied).using()
    try:
        return used.store(backend)
    except Changed:
        leftovers.withdraw(backend, claimed)
        raise overtaken(current.kernel) from None


def _copy(backend: Backend, claimed: Head, reach: Reach, blocks: Collection[bytes], cancelled: Event | None) -> None:
    newest = reach.manifests[claimed.generations[-1]]
    reader = BlockReader(backend, newest, reach.index)
    places = sorted(((reader.locate(name), name) for name in blocks), key=lambda one: (one[0].pack, one[0].offset))
    with Packer(backend, claimed, Index()) as packer:
        for first in range(0, len(places), _AT_ONCE):
            go_on(cancelled)
            some = places[first : first + _AT_ONCE]
            wanted = [Wanted(at, location.plain, name, location) for at, (location, name) in enumerate(some)]
            for at, plain in reader.read(wanted):
                packer.keep(encode(some[at][1], plain))
        packer.finish()
        packer.put(KernelNames(claimed.kernel).index(claimed.claim), packer.index.wrapped())
