"""Objects that the head doesn't list, and their removal: what refers goes before what is referred to.

What goes wrong in the world: a process claims, is stopped for an hour, and goes on. By then others have claimed and published,
and their objects aren't in the head that it knows. So it lists first, looks whether its head is still the head, and then deletes
what it has listed: whoever claims after that look writes under names that aren't in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perdure.domain.errors import PerdureError
from perdure.domain.ids import KernelId

from .backend import Absent, Backend, Entry
from .head import Head
from .names import KernelNames
from .packer import overtaken


def find(backend: Backend, current: Head) -> Iterator[Entry]:
    """What `current` neither lists nor condemns, in the order in which it may be deleted; that of a publish that runs too."""
    manifests, index, packs, damaged = KernelNames(current.kernel).folders
    published, used = frozenset[str](current.generations), frozenset[str](current.indexes)
    waiting = current.condemned_objects
    for folder, kept in ((manifests, published), (index, used), (packs, used), (damaged, used)):
        for entry in _objects(backend, folder, lambda claim, kept=kept: claim not in kept):  # type: ignore[misc]
            if entry.name not in waiting:
                yield entry


def remove(backend: Backend, claimed: Head) -> None:
    """`claimed` has locked out whoever else may be writing, and all that it has written is listed in it.

    Raises Conflict when it has been locked out itself, StoreFailed, NoRoom.
    """
    found = list(find(backend, claimed))
    if found:
        check(backend, claimed)
    for entry in found:
        backend.delete(entry.name)


def check(backend: Backend, current: Head) -> None:
    """Raises Conflict when `current` is the head no more."""
    try:
        if backend.stat(KernelNames(current.kernel).head).tag == current.tag:
            return
    except Absent:
        pass
    raise overtaken(current.kernel)


def withdraw(backend: Backend, claimed: Head) -> None:
    """Remove what this claim wrote. It must be certain that the head doesn't list it and never will."""
    try:
        for folder in KernelNames(claimed.kernel).folders:
            for entry in list(_objects(backend, folder, lambda found: found == claimed.claim)):
                backend.delete(entry.name)
    except PerdureError:
        pass  # what made it fail may stand in the way here too; the next publish or collection removes it


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
