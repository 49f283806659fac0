"""Shadows: copy-on-write twins of the kernel's processes, kept until their memory has been stored.

They stand still, hold no descriptor, and are children of the sandbox's PID 1. Nobody but their keeper knows them, so the keeper
is their tracer: when it ends, in whatever way, Linux kills them. They cost what the kernel overwrites meanwhile; when memory
gets short they go first, and the snapshot with them.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from threading import Event, Thread

from perdure.domain.errors import NotLive
from perdure.domain.target import Target

from . import room, tree

log = logging.getLogger(__name__)

NAME = "perdure-shadow"
_SEIZE, _EXITKILL = 0x4206, 1 << 20
"""linux/ptrace.h"""
_WALL = 0x40000000
_LOOK_S = 0.1
"""How often the memory that is left is looked at: the kernel may overwrite a gibibyte in a second."""
_EXIT_SIGNAL = 35
"""proc_pid_stat(5): field 38, counted after the name."""
_REAP_S = 10.0
_FIRST_TO_GO = "1000"
_libc = ctypes.CDLL(None, use_errno=True)


class Shadows:
    """Use it as a context manager: they are gone when it is left."""

    def __init__(self, pids: Mapping[int, int], floor_bytes: int) -> None:
        """`pids`: process -> shadow; the latter is a host pid. `floor_bytes`: with less free memory than this they are given up.

        Raises NotLive; no shadow is left then.
        """
        self.pids = dict(pids)
        self.given_up = False
        self._floor = floor_bytes
        self._drop, self._kept = Event(), Event()
        self._failed = ""
        self._thread = Thread(target=self._keep, name="perdure-keeper", daemon=True)
        self._thread.start()
        self._kept.wait()
        if self._failed:
            self.close()
            raise NotLive("The kernel's shadow can't be kept.", detail=self._failed)

    def __enter__(self) -> Shadows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        self._drop.set()
        self._thread.join()

    def _keep(self) -> None:
        """A thread of its own, since it is a thread that traces."""
        kept: list[int] = []
        try:
            for pid in self.pids.values():
                if _libc.ptrace(_SEIZE, pid, None, ctypes.c_void_p(_EXITKILL)) != 0:
                    self._failed = f"shadow {pid}: {os.strerror(ctypes.get_errno())}"
                    break
                kept.append(pid)
                Path(f"/proc/{pid}/oom_score_adj").write_text(_FIRST_TO_GO)
        except OSError as error:
            self._failed = str(error)
        finally:
            self._kept.set()
        while not self._failed and not self._drop.wait(_LOOK_S):
            if room.available_memory() < self._floor:
                self.given_up = True
                log.warning("memory gets short: the shadows of %s are given up", sorted(self.pids))
                break
        for pid in self.pids.values():
            _end(pid, traced=pid in kept)


def find(target: Target) -> dict[int, int]:
    """All shadows in a sandbox: pid as in the sandbox -> host pid."""
    return {
        process.inner_pid: process.pid
        for process in tree.in_sandbox(target.shim_pid)
        if process.name == NAME and process.ppid == target.shim_pid and process.state in "Tt"
    }


def sweep(target: Target) -> int:
    """Ends shadows that nobody keeps any more: their keeper was killed before it had taken them. Gives how many."""
    found = [pid for pid in find(target).values() if (process := tree.read(pid)) is not None and not process.tracer]
    for pid in found:
        _end(pid, traced=False)
    return len(found)


def reap(companions: Iterable[tree.Process]) -> int:
    """Companions of shadows whose maker was killed: their parents are borrowed to wait for them (native/shadow/twin.h). Gives
    how many are gone."""
    count = 0
    for one in companions:
        if (program := _program()) is not None:
            command = [str(program), "--reap", str(one.ppid), str(one.inner_pid)]
            count += subprocess.run(command, stdout=subprocess.DEVNULL, env={}, timeout=_REAP_S, check=False).returncode == 0
    return count


def exit_signal(pid: int) -> int | None:
    """What the process's end tells its parent (nothing, of a companion); None when there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_EXIT_SIGNAL])
    except (FileNotFoundError, ProcessLookupError):
        return None


def _program() -> Path | None:
    found = Path(str(files("perdure") / "bin" / "perdure-shadow"))
    return found if found.is_file() else None


def _end(pid: int, *, traced: bool) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        while traced and not _gone(os.waitpid(pid, _WALL)[1]):
            continue
    except OSError as error:
        if error.errno not in (errno.ESRCH, errno.ECHILD):
            raise


def _gone(status: int) -> bool:
    return os.WIFSIGNALED(status) or os.WIFEXITED(status)
