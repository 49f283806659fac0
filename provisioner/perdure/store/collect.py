"""Generations are retired, and what nobody needs any more is removed (docs/format.md, "Collecting").

What goes wrong in the world: a publish runs beside it, and relies on blocks that were known when it began; somebody restores a
generation that is being retired; the process dies between any two steps. So nothing is deleted because a look at the repository
found it unused. It is *condemned* first, by a compare-and-swap of the head: that locks out every publish that began before, and
those that begin later read in the head what they must not rely on. It is deleted when it has been condemned for a while, so that
who began to read it before comes to an end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from perdure.domain.errors import Conflict, Corrupt, WrongKey
from perdure.domain.ids import Generation, KernelId

from . import head, leftovers
from .backend import Backend, Changed
from .head import Head
from .names import Claim, KernelNames
from .packer import overtaken
from .reach import Reach, go_on
from .rewrite import rewrite
from .waste import Waste, judge

GRACE_S = 3600
"""A restore reads from the repository for minutes at most, and clocks of two hosts differ by less."""


@dataclass(frozen=True)
class Removal:
    """An object, and why nobody needs it."""

    name: str
    bytes: int
    why: str


@dataclass
class Collected:
    """What a collection did, or with `dry_run` would do. `waiting`: left for later, since somebody may be reading it."""

    kernel: KernelId
    retired: list[Generation] = field(default_factory=list)
    removed: list[Removal] = field(default_factory=list)
    waiting: list[Removal] = field(default_factory=list)
    bytes_rewritten: int = 0
    """Of blocks that were moved out of packs that were mostly not needed, or small."""
    bytes_live: int = 0
    """What the kept generations need."""
    problem: str = ""
    """Why less was done than could be; what is published is not touched then."""

    @property
    def bytes_removed(self) -> int:
        return sum(one.bytes for one in self.removed)

    @property
    def bytes_waiting(self) -> int:
        return sum(one.bytes for one in self.waiting)

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "retired": list(self.retired),
            "removed": [vars(one) for one in self.removed],
            "waiting": [vars(one) for one in self.waiting],
            "bytes_removed": self.bytes_removed,
            "bytes_waiting": self.bytes_waiting,
            "bytes_rewritten": self.bytes_rewritten,
            "bytes_live": self.bytes_live,
            "problem": self.problem,
        }


def retire(backend: Backend, kernel: KernelId, generations: Collection[Generation], now: int) -> Head:
    """They are published no more when this returns; their blocks stay for the next collection.

    The newest one can't be retired. Raises Conflict when a snapshot is being stored or is published meanwhile, NotFound, Corrupt.
    """
    current = head.load(backend, kernel)
    if current.open:
        raise _busy(kernel)
    return _swap(backend, _without(current, generations, now)) if generations else current


def collect(
    backend: Backend,
    kernel: KernelId,
    *,
    gone: Collection[Generation] = (),
    now: int,
    grace_s: int = GRACE_S,
    take_over: bool = False,
    dry_run: bool = False,
    cancelled: Event | None = None,
) -> Collected:
    """Retire `gone`, then remove what no generation needs. Interrupted anywhere, it can be done again.

    `take_over`: don't spare a publish that has begun and not ended; it may be running, or have died.

    Raises Conflict (a publish that was spared or came in between; cancelled), NotFound, Corrupt for a damaged head, StoreFailed.
    """
    before = head.load(backend, kernel)
    report = Collected(kernel, sorted(gone))
    if not before.tag:
        return report
    if before.open and not take_over and not dry_run:
        raise _busy(kernel)
    current = _without(before, gone, now) if gone else before
    if gone and not dry_run:
        current = _swap(backend, current)
    work = _Work(backend, current, report, now, grace_s, dry_run, cancelled)
    work.look()
    if not dry_run:
        work.act()
    return report


class _Work:
    """One kernel's collection, after what was to be retired has been."""

    def __init__(
        self, backend: Backend, current: Head, report: Collected, now: int, grace_s: int, dry_run: bool, cancelled: Event | None
    ) -> None:
        self._backend, self._head, self._report = backend, current, report
        self._now, self._grace_s, self._dry_run, self._cancelled = now, grace_s, dry_run, cancelled
        self._names = KernelNames(current.kernel)
        self._waste = Waste()
        self._reach: Reach | None = None
        self._sizes: dict[str, int] = {}
        self._needed = frozenset[str]()
        """Condemned, and needed all the same: must not be, and then they stay."""

    def look(self) -> None:
        """What there is to do; changes nothing."""
        self._sizes = {entry.name: entry.size for folder in self._names.folders for entry in self._backend.list(folder)}
        try:
            reach = self._reach = Reach(self._backend, self._head, self._cancelled).walk()
            marked = {
                f"{self._names.packs}{name.removeprefix(self._names.damaged)}"
                for name in self._sizes
                if name.startswith(self._names.damaged)
            }
            packs = {name: size for name, size in self._sizes.items() if name.startswith(self._names.packs)}
            condemned = self._head.condemned_objects
            used = {location.pack for name in reach.users if (location := reach.index.find(name)) is not None}
            self._needed = condemned & used
            self._waste = judge(reach.users, reach.index, packs, marked, condemned - used, self._head.indexes)
        except (Corrupt, WrongKey) as error:
            self._report.problem = f"{error.sentence} So nobody knows what is needed, and no block of it was removed."
        if self._waste.doubtful:
            self._report.problem = f"{self._waste.doubtful} is damaged or missing, so no block was removed."
        self._report.bytes_live = self._waste.live_bytes
        for entry in leftovers.find(self._backend, self._head):
            self._report.removed.append(Removal(entry.name, entry.size, "left by a snapshot that was not published"))
        due = self._due(self._head)
        for name in self._existing(self._head.condemned_objects - self._needed):
            self._note(name, "it belongs to snapshots that are gone", now=name in due)
        for name in self._existing(set(self._newly_condemned())):
            why = (
                "it was moved, with other blocks, into another pack" if name in self._waste.rewritten else "no snapshot needs it"
            )
            self._note(name, why, now=self._grace_s <= 0)
        self._report.bytes_rewritten = self._moved_bytes()

    def act(self) -> None:
        """The compare-and-swap that locks the others out, then the deletions, then the head is told that they are done."""
        report = self._report
        due = self._due(self._head)
        condemned = self._newly_condemned()
        if not (report.removed or due or condemned or self._needed):
            return
        go_on(self._cancelled)
        base = self._head.striking(self._needed) if self._needed else self._head
        if self._waste.moved and self._reach is not None:
            swapped = rewrite(self._backend, base, self._reach, self._waste, condemned, self._now, self._cancelled)
        else:
            swapped = _swap(self._backend, base.condemning(condemned, self._now).without_indexes(self._emptied()))
        leftovers.remove(self._backend, swapped)
        gone = self._delete(swapped)
        if gone:
            _swap(self._backend, swapped.striking(gone))

    def _delete(self, current: Head) -> set[str]:
        due = [*self._existing(self._due(current))]
        for name in due:
            go_on(self._cancelled)
            leftovers.check(self._backend, current)
            self._backend.delete(name)
            if (mark := self._names.mark(name)) in self._sizes:
                self._backend.delete(mark)
        return self._due(current)

    def _due(self, current: Head) -> set[str]:
        """Whole names of what has been condemned for long enough."""
        if self._report.problem:
            return set()
        return {
            f"{self._names.folder}{one.name}"
            for one in current.condemned
            if min(one.since, self._now) + self._grace_s <= self._now
        } - self._needed

    def _existing(self, objects: Collection[str]) -> Iterator[str]:
        """In the order in which they may be deleted."""
        for folder in self._names.folders:
            yield from sorted(name for name in objects if name.startswith(folder) and name in self._sizes)

    def _emptied(self) -> tuple[Claim, ...]:
        if self._waste.moved:
            return self._waste.emptied
        # A head whose own claim is listed nowhere looks as if a publish were running.
        return tuple(claim for claim in self._waste.emptied if claim != self._head.claim)

    def _newly_condemned(self) -> list[str]:
        indexes = (self._names.index(claim) for claim in self._emptied())
        return [*indexes, *self._waste.dead, *self._waste.rewritten]

    def _note(self, name: str, why: str, *, now: bool) -> None:
        (self._report.removed if now else self._report.waiting).append(Removal(name, self._sizes[name], why))

    def _moved_bytes(self) -> int:
        index = self._reach.index if self._reach is not None else None
        places = (index.find(name) for name in self._waste.moved) if index is not None else ()
        return sum(place.stored for place in places if place is not None)


def _without(current: Head, generations: Collection[Generation], now: int) -> Head:
    claims = [current.find(generation) for generation in generations]
    if current.generations and current.generations[-1] in claims:
        raise Conflict(
            f"The newest snapshot of kernel {current.kernel} is never removed.", hint="Drop the kernel to remove all of them."
        )
    return current.retiring(claims, now)


def _busy(kernel: KernelId) -> Conflict:
    return Conflict(
        f"A snapshot of kernel {kernel} is being stored, or one was broken off.",
        hint="The next snapshot of that kernel ends this; --now doesn't wait for it, and makes one that is being stored fail.",
    )


def _swap(backend: Backend, new: Head) -> Head:
    try:
        return new.store(backend)
    except Changed:
        raise overtaken(new.kernel) from None
