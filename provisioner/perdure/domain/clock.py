"""Time as a parameter: nothing in Perdure reads a clock that was not handed to it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """`monotonic` measures, `now` dates; both in seconds."""

    def monotonic(self) -> float: ...

    def now(self) -> float: ...
