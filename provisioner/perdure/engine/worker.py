"""One CRIU at work inside a sandbox: `criu swrk`, spoken to over a socket pair, under a deadline.

What can go wrong, and what we do:

- **The agent dies while CRIU works.** The socket closes; CRIU ignores SIGPIPE (we start it so), sees the error at its next hook
  or at the end, and lets the kernel go as after any failed dump.
- **CRIU hangs, or the caller gives up.** A CRIU that is killed can't undo: a thread that it borrowed a moment for a system call
  would run into a breakpoint, and connections would stay in repair mode. So first every file that it may write becomes full
  (RLIMIT_FSIZE 0, SIGXFSZ ignored): its next write fails, and it takes its own error path, which puts everything back. Only when
  that doesn't help within `abort_s` is it killed; the kernel traces off by itself then, the parasite's main loop returns the
  process to where it was when its socket closes, and `mend.mend` does the rest (stopped tasks, connections in repair).
- **CRIU's pid.** CRIU runs in the sandbox's pid namespace. Nothing that is to be restored may have its number: see `pids.py`.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

from perdure.domain.clock import Clock

from .blindfold import Blindfold
from .criu import Criu, environment, preload
from .protobuf import MalformedMessage
from .rpc import Kind, Reply, notified

log = logging.getLogger(__name__)

_SCRIPT = """
trap "" PIPE XFSZ
ulimit -n "$(ulimit -Hn)"
lib=$1; shift
[ -z "$lib" ] || export LD_PRELOAD="$lib"
exec "$@"
"""
_POLL_S = 0.2
"""How often deadline and cancellation are looked at; the answers themselves come at once."""
_ANSWER_BYTES = 1 << 20
_REAP_S = 5.0

Hook = Callable[[str], None]


class WorkerDied(Exception):
    """CRIU ended without an answer, or was ended because of the deadline or a cancellation (`why`)."""

    def __init__(self, why: str, stderr: str) -> None:
        super().__init__(why)
        self.why = why
        self.stderr = stderr


class Worker:
    """Started, given one request, closed. Use it as a context manager: leaving it makes sure that no CRIU is left."""

    def __init__(
        self,
        criu: Criu,
        shim_pid: int,
        descriptors: Sequence[int],
        clock: Clock,
        *,
        abort_s: float,
        blindfold: Blindfold | None = None,
    ) -> None:
        self._clock, self._abort_s = clock, abort_s
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        libraries = [preload(), blindfold.library if blindfold else None]
        command = ["nsenter", "--mount", "--pid", f"--target={shim_pid}", "--", "/bin/sh", "-c", _SCRIPT, "sh"]
        command += [
            ":".join(str(library) for library in libraries if library),
            str(criu.path),
            "--no-default-config",
            "swrk",
            str(theirs.fileno()),
        ]
        try:
            self._process = subprocess.Popen(
                command,
                env={**environment(), **(blindfold.environment if blindfold else {})},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                pass_fds=(theirs.fileno(), *descriptors, *(blindfold.descriptors if blindfold else ())),
            )
        except BaseException:
            self._socket.close()
            self._stderr.close()
            raise
        finally:
            theirs.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        try:
            self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            self._end()
        self._stderr.close()

    def call(self, request: bytes, hook: Hook, *, deadline_s: float, cancelled: Event | None = None) -> Reply:
        """Sends the request, runs `hook` for each notification while CRIU waits for its return, gives the answer.

        An exception of the hook makes CRIU fail and undo; it is raised again when CRIU is done with that. WorkerDied.
        """
        failed: BaseException | None = None
        until = self._clock.monotonic() + deadline_s
        self._send(request)
        while True:
            reply = self._receive(until, cancelled)
            if reply.kind != Kind.NOTIFY:
                if failed is not None:
                    raise failed
                return reply
            if failed is None:
                try:
                    hook(reply.notify)
                except BaseException as error:  # whatever it is, CRIU has to let the kernel go before it travels on
                    failed = error
            self._send(notified(failed is None))

    def pid(self) -> int | None:
        """CRIU's host pid."""
        parent = self._process.pid
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data, socket.MSG_NOSIGNAL)
        except OSError as error:
            raise self._died() from error

    def _receive(self, until: float, cancelled: Event | None) -> Reply:
        while True:
            self._socket.settimeout(_POLL_S)
            try:
                data = self._socket.recv(_ANSWER_BYTES)
            except TimeoutError:
                if cancelled is not None and cancelled.is_set():
                    raise self._abandon("it was cancelled") from None
                if self._clock.monotonic() >= until:
                    raise self._abandon("it took too long") from None
                continue
            except OSError as error:
                raise self._died() from error
            if not data:
                raise self._died()
            try:
                return Reply.parse(data)
            except MalformedMessage as error:
                raise self._abandon(f"it answered something that is no message ({error})") from error

    def _died(self) -> WorkerDied:
        try:
            status = self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            return self._abandon("it closed its socket but did not end")
        ended = f"signal {-status}" if status < 0 else f"signal {status - 128}" if status > 128 else f"exit status {status}"
        return WorkerDied(f"it ended by itself ({ended})", self._output())

    def _abandon(self, why: str) -> WorkerDied:
        """Makes CRIU fail by itself; kills it only when it won't."""
        pid = self.pid()
        if pid is not None:
            try:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))
            except (OSError, ValueError) as error:
                log.warning("CRIU %d can't be asked to stop: %s", pid, error)
        self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(self._abort_s)
        except subprocess.TimeoutExpired:
            why += " and had to be killed"
            self._end()
        return WorkerDied(why, self._output())

    def _end(self) -> None:
        pid = self.pid()
        if pid is not None:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                log.debug("CRIU %d ended in the meantime", pid)
        try:
            self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _output(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read(1 << 16).decode(errors="replace")
