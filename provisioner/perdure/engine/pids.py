"""Numbers in a sandbox's pid namespace: the next one to be given out, and a place for CRIU's own.

CRIU runs in the sandbox and restores every process and thread with the number that it had. Its own process must not sit on one
of those, so before a restore the namespace's counter is set to a stretch that the image doesn't use, and after it back behind
the kernel's: numbers then go on from where they were, and one that the user's program remembers isn't used again soon.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from perdure.domain.errors import SandboxFailed

_FREE_RUN = 512
"""Numbers kept free for CRIU and its helpers."""
_LEAST = 300
"""The kernel starts again at this one when it has reached pid_max."""
_ANSWER_S = 20


def free_run(taken: set[int], pid_max: int) -> int:
    """A number after which `_FREE_RUN` others are free, high up. Raises SandboxFailed when the image leaves no room."""
    start = pid_max * 3 // 4
    candidates: list[int] = [*range(start, pid_max - _FREE_RUN, _FREE_RUN), *range(start - _FREE_RUN, _LEAST, -_FREE_RUN)]
    for candidate in candidates:
        if taken.isdisjoint(range(candidate, candidate + _FREE_RUN)):
            return candidate
    raise SandboxFailed("The kernel uses nearly every process number, none is left for CRIU.", detail=f"{len(taken)} numbers")


def highest() -> int:
    return int(Path("/proc/sys/kernel/pid_max").read_text())


def set_last(shim_pid: int, number: int) -> None:
    """The next process or thread in the sandbox gets number + 1 (or the next free one)."""
    _inside(shim_pid, f"echo {number} > /proc/sys/kernel/ns_last_pid")


def last(shim_pid: int) -> int:
    """The number that was given out last in the sandbox (this question's own included)."""
    return int(_inside(shim_pid, "read n < /proc/sys/kernel/ns_last_pid; echo $n"))


def _inside(shim_pid: int, script: str) -> str:
    command = ["nsenter", "--mount", "--pid", f"--target={shim_pid}", "--", "/bin/sh", "-c", script]
    try:
        done = subprocess.run(
            command,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise SandboxFailed("The sandbox's process numbers can't be set.", detail=error.stderr) from error
    except subprocess.TimeoutExpired as error:
        raise SandboxFailed("The sandbox does not answer.", detail=str(error)) from error
    return str(done.stdout)
