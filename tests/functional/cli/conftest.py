"""A private agent with a kernel in it, and the command line pointed at both."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from perdure.domain.endpoint import Endpoint
from perdure.domain.errors import AgentUnreachable
from perdure.domain.ids import KernelId
from perdure.domain.policy import Policy
from perdure.wire.client import AgentClient
from perdure.wire.messages import StartRequest

T = TypeVar("T")
UP_S = 60.0


@dataclass(frozen=True)
class Agent:
    """`folder` holds its socket, its state and its kernels' files."""

    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"unix://{self.folder}/agent.sock"

    def ask(self, question: Callable[[AgentClient], Awaitable[T]]) -> T:
        async def asked() -> T:
            client = AgentClient(self.address)
            try:
                return await question(client)
            finally:
                await client.close()

        return asyncio.run(asked())

    def start(self, kernel: str, *argv: str) -> Endpoint:
        """A kernel with no snapshots by time; `{connection_file}` in `argv`."""
        endpoint = Endpoint.for_kernel(KernelId(kernel), secrets.token_hex(16))
        file = self.folder / f"{kernel}.json"
        file.write_text(json.dumps(endpoint.to_json()))
        request = StartRequest(
            kernel_id=KernelId(kernel),
            argv=tuple(word.replace("{connection_file}", str(file)) for word in argv),
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "IPYTHONDIR": str(self.folder / "ipython")},
            cwd=str(self.folder),
            endpoint=endpoint,
            kernel_name="test",
            notebook=str(self.folder / "work.ipynb"),
            policy=Policy(snapshot_interval_s=0.0),
        )
        self.ask(lambda client: client.start(request))
        return endpoint


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """Its kernels end with it. PERDURE_AGENT names it."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-cli-"))
    folder.chmod(0o755)
    with (folder / "agent.log").open("wb") as log:
        command = [sys.executable, "-m", "perdure", "agent", "--kernels-die"]
        env = {**os.environ, "PERDURE_STATE": str(folder / "state"), "PERDURE_AGENT": f"unix://{folder}/agent.sock"}
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    running = Agent(folder, process)
    monkeypatch.setenv("PERDURE_AGENT", running.address)
    monkeypatch.setenv("PERDURE_STATE", str(folder / "state"))
    monkeypatch.delenv("PERDURE_REPOSITORY", raising=False)
    try:
        _until_up(running)
        yield running
        for status in running.ask(lambda client: client.kernels()):
            running.ask(lambda client, kernel=status.kernel_id: client.forget(kernel, snapshots="drop"))  # type: ignore[misc]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        shutil.rmtree(folder)


def _until_up(agent: Agent) -> None:
    deadline = time.monotonic() + UP_S
    while True:
        try:
            agent.ask(lambda client: client.host())
            return
        except AgentUnreachable:
            assert agent.process.poll() is None, (agent.folder / "agent.log").read_text()
            assert time.monotonic() < deadline, (agent.folder / "agent.log").read_text()
            time.sleep(0.02)


class Python:
    """A client of one kernel."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._client = BlockingKernelClient()
        self._client.load_connection_info(endpoint.to_json())
        self._client.start_channels(hb=False)  # a slow start is not a death
        self._client.wait_for_ready(timeout=UP_S)

    def run(self, code: str) -> dict[str, Any]:
        """The reply's content."""
        reply: dict[str, Any] = self._client.execute_interactive(code, timeout=UP_S, output_hook=lambda _: None)["content"]
        return reply

    def close(self) -> None:
        self._client.stop_channels()


@pytest.fixture
def python(agent: Agent) -> Iterator[Python]:
    """A real Python kernel called `python-1`."""
    launch = ("-m", "perdure.kernelside.launch", "-f", "{connection_file}")
    client = Python(agent.start("python-1", sys.executable, *launch))
    yield client
    client.close()
