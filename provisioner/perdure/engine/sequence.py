"""Steps in order, each timed, each with its undo."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import TracebackType

from perdure.domain.clock import Clock

log = logging.getLogger(__name__)


class Cancelled(Exception):
    """The caller asked to stop, between two steps."""


class Sequence:
    """Runs as a context manager: when its body raises, what was registered with `undo` runs backwards."""

    def __init__(self, clock: Clock, cancelled: Event | None = None) -> None:
        self._clock, self._cancelled = clock, cancelled
        self._undo: list[tuple[str, Callable[[], object]]] = []
        self._timings: dict[str, float] = {}
        self._begun = clock.monotonic()

    def __enter__(self) -> Sequence:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            return
        for name, action in reversed(self._undo):
            try:
                action()
            except Exception:  # an undo that fails must not keep the others from running, nor hide the error that matters
                log.exception("undo of %s failed", name)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Raises Cancelled instead of starting. Seconds of several steps of one name add up."""
        if self._cancelled is not None and self._cancelled.is_set():
            raise Cancelled(name)
        begun = self._clock.monotonic()
        try:
            yield
        finally:
            self.account(name, self._clock.monotonic() - begun)

    def undo(self, name: str, action: Callable[[], object]) -> None:
        self._undo.append((name, action))

    def account(self, name: str, seconds: float) -> None:
        self._timings[name] = self._timings.get(name, 0.0) + seconds

    def timings(self) -> dict[str, float]:
        """Step -> seconds, and what no step accounts for."""
        total = self._clock.monotonic() - self._begun
        return {**self._timings, "unaccounted": max(0.0, total - sum(self._timings.values()))}
