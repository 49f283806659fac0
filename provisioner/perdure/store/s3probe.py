"""Whether a store keeps to the conditions of a put. One that takes no notice of them would let two publishers overwrite each
other's heads, and a lease have two holders: such a store is refused before anything is written under a condition."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator

from perdure.domain.errors import NoRoom, StoreFailed

from .backend import Backend, Bytes, Changed, Entry, Stat
from .s3errors import ignores_conditions

_proven: set[str] = set()
"""Stores that passed, for as long as this process lives."""
_lock = threading.Lock()


class Proven:
    """`backend` again, which must prove itself before the first conditional put.

    `aside` is a place beside it for the probe: objects there are in nobody's way. `store` names the server and the place.
    """

    def __init__(self, backend: Backend, aside: Backend, store: str) -> None:
        self._backend, self._aside, self._store = backend, aside, store

    @property
    def url(self) -> str:
        return self._backend.url

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return self._backend.get(name, start, length)

    def stat(self, name: str) -> Stat:
        return self._backend.stat(name)

    def list(self, prefix: str) -> Iterator[Entry]:
        return self._backend.list(prefix)

    def delete(self, name: str) -> None:
        self._backend.delete(name)

    def put(self, name: str, data: Bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        if if_absent or if_match is not None:
            self.prove()
        return self._backend.put(name, data, if_absent=if_absent, if_match=if_match)

    def prove(self) -> None:
        """Once per process and store. Raises StoreFailed when the store ignores conditions, or can't be written."""
        with _lock:
            if self._store in _proven:
                return
            if not keeps_conditions(self._aside):
                raise ignores_conditions(self.url)
            _proven.add(self._store)

    def prove_if_possible(self) -> None:
        """`prove` for who may only want to read: raises StoreFailed only when the store ignores conditions."""
        with _lock:
            if self._store in _proven:
                return
            try:
                kept = keeps_conditions(self._aside)
            except (StoreFailed, NoRoom):
                return  # whoever writes is told why
            if not kept:
                raise ignores_conditions(self.url)
            _proven.add(self._store)


def keeps_conditions(aside: Backend) -> bool:
    """Tries it in `aside`. Raises StoreFailed, NoRoom."""
    name = secrets.token_hex(8)
    try:
        first = aside.put(name, b"1", if_absent=True)
        refused = [_refused(aside, name, if_absent=True)]
        second = aside.put(name, b"22", if_match=first)
        refused.append(_refused(aside, name, if_match=first))
        aside.put(name, b"333", if_match=second)
        aside.delete(name)
        refused.append(_refused(aside, name, if_match=second))
        return all(refused)
    except Changed:
        return False  # a condition that was met
    finally:
        aside.delete(name)


def _refused(aside: Backend, name: str, *, if_absent: bool = False, if_match: str | None = None) -> bool:
    try:
        aside.put(name, b"never", if_absent=if_absent, if_match=if_match)
    except Changed:
        return True
    return False
