"""`perdure snapshot KERNEL`: take one now; it is published when this returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .amounts import duration, mib
from .app import PerdureApp
from .connection import ask, find_kernel, patiently

if TYPE_CHECKING:
    from perdure.domain.ids import KernelId
    from perdure.wire.client import AgentClient
    from perdure.wire.messages import GenerationInfo


class SnapshotApp(PerdureApp):
    """Take a snapshot now. It is complete and verified when the command returns; the kernel goes on in any case."""

    name = "perdure-snapshot"
    description = __doc__
    arguments = ("KERNEL",)

    def act(self, *arguments: str) -> int:
        async def question(client: AgentClient) -> tuple[KernelId, GenerationInfo]:
            kernel = await find_kernel(client, arguments[0])
            return kernel, await patiently(client, kernel, lambda: client.snapshot(kernel))

        kernel, taken = ask(self, question)
        text = (
            f"Generation {taken.generation} of {kernel}: {mib(taken.bytes_logical)}, {mib(taken.bytes_added)} of it new; "
            f"the kernel stood still for {duration(taken.stall_s)}, {duration(taken.total_s)} in all."
        )
        self.show({"kernel_id": kernel, **taken.to_json()}, "\n".join([text, *(f"  {warning}" for warning in taken.warnings)]))
        return 0
