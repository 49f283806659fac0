"""Perdure as a peer of the bench: a private agent, one kernel in it, snapshots on demand only."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import perdure
from perdure.domain.endpoint import Endpoint
from perdure.domain.errors import AgentUnreachable, PerdureError
from perdure.domain.ids import KernelId
from perdure.domain.policy import Policy
from perdure.wire.client import AgentClient
from perdure.wire.messages import KernelStatus, StartRequest

T = TypeVar("T")
LAUNCH = Path(perdure.__file__).parent / "kernelside" / "launch.py"
UP_S = 30.0
DOWN_S = 20.0
ON_DEMAND = Policy(
    snapshot_interval_s=0.0,
    after_cell_work_s=1e9,
    after_cell_growth_bytes=1 << 60,
    after_cell_age_s=1e9,
    min_gap_s=1e9,
    restore_on_death=False,
)
"""The bench says when: a snapshot that nobody asked for would be measured with the workload, a restore would spoil `kill`.
Only the one after a kernel's first cell can't be turned off: `start` runs an empty one and waits for it."""


def make_peer(base: Any) -> type:
    """The class Perdure, derived from the bench's `Peer`."""

    class Perdure(base):  # type: ignore[misc]
        """live process, snapshots in a repository on disk"""

        def start(self) -> None:
            self.id = KernelId(f"bench-{secrets.token_hex(6)}")
            state = Path(self.dir) / "state"
            self.address = f"unix://{state}/agent.sock"
            state.mkdir(mode=0o700)
            with open(Path(self.dir) / "agent.log", "wb") as log:
                self.agent = subprocess.Popen(
                    [sys.executable, "-m", "perdure", "agent", "--socket", str(state / "agent.sock")],
                    env={**os.environ, "PERDURE_STATE": str(state)},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            self._until_up()
            endpoint = Endpoint.for_kernel(self.id, secrets.token_hex(16))
            Path(self.cf).write_text(json.dumps(endpoint.to_json()))
            request = StartRequest(
                kernel_id=self.id,
                argv=(self.python, str(LAUNCH), "-f", self.cf),
                env=dict(self.env),
                cwd=self.dir,
                endpoint=endpoint,
                kernel_name="bench",
                display_name="bench",
                policy=ON_DEMAND,
                repository=Path(self.store).as_uri(),
                notebook="",
            )
            self._ask(lambda client: client.start(request))
            self.kc = self._kernel.client(self.cf)
            self._until("the agent listens", self._runs_a_cell_that_counts)
            self._until("its first snapshot was taken", lambda status: status.last_snapshot is not None)

        def snapshot(self, n: int = 0, timeout: float = 120) -> dict[str, Any]:
            """The stall is the bench's to measure, from outside."""
            try:
                self._ask(lambda client: client.snapshot(self.id))
            except PerdureError as error:
                return {"saved": False, "note": str(error)[:200]}
            return {"saved": True, "note": ""}

        def kill(self) -> None:
            """Signal 9 for the whole tree, its PID 1 included; returns when the agent has noticed."""
            if getattr(self, "kc", None):
                self.kc.stop_channels()
                self.kc = None
            if getattr(self, "agent", None) is None or self.agent.poll() is not None:
                return
            status = self._ask(lambda client: client.kernel(self.id))
            if status.phase.alive and status.pid:
                shim = _parent(status.pid)
                for pid in [shim, *_descendants(shim)]:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            self._until("the agent has noticed that the kernel is gone", lambda status: not status.phase.alive)

        def restore(self, busy: bool = False) -> None:
            self._ask(lambda client: client.restore(self.id, None))
            self.kc = (self._kernel.control_client if busy else self._kernel.client)(self.cf, 10)

        def close(self) -> None:
            """Whatever state it is in: no kernel and no agent is left."""
            try:
                if getattr(self, "agent", None) is not None and self.agent.poll() is None:
                    self._ask(lambda client: client.forget(self.id, snapshots="drop"))
            finally:
                if getattr(self, "agent", None) is not None:
                    self.agent.terminate()
                    try:
                        self.agent.wait(DOWN_S)
                    except subprocess.TimeoutExpired:
                        self.agent.kill()
                        self.agent.wait()
                super().close()

        @property
        def _kernel(self) -> Any:
            return importlib.import_module("kernel")

        def _ask(self, question: Callable[[AgentClient], Awaitable[T]]) -> T:
            async def asked() -> T:
                client = AgentClient(self.address)
                try:
                    return await question(client)
                finally:
                    await client.close()

            return asyncio.run(asked())

        def _runs_a_cell_that_counts(self, status: KernelStatus) -> bool:
            """The agent connects to a new kernel within two seconds; it doesn't hear of a cell before that."""
            self._kernel.run(self.kc, "None")
            return status.execution_count is not None

        def _until(self, what: str, true: Callable[[KernelStatus], bool]) -> None:
            deadline = time.monotonic() + UP_S
            while not true(self._ask(lambda client: client.kernel(self.id))):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"waited in vain until {what}")
                time.sleep(0.01)

        def _until_up(self) -> None:
            deadline = time.monotonic() + UP_S
            while True:
                try:
                    self._ask(lambda client: client.host())
                    return
                except AgentUnreachable:
                    if self.agent.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError((Path(self.dir) / "agent.log").read_text()[-500:]) from None
                    time.sleep(0.02)

    return Perdure


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *_descendants(int(child))]
    return found
