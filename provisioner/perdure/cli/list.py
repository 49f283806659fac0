"""`perdure list`: the caller's kernels. Without an agent there are none that are protected, and it says so."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.domain.errors import AgentUnreachable
from perdure.wire.address import agent_address, socket_path

from . import offline
from .amounts import ago, duration, mib
from .app import PerdureApp
from .connection import ask
from .table import table

if TYPE_CHECKING:
    from perdure.wire.messages import KernelStatus


class ListApp(PerdureApp):
    """Your kernels that an agent looks after, and how they are. With --repository: those that have snapshots there."""

    name = "perdure-list"
    description = __doc__

    def act(self, *arguments: str) -> int:
        if offline.wanted(self):
            return offline.show_all(self)
        address = agent_address(self.agent)
        try:
            kernels = ask(self, lambda client: client.kernels())
        except AgentUnreachable as error:
            if os.path.lexists(socket_path(address)):
                raise  # it is ill, or not ours to ask: nothing is known of its kernels
            self.show(
                {"agent": None, "why": error.to_json(), "kernels": []},
                f"No agent runs here, so no kernel on this host is protected.\n  {error.sentence}\n"
                "  `perdure doctor` says what is missing.",
            )
            return 0
        self.show({"agent": address, "kernels": [kernel.to_json() for kernel in kernels]}, _text(kernels))
        return 0


def _text(kernels: list[KernelStatus]) -> str:
    if not kernels:
        return "The agent looks after no kernel of yours."
    now = time.time()
    rows = []
    for kernel in kernels:
        last = kernel.last_snapshot
        rows.append(
            (
                kernel.kernel_id,
                Path(kernel.notebook).name,
                kernel.kernel_name,
                str(kernel.pid or "–"),
                f"{kernel.phase}, busy" if kernel.busy else str(kernel.phase),
                ago(kernel.started, now),
                f"{last.generation}, {ago(last.created, now)}" if last else "none yet",
                mib(last.bytes_logical) if last else "–",
                duration(last.stall_s) if last else "–",
                str(len(kernel.restores)),
                kernel.last_error.sentence if kernel.last_error else "",
            )
        )
    header = ("KERNEL", "NOTEBOOK", "SPEC", "PID", "PHASE", "STARTED", "LAST SNAPSHOT", "SIZE", "STALL", "RESTORES", "TROUBLE")
    return table(header, rows)
