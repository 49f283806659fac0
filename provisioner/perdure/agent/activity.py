"""What a kernel does, heard on its iopub channel. Nothing is ever sent to the kernel.

Two things are told apart: a *cell* (an execute request that was announced with its code and counted) and anything else that runs
user code (a widget's message, a debugger, a silent request of an extension). Our own proof of life is silent and is neither.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import zmq
import zmq.asyncio
from jupyter_client.session import Session

from perdure.domain.clock import Clock
from perdure.domain.endpoint import Endpoint

from .errands import Errands

log = logging.getLogger(__name__)

_WANTED = re.compile(rb'"(?:status|execute_input)"')
"""Only these are unpacked: a cell may print hundreds of megabytes."""
OURS = "perdure"
"""The user name in our own proof of life."""
_RESTORED = "restored"
"""Stands for the id of a cell that was running when we began to listen."""
_RECONNECT_MS = 100
"""Not longer with each attempt: a kernel that is back must find us listening before its first cell."""
_RUNS_CODE = frozenset({"comm_open", "comm_msg", "comm_close", "debug_request"})


@dataclass
class Activity:
    """Listens until `close`. `changed` is called when one of the facts is another; times are the clock's monotonic seconds."""

    endpoint: Endpoint
    clock: Clock
    changed: Callable[[], None]
    errands: Errands
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
        self._cells = {_RESTORED: self.clock.monotonic()} if busy else {}
        self.execution_count = execution_count
        self.settle()

    def listen(self, endpoint: Endpoint) -> None:
        """From now on there; a connection that exists is kept when the kernel's address and key are the same."""
        if self._task is None or self._task.done() or endpoint != self.endpoint:
            if self._task is not None:
                self._task.cancel()
            self.endpoint = endpoint
            self._task = self.errands.begin(self._listen(), f"activity-{endpoint.ip}")

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
            iopub.reconnect_ivl = _RECONNECT_MS
            keys = [self.endpoint.extra.get(name) for name in ("curve_publickey", "curve_secretkey")]
            if all(keys):
                public, secret = (str(key).encode() for key in keys)
                iopub.curve_publickey, iopub.curve_secretkey, iopub.curve_serverkey = public, secret, public
            iopub.subscribe(b"")
            iopub.connect(f"tcp://{self.endpoint.ip}:{self.endpoint.ports['iopub']}")
            while True:
                frames: list[bytes] = await iopub.recv_multipart()
                try:
                    _, parts = session.feed_identities(frames)
                    if len(parts) < 4 or not isinstance(parts[1], bytes) or not _WANTED.search(parts[1]):
                        continue
                    self._hear(session.deserialize(parts))
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    log.debug("a message that is not the kernel's, or malformed: %s", error)

    def _hear(self, message: dict[str, Any]) -> None:
        parent = message["parent_header"]
        asked, content = str(parent.get("msg_id", "")), message["content"]
        if message["msg_type"] == "execute_input":
            count = content.get("execution_count")
            self.execution_count = count if isinstance(count, int) else self.execution_count
            self._ended(_RESTORED)  # cells run one after the other
            self._cells.setdefault(asked, self.clock.monotonic())
            self.ran_since = True
        elif content.get("execution_state") == "idle" and self._runs_code(parent):
            self.ran_since = True
            if not self._ended(asked) and parent.get("msg_type") == "execute_request":
                self._ended(_RESTORED)  # its request is not known by name
        else:
            return
        self.changed()

    def _ended(self, cell: str) -> bool:
        since = self._cells.pop(cell, None)
        if since is None:
            return False
        self._work_s += self.clock.monotonic() - since
        self.cell_ended = True
        return True

    @staticmethod
    def _runs_code(parent: dict[str, Any]) -> bool:
        """Whether the request ran user code. An execute request without an execute_input was a silent one, perhaps our own."""
        kind = parent.get("msg_type")
        return kind in _RUNS_CODE or (kind == "execute_request" and parent.get("username") != OURS)
