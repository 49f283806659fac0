"""What this host is: recorded with a snapshot, compared before a restore."""

from __future__ import annotations

import os
import platform
import re
import socket
from pathlib import Path

from perdure.domain.record import HostFacts

_FLAGS = re.compile(r"^(?:flags|Features)\s*:\s*(.*)$", re.MULTILINE)
"""x86 and arm64 name them differently."""


def host_facts(criu_version: str) -> HostFacts:
    """Read afresh at each call; a few milliseconds. `criu_version` as "4.2.1"."""
    return HostFacts(
        hostname=socket.gethostname(),
        boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        kernel_release=os.uname().release,
        machine=platform.machine(),
        cpu_flags=cpu_flags(Path("/proc/cpuinfo").read_text()),
        criu_version=criu_version,
    )


def cpu_flags(cpuinfo: str) -> tuple[str, ...]:
    """What every CPU of the host has: a thread may wake up on any of them."""
    per_cpu = [frozenset(match[1].split()) for match in _FLAGS.finditer(cpuinfo)]
    return tuple(sorted(frozenset.intersection(*per_cpu))) if per_cpu else ()
