"""An agent of a test's own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil


class Agent:
    """Listens in `folder`; kernels outlive it as they do in real life. `close` ends it and all that it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "agent.sock"
        self.state = folder / "state"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Agent:
        command = [sys.executable, "-m", "perdure", "agent", f"--socket={self.socket}", f"--state={self.state}"]
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", start_new_session=True)
        deadline = time.monotonic() + 60
        while not self.socket.exists():
            said = (self.folder / "agent.log").read_text()[-4000:]
            assert self.process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.02)
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


def kill_tree(pid: int) -> None:
    """kill -9 of a process and of everything below it; returns when they are gone.

    What is sent in the milliseconds in which a killed process still holds its sockets is lost, as with any kernel.
    """
    top = psutil.Process(pid)
    tree = [top, *top.children(recursive=True)]
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    _, left = psutil.wait_procs(tree, timeout=20)
    assert not left
