"""The embedded default: a Jupyter server that runs as root starts the agent itself when none is there.

The agent is a process of its own and outlives the server, as do the kernels. Where an administrator has set PERDURE_AGENT, or the
caller isn't root, nothing is started: somebody else looks after that agent.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from perdure.domain.errors import AgentUnreachable, NotProtected

from .address import VARIABLE, agent_address, socket_path
from .client import AgentClient
from .messages import HostInfo

START_S = 30.0
IDLE_S = 600.0
"""Nobody looks after an agent that was started on demand: it ends when it has had no kernel and no question for so long."""
_POLL_S = 0.05
SPAWN_VARIABLE = "PERDURE_SPAWN_AGENT"
"""1: start an agent at $PERDURE_AGENT too (an address of one's own, as tests have it)."""


async def ensure_agent(address: str | None = None) -> HostInfo:
    """The agent at `address`, started if need be and allowed. Raises AgentUnreachable, NotProtected, ProtocolMismatch."""
    client = AgentClient(address)
    try:
        try:
            return await client.host()
        except AgentUnreachable:
            if not _may_spawn(address):
                raise
        path = socket_path(client.address)
        await asyncio.get_running_loop().run_in_executor(None, _spawn_once, path)
        return await client.host()
    finally:
        await client.close()


def _may_spawn(address: str | None) -> bool:
    if os.geteuid() != 0:
        return False
    named = bool(address or os.environ.get(VARIABLE))
    return not named or os.environ.get(SPAWN_VARIABLE) == "1"


def _spawn_once(path: Path) -> None:
    """Starts an agent unless somebody else has in the meantime; returns when it answers."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with _alone(path.with_name(path.name + ".spawn")):
        if _answers(path):
            return
        log = path.with_name("agent.log")
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600), "ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "perdure", "agent", f"--socket={path}", f"--exit-when-idle={IDLE_S:.0f}"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                start_new_session=True,
            )
        Thread(target=process.wait, name="perdure-agent-reaper", daemon=True).start()  # or its end would leave a zombie
        _await(process, path, log)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _answers(path: Path) -> bool:
    async def ask() -> bool:
        client = AgentClient(f"unix://{path}")
        try:
            await client.host()
        except AgentUnreachable:
            return False
        finally:
            await client.close()
        return True

    return asyncio.run(ask())


def _await(process: subprocess.Popen[bytes], path: Path, log: Path) -> None:

    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if path.exists() and _answers(path):
            return
        if process.poll() is not None:
            tail = log.read_text(errors="replace").strip().splitlines()[-5:]
            raise NotProtected(
                "The agent could not be started.", hint=f"Its log is {log}; `perdure doctor` says more.", detail="\n".join(tail)
            )
        time.sleep(_POLL_S)
    raise AgentUnreachable(f"The agent did not answer within {START_S:.0f} seconds.", hint=f"Its log is {log}.")


__all__ = ["agent_address", "ensure_agent"]
