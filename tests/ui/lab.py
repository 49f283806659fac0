"""A real JupyterLab server of a test's own: own folders, own agent, own repository; everything gone afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

KERNEL = "checkpointed-gpu-python"
TOKEN = "for-this-test-only"


def until(what: str, ask: Callable[[], Any], seconds: float = 30.0) -> Any:
    """The first true answer of `ask`; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)


class Lab:
    """`close` shuts the kernels down through the server, then ends the server and the agent that it started."""

    def __init__(self, *, env: Mapping[str, str] | None = None, config: Mapping[str, Any] | None = None) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="perdure-ui-"))  # short: a unix socket's path has room for 107 characters
        self.files = self.home / "files"
        self.files.mkdir()
        (self.home / "config").mkdir()
        (self.home / "config/jupyter_server_config.json").write_text(json.dumps(config or {}))
        quiet = self.home / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
        quiet.parent.mkdir(parents=True)
        quiet.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
        self.socket = self.home / "agent.sock"
        self.env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PERDURE_AGENT": f"unix://{self.socket}",
            "PERDURE_STATE": str(self.home / "state"),
            "PERDURE_SPAWN_AGENT": "1",
            "IPYTHONDIR": str(self.home / "ipython"),
            **{f"JUPYTER_{name}_DIR": str(self.home / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")},
            **{f"JUPYTERLAB_{name}_DIR": str(self.home / name.lower()) for name in ("SETTINGS", "WORKSPACES")},
            **(env or {}),
        }
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = self.home / "server.log"
        root = ["--allow-root"] if os.geteuid() == 0 else []
        command = [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", *root, "--ServerApp.ip=127.0.0.1"),
            *(f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={self.files}"),
            *(f"--IdentityProvider.token={TOKEN}", "--LabApp.news_url="),
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ]
        with self.log.open("wb") as log:
            self.server = subprocess.Popen(command, env=self.env, cwd=self.files, stdout=log, stderr=log)
        try:
            until("the server answers", self._answers, 60)
        except AssertionError as problem:
            log = self.log.read_text()
            self.close()
            raise AssertionError(f"{problem}\n{log[-4000:]}") from None

    def notebook(self, name: str, cells: list[str], kernel: str = KERNEL) -> None:
        """A notebook with these code cells in the server's folder."""
        code = [
            {"cell_type": "code", "id": f"cell-{n}", "metadata": {}, "execution_count": None, "outputs": [], "source": source}
            for n, source in enumerate(cells)
        ]
        spec = {"name": kernel, "display_name": kernel, "language": "python"}
        content = {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": spec}, "cells": code}
        (self.files / name).write_text(json.dumps(content))

    def page_of(self, name: str, front_end: str = "lab/tree") -> str:
        return f"{self.url}/{front_end}/{name}?reset&token={TOKEN}"

    def ask(self, method: str, path: str) -> Any:
        """A call of the server's own API."""
        request = urllib.request.Request(f"{self.url}/{path}", method=method, headers={"Authorization": f"token {TOKEN}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def kernel_of(self, name: str) -> str:
        """The id of the kernel of this notebook's session."""
        [session] = [session for session in self.ask("GET", "api/sessions") if session["path"] == name]
        return str(session["kernel"]["id"])

    def perdure(self, *words: str) -> Any:
        """What the command line answers, as a person in a terminal would ask."""
        status, answer = self._perdure(*words)
        assert status == 0, f"perdure {words}: {answer}\n{self.log.read_text()[-4000:]}"
        return answer

    def snapshot(self, kernel: str) -> Any:
        """One that was asked for; waits for one that is being taken by itself."""
        answer: dict[str, Any] = {}

        def ask() -> bool:
            nonlocal answer
            answer = self._perdure("snapshot", kernel)[1]
            return answer.get("error", {}).get("code") != "conflict"

        until("the kernel can be snapshotted", ask)
        assert "error" not in answer, answer
        return answer

    def kill_tree(self, kernel: str) -> None:
        """kill -9 of the kernel and of everything that it started."""
        top = psutil.Process(self.perdure("show", kernel)["pid"])
        for process in [top, *top.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            for kernel in self.ask("GET", "api/kernels"):
                self.ask("DELETE", f"api/kernels/{kernel['id']}")
        agent = self._agent()
        self.server.terminate()
        try:
            self.server.wait(20)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait(10)
        if agent is not None:
            _end(agent)
        shutil.rmtree(self.home, ignore_errors=True)

    def _answers(self) -> bool:
        assert self.server.poll() is None, "the server has ended"
        try:
            self.ask("GET", "api")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return True

    def _perdure(self, *words: str) -> tuple[int, Any]:
        command = [sys.executable, "-m", "perdure", *words, "--json"]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout)

    def _agent(self) -> psutil.Process | None:
        """Who listens on the agent's socket."""
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self.socket))
            except OSError:
                return None
            pid, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return None if pid in (0, os.getpid(), self.server.pid) else psutil.Process(pid)


def _end(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.terminate()
        try:
            process.wait(20)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(10)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
