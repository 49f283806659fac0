"""What an agent that died left half done, put right by the next one before it looks after the kernel."""

from __future__ import annotations

import logging
import os
import resource
import select
import shutil
import signal
from pathlib import Path

from perdure.domain.clock import Clock
from perdure.domain.target import Target
from perdure.engine import mend, tree
from perdure.runtime.identity import ProcessIdentity
from perdure.runtime.sandbox import Sandbox
from perdure.runtime.status import ShimStatus

from .memory import Memory

log = logging.getLogger(__name__)

_LET_GO_S = 10.0
"""A CRIU that can write no more undoes what it did within milliseconds, unless the kernel is huge; after that it is killed."""


def end_sandbox(memory: Memory) -> None:
    """Ends a sandbox that was being started or restored into: nobody knows how far it came."""
    status = memory.sandbox_folder / "status"
    pid = ShimStatus.read(status).shim_pid
    shim = ProcessIdentity.of(pid) if pid else None
    leftover = Sandbox.adopt(memory.sandbox_folder, shim) if shim is not None and _serves(shim.pid, status) else None
    if leftover is not None:
        log.warning("%s: ended a sandbox that was half made", memory.kernel)
        leftover.kill()


def end_dump(target: Target, before: mend.Before, clock: Clock) -> bool:
    """Ends a CRIU that is at work in the sandbox and mends what it left. Whether there was one.

    Its socket to the dead agent is closed, so it would give up at its next question; with a large kernel that can take long,
    and the kernel stands still meanwhile.
    """
    own = {process.pid for process in tree.descendants(target.kernel_pid)}
    strays = [one.pid for one in tree.in_sandbox(target.shim_pid) if one.pid not in own and _is_criu(one.pid)]
    for pid in strays:
        log.warning("a CRIU of an agent that is gone is still at work (%d): it is ended", pid)
        _end_criu(pid)
    if strays:
        mend.mend(target, before, clock)
    return bool(strays)


def clear_staging(memory: Memory) -> None:
    shutil.rmtree(memory.staging, ignore_errors=True)


def _end_criu(pid: int) -> None:
    """First it can't write any more, and takes its own way back; then it is killed."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))
        gone = select.poll()
        gone.register(fd, select.POLLIN)
        if not gone.poll(_LET_GO_S * 1000):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            gone.poll(_LET_GO_S * 1000)
    except ProcessLookupError:
        log.debug("it ended meanwhile")
    finally:
        os.close(fd)


def _is_criu(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"swrk" in words


def _serves(pid: int, status: Path) -> bool:
    """Whether it is the PID 1 that writes this status file. The pid in it may be another's by now, even another PID 1's."""
    try:
        return os.fsencode(status) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
