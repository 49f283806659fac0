"""The control group of this process: which kind, where, and what memory it may use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cgroup:
    """`version` 2, 1 (memory controller on the old hierarchy) or 0 (none mounted). `memory_limit` in bytes; None: no limit."""

    version: int
    folder: Path | None
    memory_limit: int | None

    @classmethod
    def own(cls) -> Cgroup:
        """Where this process is. A folder that can't be seen (a container shows its own only) counts as the root of the mount."""
        mounts = _mounts()
        groups = _groups()
        for version, kind, name in ((1, "memory", "memory.limit_in_bytes"), (2, "", "memory.max")):
            mount = mounts.get(kind)
            path = groups.get(kind)
            if mount is None or path is None:
                continue
            folder = mount / path.lstrip("/")
            folder = folder if folder.is_dir() else mount
            return cls(version, folder, _limit(folder, mount, name))
        return cls(0, None, None)


def _mounts() -> dict[str, Path]:
    """Controller ("" for version 2) -> mount point."""
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        where = Path(before.split()[4])
        if kind == "cgroup2":
            found.setdefault("", where)
        elif kind == "cgroup" and "memory" in options.split(","):
            found.setdefault("memory", where)
    return found


def _groups() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _limit(folder: Path, mount: Path, name: str) -> int | None:
    """The tightest limit on the way up: a group has its parents' limits too."""
    limits = []
    while True:
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            text = "max"
        if text.isdigit() and int(text) < 1 << 60:  # version 1 says "none" with a number near 2**63
            limits.append(int(text))
        if folder == mount or mount not in folder.parents:
            return min(limits, default=None)
        folder = folder.parent
