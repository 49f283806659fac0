"""The classic engine: CRIU writes everything while the kernel stands still, then the kernel goes on.

The stall grows with memory. It is the fallback of every faster engine and the oracle that they are tested against.
"""

from __future__ import annotations

from . import room
from .dump import Capture, Job, dump

__all__ = ["ENGINE", "Capture", "Job", "capture"]

ENGINE = "classic"


def capture(job: Job) -> Capture:
    """A complete image. Raises NoRoom (nothing was started), and what `dump.dump` raises."""
    return dump(job, lambda: room.check(job.target, job.images, job.limits))
