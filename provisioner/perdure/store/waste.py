"""What of a kernel's packs is worth keeping, rewriting, throwing away. Pure: from names and sizes to a decision."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from .index import Index
from .names import Claim, KernelNames
from .pack import BLOCK_HEADER

SAVED_LEAST = 32 << 20
"""Bytes. Below that rewriting half-dead packs costs more reading and writing than it frees, unless …"""
SAVED_SHARE = 0.25
"""… it is this part of all that the kernel stores, and at least …"""
SAVED_FLOOR = 1 << 20
"""… so many bytes: each rewriting takes a generation's number, and some requests."""
MOSTLY_DEAD = 0.5
"""A pack of which less than this is needed is rewritten."""
SMALL = 4 << 20
"""A pack below this many bytes …"""
SMALL_MOST = 32
"""… is joined with others when there are so many: each has an index of its own that every restore and snapshot must load."""


@dataclass(frozen=True)
class Waste:
    """Names of packs, except `emptied`: claims that no pack is left of, so that their index is of no use."""

    dead: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    moved: Collection[bytes] = ()
    """The blocks in `rewritten` that are needed."""
    emptied: tuple[Claim, ...] = ()
    live_bytes: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    doubtful: str = ""
    """A pack that is needed and was found damaged or missing: older copies of its blocks may be the good ones, so all stay."""


def judge(
    needed: Iterable[bytes],
    index: Index,
    sizes: Mapping[str, int],
    bad: Collection[str],
    condemned: Collection[str],
    indexes: Collection[Claim],
) -> Waste:
    """`sizes`: the packs that are there; `bad`: those that are marked; `indexes`: the claims in use."""
    live: defaultdict[str, int] = defaultdict(int)
    blocks: defaultdict[str, list[bytes]] = defaultdict(list)
    for name in needed:
        location = index.find(name)
        if location is not None:
            live[location.pack] += location.stored + BLOCK_HEADER
            blocks[location.pack].append(name)
    live_bytes = sum(live.values())
    for pack in live:
        if pack in bad or sizes.get(pack) != index.packs[pack]:
            return Waste(doubtful=pack, live_bytes=live_bytes, sizes=sizes)
    # Packs of an index that can't be read are among them: nothing needed was found there.
    used = frozenset[str](indexes)
    there = [pack for pack in sizes if KernelNames.claim_in(pack) in used and pack not in condemned]
    dead = [pack for pack in there if pack not in live]
    rewritten = _worth_rewriting({pack: (sizes[pack], live[pack]) for pack in there if pack in live}, sum(sizes.values()))
    going = {*dead, *rewritten, *condemned}
    staying = {KernelNames.claim_in(pack) for pack in there if pack not in going}
    return Waste(
        dead=tuple(dead),
        rewritten=tuple(rewritten),
        moved=[name for pack in rewritten for name in blocks[pack]],
        emptied=tuple(claim for claim in indexes if claim not in staying),
        live_bytes=live_bytes,
        sizes=sizes,
    )


def _worth_rewriting(packs: Mapping[str, tuple[int, int]], stored: int) -> list[str]:
    """`packs`: size and needed bytes of those of which something is needed."""
    chosen = [pack for pack, (size, live) in packs.items() if live < MOSTLY_DEAD * size]
    saved = sum(packs[pack][0] - packs[pack][1] for pack in chosen)
    if saved < max(SAVED_FLOOR, min(SAVED_LEAST, SAVED_SHARE * stored)):
        chosen = []
    small = [pack for pack, (size, _) in packs.items() if size < SMALL]
    if len(small) >= SMALL_MOST:
        chosen += [pack for pack in small if pack not in set(chosen)]
    return chosen
