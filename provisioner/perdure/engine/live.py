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
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from perdure.domain.errors import NoRoom, NotLive
from perdure.domain.target import Target

from . import blindfold, merging, pagemap, room, shadows, tree
from . import images as image
from .blindfold import Blindfold, Report
from .dump import Capture, Job, dump
from .limits import CaptureLimits
from .merging import MergedPages
from .shadows import Shadows

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


def capture(job: Job) -> LiveCapture:
    """The skeleton in the job's folder, the rest in shadows; the kernel runs again.

    Raises NotLive (another engine may do it; the kernel goes on, the folder is gone), and what `dump.dump` raises.
    """
    shadows.sweep(job.target)
    with Blindfold() as blind, ExitStack() as cleanup:
        cleanup.callback(shadows.sweep, job.target)  # whatever happens now: no shadow without a keeper
        taken = dump(job, lambda: room.check_skeleton(job.images, job.limits), blind)
        begun = job.clock.monotonic()
        try:
            report = blind.report()
            kept = cleanup.enter_context(_kept(job, report))
            pages = _pages(job.images, kept, report, cleanup)
        except BaseException:
            shutil.rmtree(job.images, ignore_errors=True)
            raise
        timings = {**taken.timings, "shadows": report.twins_s, "merge": job.clock.monotonic() - begun}
        timings["dump"] -= report.twins_s
        elsewhere = sum(content.size - (job.images / name).stat().st_size for name, content in pages.items())
        size = image.logical_bytes(job.images) + elsewhere
        return LiveCapture(replace(taken, timings=timings, bytes_logical=size), pages, kept, cleanup.pop_all())


def _kept(job: Job, report: Report) -> Shadows:
    if why := report.defect():
        raise NotLive("The kernel could not be saved while it runs.", detail=why)
    found = shadows.find(job.target)
    try:
        pids = {pid: found[twin] for pid, twin in report.twins.items()}
    except KeyError as error:
        raise NotLive("A shadow of the kernel has ended at once.", detail=f"number {error} in the sandbox") from error
    return Shadows(pids, job.limits.memory_margin_bytes // 2)


def _pages(images: Path, kept: Shadows, report: Report, cleanup: ExitStack) -> dict[str, MergedPages]:
    pages: dict[str, MergedPages] = {}
    try:
        for pid, shadow in kept.pids.items():
            name, content = merging.merge(images, pid, shadow, report.hidden[pid])
            cleanup.callback(content.close)
            pages[name] = content
    except OSError as error:
        raise NotLive("The kernel's shadow could not be read.", detail=repr(error)) from error
    return pages


def short_of_memory() -> NoRoom:
    return NoRoom(
        "Memory got short while the snapshot was stored, so it was given up.",
        hint="The next one freezes the kernel instead; free some memory for live snapshots.",
    )


def _memory(target: Target) -> int:
    return tree.memory_bytes([process.pid for process in tree.descendants(target.kernel_pid)])
