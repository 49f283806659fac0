"""Is this the kernel that it was? Asked over its own sockets, as any client would.

- **Heartbeat**: an echo; for ipykernel it comes from a thread of its own, so it tells that threads run.
- **Control**: a question that changes nothing. `comm_info_request` does; a `kernel_info_request` makes IPython build its banner,
  and where start-up tips are on that draws from the user's random numbers. Kernels that don't know the former on this channel
  are asked the latter after a while.
- **Execute**: an empty cell, silent, not in the history: it goes the whole way through the kernel's main loop and leaves the
  namespace, In and Out, the execution count and random states as they are.

Some kernels (R) answer nothing on control but a shutdown. One that echoes and executes is proven all the same, with patience.

Nor is it certain that a kernel was idle: a queued cell may have begun between the last look at it and the freeze. One that
answers all but the empty cell, patiently asked, is at work (`Proof.silent` has `execute` then).

A kernel whose cell is running can't execute another one. Single-threaded kernels (R) are silent altogether then, and so is a
Python one while a C function holds the interpreter's lock. What answers even so is the I/O thread of ZeroMQ: a finished
handshake on the shell channel is the least that is asked of a busy kernel, and `Proof.silent` tells what did not answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import zmq
from jupyter_client.session import Session
from zmq.utils.monitor import parse_monitor_message

from perdure.domain.endpoint import Endpoint
from perdure.domain.errors import NotProven

_FALLBACK_S = 3.0
"""A restored kernel's first answer takes up to a second; one that hasn't answered by then doesn't know the first question."""
_CONTROL_PATIENCE_S = 3.0
"""A kernel that has answered everything else gets this long for the second question."""
_BUSY_PATIENCE_S = 10.0
"""A busy kernel that shook hands gets this long for its other answers."""
_EXECUTE_PATIENCE_S = 15.0
"""A kernel that has answered everything else and doesn't execute for so long is busy with a cell."""
_PING = b"perdure"
_RECONNECT_MS = 50
_CANARY = {
    "code": "",
    "silent": True,
    "store_history": False,
    "user_expressions": {},
    "allow_stdin": False,
    "stop_on_error": False,
}


@dataclass(frozen=True)
class Proof:
    """What answered, and after how many seconds."""

    seconds: dict[str, float]
    """Of `handshake`, `heartbeat`, `control`, `execute`, in the order in which they came."""
    silent: tuple[str, ...]
    """What was asked and did not answer: a busy kernel may have some, another one `control` or `execute`."""


def prove(endpoint: Endpoint, *, busy: bool, deadline_s: float, monotonic: Callable[[], float] = time.monotonic) -> Proof:
    """Blocks until all is proven, `deadline_s` seconds at most. Leaves no thread and no socket. Raises NotProven."""
    with zmq.Context() as context, ExitStack() as sockets:
        return _Examination(context, sockets, endpoint, busy=busy, monotonic=monotonic).run(deadline_s)


@dataclass
class _Examination:
    context: zmq.Context[zmq.Socket[bytes]]
    sockets: ExitStack
    endpoint: Endpoint
    busy: bool
    monotonic: Callable[[], float]
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, deadline_s: float) -> Proof:
        session = Session(
            key=self.endpoint.key.encode(), signature_scheme=self.endpoint.signature_scheme, username="perdure", check_pid=False
        )
        heartbeat, control, shell = (
            self._connect(kind, channel) for kind, channel in ((zmq.REQ, "hb"), (zmq.DEALER, "control"), (zmq.DEALER, "shell"))
        )
        monitor = self.sockets.enter_context(shell.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED))
        self.sockets.callback(shell.disable_monitor)
        self._go(shell, "shell")
        wanted = ["handshake", "heartbeat", "control"]
        heartbeat.send(_PING)
        asked = {self._ask(session, control, "comm_info_request", {})}
        canary = ""
        if not self.busy:
            wanted.append("execute")
            canary = self._ask(session, shell, "execute_request", _CANARY)
        poller = zmq.Poller()
        for socket in (heartbeat, control, shell, monitor):
            poller.register(socket, zmq.POLLIN)

        began = self.monotonic()
        fallback: float | None = began + _FALLBACK_S
        while True:
            now = self.monotonic()
            left = [name for name in wanted if name not in self.seconds]
            if not left:
                break
            patience_s = self._patience_s(left)
            end = began + min(deadline_s, patience_s)
            if now >= end:
                break
            if fallback is not None and now >= fallback:
                fallback = None
                if "control" in left:
                    asked.add(self._ask(session, control, "kernel_info_request", {}))
            until = end if fallback is None else min(end, fallback)
            for ready, _ in poller.poll(max(1, int((until - now) * 1000))):
                if ready is monitor:
                    parse_monitor_message(monitor.recv_multipart())
                    self._note("handshake", began)
                elif ready is heartbeat:
                    if heartbeat.recv() == _PING:
                        self._note("heartbeat", began)
                elif ready is control:
                    if _parent(session, control) in asked:
                        self._note("control", began)
                elif ready is shell and _parent(session, shell) == canary:
                    self._note("execute", began)
        silent = tuple(name for name in wanted if name not in self.seconds)
        if silent and deadline_s < self._patience_s(list(silent)):
            raise NotProven(
                f"The kernel is back but does not answer: {', '.join(silent)}.",
                hint="The next older snapshot is tried.",
                detail=f"answered within {deadline_s} s at {self.endpoint.ip}: {self.seconds or 'nothing'}",
            )
        return Proof(dict(self.seconds), silent)

    def _patience_s(self, left: list[str]) -> float:
        """After how many seconds what is left need not answer any more; infinity where it must."""
        latest = max(self.seconds.values(), default=0.0)
        if self.busy and "handshake" in self.seconds:
            return self.seconds["handshake"] + _BUSY_PATIENCE_S
        if left == ["control"]:
            return max(_FALLBACK_S, latest) + _CONTROL_PATIENCE_S
        return latest + _EXECUTE_PATIENCE_S if left == ["execute"] else math.inf

    def _note(self, name: str, began: float) -> None:
        self.seconds.setdefault(name, self.monotonic() - began)

    def _connect(self, kind: int, channel: str) -> zmq.Socket[bytes]:
        socket = self.sockets.enter_context(self.context.socket(kind))
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        keys = [self.endpoint.extra.get(name) for name in ("curve_publickey", "curve_secretkey")]
        if all(keys):
            public, secret = (str(key).encode() for key in keys)
            socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = public, secret, public
        if channel != "shell":
            self._go(socket, channel)
        return socket

    def _go(self, socket: zmq.Socket[bytes], channel: str) -> None:
        socket.connect(f"tcp://{self.endpoint.ip}:{self.endpoint.ports[channel]}")

    @staticmethod
    def _ask(session: Session, socket: zmq.Socket[bytes], kind: str, content: dict[str, Any]) -> str:
        """The message's id."""
        message = session.send(socket, kind, content)
        return str(message["header"]["msg_id"]) if message else ""


def _parent(session: Session, socket: zmq.Socket[bytes]) -> str:
    """Id of the question that a message answers; nothing when it is not signed with the kernel's key or malformed."""
    _, frames = session.feed_identities(socket.recv_multipart())
    try:
        return str(session.deserialize(frames)["parent_header"].get("msg_id", ""))
    except (ValueError, KeyError, TypeError):
        return ""
