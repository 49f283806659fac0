"""An agent of a test's own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.functional.jupyter.live import until


class Agent:
    """Listens in `folder`; kernels outlive it as they do in real life. `close` ends it and all that it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "agent.sock"
        self.state = folder / "state"
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> Agent:
        command = [sys.executable, "-m", "perdure", "agent", f"--socket={self.socket}", f"--state={self.state}"]
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - it is waited for below
                command, stdout=log, stderr=log, cwd="/", start_new_session=True
            )
        await until("the agent listens", self._listens, 60)
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    def close(self) -> None:
        self.stop()
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if words and words[0].endswith("perdure-shim") and any(str(self.state) in word for word in words):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "agent.log").read_text()[-4000:]
        return self.socket.exists()


def kill_tree(pid: int) -> None:
    """kill -9 of a process and of everything below it."""
    top = psutil.Process(pid)
    for process in [top, *top.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            os.kill(process.pid, signal.SIGKILL)
