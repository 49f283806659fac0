"""How much a capture may take: bytes and seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CaptureLimits:
    """Settings of one capture."""

    file_bytes: int = 64 << 20
    """A file that is open for writing is copied beside the image up to this size."""
    files_bytes: int = 512 << 20
    """All such copies together: they are made while the kernel stands still."""
    shm_bytes: int = 64 << 30
    """Everything in the sandbox's /dev/shm: it exists nowhere else, so it is copied unless it is absurdly large."""
    ghost_bytes: int = 4 << 30
    """One deleted file that is still open: its content goes into the image up to this size. CRIU's own default, 1 MiB, is too
    small for an unlinked np.memmap; its option is a 32-bit number."""
    dump_s: float = 600.0
    """CRIU is given up after this long …"""
    abort_s: float = 20.0
    """… and gets this long to let go of the kernel by itself before it is killed."""
    disk_margin_bytes: int = 256 << 20
    memory_margin_bytes: int = 256 << 20
