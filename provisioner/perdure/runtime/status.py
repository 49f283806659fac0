"""What perdure-shim says about a sandbox: its status file (the contract is in docs/architecture.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ShimStatus:
    """The lines that are there so far; a line without its end is not there yet."""

    shim_pid: int | None = None
    stdio_fd: int | None = None
    ready: bool = False
    error: str | None = None
    ended: int | None = None
    """Exit status of the kernel, negative for a signal."""

    @classmethod
    def read(cls, path: Path) -> ShimStatus:
        """Never raises for a missing file or an unknown line (a newer shim may write some)."""
        try:
            text = path.read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return cls()
        shim_pid = stdio_fd = ended = None
        ready, error = False, None
        for line in text.split("\n")[:-1]:
            word, _, rest = line.partition(" ")
            if word == "ready":
                ready = True
            elif word == "error":
                error = rest
            elif rest.isdigit():
                number = int(rest)
                if word == "shim":
                    shim_pid = number
                elif word == "stdio":
                    stdio_fd = number
                elif word == "exit":
                    ended = number
                elif word == "signal":
                    ended = -number
        return cls(shim_pid, stdio_fd, ready, error, ended)
