"""The one object that says what is published of a kernel."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

from perdure.domain.errors import NotFound
from perdure.domain.ids import Generation, KernelId

from . import canonical, envelope
from .backend import Absent, Backend
from .envelope import Kind, corrupt
from .names import HIGHEST_GENERATION, Claim, KernelNames, generation_of, is_claim, new_claim

_NONE = Claim("")


@dataclass(frozen=True)
class Head:
    """`tag` is the stored state's that this was read from; "" where there is none yet."""

    kernel: KernelId
    claimed: int = 0
    claim: Claim = _NONE
    generations: tuple[Claim, ...] = ()
    indexes: tuple[Claim, ...] = ()
    tag: str = ""

    def claiming(self) -> Head:
        number = self.claimed + 1
        return replace(self, claimed=number, claim=new_claim(number))

    def publishing(self) -> Head:
        return replace(self, generations=(*self.generations, self.claim), indexes=(*self.indexes, self.claim))

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
        body = canonical.dump(
            {
                "kernel_id": self.kernel,
                "token": secrets.token_hex(16),
                "claimed": self.claimed,
                "claim": self.claim,
                "generations": list(self.generations),
                "indexes": list(self.indexes),
            }
        )
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
    return Head(kernel, claimed, Claim(claim), generations, indexes, tag)


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
