"""Who lives in a sandbox, seen from the host's /proc."""

from __future__ import annotations

import os
from pathlib import Path


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None  # ended, or not ours to look at


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat[stat.rindex(b")") + 2 :].split()[1])


def inner_pid(pid: int) -> int:
    """The pid of a process in its own, innermost PID namespace; 0 when it has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        pass
    return 0


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def members(shim: int) -> list[int]:
    """Host pids of everybody in the PID namespace of `shim` or in one nested in it (a user's container), `shim` left out.

    Zombies that nobody reaped yet are in it: their pids are taken too.
    """
    inside = _namespace(shim)
    if inside is None:
        return []
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    parents = {pid: _parent(pid) for pid in pids}
    known = {shim: True, 0: False}

    def belongs(pid: int) -> bool:
        chain = []
        while pid not in known:
            chain.append(pid)
            if _namespace(pid) == inside:
                known[pid] = True
                break
            known[pid] = False  # ends a loop, should pids have changed hands while we looked
            pid = parents.get(pid, 0)
        answer = known.get(pid, False)
        known.update(dict.fromkeys(chain, answer))
        return answer

    return sorted(pid for pid in pids if pid != shim and belongs(pid))


def kernel_of(shim: int, kernel_pid: int) -> int | None:
    """Host pid of the process that is `kernel_pid` in the namespace of `shim`."""
    inside = _namespace(shim)
    if inside is None:
        return None
    for among in (children(shim), members(shim)):  # while CRIU restores it, it is not yet a child of the shim
        for pid in among:
            if inner_pid(pid) == kernel_pid and _namespace(pid) == inside:
                return pid
    return None
