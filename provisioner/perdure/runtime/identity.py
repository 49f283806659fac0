"""A process that can't be mistaken for another one: pids are reused, pid + start time + boot is not.

The agent writes these into its state and finds its kernels again after its own restart. A zombie counts as ended: nobody
is in there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def boot_id() -> str:
    """A name of this boot of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _state_and_start(pid: int) -> tuple[str, int] | None:
    """State letter and start time in clock ticks since boot; None when there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may hold spaces and brackets
    return fields[0].decode(), int(fields[19])


@dataclass(frozen=True)
class ProcessIdentity:
    """`pid` as this process sees it; `start_time` in clock ticks since boot."""

    pid: int
    start_time: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Who is `pid` now (a zombie has an identity too); None when nobody is."""
        found = _state_and_start(pid) if pid > 0 else None
        return cls(pid, found[1], boot_id()) if found else None

    def alive(self) -> bool:
        """Whether this very process is still there and not a zombie."""
        found = _state_and_start(self.pid)
        return found is not None and found[0] not in "ZXx" and found[1] == self.start_time and self.boot_id == boot_id()

    def pidfd(self) -> int:
        """A pidfd of this very process; the caller closes it.

        Raises ProcessLookupError when it is gone or its pid is somebody else's by now.
        """
        fd = os.pidfd_open(self.pid)
        if ProcessIdentity.of(self.pid) != self:  # opened first, compared second: the pid can't change hands in between
            os.close(fd)
            raise ProcessLookupError(f"process {self.pid} is another one by now")
        return fd

    def to_json(self) -> dict[str, Any]:
        return {"pid": self.pid, "start_time": self.start_time, "boot_id": self.boot_id}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ProcessIdentity:
        return cls(int(data["pid"]), int(data["start_time"]), str(data["boot_id"]))
