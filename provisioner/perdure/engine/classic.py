"""The classic engine: CRIU writes everything while the kernel stands still, then the kernel goes on.

The stall grows with memory. It is the fallback of every faster engine and the oracle that they are tested against.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

from perdure.domain.clock import Clock
from perdure.domain.ids import Owner
from perdure.domain.target import Target

from . import room
from .criu import Criu
from .dump import Capture, dump
from .limits import CaptureLimits

__all__ = ["ENGINE", "Capture", "capture"]

ENGINE = "classic"


def capture(
    target: Target,
    images: Path,
    criu: Criu,
    *,
    limits: CaptureLimits,
    clock: Clock,
    cancelled: Event | None = None,
    owner: Owner | None = None,
    frozen: Callable[[], None] = lambda: None,
) -> Capture:
    """A complete image in the folder `images`. Raises NoRoom (nothing was started), and what `dump.dump` raises."""
    return dump(
        target,
        images,
        criu,
        limits=limits,
        clock=clock,
        cancelled=cancelled,
        owner=owner,
        frozen=frozen,
        check_room=lambda: room.check(target, images, limits),
    )
