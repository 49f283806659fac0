"""Whether a capture fits, asked before anything is started: a full disk costs a snapshot, full memory may cost the kernel."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.domain.errors import NoRoom
from perdure.domain.target import Target

from . import tree
from .limits import CaptureLimits

_MEMORY_FILESYSTEMS = frozenset({"tmpfs", "ramfs"})
_V2, _V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")


def check(target: Target, images: Path, limits: CaptureLimits) -> None:
    """NoRoom (with figures) when the image wouldn't fit on its disk, or the capture not into memory."""
    need = tree.memory_bytes([process.pid for process in tree.descendants(target.kernel_pid)])
    disk = os.statvfs(images)
    free = disk.f_bavail * disk.f_frsize
    if free < need + limits.disk_margin_bytes:
        raise NoRoom(
            f"The image needs {_mib(need + limits.disk_margin_bytes)}, {images} has {_mib(free)} left.",
            hint="Free some space there, or move Perdure's state to a larger disk.",
        )
    memory = limits.memory_margin_bytes + (need if _filesystem(images) in _MEMORY_FILESYSTEMS else 0)
    available = available_memory()
    if available < memory:
        raise NoRoom(
            f"A snapshot needs {_mib(memory)} of memory, {_mib(available)} are left.",
            hint="Free some memory, or raise the limit of Perdure's control group.",
        )


def check_skeleton(images: Path, limits: CaptureLimits) -> None:
    """NoRoom when not even a snapshot's small files fit beside each other."""
    disk = os.statvfs(images)
    free = disk.f_bavail * disk.f_frsize
    if free < limits.disk_margin_bytes:
        raise NoRoom(
            f"A snapshot needs {_mib(limits.disk_margin_bytes)} on the way, {images} has {_mib(free)} left.",
            hint="Free some space there, or move Perdure's state to a larger disk.",
        )


def available_memory() -> int:
    """What the machine has left, or this process's control groups if that is less. CRIU is charged to these."""
    left = 1 << 62
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            left = int(line.split()[1]) << 10
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            left = min([left, *_left(_V2, path, "memory.max", "memory.current")])
        elif "memory" in controllers.split(","):
            left = min([left, *_left(_V1, path, "memory.limit_in_bytes", "memory.usage_in_bytes")])
    return left


def _left(root: Path, path: str, limit: str, usage: str) -> list[int]:
    """What each group on the way up leaves. File pages that nobody uses can be dropped, so they count as free."""
    found = []
    group = root / path.lstrip("/")
    while group == root or root in group.parents:
        try:
            most = (group / limit).read_text().strip()
            if most.isdigit():
                statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                droppable = int(statistics.get("inactive_file", 0))
                found.append(max(0, int(most) - int((group / usage).read_text()) + droppable))
        except (OSError, ValueError):
            pass  # the root group has no limit; another mount layout has no such file
        group = group.parent
    return found


def _filesystem(path: Path) -> str:
    """Type of the file system that holds the folder: the longest mount point above it."""
    best, kind = "", ""
    resolved = str(path.resolve())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, filesystem, *_ = line.split(" ")
        if (resolved == mount or resolved.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best):
            best, kind = mount, filesystem
    return kind


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"
