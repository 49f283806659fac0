"""After a dump that failed: is the kernel really as it was?

A CRIU that ends by itself puts everything back. One that was killed can't, so this looks and mends: processes that stand still
although nobody traces them, connections left in repair mode (they would neither send nor receive), hard links that CRIU made
beside files that had lost their name, shadows whose keeper was
killed and their companions. It changes nothing on a kernel that is well.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import re
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from perdure.domain.clock import Clock
from perdure.domain.target import Target

from . import shadows, tree

log = logging.getLogger(__name__)

_TCP_REPAIR, _REPAIR_OFF_NO_PROBE = 19, -1
"""linux/tcp.h; the window probe at repair's end is of no use to a peer that never noticed."""
_PIDFD_GETFD = 438
_LET_GO_S = 5.0
"""A tracer that was killed lets go within milliseconds; a machine under load gets more."""
_LINK = re.compile(r"link_remap\.\d+")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Before:
    """How the tree was before anything was done to it."""

    stopped: frozenset[int]
    """Processes that were stopped already (by the user's program): they stay so."""
    pids: frozenset[int] | None = None
    """All processes of the tree, ended ones too. None: that isn't known."""

    @classmethod
    def of(cls, target: Target) -> Before:
        found = tree.descendants(target.kernel_pid)
        stopped = frozenset(process.pid for process in found if process.state == "T")
        return cls(stopped, frozenset(process.pid for process in found))


def mend(target: Target, before: Before, clock: Clock) -> list[str]:
    """What had to be mended, in words. Safe to call on any kernel, also twice, also on a dead one."""
    done = []
    processes = _untraced(target, clock)
    for process in processes:
        if process.state == "T" and process.pid not in before.stopped:
            _signal(process.pid, signal.SIGCONT)
            done.append(f"continued process {process.inner_pid} ({process.name})")
    repaired = sum(end_repair(process.pid) for process in processes)
    if repaired:
        done.append(f"took {repaired} connections out of repair mode")
    done += [f"removed {path}" for path in remove_links(target, processes)]
    if left := shadows.sweep(target):
        done.append(f"ended {left} shadows that nobody kept")
    if left := shadows.reap(_companions(target, before, clock)):
        done.append(f"reaped {left} companions of shadows")
    for entry in done:
        log.warning("mended after a failed dump: %s", entry)
    return done


def end_repair(pid: int) -> int:
    """Takes the process's TCP sockets out of repair mode; gives how many were in it."""
    count = 0
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return 0
    try:
        for number, link in tree.descriptors(pid):
            if not link.startswith("socket:"):
                continue
            copy = _libc.syscall(_PIDFD_GETFD, handle, number, 0)
            if copy < 0:
                continue
            with socket.socket(fileno=copy) as sock:
                try:
                    if sock.getsockopt(socket.IPPROTO_TCP, _TCP_REPAIR) == 1:
                        sock.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _REPAIR_OFF_NO_PROBE)
                        # Repair's end clears it. Without it the closed connection would block the kernel's port for a minute.
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                        count += 1
                except OSError as error:
                    if error.errno not in (errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM):
                        raise
    finally:
        os.close(handle)
    return count


def remove_links(target: Target, processes: list[tree.Process]) -> list[str]:
    """Removes the names (link_remap.N) that CRIU gave to the tree's open nameless files. Another file of that name stays."""
    removed = []
    for folder, inodes in _nameless(processes).items():
        inside = Path(f"/proc/{target.shim_pid}/root{folder}")
        try:
            entries = [entry for entry in os.scandir(inside) if _LINK.fullmatch(entry.name)]
        except OSError:
            continue
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if (status.st_dev, status.st_ino) in inodes:
                os.unlink(entry.path)
                removed.append(f"{folder}/{entry.name}")
    return removed


def _nameless(processes: list[tree.Process]) -> dict[str, set[tuple[int, int]]]:
    """Folder -> (device, inode) of files that the tree has open, that lost their name there, and that exist elsewhere."""
    found: dict[str, set[tuple[int, int]]] = {}
    for process in processes:
        for number, name in tree.descriptors(process.pid):
            if not name.endswith(" (deleted)"):
                continue
            try:
                status = os.stat(f"/proc/{process.pid}/fd/{number}")
            except OSError:
                continue
            if status.st_nlink:
                found.setdefault(os.path.dirname(name), set()).add((status.st_dev, status.st_ino))
    return found


def _untraced(target: Target, clock: Clock) -> list[tree.Process]:
    """The tree, once no process of it is traced by one outside it any more."""
    until = clock.monotonic() + _LET_GO_S
    while True:
        processes = [process for process in tree.descendants(target.kernel_pid) if process.state not in "ZX"]
        own = {process.pid for process in processes}
        if all(not process.tracer or process.tracer in own for process in processes) or clock.monotonic() >= until:
            return processes
        os.sched_yield()


def _companions(target: Target, before: Before, clock: Clock) -> list[tree.Process]:
    """Companions of shadows whose maker was killed, once they have ended too."""
    until = clock.monotonic() + _LET_GO_S
    while before.pids is not None:
        found = [
            process
            for process in tree.descendants(target.kernel_pid)
            if process.pid not in before.pids and shadows.exit_signal(process.pid) == 0
        ]
        if all(process.state == "Z" for process in found) or clock.monotonic() >= until:
            return found
        os.sched_yield()
    return []


def _signal(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        log.debug("process %d ended in the meantime", pid)
