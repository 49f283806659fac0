"""The newest status of one kernel.

Jupyter asks every few seconds whether a kernel lives, ten times a second while it waits for an end, and the page asks for more.
One question that waits for a change (a long poll) answers them all. An agent that restarts is no news about its kernels: they
live on without it. Only when it stays away does the kernel's own process count.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from traitlets.log import get_logger

from perdure.domain.errors import NotFound, PerdureError
from perdure.domain.ids import KernelId
from perdure.wire.client import WAIT_S, AgentClient
from perdure.wire.messages import KernelStatus

from .connection import agent_client

PATIENCE_S = 30.0
"""How long an agent may be away until we look at the kernel's process ourselves. An agent's restart takes seconds."""
RETRY_S = 0.5
LAST_ANSWER_S = 2.0
GONE = -9
"""Exit status of a kernel that ended while nobody could see how."""


class Watch:
    """`status` is the newest one known. With `follow` a task keeps it so until the kernel ends; else `newest` asks each time."""

    def __init__(self, address: str | None, first: KernelStatus) -> None:
        self.address = address
        self.kernel: KernelId = first.kernel_id
        self.status = first
        self.forgotten = False
        """The agent doesn't know the kernel."""
        self._silent_since: float | None = None
        self._asked_at = time.monotonic()
        self._born = _start_time(first.pid)
        self._task: asyncio.Task[None] | None = None

    def follow(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._follow(), name=f"perdure watch {self.kernel}")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            return
        if not self.status.phase.alive:
            # Its last question is being answered; to break it off would leave a socket behind.
            await asyncio.wait([task], timeout=LAST_ANSWER_S)
        task.cancel()
        await asyncio.wait([task])

    def take(self, status: KernelStatus) -> None:
        """The status that some call has just answered. An older one that arrives late is put right by the next question."""
        if status.pid != self.status.pid:
            self._born = _start_time(status.pid)
        if status.restores and status.restores[-1:] != self.status.restores[-1:]:
            back = status.restores[-1]
            get_logger().warning("Kernel %s is back from its snapshot %s: %s.", self.kernel, back.generation, back.reason)
        self.status = status
        self.forgotten = False
        self._silent_since = None

    async def newest(self) -> KernelStatus:
        """Never raises a PerdureError; see `ended`."""
        if not self._followed():
            async with agent_client(self.address) as client:
                await self._ask(client, wait=False)
        return self.status

    def ended(self) -> int | None:
        """None while the kernel lives or will be brought back, else its exit status."""
        status = self.status
        if not status.phase.alive:
            return GONE if status.exit_status is None else status.exit_status
        away = self._silent_since is not None and time.monotonic() - self._silent_since > PATIENCE_S
        if (self.forgotten or away) and not self._process_lives():
            return GONE
        return None

    def _followed(self) -> bool:
        """The task runs in this loop and has not been starved (a loop that only runs now and then starves it)."""
        task = self._task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            return False
        return time.monotonic() - self._asked_at < WAIT_S

    async def _follow(self) -> None:
        async with agent_client(self.address) as client:
            while self.status.phase.alive:
                self._asked_at = time.monotonic()
                if not await self._ask(client, wait=True):
                    await asyncio.sleep(RETRY_S)

    async def _ask(self, client: AgentClient, *, wait: bool) -> bool:
        try:
            asked = client.wait(self.kernel, self.status.seq) if wait else client.kernel(self.kernel)
            self.take(await asked)
        except NotFound:
            self.forgotten = True
            return False
        except PerdureError:
            if self._silent_since is None:
                self._silent_since = time.monotonic()
            return False
        return True

    def _process_lives(self) -> bool:
        pid = self.status.pid
        return pid is not None and self._born is not None and _start_time(pid) == self._born


def _start_time(pid: int | None) -> int | None:
    """A process's start in ticks since boot, which no later process with its pid has. None: no such process, or a zombie."""
    if pid is None:
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
