"""What a kernel does, heard on its iopub channel. Nothing is ever sent to the kernel.

Two things are told apart: a *cell* (an execute request that was announced with its code and counted) and anything else that runs
user code (a widget's message, a debugger). Our own proof of life is silent and is neither.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import zmq
import zmq.asyncio
from jupyter_client.session import Session

from perdure.domain.clock import Clock
from perdure.domain.endpoint import Endpoint

log = logging.getLogger(__name__)

_WANTED = (b'"status"', b'"execute_input"')
"""Only these are unpacked: a cell may print hundreds of megabytes."""
_RUNS_CODE = frozenset({"comm_open", "comm_msg", "comm_close", "debug_request"})


@dataclass
class Activity:
    """Listens until `close`. `changed` is called when one of the facts is another; times are the clock's monotonic seconds."""

    endpoint: Endpoint
    clock: Clock
    changed: Callable[[], None]
    execution_count: int | None = None
    ran_since: bool = False
    """User code ran since `settle`."""
    cell_ended: bool = False
    """A cell has ended since `settle`."""
    _work_s: float = 0.0
    _cells: dict[str, float] = field(default_factory=dict)
    """Message ids of running cells, and since when they run (or since `settle`)."""
    _task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return bool(self._cells)

    @property
    def work_s(self) -> float:
        """Running time of cells since `settle`, in seconds."""
        now = self.clock.monotonic()
        return self._work_s + sum(now - since for since in self._cells.values())

    def settle(self) -> None:
        """A snapshot holds everything up to now."""
        now = self.clock.monotonic()
        self.ran_since, self.cell_ended, self._work_s = self.busy, False, 0.0
        self._cells = dict.fromkeys(self._cells, now)

    def unsettle(self, *, ran_since: bool, cell_ended: bool, work_s: float) -> None:
        """The snapshot failed: what there was before it counts again."""
        self.ran_since |= ran_since
        self.cell_ended |= cell_ended
        self._work_s += work_s

    def went_back(self, *, busy: bool, execution_count: int | None) -> None:
        """The kernel is another one now, restored to a snapshot that was taken with these facts."""
        self._cells = {"restored": self.clock.monotonic()} if busy else {}
        self.execution_count = execution_count
        self.settle()

    def listen(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._listen(), name="perdure-activity")

    def listen_again(self, endpoint: Endpoint) -> None:
        """The kernel listens at `endpoint` now, perhaps with another key."""
        if self._task is None or endpoint != self.endpoint:
            if self._task is not None:
                self._task.cancel()
            self.endpoint = endpoint
            self.listen()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _listen(self) -> None:
        session = Session(
            key=self.endpoint.key.encode(),
            signature_scheme=self.endpoint.signature_scheme,
            check_pid=False,
            digest_history_size=0,
        )
        context: zmq.asyncio.Context = zmq.asyncio.Context.instance()
        with context.socket(zmq.SUB) as iopub:
            iopub.linger = 0
            iopub.rcvhwm = 0  # a lost "idle" would make a kernel busy for ever; what we don't want is dropped below
            iopub.reconnect_ivl, iopub.reconnect_ivl_max = 100, 2000
            iopub.subscribe(b"")
            iopub.connect(f"tcp://{self.endpoint.ip}:{self.endpoint.ports['iopub']}")
            while True:
                frames = await iopub.recv_multipart()
                _, parts = session.feed_identities(frames)
                if len(parts) < 4 or not any(word in bytes(parts[1]) for word in _WANTED):
                    continue
                try:
                    message = session.deserialize(parts)
                except (ValueError, KeyError, TypeError) as error:
                    log.debug("a message that is not the kernel's, or malformed: %s", error)
                    continue
                self._hear(message)

    def _hear(self, message: dict[str, Any]) -> None:
        parent = message["parent_header"]
        asked, content = str(parent.get("msg_id", "")), message["content"]
        if message["msg_type"] == "execute_input":
            count = content.get("execution_count")
            self.execution_count = count if isinstance(count, int) else self.execution_count
            self._cells.setdefault(asked, self.clock.monotonic())
            self.ran_since = True
        elif content.get("execution_state") == "idle":
            # After a restore the running cell's request is not known by name, and no other can be running beside it.
            since = self._cells.pop(asked, None) or self._cells.pop("restored", None) if self._is_cell(parent) else None
            if since is not None:
                self._work_s += self.clock.monotonic() - since
                self.cell_ended = True
            elif parent.get("msg_type") in _RUNS_CODE:
                self.ran_since = True
            else:
                return
        else:
            return
        self.changed()

    @staticmethod
    def _is_cell(parent: dict[str, Any]) -> bool:
        return parent.get("msg_type") == "execute_request" and parent.get("username") != "perdure"
