"""What a kernel's processes have used so far."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from perdure.engine import tree

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    memory_bytes: int = 0
    cpu_s: float = 0.0

    @classmethod
    def of(cls, pids: list[int]) -> Usage:
        """Of living processes; those that end meanwhile count as nothing."""
        ticks = 0
        for pid in pids:
            try:
                stat = Path(f"/proc/{pid}/stat").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            fields = stat[stat.rindex(b")") + 2 :].split()
            ticks += int(fields[11]) + int(fields[12])
        return cls(tree.memory_bytes(pids), ticks / _TICKS_PER_S)
