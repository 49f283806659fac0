"""A damaged head, made again from what it listed.

A manifest is written after everything that it refers to and deleted before it, so one that is there and whole is a complete
snapshot. The worst that can happen is that one appears whose publish had failed at its very last step.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.domain.errors import Corrupt
from perdure.domain.ids import KernelId

from . import head, manifest
from .backend import Absent, Backend
from .head import Head
from .names import Claim, KernelNames, generation_of, is_claim, new_claim

_SKIPPED = 1000
"""Numbers that are left out, since a publish that failed and was cleaned up may have used the next ones."""


def load(backend: Backend, kernel: KernelId) -> Head:
    """The kernel's head, made again if it is damaged; stored only by who publishes next. Raises NewerFormat, StoreFailed."""
    try:
        return head.load(backend, kernel)
    except Corrupt:
        return _rebuild(backend, kernel)


def _rebuild(backend: Backend, kernel: KernelId) -> Head:
    names = KernelNames(kernel)
    try:
        tag = backend.stat(names.head).tag
    except Absent:
        return Head(kernel)
    found = {folder: list(_claims(backend, folder)) for folder in names.folders}
    manifests, indexes, *_ = found.values()
    generations = _ascending(claim for claim in manifests if _whole(backend, kernel, claim))
    numbers = [generation_of(claim) for claims in found.values() for claim in claims]
    claimed = max(numbers, default=0) + _SKIPPED
    # Of two indexes of one number the published one counts.
    used = _ascending([*indexes, *(claim for claim in generations if claim in indexes)])
    return Head(kernel, claimed, new_claim(claimed), generations, used, tag=tag)


def _claims(backend: Backend, folder: str) -> Iterable[Claim]:
    for entry in backend.list(folder):
        claim = KernelNames.claim_in(entry.name)
        if is_claim(claim):
            yield Claim(claim)


def _whole(backend: Backend, kernel: KernelId, claim: Claim) -> bool:
    try:
        manifest.load(backend, kernel, claim)
    except Corrupt:
        return False
    return True


def _ascending(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """One per number, the last one that came."""
    by_number = {generation_of(claim): claim for claim in claims}
    return tuple(by_number[number] for number in sorted(by_number))
