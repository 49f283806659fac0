"""A kernel's sandbox, from its start (or its adoption by a restarted agent) to its end.

The sandbox does not depend on this object: it lives on when the agent dies, and `adopt` finds it again. What depends on us
is that the starter process, our child, is reaped: `ended` and `kill` do that.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal as signals
import subprocess
from pathlib import Path

from perdure.domain.errors import KernelGone, SandboxFailed
from perdure.domain.ids import Owner
from perdure.domain.target import KERNEL_PID

from .identity import ProcessIdentity
from .launch import LOG, STATUS, LaunchSpec, Started, launch
from .members import kernel_of, members
from .status import ShimStatus

__all__ = ["LaunchSpec", "Sandbox"]

KILL_DEADLINE_S = 30.0
"""Linux frees a big process's memory in about 0.1 s per GiB; what takes longer hangs in a device or a file server."""


class Sandbox:
    """`shim` is the sandbox's PID 1 on this host; `folder` holds its status file and kernel.log."""

    def __init__(self, folder: Path, shim: ProcessIdentity, *, started: Started | None = None) -> None:
        """Not for callers: `start`, `empty` and `adopt` make sandboxes."""
        self.folder = folder
        self.shim = shim
        self._outer: subprocess.Popen[bytes] | None = started.outer if started else None
        self._lifeline = started.lifeline if started else None

    @classmethod
    def start(cls, folder: Path, spec: LaunchSpec, *, die_with_agent: bool = False) -> Sandbox:
        """A sandbox with a kernel in it; returns when the kernel has been exec'ed. Raises SandboxFailed, and nothing is left."""
        started = launch(folder, spec.owner, spec, die_with_agent=die_with_agent)
        return cls(folder, started.shim, started=started)

    @classmethod
    def empty(cls, folder: Path, *, owner: Owner | None = None, die_with_agent: bool = False) -> Sandbox:
        """A sandbox to restore into: CRIU brings pid 1000 back as a child of its PID 1. Raises SandboxFailed.

        The output pipe will be the owner's: a program that isn't root opens /dev/stdout by its name.
        """
        started = launch(folder, owner, None, die_with_agent=die_with_agent)
        return cls(folder, started.shim, started=started)

    @classmethod
    def adopt(cls, folder: Path, shim: ProcessIdentity) -> Sandbox | None:
        """The sandbox that another agent process started; None when it is no more."""
        if not shim.alive() or ShimStatus.read(folder / STATUS).shim_pid != shim.pid:
            return None
        return cls(folder, shim)

    @property
    def log(self) -> Path:
        """What the kernel's processes print; `kernel.log.1` beside it is the older half."""
        return self.folder / LOG

    def kernel(self) -> ProcessIdentity | None:
        """The process that is pid 1000 inside; None before a restore and after its end."""
        pid = kernel_of(self.shim.pid, KERNEL_PID) if self.shim.alive() else None
        found = ProcessIdentity.of(pid) if pid is not None else None
        return found if found is not None and found.alive() else None

    def processes(self) -> list[int]:
        """Host pids of everybody inside, helpers that entered it and nested containers included, PID 1 left out."""
        return members(self.shim.pid) if self.shim.alive() else []

    def signal(self, signum: int) -> None:
        """To the kernel's process group. Raises KernelGone when there is no kernel."""
        kernel = self.kernel()
        if kernel is None:
            raise KernelGone("There is no kernel to signal: it has ended.")
        with contextlib.suppress(ProcessLookupError):
            leads = os.getpgid(kernel.pid) == kernel.pid
            (os.killpg if leads else os.kill)(kernel.pid, signum)

    def stdio_pipe(self) -> tuple[int, str]:
        """PID 1's descriptor of the write end of the kernel's output pipe, and the pipe's name as CRIU knows it.

        Raises KernelGone when the sandbox has ended.
        """
        fd = ShimStatus.read(self.folder / STATUS).stdio_fd
        try:
            if fd is None:
                raise FileNotFoundError(STATUS)
            return fd, os.readlink(f"/proc/{self.shim.pid}/fd/{fd}")
        except OSError as error:
            raise KernelGone("The sandbox has ended.", detail=str(error)) from error

    def shm(self) -> Path:
        """The sandbox's /dev/shm as it can be reached from outside; valid as long as PID 1 lives."""
        return Path(f"/proc/{self.shim.pid}/root/dev/shm")

    def ended(self) -> int | None:
        """None while it lives; then the kernel's exit status, negative for a signal, -9 when nobody was left to write it down."""
        alive = self.shim.alive()  # asked before reading: the last line is written before PID 1 goes
        status = ShimStatus.read(self.folder / STATUS)
        if not alive:
            self._reap()
        if status.ended is not None and status.shim_pid == self.shim.pid:
            return status.ended
        return None if alive else -signals.SIGKILL

    def kill(self) -> None:
        """End everything inside; returns when processes and mounts are gone. Idempotent.

        Raises SandboxFailed when something can't be killed.
        """
        try:
            pidfd = self.shim.pidfd()
        except ProcessLookupError:
            pidfd = None
        if pidfd is not None:
            try:
                with contextlib.suppress(ProcessLookupError):
                    signals.pidfd_send_signal(pidfd, signals.SIGKILL)
                # PID 1 becomes a zombie only when everybody else in its namespace is gone.
                poll = select.poll()
                poll.register(pidfd, select.POLLIN)
                if not poll.poll(KILL_DEADLINE_S * 1000):
                    raise SandboxFailed(
                        f"Processes of the sandbox did not end within {KILL_DEADLINE_S:.0f} seconds.",
                        hint="They hang in a device or a file server; they end when that answers.",
                        detail=f"host pids {members(self.shim.pid)}",
                    )
            finally:
                os.close(pidfd)
        self._reap()
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)

    def _reap(self) -> None:
        """Our child, the starter, ends right after PID 1."""
        outer, self._outer = self._outer, None  # one step: several threads may come here at once
        if outer is not None:
            outer.wait()
