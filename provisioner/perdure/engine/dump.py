"""One dump by CRIU: check, stop the tree, save it and the files beside it, let it go on. What the engines have in common.

With a blindfold, CRIU writes a skeleton without the memory that the shadows will hold, and leaves shadows behind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from perdure.domain.clock import Clock
from perdure.domain.errors import KernelGone, PerdureError, SnapshotFailed
from perdure.domain.ids import Owner
from perdure.domain.record import OpenFile
from perdure.domain.target import Target

from . import connections, explain, files, obstacles, remaps, rpc, tree
from . import images as image
from .blindfold import Blindfold
from .criu import Criu
from .limits import CaptureLimits
from .mend import Before, mend
from .sequence import Cancelled, Sequence
from .worker import Worker, WorkerDied

_LOG = "dump.log"
_FREEZE_S = 10
"""CRIU's time to stop every thread; a thread in an uninterruptible wait (a dead NFS server) makes it give up, unharmed."""
_OBSTACLE_HINT = "The kernel goes on unharmed; the next snapshot works once that is gone."


@dataclass(frozen=True)
class Capture:
    """What a capture gives, beside the image. Seconds and bytes."""

    files: tuple[OpenFile, ...]
    stdio_key: str
    timings: dict[str, float]
    """Step -> seconds; `unaccounted` is the rest."""
    stall_s: float
    """From before the first thread stops until after the last goes on, measured outside: rather too much than too little."""
    bytes_logical: int
    warnings: tuple[str, ...]
    criu_version: str


@dataclass(frozen=True)
class Job:
    """What is to be captured, and how."""

    target: Target
    images: Path
    """The folder for the image: made by the capture, or empty."""
    criu: Criu
    clock: Clock
    limits: CaptureLimits = field(default_factory=CaptureLimits)
    owner: Owner | None = None
    """Whose kernel it is; None: whoever its process is now."""
    cancelled: Event | None = None
    frozen: Callable[[], None] = lambda: None
    """Called when the kernel has stood still for some time."""


def dump(job: Job, check_room: Callable[[], None], blindfold: Blindfold | None = None) -> Capture:
    """Writes an image of the kernel's tree, and lets the kernel go on.

    Raises what `check_room` raises (nothing was started), KernelGone (it ended by itself), SnapshotFailed (the kernel goes on,
    the folder is gone).
    """
    with Sequence(job.clock, job.cancelled) as sequence:
        try:
            return _dump(job, sequence, check_room, blindfold)
        except Cancelled as error:
            raise SnapshotFailed("The snapshot was cancelled.", detail=f"before step {error}") from error


def _dump(job: Job, sequence: Sequence, check_room: Callable[[], None], blindfold: Blindfold | None) -> Capture:
    target, images, clock, limits = job.target, job.images, job.clock, job.limits
    with sequence.step("check"):
        if not tree.alive(target.kernel_pid):
            raise KernelGone("The kernel has ended.", hint="There is nothing to snapshot.")
        if found := obstacles.find(target):
            raise SnapshotFailed(f"The kernel can't be saved now. {found[0]}", hint=_OBSTACLE_HINT, detail="\n".join(found))
        before = Before.of(target)
        warnings = obstacles.strays(target)
        images.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(images.iterdir()):
            raise SnapshotFailed("The folder for the image is not empty.", detail=str(images))
        sequence.undo("image", lambda: shutil.rmtree(images, ignore_errors=True))
        check_room()

    log = images / _LOG
    captured: tuple[OpenFile, ...] = ()
    frozen_at = copied_s = 0.0

    def hook(name: str) -> None:
        nonlocal captured, frozen_at, copied_s
        if name == "pre-dump":
            frozen_at = clock.monotonic()
        elif name == "post-dump":
            begun = clock.monotonic()
            captured = files.capture_beside(target, images, limits, job.owner)
            remaps.save(target, images, limits)
            job.frozen()
            if blindfold is not None:
                blindfold.arm(images)
            copied_s = clock.monotonic() - begun

    folder = os.open(images, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with sequence.step("dump"):
            sequence.undo("dump", lambda: mend(target, before, clock))
            with Worker(job.criu, target.shim_pid, [folder], clock, abort_s=limits.abort_s, blindfold=blindfold) as worker:
                request = rpc.dump(folder, _LOG, ghost_bytes=limits.ghost_bytes, freeze_s=_FREEZE_S)
                reply = worker.call(request, hook, deadline_s=limits.dump_s, cancelled=job.cancelled)
                stall_s = clock.monotonic() - frozen_at
            if not reply.success:
                raise _failed(target, log, reply.error, "")
    except WorkerDied as error:
        raise _failed(target, log, "", error.stderr, error.why) from error
    except OSError as error:
        what = f"{error.strerror or error} ({error.filename})" if error.filename else str(error)
        raise SnapshotFailed(f"The kernel could not be saved: {what}.", hint=_OBSTACLE_HINT) from error
    finally:
        os.close(folder)
    sequence.account("files", copied_s)
    sequence.account("dump", -copied_s)

    with sequence.step("connections"):
        closed = connections.close_outside(images)
        warnings += [f"the connection to {end} will be closed after a restore" for end in connections.made_by_us(images, closed)]
    with sequence.step("tidy"):
        for name in (_LOG, "stats-dump"):
            (images / name).unlink(missing_ok=True)
        size = image.logical_bytes(images)
    return Capture(
        files=captured,
        stdio_key=target.stdio_key,
        timings=sequence.timings(),
        stall_s=stall_s,
        bytes_logical=size,
        warnings=tuple(warnings),
        criu_version=job.criu.name,
    )


def _failed(target: Target, log: Path, error: str, stderr: str, why: str = "") -> PerdureError:
    detail = explain.tail(log, stderr)
    if not tree.alive(target.kernel_pid):
        return KernelGone("The kernel ended while it was being saved.", detail=detail)
    sentence = explain.sentence(log, error or f"CRIU failed: {why or 'it gave no reason'}.", target)
    return SnapshotFailed(f"The kernel could not be saved. {sentence}", hint=_OBSTACLE_HINT, detail=detail)
