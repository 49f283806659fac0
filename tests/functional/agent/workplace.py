"""A folder with a real agent in it, and real kernels that are looked after by it."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import perdure.kernelside.launch as launch
from jupyter_client.blocking.client import BlockingKernelClient
from perdure.domain.endpoint import Endpoint
from perdure.domain.errors import AgentUnreachable, PerdureError
from perdure.domain.ids import KernelId, Owner, kernel_id
from perdure.domain.phases import Phase
from perdure.domain.policy import Policy
from perdure.store.repository import Repository
from perdure.wire.client import AgentClient
from perdure.wire.messages import KernelStatus, StartRequest

T = TypeVar("T")

PATIENCE_S = 60.0
_NEVER_S = 36000
QUIET = Policy(
    snapshot_interval_s=0,
    after_cell_age_s=_NEVER_S,
    after_cell_work_s=_NEVER_S,
    after_cell_growth_bytes=1 << 40,
    min_gap_s=_NEVER_S,
    preemption_deadline_s=0,
)
"""Next to no snapshots but those that a test asks for: only the one after the first cell."""


class CellFailed(Exception):
    """The cell raised; args are the exception's name and text."""


class LiveKernel:
    """One kernel of the agent with a client that stays connected whatever happens to it."""

    def __init__(self, workplace: Workplace, id: KernelId, endpoint: Endpoint) -> None:
        self.workplace, self.id, self.endpoint = workplace, id, endpoint
        self.client = BlockingKernelClient()
        self.client.load_connection_info(endpoint.to_json())
        self.client.start_channels()
        self._await_ready()
        self._heard: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._closed = Event()
        self._listener = Thread(target=self._listen, name="iopub")
        self._listener.start()

    def _listen(self) -> None:
        """As servers do, which always listen: after a reconnect, ZeroMQ subscribes anew when one looks at the socket."""
        socket = self.client.iopub_channel.socket
        while not self._closed.is_set():
            if socket.poll(50):
                try:
                    _, message = self.client.session.recv(socket)
                except ValueError:
                    continue  # from a kernel with another key, which lives at the same address now
                if message is not None:
                    self._heard.put(message)

    def _await_ready(self) -> None:
        """On a busy machine a kernel takes seconds to start, and its heartbeat is missed for as long."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.client.wait_for_ready(timeout=PATIENCE_S)
            except RuntimeError:
                if time.monotonic() > until:
                    raise

    def run(self, code: str) -> str:
        """What the cell printed, stripped. Raises CellFailed, TimeoutError."""
        return self.finish(self.begin(code))

    def begin(self, code: str) -> str:
        return str(self.client.execute(code, allow_stdin=False))

    def finish(self, message: str, *, seconds: float = PATIENCE_S) -> str:
        """The output of the cell that was sent as `message`, from now on."""
        said: list[str] = []
        until = time.monotonic() + seconds
        while True:
            try:
                heard = self._heard.get(timeout=max(0.01, until - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"no end of the cell; so far: {said}") from None
            if heard["parent_header"].get("msg_id") != message:
                continue
            content = heard["content"]
            match heard["msg_type"]:
                case "stream":
                    said.append(content["text"])
                case "error":
                    raise CellFailed(content["ename"], content["evalue"])
                case "status" if content["execution_state"] == "idle":
                    return "".join(said).strip()

    def status(self) -> KernelStatus:
        return self.workplace.ask(lambda agent: agent.kernel(self.id))

    def until(self, good: Callable[[KernelStatus], object], *, seconds: float = PATIENCE_S) -> KernelStatus:
        """The first status that is `good`. Raises TimeoutError. An agent that is away for a moment is waited for."""
        end, seen = time.monotonic() + seconds, None
        while time.monotonic() < end:
            try:
                seen = self.status()
            except AgentUnreachable:
                continue
            if good(seen):
                return seen
            time.sleep(0.02)
        raise TimeoutError(f"it did not come to that; at last: {seen}\n{self.workplace.log()}")

    def snapshot(self) -> int:
        return self.workplace.ask(lambda agent: agent.snapshot(self.id)).generation

    def die(self, signum: int = signal.SIGKILL) -> int:
        """Ends its process; gives the pid that it had on the host."""
        pid = self.status().pid
        assert pid is not None
        os.kill(pid, signum)
        return pid

    def back(self, restores: int) -> KernelStatus:
        """When it has been restored so many times in all and runs."""
        return self.until(lambda status: status.phase is Phase.RUNNING and len(status.restores) == restores)

    def close(self) -> None:
        self._closed.set()
        self._listener.join()
        self.client.stop_channels()


class Workplace:
    """`agent` and `kernel` start things; `close` ends them all and looks for what stayed behind."""

    def __init__(self) -> None:
        # Short (a socket's path has room for 107 characters) and open to every user: pytest's own folders are neither.
        self.folder = Path(tempfile.mkdtemp(prefix="perdure-ag-"))
        self.folder.chmod(0o755)
        self.socket = self.folder / "run" / "agent.sock"
        self.state = self.folder / "state"
        self.agent: subprocess.Popen[bytes] | None = None
        self._agents = 0
        self._options: tuple[str, ...] = ()
        self._kernels: list[LiveKernel] = []
        self._threads = ThreadPoolExecutor(8)

    @property
    def address(self) -> str:
        return f"unix://{self.socket}"

    def start_agent(self, *options: str) -> subprocess.Popen[bytes]:
        """Returns when it listens. The same options as last time when none are given."""
        self._options = options or self._options
        self.agent = self.run_agent(*self._options)
        until = time.monotonic() + PATIENCE_S
        while not self.answers():
            assert self.agent.poll() is None, self.log()
            assert time.monotonic() < until, self.log()
        return self.agent

    def run_agent(self, *options: str) -> subprocess.Popen[bytes]:
        self._agents += 1
        env = {**os.environ, "PERDURE_AGENT": self.address, "PERDURE_STATE": str(self.state)}
        env.pop("PERDURE_REPOSITORY", None)
        with (self.folder / f"agent-{self._agents}.log").open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "perdure", "agent", *options], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def kill_agent(self) -> None:
        """With signal 9."""
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait()

    def end_agent(self) -> int:
        """As a service manager does."""
        assert self.agent is not None
        self.agent.terminate()
        return self.agent.wait(PATIENCE_S)

    def answers(self) -> bool:
        try:
            self.ask(lambda agent: agent.kernels())
        except AgentUnreachable:
            return False
        return True

    def log(self) -> str:
        """What all agents said."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("agent-*.log")))

    def ask(self, question: Callable[[AgentClient], Awaitable[T]]) -> T:
        async def asked() -> T:
            client = AgentClient(self.address)
            try:
                return await question(client)
            finally:
                await client.close()

        return asyncio.run(asked())

    def begin(self, question: Callable[[AgentClient], Awaitable[T]]) -> Future[T]:
        """`ask` beside whatever comes next."""
        return self._threads.submit(lambda: self.ask(question))

    def request(self, policy: Policy = QUIET, **fields: Any) -> StartRequest:
        """A Python kernel that hasn't been started yet."""
        id = fields.pop("kernel_id", None) or kernel_id(f"k-{os.urandom(6).hex()}")
        endpoint = Endpoint.for_kernel(id, os.urandom(16).hex())
        connection = self.folder / f"{id}.json"
        connection.write_text(json.dumps(endpoint.to_json()))
        connection.chmod(0o644)
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "IPYTHONDIR": str(self.folder / f"ipython-{id}")}
        return StartRequest(
            kernel_id=id,
            argv=fields.pop("argv", (sys.executable, str(launch.__file__), "-f", str(connection))),
            env={**env, **fields.pop("env", {})},
            cwd=str(self.folder),
            endpoint=endpoint,
            kernel_name="python3",
            policy=policy,
            **fields,
        )

    def kernel(self, policy: Policy = QUIET, **fields: Any) -> LiveKernel:
        """Started and ready."""
        request = self.request(policy, **fields)
        self.ask(lambda agent: agent.start(request))
        return self.connect(request)

    def connect(self, request: StartRequest) -> LiveKernel:
        try:
            kernel = LiveKernel(self, request.kernel_id, request.endpoint)
        except RuntimeError as error:
            raise AssertionError(f"{error}\n{self.kernel_log(request.kernel_id)}\n{self.log()}") from error
        self._kernels.append(kernel)
        return kernel

    def kernel_log(self, id: KernelId) -> str:
        path = self.state / "kernels" / id / "sandbox" / "kernel.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def repository(self, uid: int = 0) -> Repository:
        """The agent's own one."""
        return Repository.open((self.state / "repository" / str(uid)).as_uri())

    def packs(self, id: KernelId, generation: int) -> list[Path]:
        """The files that hold what is new in a generation."""
        return sorted((self.state / "repository" / "0" / "kernels" / id / "packs").glob(f"{generation}-*"))

    def staging(self) -> list[Path]:
        return list(self.state.glob("kernels/*/staging"))

    def close(self) -> None:
        for kernel in self._kernels:
            kernel.close()
        try:
            if self.state.is_dir():
                self._end_kernels()
        finally:
            self._threads.shutdown()
            if self.agent is not None and self.agent.poll() is None:
                self.agent.terminate()
                self.agent.wait(PATIENCE_S)
            left = self.left_behind()
            log = self.log()
            shutil.rmtree(self.folder)
        assert left == [], log
        assert "Traceback" not in log, log

    def left_behind(self) -> list[str]:
        """Processes, mounts and images that should be gone."""
        found = [str(path) for path in self.staging()]
        found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(self.folder) in line]
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(str(self.folder).encode() in word for word in words):
                found.append(f"process {name}: {b' '.join(words).decode(errors='replace')}")
        return found

    def _end_kernels(self) -> None:
        if self.agent is None or self.agent.poll() is not None or not self.answers():
            self.start_agent()
        for status in self.ask(lambda agent: agent.kernels()):
            self.ask(lambda agent, id=status.kernel_id: agent.forget(id, snapshots="drop"))  # type: ignore[misc]


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of `size` bytes."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "perdure-test", str(folder)], check=True)
    try:
        yield folder
    except BaseException:  # the test has failed, perhaps with processes still at work there
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        raise
    subprocess.run(["umount", str(folder)], check=True)


def refusal(call: Callable[[], object]) -> PerdureError:
    """The error that the call ends with."""
    try:
        answer = call()
    except PerdureError as error:
        return error
    raise AssertionError(f"no error, but {answer}")


NOBODY = Owner(65534, 65534, (65534,))
