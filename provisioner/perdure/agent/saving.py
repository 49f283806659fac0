"""Which engine saves a kernel, and what happens when the live one can't: the classic one does it, and the record says why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from perdure.domain.clock import Clock
from perdure.domain.errors import StoreFailed
from perdure.domain.ids import Owner
from perdure.domain.policy import Policy
from perdure.domain.target import Target
from perdure.engine import classic, live
from perdure.engine.criu import Criu
from perdure.engine.dump import Capture
from perdure.engine.limits import CaptureLimits
from perdure.store.source import Content

log = logging.getLogger(__name__)

_LIMITS = CaptureLimits()


@dataclass(frozen=True)
class Saved:
    """A kernel's image, ready to be stored. The kernel runs on."""

    capture: Capture
    engine: str
    pages: Mapping[str, Content]
    """Files of the image that lie elsewhere."""
    warnings: tuple[str, ...]


@contextmanager
def saved(
    target: Target,
    images: Path,
    criu: Criu,
    policy: Policy,
    *,
    owner: Owner,
    clock: Clock,
    cancelled: Event,
    frozen: Callable[[], None],
    thawed: Callable[[], None],
) -> Iterator[Saved]:
    """The image in the folder `images`, while the body stores it.

    Raises SnapshotFailed, NoRoom, KernelGone; NoRoom too when memory gets short while the body runs.
    """
    why = "" if policy.engine != classic.ENGINE else "the kernel's settings ask for it"
    obstacle = live.obstacle(target, _LIMITS) if not why else ""
    if not why and not obstacle:
        try:
            alive = live.capture(
                target,
                images,
                criu,
                limits=_LIMITS,
                clock=clock,
                cancelled=cancelled,
                owner=owner,
                frozen=frozen,
                thawed=thawed,
            )
        except live.NotLive as error:
            if policy.engine == live.ENGINE:
                raise
            obstacle = error.detail or error.sentence
        else:
            with alive:
                try:
                    yield Saved(alive.capture, live.ENGINE, alive.pages, alive.capture.warnings)
                except StoreFailed as error:
                    if alive.given_up:
                        raise live.short_of_memory() from error
                    raise
            return
    if obstacle and policy.engine == live.ENGINE:
        raise live.NotLive(f"The kernel can't be saved while it runs: {obstacle}.", hint='Set engine to "auto".')
    try:
        taken = classic.capture(
            target, images, criu, limits=_LIMITS, clock=clock, cancelled=cancelled, owner=owner, frozen=frozen
        )
    finally:
        thawed()
    fell_back = (f"the kernel was frozen while its memory was saved: {obstacle}",) if obstacle else ()
    if obstacle:
        log.warning("classic snapshot: %s", obstacle)
    yield Saved(taken, classic.ENGINE, {}, taken.warnings + fell_back)
