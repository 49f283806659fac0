"""Packs in which damage was found, so that no new generation relies on them.

What goes wrong in the world: a disk flips a bit in a block of memory that never changes. Every later generation would refer to
that block, and none could be restored. A pack that was found damaged is marked, its blocks are stored again by the next publish,
and since the later copy counts, generations that refer to them become whole too.
"""

from __future__ import annotations

from perdure.domain.errors import PerdureError
from perdure.domain.ids import KernelId

from . import envelope
from .backend import Backend, Changed
from .envelope import Kind
from .head import Head
from .index import Index
from .names import KernelNames
from .seal import outdated


def mark(backend: Backend, kernel: KernelId, pack: str) -> None:
    """Idempotent. A repository that can't be written stays unmarked: whoever publishes there has other worries first."""
    names = KernelNames(kernel)
    if not pack.startswith(names.packs):
        return
    try:
        backend.put(names.mark(pack), envelope.wrap(Kind.DAMAGE, b""), if_absent=True)
    except (Changed, PerdureError):
        pass


def distrust(backend: Backend, current: Head, index: Index) -> None:
    """`index` forgets the blocks of packs that are condemned, marked, missing, of the wrong size, or sealed with an older key.

    A condemned pack may be deleted at any moment by a collection that began before. An older key has leaked, or will be thrown
    away: what is published now must not need it. Raises StoreFailed.
    """
    names = KernelNames(current.kernel)
    sizes = {entry.name: entry.size for entry in backend.list(names.packs)}
    marked = {f"{names.packs}{entry.name.removeprefix(names.damaged)}" for entry in backend.list(names.damaged)}
    bad = marked | current.condemned_objects
    # A claim's index and packs are written with one key.
    old = {claim for claim in current.indexes if outdated(backend, names.index(claim))}
    bad |= {pack for pack in index.packs if names.claim_in(pack) in old}
    index.forget([pack for pack, size in index.packs.items() if pack in bad or sizes.get(pack) != size])
