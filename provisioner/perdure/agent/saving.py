"""Which engine saves a kernel, and what happens when the live one can't: the classic one does it, and the record says why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from perdure.domain.errors import NotLive, StoreFailed
from perdure.domain.policy import Policy
from perdure.engine import classic, live
from perdure.engine.dump import Capture, Job
from perdure.engine.live import LiveCapture
from perdure.store.source import Content

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Saved:
    """A kernel's image, ready to be stored. The kernel runs on."""

    capture: Capture
    engine: str
    pages: Mapping[str, Content]
    """Files of the image that lie elsewhere."""
    warnings: tuple[str, ...]


@contextmanager
def saved(job: Job, policy: Policy, thawed: Callable[[], None]) -> Iterator[Saved]:
    """The image, while the body stores it. `thawed` is called before, when the kernel runs again for good.

    Raises SnapshotFailed, NoRoom, KernelGone; NoRoom too when memory gets short while the body runs.
    """
    alive, why = _live(job, policy)
    if alive is not None:
        thawed()
        with alive:
            try:
                yield Saved(alive.capture, live.ENGINE, alive.pages, alive.capture.warnings)
            except StoreFailed as error:
                if alive.given_up:
                    raise live.short_of_memory() from error
                raise
        return
    try:
        taken = classic.capture(job)
    finally:
        thawed()
    if why:
        log.warning("classic snapshot: %s", why)
    fell_back = (f"the kernel was frozen while its memory was saved: {why}",) if why else ()
    yield Saved(taken, classic.ENGINE, {}, taken.warnings + fell_back)


def _live(job: Job, policy: Policy) -> tuple[LiveCapture | None, str]:
    """A live capture; or None and why not, nothing when nobody wants one. Raises NotLive when no other engine may do it."""
    if policy.engine == classic.ENGINE:
        return None, ""
    why = live.obstacle(job.target, job.limits)
    if not why:
        try:
            return live.capture(job), ""
        except NotLive as error:
            why = error.detail or error.sentence
    if policy.engine == live.ENGINE:
        raise NotLive(f"The kernel can't be saved while it runs: {why}.", hint='Set engine to "auto".')
    return None, why
