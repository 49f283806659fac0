"""`perdure restore KERNEL`: back to a snapshot, the newest one by default."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from traitlets import Bool, Int

from perdure.domain.ids import generation

from .app import ALIASES, FLAGS, PerdureApp
from .connection import ask, find_kernel, patiently
from .show import text

if TYPE_CHECKING:
    from perdure.wire.client import AgentClient
    from perdure.wire.messages import KernelStatus

_ALIASES = {**ALIASES, "generation": "RestoreApp.generation"}
_FLAGS = {
    **FLAGS,
    "accept-changed-files": (
        {"RestoreApp": {"accept_changed_files": True}},
        "restore although files that the kernel has open are no longer as they were",
    ),
}


class RestoreApp(PerdureApp):
    """Bring a kernel back from a snapshot. When the command returns, the kernel has proven that it answers.

    A kernel that still runs is ended first.
    """

    name = "perdure-restore"
    description = __doc__
    arguments = ("KERNEL",)
    aliases = _ALIASES
    flags = _FLAGS
    generation = Int(None, allow_none=True, help="Which snapshot; the newest one by default.").tag(config=True)
    accept_changed_files = Bool(False, help="Restore with changed files as they are now, where that is possible at all.").tag(
        config=True
    )

    def act(self, *arguments: str) -> int:
        number = None if self.generation is None else generation(self.generation)

        async def question(client: AgentClient) -> KernelStatus:
            kernel = await find_kernel(client, arguments[0])
            accept = self.accept_changed_files
            return await patiently(client, kernel, lambda: client.restore(kernel, number, accept_changed_files=accept))

        status = ask(self, question)
        self.show(status.to_json(), text(status, time.time()))
        return 0
