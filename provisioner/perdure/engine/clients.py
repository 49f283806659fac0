"""Lets a restored kernel's clients in before its own code goes on.

What goes wrong in the world: clients are connected again only after a handshake with the kernel, which takes some milliseconds
of its I/O threads. A cell that ends the moment it is restored (its download was cut off, its sleep is over) is faster: what it
prints and that it has ended go to nobody, and the page shows it as running for ever.

What we do: while all stands still, the clients' own attempts queue up in the kernel's listening sockets. Then ZeroMQ's I/O
threads go on alone for a moment, and the other threads of the kernel's process after them: it is sent SIGSTOP before CRIU lets
go of it, each other thread is held by ptrace before SIGCONT, and let go at the end, whatever happens.

What we don't promise: a client that comes back later misses what was printed till then. A kernel without such threads goes on
at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure.domain.clock import Clock

from . import tree

QUEUE_S = 0.25
"""ZeroMQ tries again after 100 ms and up to as much again by chance; the rest is for a busy machine."""
HANDSHAKE_S = 0.1
"""A handshake is four short messages; a restored process's first steps are slow, and more so on a busy machine."""
_STOP_S = 5.0
"""A process that was sent SIGSTOP stands still at once; CRIU may still be letting go of its threads."""
_IO_THREAD = "ZMQbg/"
_PTRACE_SEIZE, _PTRACE_DETACH = 0x4206, 17
_WALL = 0x40000000


def queue_up(clock: Clock) -> None:
    """While all stands still, in CRIU's last hook."""
    _wait(QUEUE_S, clock)


def stop(pid: int) -> bool:
    """In CRIU's last hook, after that: the process will stand still when CRIU lets go of it. False when there is no need."""
    process = tree.read(pid)
    if process is None or not any(_is_io(task) for task in _tasks(pid)):
        return False
    os.kill(pid, signal.SIGSTOP)
    return True


def let_in(pid: int, clock: Clock) -> None:
    """When CRIU is done: the stopped process goes on, its I/O threads first."""
    try:
        until = clock.monotonic() + _STOP_S
        while (process := tree.read(pid)) is not None and process.state != "T" and clock.monotonic() < until:
            time.sleep(0.001)
        with _held([task for task in _tasks(pid) if not _is_io(task)]):
            _continue(pid)
            _wait(HANDSHAKE_S, clock)
    finally:
        _continue(pid)


@contextmanager
def _held(tasks: list[Path]) -> Iterator[None]:
    """Threads of a stopped process that stay so when it is continued. By this thread: Linux lets no other one let them go."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    held = []
    try:
        for task in tasks:
            tid = int(task.name)
            if libc.ptrace(_PTRACE_SEIZE, tid, None, None) == 0:
                held.append(tid)
                os.waitpid(tid, _WALL)
        yield
    finally:
        for tid in held:
            libc.ptrace(_PTRACE_DETACH, tid, None, None)


def _continue(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def _wait(seconds: float, clock: Clock) -> None:
    until = clock.monotonic() + seconds
    while (left := until - clock.monotonic()) > 0:
        time.sleep(left)


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return []


def _is_io(task: Path) -> bool:
    try:
        return (task / "comm").read_text().startswith(_IO_THREAD)
    except (FileNotFoundError, ProcessLookupError):
        return False
