"""Brings a kernel back from an image, into an empty sandbox."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from perdure.domain.clock import Clock
from perdure.domain.errors import PerdureError, RestoreFailed
from perdure.domain.record import Record
from perdure.domain.target import KERNEL_PID, Target

from . import clients, connections, explain, files, pids, remaps, rpc, timewait, tree
from . import images as image
from .criu import Criu
from .sequence import Sequence
from .worker import Worker, WorkerDied

_LOG = "restore.log"
_RESTORE_S = 600.0
_ABORT_S = 2.0
"""A half-restored tree is thrown away, so CRIU gets little time to tidy up."""
_GONE_S = 10.0
_BEFORE_RESUME = "pre-resume"
"""CRIU's hook: everything is restored, nothing runs yet."""


@dataclass(frozen=True)
class Revived:
    kernel_pid: int
    """Host pid."""
    timings: dict[str, float]
    warnings: tuple[str, ...]


def revive(
    target: Target, images: Path, record: Record, criu: Criu, *, clock: Clock, accept_changed_files: bool = False
) -> Revived:
    """Restores the tree as children of the sandbox's PID 1; `target.kernel_pid` is ignored.

    `images` is a private copy: it is edited. Raises PreflightRefused (a file has changed; nothing was done), RestoreFailed (with
    CRIU's log) or Corrupt, with the sandbox empty again.
    """
    with Sequence(clock) as sequence:
        sequence.undo("processes", lambda: _empty(target, clock))
        with sequence.step("image"):
            image.check(images)
        with sequence.step("files"):
            warnings = list(files.put_back(target, images, record, accept_changed=accept_changed_files))
            links = remaps.put_back(target, images, record.owner)
            sequence.undo("links", lambda: remaps.clear(links))
        with sequence.step("connections"):
            closed = connections.close_outside(images, connections.local_address)
            timewait.end(images)
            warnings += [f"the connection to {end} was closed" for end in connections.made_by_us(images, closed)]
        with sequence.step("pids"):
            taken = image.taken_pids(images)
            pids.set_last(target.shim_pid, pids.free_run(taken, pids.highest()))
        with sequence.step("restore"):
            _restore(target, images, record, criu, clock)
        with sequence.step("pids"):
            pids.set_last(target.shim_pid, max(taken))
            remaps.clear(links)
            kernel = _kernel(target)
    return Revived(kernel_pid=kernel, timings=sequence.timings(), warnings=tuple(warnings))


def _restore(target: Target, images: Path, record: Record, criu: Criu, clock: Clock) -> None:
    log = images / _LOG
    folder = os.open(images, os.O_RDONLY | os.O_DIRECTORY)
    stdio = -1
    stopped = 0

    def before_resume(hook: str) -> None:
        nonlocal stopped
        if hook == _BEFORE_RESUME:
            clients.queue_up(clock)
            kernel = _kernel(target)
            stopped = kernel if clients.stop(kernel) else 0

    try:
        stdio = os.open(f"/proc/{target.shim_pid}/fd/{target.stdio_fd}", os.O_WRONLY)
        with Worker(criu, target.shim_pid, [folder, stdio], clock, abort_s=_ABORT_S) as worker:
            request = rpc.restore(folder, _LOG, inherit={record.stdio_key: stdio})
            reply = worker.call(request, before_resume, deadline_s=_RESTORE_S)
        if not reply.success:
            raise _failed(target, log, reply.error, "")
        if stopped:
            clients.let_in(stopped, clock)
    except WorkerDied as error:
        raise _failed(target, log, error.why, error.stderr) from error
    finally:
        os.close(folder)
        if stdio >= 0:
            os.close(stdio)


def _failed(target: Target, log: Path, why: str, stderr: str) -> PerdureError:
    sentence = explain.sentence(log, f"CRIU failed: {why or 'it gave no reason'}.", target)
    return RestoreFailed(f"The kernel could not be brought back. {sentence}", detail=explain.tail(log, stderr))


def _kernel(target: Target) -> int:
    for process in tree.in_sandbox(target.shim_pid):
        if process.inner_pid == KERNEL_PID and process.state not in "ZX":
            return process.pid
    raise RestoreFailed("The kernel ended right after it was brought back.")


def _empty(target: Target, clock: Clock) -> None:
    """Ends everything in the sandbox but PID 1."""
    until = clock.monotonic() + _GONE_S
    while clock.monotonic() < until:
        left = [process for process in tree.in_sandbox(target.shim_pid) if process.state not in "ZX"]
        if not left:
            return
        for process in left:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        os.sched_yield()
