"""A kernel behind a real kernel manager, with a client that stays connected."""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from perdure.domain.errors import Conflict
from perdure.domain.phases import Phase
from perdure.jupyter import kernelspec
from perdure.wire.client import AgentClient

from tests.functional.jupyter.agents import kill_tree

RUN_S = 60.0
PLAIN_ARGV = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
BY_PATH = [sys.executable, str(kernelspec.LAUNCH), "-f", "{connection_file}"]
AS_MODULE = [sys.executable, "-m", "perdure.kernelside.launch", "-f", "{connection_file}"]


async def until(what: str, ask: Callable[[], Any], seconds: float = 30.0) -> Any:
    """The first true answer of `ask`; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        await asyncio.sleep(0.05)
    return answer


@dataclass
class Answer:
    """What came back for one cell."""

    reply: dict[str, Any]
    text: str = ""
    results: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return bool(self.reply["status"] == "ok")


def specs(folder: Path) -> KernelSpecManager:
    """plain: Jupyter's own. launched, as-module: `launch.py` without Perdure. ours, by-path: with it."""
    shipped = json.loads((kernelspec.SHIPPED / "kernel.json").read_text())
    ours = shipped["metadata"]
    # The agent saves a kernel when its first cell has ended, and then only when it is asked to.
    ours["kernel_provisioner"]["config"] = {"min_gap_s": 3600.0}
    for name, argv, metadata in (
        ("plain", PLAIN_ARGV, {"debugger": True}),
        ("launched", BY_PATH, {"debugger": True}),
        ("as-module", AS_MODULE, {"debugger": True}),
        ("ours", shipped["argv"], ours),
        ("by-path", BY_PATH, ours),
        ("bash", [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"], ours),
    ):
        place = folder / name
        place.mkdir(parents=True)
        language = "bash" if name == "bash" else "python"
        spec = {"argv": argv, "display_name": name, "language": language, "metadata": metadata}
        (place / "kernel.json").write_text(json.dumps(spec))
    return KernelSpecManager(kernel_dirs=[str(folder)], ensure_native_kernel=False)


class Live:
    """`start` it, `run` cells, `close` it at last."""

    def __init__(self, folder: Path, spec: str, manager: KernelSpecManager, env: dict[str, str], **traits: Any) -> None:
        self.folder = folder
        self.env = env
        self.manager = AsyncKernelManager(
            kernel_name=spec,
            kernel_spec_manager=manager,
            connection_file=str(folder / f"kernel-{time.monotonic_ns()}.json"),
            **traits,
        )
        self.client: AsyncKernelClient = None  # type: ignore[assignment]
        self.inputs: list[str] = []
        """Answers to `input()`."""

    async def start(self, **arguments: Any) -> Live:
        await self.manager.start_kernel(cwd=str(self.folder), env=self.env, **arguments)
        self.client = self.manager.client()
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=RUN_S)
        return self

    @property
    def provisioner(self) -> Any:
        return self.manager.provisioner

    async def run(self, code: str, *, seconds: float = RUN_S, silent: bool = False) -> Answer:
        return await self.collect(self.send(code, silent=silent), seconds=seconds)

    def send(self, code: str, *, silent: bool = False) -> str:
        return str(self.client.execute(code, silent=silent, allow_stdin=True))

    async def collect(self, message: str, *, seconds: float = RUN_S) -> Answer:
        """Everything that belongs to this request, until its idle and its reply are there."""
        answer = Answer({})
        idle = False
        deadline = time.monotonic() + seconds
        while not (idle and answer.reply):
            assert time.monotonic() < deadline, f"no answer within {seconds} s; so far: {answer}"
            for channel in (self.client.iopub_channel, self.client.shell_channel, self.client.stdin_channel):
                try:
                    got = await channel.get_msg(timeout=0.02)
                except queue.Empty:
                    continue
                if got["parent_header"].get("msg_id") != message:
                    continue
                idle |= self._take(got, answer)
        return answer

    def _take(self, got: dict[str, Any], answer: Answer) -> bool:
        kind, content = got["msg_type"], got["content"]
        answer.messages.append(got)
        if kind == "execute_reply":
            answer.reply = content
        elif kind == "stream":
            answer.text += content["text"]
        elif kind in ("execute_result", "display_data"):
            answer.results.append(content["data"].get("text/plain", ""))
        elif kind == "input_request":
            self.client.input(self.inputs.pop(0))
        return bool(kind == "status" and content["execution_state"] == "idle")

    async def request(self, channel: str, kind: str, content: dict[str, Any], *, seconds: float = RUN_S) -> dict[str, Any]:
        """Any other request and its reply."""
        message = self.client.session.msg(kind, content)
        sent = getattr(self.client, f"{channel}_channel")
        sent.send(message)
        deadline = time.monotonic() + seconds
        while True:
            got = await sent.get_msg(timeout=max(0.01, deadline - time.monotonic()))
            if got["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return dict(got["content"])

    async def value(self, expression: str) -> Any:
        """An expression's value as JSON, without a trace in the kernel's history."""
        answer = await self.run(f"import json as _j; print(_j.dumps({expression})); del _j", silent=True)
        return json.loads(answer.text)

    async def snapshot(self) -> int:
        """Of how the kernel is now; waits for the one that the agent takes by itself after the first cell."""
        client = AgentClient()
        try:
            async with asyncio.timeout(RUN_S):
                while True:
                    try:
                        return int((await client.snapshot(self.provisioner.perdure_id)).generation)
                    except Conflict:
                        await asyncio.sleep(0.05)
        finally:
            await client.close()

    async def lose(self) -> None:
        """kill -9 of the tree; returns when the agent has brought it back. Jupyter must see it alive all the while."""
        restores = len(self.provisioner.status.restores)
        kill_tree(self.provisioner.status.pid)
        async with asyncio.timeout(RUN_S):
            while len(self.provisioner.status.restores) == restores or self.provisioner.status.phase is not Phase.RUNNING:
                assert await self.manager.is_alive()
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        if self.client is not None:
            self.client.stop_channels()
        if self.manager.has_kernel:
            await self.manager.shutdown_kernel(now=False)
        self.manager.context.destroy(linger=0)
