"""The live engine: the kernel stands still for its skeleton only; its memory is read from shadows while it goes on.

What goes wrong in the world: writing memory takes half a second and more per GiB, and that is how long others freeze a kernel.
Here CRIU is blindfolded (`blindfold.py`): it saves threads, files, connections and what a fork doesn't copy, and just before it
lets go each process gets a copy-on-write twin. The pages that CRIU was told nothing of are read from these shadows afterwards
(`merging.py`), and counted: a page that was hidden and is nowhere makes the snapshot fail, never incomplete.

What we don't promise: the kernel may overwrite as much as it likes meanwhile, and every page that it overwrites exists twice
until the shadows are gone. Where that could get tight, `obstacle` says so, and the caller takes the classic engine.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from types import TracebackType

from perdure.domain.clock import Clock
from perdure.domain.errors import NoRoom, NotLive, SnapshotFailed
from perdure.domain.ids import Owner
from perdure.domain.target import Target

from . import blindfold, merging, pagemap, room, shadows, tree
from .blindfold import Blindfold, Report
from .criu import Criu
from .dump import Capture, dump
from .limits import CaptureLimits
from .merging import MergedPages
from .shadows import Shadows

__all__ = ["ENGINE", "LiveCapture", "NotLive", "SnapshotFailed", "capture", "obstacle", "short_of_memory"]

ENGINE = "live"
_OVERWRITTEN = 4
"""One page in so many is expected to be overwritten while the shadows live; when it is more, they are given up in time."""


@dataclass
class LiveCapture:
    """A capture whose memory still lies in shadows. Use it as a context manager: leaving it ends them."""

    capture: Capture
    pages: Mapping[str, MergedPages]
    """Name of a pages file -> its content; it takes the place of the file of that name among the images."""
    _shadows: Shadows
    _open: ExitStack

    def __enter__(self) -> LiveCapture:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    @property
    def given_up(self) -> bool:
        """Memory got short: the pages can't be read any more."""
        return self._shadows.given_up


def obstacle(target: Target, limits: CaptureLimits) -> str:
    """Why a live snapshot isn't possible here and now; nothing when it is. A few milliseconds, outside the stall."""
    if platform.machine() != "x86_64":
        return f"live snapshots work on x86-64 only, this is {platform.machine()}"
    if blindfold.library() is None:
        return "perdure-blindfold.so is not installed"
    if not pagemap.supported():
        return "this Linux kernel has no PAGEMAP_SCAN (it came with 6.7)"
    need = limits.memory_margin_bytes + _memory(target) // _OVERWRITTEN
    available = room.available_memory()
    if available < need:
        return (
            f"{available >> 20} MiB of memory are free, and the pages that the kernel overwrites meanwhile may need {need >> 20}"
        )
    return ""


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
    thawed: Callable[[], None] = lambda: None,
) -> LiveCapture:
    """The skeleton in the folder `images`, the rest in shadows. `thawed` is called when the kernel runs again.

    Raises NotLive (another engine may do it; the kernel goes on, the folder is gone), and what `dump.dump` raises.
    """
    shadows.sweep(target)
    with Blindfold() as blind, ExitStack() as cleanup:
        cleanup.callback(shadows.sweep, target)  # whatever happens now: no shadow without a keeper
        taken = dump(
            target,
            images,
            criu,
            limits=limits,
            clock=clock,
            cancelled=cancelled,
            owner=owner,
            frozen=frozen,
            check_room=lambda: room.check_skeleton(images, limits),
            blindfold=blind,
        )
        thawed()
        begun = clock.monotonic()
        kept = _keep(target, blind.report(), limits, cleanup)
        pages: dict[str, MergedPages] = {}
        for pid, shadow in kept.pids.items():
            name, content = _merged(images, pid, shadow, blind.report())
            cleanup.callback(content.close)
            pages[name] = content
        timings = {**taken.timings, "shadows": blind.report().twins_s, "merge": clock.monotonic() - begun}
        timings["dump"] -= blind.report().twins_s
        size = taken.bytes_logical + sum(content.size - (images / name).stat().st_size for name, content in pages.items())
        taken = replace(taken, timings=timings, bytes_logical=size)
        return LiveCapture(taken, pages, kept, cleanup.pop_all())


def _keep(target: Target, report: Report, limits: CaptureLimits, cleanup: ExitStack) -> Shadows:
    missing = [pid for pid in report.hidden if pid not in report.twins]
    if report.failures or missing:
        why = "; ".join(report.failures) or f"process {missing[0]} has no shadow"
        raise NotLive("The kernel could not be saved while it runs.", detail=why)
    found = shadows.find(target)
    try:
        pids = {pid: found[twin] for pid, twin in report.twins.items()}
    except KeyError as error:
        raise NotLive("A shadow of the kernel has ended at once.", detail=f"number {error} in the sandbox") from error
    return cleanup.enter_context(Shadows(pids, limits.memory_margin_bytes // 2))


def _merged(images: Path, pid: int, shadow: int, report: Report) -> tuple[str, MergedPages]:
    try:
        return merging.merge(images, pid, shadow, report.hidden[pid])
    except OSError as error:
        raise NotLive("The kernel's shadow could not be read.", detail=repr(error)) from error


def short_of_memory() -> NoRoom:
    return NoRoom(
        "Memory got short while the snapshot was stored, so it was given up.",
        hint="The next one freezes the kernel instead; free some memory for live snapshots.",
    )


def _memory(target: Target) -> int:
    return tree.memory_bytes([process.pid for process in tree.descendants(target.kernel_pid)])
