"""A sandbox as the engine sees it."""

from __future__ import annotations

from dataclasses import dataclass

KERNEL_PID = 1000
"""The kernel's pid inside every sandbox, the same after a restore: jupyter_client's Session drops messages when it changes."""


@dataclass(frozen=True)
class Target:
    """Pids are the host's."""

    shim_pid: int
    """PID 1 of the sandbox."""
    kernel_pid: int
    """The process that is KERNEL_PID inside; 0 in an empty sandbox."""
    stdio_fd: int
    """The shim's own descriptor of the write end of the kernel's stdout/stderr pipe."""
    stdio_key: str
    """That pipe as CRIU names it: `pipe:[inode]`."""
