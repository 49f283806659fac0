"""`perdure show KERNEL`: one kernel and its snapshots."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import offline
from .amounts import ago, duration, mib
from .app import PerdureApp
from .connection import ask, find_kernel
from .table import facts, table

if TYPE_CHECKING:
    from perdure.wire.client import AgentClient
    from perdure.wire.messages import GenerationInfo, KernelStatus


class ShowApp(PerdureApp):
    """One kernel: where it is, how it is, its snapshots. With --repository: only what that repository knows, from no agent."""

    name = "perdure-show"
    description = __doc__
    arguments = ("KERNEL",)

    def act(self, *arguments: str) -> int:
        if offline.wanted(self):
            return offline.show_one(self, arguments[0])

        async def question(client: AgentClient) -> KernelStatus:
            return await client.kernel(await find_kernel(client, arguments[0]))

        status = ask(self, question)
        self.show(status.to_json(), text(status, time.time()))
        return 0


def text(status: KernelStatus, now: float) -> str:
    """What a person reads; `now` in seconds since 1970."""
    ports = ", ".join(f"{channel} {port}" for channel, port in status.endpoint.ports.items())
    restores = [
        f"{ago(restore.at, now)}, generation {restore.generation}, {duration(restore.seconds)}: {restore.reason}"
        for restore in status.restores
    ]
    error = status.last_error
    pairs = [
        ("Kernel", status.kernel_id),
        ("Spec", status.kernel_name),
        ("Phase", f"{status.phase}, busy" if status.busy else str(status.phase)),
        ("Process", str(status.pid or "")),
        ("Host", status.host),
        ("Owner", f"uid {status.owner.uid}"),
        ("Address", f"{status.endpoint.ip} ({ports})"),
        ("Notebook", status.notebook),
        ("Started", f"{ago(status.started, now)}, incarnation {status.incarnation}"),
        ("Repository", status.repository or ""),
        ("Next snapshot", status.next_snapshot if status.phase.alive else ""),
        ("Restores", "\n".join(restores)),
        ("Warnings", "\n".join(status.warnings)),
        ("Last error", f"{error.sentence}\n{error.hint}".strip() if error else ""),
    ]
    return f"{facts(pairs)}\n\n{generations(status.generations, now)}"


def generations(found: tuple[GenerationInfo, ...] | list[GenerationInfo], now: float) -> str:
    """A table of snapshots, or that there are none."""
    if not found:
        return "No snapshots yet."
    header = ("GENERATION", "TAKEN", "TRIGGER", "STALL", "TOTAL", "SIZE", "ADDED", "CELL", "VERIFIED")
    rows = [
        (
            str(one.generation),
            ago(one.created, now),
            str(one.trigger),
            duration(one.stall_s),
            duration(one.total_s),
            mib(one.bytes_logical),
            mib(one.bytes_added),
            "–" if one.execution_count is None else str(one.execution_count),
            "yes" if one.verified else "no",
        )
        for one in found
    ]
    return table(header, rows)
