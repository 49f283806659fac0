"""What stands in a dump's way, found before anything is frozen.

CRIU refuses most of what it can't save, and names it (`explain.py`). Some things it accepts and then can't restore, others it
refuses in words that nobody understands: those are looked for here. A few milliseconds of /proc, outside the stall.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from perdure.domain.target import Target

from . import tree, unixsockets

_NAMESPACES = {
    "net": "network",
    "mnt": "mount",
    "ipc": "IPC",
    "uts": "host name",
    "user": "user",
    "pid": "process",
    "pid_for_children": "process",
    "cgroup": "control group",
    "time": "time",
}
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_IO_URING = "anon_inode:[io_uring]"
_BRITTLE = frozenset({"/usr/bin/script", "/bin/script"})
"""Programs that end when poll() says EINTR. It does after every dump: CRIU borrows each thread for system calls of its own, and
Linux can't go on with an interrupted poll() after that. Interpreters, shells and pexpect just ask again."""


def find(target: Target) -> list[str]:
    """One sentence for each obstacle; it names the process and the object."""
    processes = [process for process in tree.descendants(target.kernel_pid) if process.state not in "ZX"]
    home = _namespaces(target.kernel_pid)
    found: list[str] = []
    sockets: dict[int, str] = {}
    for process in processes:
        who = f"Process {process.inner_pid} ({process.name})"
        for name, space in _namespaces(process.pid).items():
            if space != home.get(name) and name != "pid_for_children":
                found.append(f"{who} lives in a {_NAMESPACES[name]} namespace of its own.")
        if _program(process.pid) in _BRITTLE:
            found.append(f"{who} would end: it can't bear the interruption that a snapshot is.")
        if process.tracer:
            found.append(f"{who} is being traced by {_tracer(process.tracer)}.")
        for number, link in tree.descriptors(process.pid):
            if link == _IO_URING:
                found.append(f"{who} has an io_uring open (descriptor {number}).")
            elif match := _SOCKET.fullmatch(link):
                sockets[int(match[1])] = who
    for inode, peer in unixsockets.outside(set(sockets)):
        found.append(f"{sockets[inode]} is connected to {peer}, outside the kernel.")
    return found


def strays(target: Target) -> list[str]:
    """Processes in the sandbox that are not below the kernel (daemons that cut themselves loose): an image can't hold them."""
    below = {process.pid for process in tree.descendants(target.kernel_pid)}
    return [
        f"process {process.inner_pid} ({process.name}) has left the kernel's process tree and is not in the snapshot"
        for process in tree.in_sandbox(target.shim_pid)
        if process.pid not in below and process.state not in "ZX"
    ]


def _tracer(pid: int) -> str:
    tracer = tree.read(pid)
    return f"{tracer.name} ({tracer.inner_pid})" if tracer else "a debugger"


def _program(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _namespaces(pid: int) -> dict[str, str]:
    found = {}
    for name in _NAMESPACES:
        try:
            found[name] = os.readlink(Path(f"/proc/{pid}/ns/{name}"))
        except OSError:
            continue
    return found
