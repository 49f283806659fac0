"""Objects that the head doesn't list, and their removal: what refers goes before what is referred to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perdure.domain.ids import KernelId

from .backend import Backend, Entry
from .head import Head
from .names import Claim, KernelNames


def find(backend: Backend, current: Head) -> Iterator[Entry]:
    """What `current` doesn't list, in the order in which it may be deleted; that of a publish that still runs too."""
    manifests, index, packs, damaged = KernelNames(current.kernel).folders
    published, used = frozenset[str](current.generations), frozenset[str](current.indexes)
    for folder, kept in ((manifests, published), (index, used), (packs, used), (damaged, used)):
        yield from _objects(backend, folder, lambda claim, kept=kept: claim not in kept)  # type: ignore[misc]


def remove(backend: Backend, claimed: Head) -> None:
    """Raises StoreFailed, NoRoom. `claimed` has just locked out whoever else may be writing, and has written nothing itself."""
    for entry in list(find(backend, claimed)):
        backend.delete(entry.name)


def remove_claim(backend: Backend, kernel: KernelId, claim: Claim) -> None:
    """What one claim wrote."""
    for folder in KernelNames(kernel).folders:
        for entry in list(_objects(backend, folder, lambda found: found == claim)):
            backend.delete(entry.name)


def remove_kernel(backend: Backend, kernel: KernelId) -> None:
    """The head, then everything below it. Idempotent."""
    names = KernelNames(kernel)
    backend.delete(names.head)
    for folder in names.folders:
        for entry in list(_objects(backend, folder, lambda _: True)):
            backend.delete(entry.name)


def _objects(backend: Backend, folder: str, wanted: Callable[[str], bool]) -> Iterator[Entry]:
    for entry in backend.list(folder):
        if not entry.name.endswith("/") and wanted(KernelNames.claim_in(entry.name)):
            yield entry
