"""A real ipykernel in a real sandbox, with a client that stays connected through snapshot, death and restore."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import perdure.engine.classic as classic
import perdure.engine.live as live
import perdure.engine.restore as restore
from jupyter_client.blocking.client import BlockingKernelClient
from perdure.domain.endpoint import Endpoint
from perdure.domain.ids import KernelId, Owner
from perdure.domain.record import HostFacts, Record, Trigger
from perdure.domain.target import Target
from perdure.engine import criu as criu_programs
from perdure.engine.dump import Job
from perdure.engine.limits import CaptureLimits
from perdure.runtime.sandbox import LaunchSpec, Sandbox

READY_S = 60.0
RUN_S = 60.0


def python_for(owner: Owner) -> tuple[str, dict[str, str]]:
    """A Python with ipykernel that the owner may run, and the environment that it needs. LookupError when there is none.

    The tests' own Python may lie in root's home, which nobody else can enter: then the system's one of the same version borrows
    its packages.
    """
    ours = Path(sys.executable).resolve()
    if owner.uid == 0 or all(folder.stat().st_mode & 0o001 for folder in [ours, *ours.parents]):
        return sys.executable, {}
    system = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    if not system.exists():
        raise LookupError(f"{ours} can't be run by uid {owner.uid}, and there is no {system}")
    return str(system), {"PYTHONPATH": sysconfig.get_path("purelib")}


class SystemClock:
    monotonic = staticmethod(time.monotonic)
    now = staticmethod(time.time)


CLOCK = SystemClock()


class CellFailed(Exception):
    """The cell raised; args are the exception's name and text."""


@dataclass
class Snapshot:
    """One image on disk with what is known of it. It can be restored any number of times."""

    images: Path
    capture: classic.Capture
    record: Record


def write_pages(images: Path, capture: live.LiveCapture) -> None:
    """A live capture's memory out of the shadows into the image."""
    for name, pages in capture.pages.items():
        merged = images / f"{name}.merged"
        with merged.open("wb") as out:
            for at in range(0, pages.size, 4 << 20):
                piece = bytearray(min(4 << 20, pages.size - at))
                pages.readinto(at, memoryview(piece))
                out.write(piece)
        merged.replace(images / name)


@dataclass
class Cell:
    """A cell that was sent and may still run."""

    message: str
    outputs: list[str] = field(default_factory=list)
    reply: dict[str, Any] | None = None
    idle: bool = False


class LiveKernel:
    """`run` cells, take a `snapshot`, `kill` the tree with signal 9, `restore` it into a new sandbox; `close` it at last."""

    def __init__(self, folder: Path, *, owner: Owner | None = None, argv: tuple[str, ...] = ()) -> None:
        """`folder` is empty; a home for `owner` (root) is made there. `argv`: another kernel's, `{connection_file}` in it."""
        self.folder = folder
        self.owner = owner or Owner(0, 0)
        self.criu = criu_programs.find()
        self.endpoint = Endpoint.for_kernel(KernelId(f"{folder.parent.name}-{folder.name}"), os.urandom(16).hex())
        self.home = folder / "home"
        self.home.mkdir()
        connection = self.home / "connection.json"
        connection.write_text(json.dumps(self.endpoint.to_json()))
        os.chown(self.home, self.owner.uid, self.owner.gid)
        os.chown(connection, self.owner.uid, self.owner.gid)
        python, self._extra_env = python_for(self.owner)
        default = (
            *(python, "-m", "ipykernel_launcher", "-f", "{connection_file}"),
            # Both as Perdure's own kernel spec has it: a tip draws from the user's random numbers at every kernel_info.
            *("--HistoryManager.enabled=False", "--InteractiveShell.enable_tip=False"),
        )
        self.argv = tuple(part.replace("{connection_file}", str(connection)) for part in argv or default)
        self._cells: dict[str, Cell] = {}
        self._snapshots = 0
        self._sandboxes = 0
        self.sandbox = Sandbox.start(self._sandbox_folder(), self._spec(), die_with_agent=True)
        self.client = BlockingKernelClient()
        self.client.load_connection_info(self.endpoint.to_json())
        self.client.start_channels()
        self.settle()

    @property
    def target(self) -> Target:
        kernel = self.sandbox.kernel()
        number, key = self.sandbox.stdio_pipe()
        return Target(self.sandbox.shim.pid, kernel.pid if kernel else 0, number, key)

    def run(self, code: str, timeout: float = RUN_S) -> str:
        """What the cell printed and what its last expression is, stripped. Raises CellFailed, TimeoutError."""
        return self.finish(self.begin(code), timeout)

    def begin(self, code: str, *, allow_stdin: bool = False) -> Cell:
        """Sends a cell and doesn't wait for it."""
        return self._expect(Cell(self.client.execute(code, allow_stdin=allow_stdin)))

    def finish(self, cell: Cell, timeout: float = RUN_S) -> str:
        """Waits for the reply and for idle. Raises CellFailed, TimeoutError."""
        self.follow(cell, lambda one: one.reply is not None and one.idle, timeout)
        assert cell.reply is not None
        if cell.reply["status"] != "ok":
            raise CellFailed(cell.reply.get("ename", cell.reply["status"]), cell.reply.get("evalue", ""))
        return "".join(cell.outputs).strip()

    def follow(self, cell: Cell, until: Callable[[Cell], bool], timeout: float = RUN_S) -> None:
        """Collects messages, also those of other cells, until `until(cell)`. Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while not until(cell):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the cell did not get there within {timeout} s; so far: {cell}")
            for receive, wait_s in (
                (self.client.get_iopub_msg, 0.02),
                (self.client.get_shell_msg, 0.0),
                (self.client.get_control_msg, 0.0),
            ):
                try:
                    self._note(receive(timeout=wait_s))
                except queue.Empty:
                    continue

    def settle(self, timeout: float = READY_S) -> None:
        """Returns when requests are answered, even while a cell runs, and their status messages arrive."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            asked = self._expect(Cell(self._ask()))
            try:
                self.follow(asked, lambda one: one.reply is not None and one.idle, 1.0)
            except TimeoutError:
                if self.sandbox.ended() is not None:
                    raise AssertionError(f"the kernel ended: {self.log()}") from None
                continue
            return
        raise TimeoutError(f"the kernel did not answer within {timeout} s: {self.log()}")

    def interrupt(self) -> None:
        self.sandbox.signal(signal.SIGINT)

    def snapshot(
        self, *, limits: CaptureLimits | None = None, criu: criu_programs.Criu | None = None, engine: str = ""
    ) -> Snapshot:
        """A snapshot in a folder of its own; the kernel goes on. `engine`: else PERDURE_TEST_ENGINE, else the classic one.

        Raises what the engine raises.
        """
        images = self.new_images()
        began = time.monotonic()
        if (engine or os.environ.get("PERDURE_TEST_ENGINE")) == live.ENGINE:
            with live.capture(self.job(images, criu=criu, limits=limits)) as alive:
                write_pages(images, alive)
                capture = alive.capture
        else:
            capture = classic.capture(self.job(images, criu=criu, limits=limits))
        return Snapshot(images, capture, self._record(capture, time.monotonic() - began))

    def job(
        self, images: Path, *, limits: CaptureLimits | None = None, criu: criu_programs.Criu | None = None, **more: Any
    ) -> Job:
        return Job(self.target, images, criu or self.criu, CLOCK, limits or CaptureLimits(), **more)

    def new_images(self) -> Path:
        """A folder for one more image; it doesn't exist yet."""
        self._snapshots += 1
        return self.folder / f"images-{self._snapshots}"

    def kill(self) -> None:
        """The whole tree and its sandbox, with signal 9."""
        self.sandbox.kill()

    def restore(self, snapshot: Snapshot) -> restore.Revived:
        """Into a new sandbox, from a copy of the image. Returns when the kernel answers. Raises what the engine raises."""
        private = self.folder / f"restore-{self._sandboxes}"
        shutil.copytree(snapshot.images, private, symlinks=True)
        self.sandbox = Sandbox.empty(self._sandbox_folder(), owner=self.owner, die_with_agent=True)
        try:
            revived = restore.revive(self.target, private, snapshot.record, self.criu, clock=CLOCK)
        finally:
            shutil.rmtree(private)
        self.settle()
        return revived

    def log(self) -> str:
        """What the kernel's processes printed, and did not send as output, since the last start or restore."""
        try:
            return self.sandbox.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def close(self) -> None:
        self.sandbox.kill()
        self.client.stop_channels()

    def _ask(self) -> str:
        """Sends what `settle` waits for an answer to; the message's id."""
        request = self.client.session.msg("kernel_info_request")
        self.client.control_channel.send(request)
        return str(request["header"]["msg_id"])

    def _expect(self, cell: Cell) -> Cell:
        self._cells[cell.message] = cell
        return cell

    def _note(self, message: dict[str, Any]) -> None:
        cell = self._cells.get(message["parent_header"].get("msg_id", ""))
        if cell is None:
            return
        content = message["content"]
        match message["msg_type"]:
            case "stream":
                cell.outputs.append(content["text"])
            case "execute_result" | "display_data":
                cell.outputs.append(content["data"].get("text/plain", ""))
            case "status":
                cell.idle = content["execution_state"] == "idle"
            case "execute_reply" | "kernel_info_reply":
                cell.reply = content

    def _spec(self) -> LaunchSpec:
        env = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "IPYTHONDIR": str(self.home / "ipython"),
            "MPLCONFIGDIR": str(self.home / "mpl"),
            "LANG": "C.UTF-8",
            **self._extra_env,
        }
        return LaunchSpec(argv=self.argv, env=env, cwd=str(self.home), owner=self.owner)

    def _sandbox_folder(self) -> Path:
        self._sandboxes += 1
        return self.folder / f"sandbox-{self._sandboxes}"

    def _record(self, capture: classic.Capture, total_s: float) -> Record:
        return Record(
            incarnation=1,
            created="2026-12-01T00:00:00Z",
            trigger=Trigger.DEMAND,
            engine=classic.ENGINE,
            owner=self.owner,
            host=HostFacts("here", "boot", os.uname().release, os.uname().machine, (), capture.criu_version),
            endpoint=self.endpoint.to_json(),
            kernel_name="python3",
            display_name="Python",
            notebook="",
            argv=self.argv,
            cwd=str(self.home),
            execution_count=None,
            busy=False,
            stdio_key=capture.stdio_key,
            stall_s=capture.stall_s,
            total_s=total_s,
            timings=capture.timings,
            files=capture.files,
            warnings=capture.warnings,
        )
