"""What a kernel's snapshots hold, and what they take in the repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.domain.errors import Corrupt, NotFound, WrongKey
from perdure.domain.ids import Generation, KernelId

from . import head
from .backend import Backend
from .manifest import Manifest
from .names import KernelNames, generation_of
from .reach import Reach, Shares


@dataclass(frozen=True)
class Usage:
    """Bytes as they are stored, except in manifests. Generations ascending."""

    kernel: KernelId
    stored: int
    """All objects of the kernel together."""
    manifests: Mapping[Generation, Manifest]
    damaged: Mapping[Generation, str] = field(default_factory=dict)
    """Generations whose manifest is damaged, and how."""
    locked: Mapping[Generation, str] = field(default_factory=dict)
    """Generations that are sealed with a key that isn't there."""
    shares: Shares = field(default_factory=dict)
    """Which generations need how much together; empty where `problem` says why that isn't known."""
    problem: str = ""

    @property
    def needed(self) -> int:
        """By any generation, without packs' and indexes' own headers."""
        return sum(self.shares.values())

    def alone(self, generation: Generation) -> int:
        """What would be free without it."""
        return self.shares.get(frozenset({generation}), 0)

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel,
            "bytes_stored": self.stored,
            "bytes_needed": None if self.problem else self.needed,
            "problem": self.problem,
            "generations": [
                {
                    "generation": number,
                    "created": one.record.get("created"),
                    "bytes_logical": one.bytes_logical,
                    "bytes_added": one.bytes_added,
                    "bytes_alone": None if self.problem else self.alone(number),
                }
                for number, one in self.manifests.items()
            ],
            "damaged": [{"generation": number, "why": why} for number, why in self.damaged.items()],
            "locked": [{"generation": number, "why": why} for number, why in self.locked.items()],
        }


def usage(backend: Backend, kernel: KernelId) -> Usage:
    """Raises NotFound, Corrupt for a damaged head, NewerFormat, StoreFailed."""
    current = head.load(backend, kernel)
    if not current.tag:
        raise NotFound(f"There is no kernel {kernel} in the repository.")
    names = KernelNames(kernel)
    # The head lies beside the folders.
    stored = sum(entry.size for folder in (names.folder, *names.folders) for entry in backend.list(folder))
    reach = Reach(backend, current)
    manifests = {generation_of(claim): one for claim, one in reach.manifests.items()}
    unreadable = {generation_of(claim): error for claim, error in reach.unreadable.items()}
    damaged = {number: error.sentence for number, error in unreadable.items() if isinstance(error, Corrupt)}
    locked = {number: error.sentence for number, error in unreadable.items() if isinstance(error, WrongKey)}
    try:
        return Usage(kernel, stored, manifests, damaged, locked, reach.walk().shares())
    except (Corrupt, WrongKey) as error:
        return Usage(kernel, stored, manifests, damaged, locked, problem=error.sentence)
