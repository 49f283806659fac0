"""Where objects lie. docs/format.md says which objects there are; a backend doesn't know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

Bytes = bytes | bytearray | memoryview


class Absent(Exception):
    """No object of that name. The caller knows whether that is an error, and which one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Changed(Exception):
    """A conditional put found another state than it was told to: the object exists, is gone, or has another tag."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class Stat:
    """Size in bytes; `tag` names this state of the object and is met at no other one of different bytes."""

    size: int
    tag: str


@dataclass(frozen=True)
class Entry:
    """One name directly below a prefix. A folder's ends in `/`, and its size is 0."""

    name: str
    size: int


class Backend(Protocol):
    """Six verbs. Names are relative, `/`-separated, and never begin with a dot in any component.

    Whatever can't be done raises StoreFailed or NoRoom with a sentence for people; nobody below retries. All verbs may be called
    from several threads and by several processes at once.
    """

    @property
    def url(self) -> str:
        """For messages and for opening it again."""
        ...

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes from `start`; fewer than `length` only where the object ends. Raises Absent."""
        ...

    def put(self, name: str, data: Bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        """Write the whole object and return its tag: visible only when whole, durable when this returns.

        Raises Changed or NoRoom, having changed nothing; any other error leaves open whether it took place.
        """
        ...

    def stat(self, name: str) -> Stat:
        """Raises Absent. May read the object: meant for small ones."""
        ...

    def list(self, prefix: str) -> Iterator[Entry]:
        """What lies directly below `prefix` ("" or ending in `/`), sorted; nothing where there is no such prefix."""
        ...

    def delete(self, name: str) -> None:
        """Idempotent."""
        ...
