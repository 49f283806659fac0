"""The one object that says what is published of a kernel."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from perdure.domain.errors import NotFound
from perdure.domain.ids import Generation, KernelId

from . import canonical, envelope
from .backend import Absent, Backend
from .envelope import Kind, corrupt
from .names import HIGHEST_GENERATION, Claim, KernelNames, generation_of, is_claim, new_claim

_NONE = Claim("")
_OBJECT = re.compile(r"(?:manifests|index|packs)/[1-9][0-9]{0,15}-[0-9a-f]{16}(?:-[0-9]{1,10})?")


@dataclass(frozen=True)
class Condemned:
    """An object that nothing published refers to since `since` (seconds since 1970), and nothing ever will again.

    It stays for a while, because somebody who read an older head may still be reading it. `name` is below the kernel's folder.
    """

    name: str
    since: int


@dataclass(frozen=True)
class Head:
    """`tag` is the stored state's that this was read from; "" where there is none yet."""

    kernel: KernelId
    claimed: int = 0
    claim: Claim = _NONE
    generations: tuple[Claim, ...] = ()
    indexes: tuple[Claim, ...] = ()
    condemned: tuple[Condemned, ...] = ()
    tag: str = ""

    def claiming(self) -> Head:
        number = self.claimed + 1
        return replace(self, claimed=number, claim=new_claim(number))

    def publishing(self) -> Head:
        return replace(self, generations=(*self.generations, self.claim), indexes=(*self.indexes, self.claim))

    def using(self) -> Head:
        """With the index and the packs of its own claim, and no generation: blocks were only moved."""
        return replace(self, indexes=(*self.indexes, self.claim))

    def without_indexes(self, claims: Collection[Claim]) -> Head:
        return replace(self, indexes=tuple(claim for claim in self.indexes if claim not in claims))

    @property
    def open(self) -> bool:
        """Somebody has claimed and not finished: a publish that runs, or one that was broken off."""
        return self.claim not in self.generations and self.claim not in self.indexes

    @property
    def condemned_objects(self) -> frozenset[str]:
        """Their whole names."""
        folder = KernelNames(self.kernel).folder
        return frozenset(f"{folder}{one.name}" for one in self.condemned)

    def condemning(self, objects: Iterable[str], now: int) -> Head:
        """`objects` (whole names) are not needed any more. Later ones never get an earlier time: what refers goes first."""
        folder, known = KernelNames(self.kernel).folder, self.condemned_objects
        earlier = tuple(Condemned(one.name, min(one.since, now)) for one in self.condemned)  # a clock may have been ahead
        return replace(
            self, condemned=earlier + tuple(Condemned(name.removeprefix(folder), now) for name in objects if name not in known)
        )

    def striking(self, objects: Collection[str]) -> Head:
        """`objects` (whole names) are condemned no more, most likely because they are gone."""
        folder = KernelNames(self.kernel).folder
        return replace(self, condemned=tuple(one for one in self.condemned if f"{folder}{one.name}" not in objects))

    def retiring(self, gone: Collection[Claim], now: int) -> Head:
        """Without the generations `gone`. Their blocks stay until a collection finds that nobody needs them."""
        names = KernelNames(self.kernel)
        kept = tuple(claim for claim in self.generations if claim not in gone)
        return replace(self, generations=kept).condemning([names.manifest(claim) for claim in gone], now)

    def find(self, generation: Generation) -> Claim:
        """Raises NotFound."""
        for claim in self.generations:
            if generation_of(claim) == generation:
                return claim
        raise NotFound(
            f"There is no generation {generation} of kernel {self.kernel} in the repository.",
            hint=f"There are: {', '.join(str(generation_of(claim)) for claim in self.generations) or 'none'}.",
        )

    def store(self, backend: Backend) -> Head:
        """Compare-and-swap against the state that this was read from. Raises Changed."""
        content: dict[str, object] = {
            "kernel_id": self.kernel,
            "token": secrets.token_hex(16),
            "claimed": self.claimed,
            "claim": self.claim,
            "generations": list(self.generations),
            "indexes": list(self.indexes),
        }
        if self.condemned:
            content["condemned"] = [[one.name, one.since] for one in self.condemned]
        body = canonical.dump(content)
        data = envelope.wrap(Kind.HEAD, body)
        name = KernelNames(self.kernel).head
        tag = backend.put(name, data, if_match=self.tag) if self.tag else backend.put(name, data, if_absent=True)
        return replace(self, tag=tag)


def load(backend: Backend, kernel: KernelId) -> Head:
    """The kernel's head; an empty one where the kernel has none. Raises Corrupt, NewerFormat, StoreFailed."""
    name = KernelNames(kernel).head
    try:
        tag = backend.stat(name).tag  # before the bytes: a head that changes in between makes the swap fail, never succeed
        body = envelope.read(backend, name, Kind.HEAD)
    except Absent:
        return Head(kernel)
    data = canonical.load(name, body)
    if canonical.text(name, data, "kernel_id") != kernel:
        raise corrupt(name, "it is another kernel's")
    claimed = canonical.integer(name, data, "claimed", low=1, high=HIGHEST_GENERATION)
    generations = _claims(name, canonical.items(name, data, "generations"), claimed)
    indexes = _claims(name, canonical.items(name, data, "indexes"), claimed)
    claim = canonical.text(name, data, "claim")
    if not is_claim(claim) or generation_of(Claim(claim)) != claimed:
        raise corrupt(name, "its claim is none")
    condemned = _condemned(name, canonical.items(name, data, "condemned") if "condemned" in data else [])
    return Head(kernel, claimed, Claim(claim), generations, indexes, condemned, tag)


def _claims(name: str, values: list[object], claimed: int) -> tuple[Claim, ...]:
    claims: list[Claim] = []
    for value in values:
        if not is_claim(value):
            raise corrupt(name, "it lists something that is no claim")
        claim = Claim(str(value))
        number = generation_of(claim)
        if number > claimed or (claims and number <= generation_of(claims[-1])):
            raise corrupt(name, "its generations are not in order")
        claims.append(claim)
    return tuple(claims)


def _condemned(name: str, values: list[object]) -> tuple[Condemned, ...]:
    found: list[Condemned] = []
    for value in values:
        match value:
            case [str(condemned), int(since)] if _OBJECT.fullmatch(condemned) and since >= 0:
                found.append(Condemned(condemned, since))
            case _:
                raise corrupt(name, "it condemns something that is no object")
    return tuple(found)
