"""A backend whose passing troubles are waited out.

What goes wrong in the world: a server answers 503 for a minute, a connection breaks in mid-body, an answer never comes.
Reading, listing and deleting are simply done again. A put whose answer was lost may have taken place: done again under the same
condition it finds its own first attempt in the way. So, when that says `Changed`, the object is looked at: our bytes are a
success. Anything else is not `Changed`, because ours may have been there in between: the first failure is raised, which leaves
open what happened. That rests on nobody else writing the same bytes: heads and leases carry a random token,
other names are random.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from perdure.domain.errors import StoreAway

from .backend import Absent, Backend, Bytes, Changed, Entry, Stat

T = TypeVar("T")

ATTEMPTS = 7
_FIRST_S = 0.2
_LONGEST_S = 10.0
_IN_ALL_S = 180.0
"""No new attempt after that: a snapshot that hangs is worse than one that fails and is tried again."""


class Retrying:
    """`backend` again; StoreAway comes out only when it has lasted."""

    def __init__(
        self,
        backend: Backend,
        *,
        pause: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._backend = backend
        self._pause, self._monotonic, self._jitter = pause, monotonic, jitter

    @property
    def url(self) -> str:
        return self._backend.url

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return self._again(lambda: self._backend.get(name, start, length))

    def stat(self, name: str) -> Stat:
        return self._again(lambda: self._backend.stat(name))

    def list(self, prefix: str) -> Iterator[Entry]:
        yield from self._again(lambda: [*self._backend.list(prefix)])

    def delete(self, name: str) -> None:
        self._again(lambda: self._backend.delete(name))

    def put(self, name: str, data: Bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        unclear: list[StoreAway] = []

        def attempt() -> str:
            try:
                return self._backend.put(name, data, if_absent=if_absent, if_match=if_match)
            except StoreAway as error:
                if error.unclear:
                    unclear.append(error)
                raise

        try:
            return self._again(attempt)
        except Changed:
            if not unclear:
                raise
            tag = self._ours(name, data)
            if tag is None:
                raise unclear[0] from None
            return tag

    def _ours(self, name: str, data: Bytes) -> str | None:
        """The tag of the object if it has just these bytes."""
        try:
            before = self.stat(name)
            if before.size != len(memoryview(data)) or self.get(name) != bytes(data):
                return None
            return before.tag if self.stat(name) == before else None
        except Absent:
            return None

    def _again(self, call: Callable[[], T]) -> T:
        end = self._monotonic() + _IN_ALL_S
        for attempt in range(1, ATTEMPTS):
            try:
                return call()
            except StoreAway:
                if self._monotonic() > end:
                    raise
            # Full jitter: those who were turned away together don't come back together.
            self._pause(self._jitter() * min(_LONGEST_S, _FIRST_S * 2**attempt))
        return call()
