"""Objects that the head doesn't list, and their removal: what refers goes before what is referred to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perdure.domain.ids import KernelId

from .backend import Backend, Entry
from .head import Head
from .names import Claim, KernelNames


def find(backend: Backend, current: Head) -> Iterator[Entry]:
    """What `current` doesn't list and its own claim didn't write, in the order in which it may be deleted."""
    names = KernelNames(current.kernel)
    manifests, index, packs, damaged = names.folders
    published, used = set(current.generations), set(current.indexes)
    for folder, kept in ((manifests, published), (index, used), (packs, used), (damaged, used)):
        yield from _objects(backend, folder, lambda claim, kept=kept: claim not in kept and claim != current.claim)  # type: ignore[misc]


def remove(backend: Backend, current: Head) -> None:
    """Raises StoreFailed, NoRoom. `current` must be the newest head: it has locked out whoever else may be writing."""
    for entry in list(find(backend, current)):
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
