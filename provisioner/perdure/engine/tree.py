"""The processes in a sandbox, from /proc. Pids are the host's."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    pid: int
    name: str
    state: str
    """One letter, as in /proc/PID/status: T stopped, t traced, Z zombie …"""
    tracer: int
    ppid: int
    inner_pid: int
    """As in the sandbox."""


def read(pid: int) -> Process | None:
    """None when there is no such process any more."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = dict(re.findall(r"^(\w+):\s*(.*)$", status, re.MULTILINE))
    return Process(
        pid=pid,
        name=fields["Name"],
        state=fields["State"][:1],
        tracer=int(fields["TracerPid"]),
        ppid=int(fields["PPid"]),
        inner_pid=int(fields["NSpid"].split()[-1]),
    )


def alive(pid: int) -> bool:
    process = read(pid)
    return process is not None and process.state not in "ZX"


def descendants(pid: int) -> list[Process]:
    """The process and everything below it."""
    found, todo = [], [pid]
    while todo:
        process = read(todo.pop())
        if process is None:
            continue
        found.append(process)
        for task in _listdir(f"/proc/{process.pid}/task"):
            try:
                todo += [int(child) for child in Path(f"/proc/{process.pid}/task/{task}/children").read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def in_sandbox(shim_pid: int) -> list[Process]:
    """Everything in the sandbox's pid namespace but PID 1, helpers that were put there from outside included."""
    try:
        space = os.readlink(f"/proc/{shim_pid}/ns/pid")
    except OSError:
        return []
    found = []
    for name in _listdir("/proc"):
        if not name.isdigit() or int(name) == shim_pid:
            continue
        try:
            if os.readlink(f"/proc/{name}/ns/pid") != space:
                continue
        except OSError:
            continue
        process = read(int(name))
        if process is not None:
            found.append(process)
    return found


def descriptors(pid: int) -> list[tuple[int, str]]:
    """(number, what /proc says it is) of everything that the process has open."""
    found = []
    for name in _listdir(f"/proc/{pid}/fd"):
        try:
            found.append((int(name), os.readlink(f"/proc/{pid}/fd/{name}")))
        except OSError:
            continue
    return found


def memory_bytes(pids: list[int]) -> int:
    """What an image of them holds at most: private memory once per process, shared memory once."""
    private = shared = 0
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = {
            name: int(size) << 10 for name, size in re.findall(r"^(RssAnon|RssShmem|VmSwap):\s*(\d+) kB$", status, re.MULTILINE)
        }
        private += fields.get("RssAnon", 0) + fields.get("VmSwap", 0)
        shared = max(shared, fields.get("RssShmem", 0))
    return private + shared


def _listdir(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, ProcessLookupError):
        return []
