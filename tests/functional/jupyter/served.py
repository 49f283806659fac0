"""A real Jupyter server of a test's own, spoken to as a page does: REST, and one websocket that stays open."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from tornado.websocket import WebSocketClientConnection, websocket_connect

TOKEN = "for-this-test-only"
RUN_S = 60.0


class Server:
    """`start` it, `open` kernels; `close` closes their pages, shuts them down through the server and ends it."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        (folder / "config/jupyter_server_config.d").mkdir(parents=True)
        enabled = {"ServerApp": {"jpserver_extensions": {"perdure.jupyter.extension": True}}}
        (folder / "config/jupyter_server_config.d/perdure.json").write_text(json.dumps(enabled))
        (folder / "files").mkdir()
        data = folder / "data"
        data.mkdir()
        (data / "kernels").symlink_to(folder / "kernels")
        self.env = {**env, "JUPYTER_CONFIG_DIR": str(folder / "config"), "JUPYTER_DATA_DIR": str(data)}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.log = folder / "server.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.pages: list[Page] = []

    async def start(self, *words: str) -> Server:
        root = ["--allow-root"] if os.geteuid() == 0 else []
        command = [
            *(sys.executable, "-m", "jupyter_server", "--no-browser", *root, "--ServerApp.ip=127.0.0.1", *words),
            *(f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={self.folder}/files"),
            f"--IdentityProvider.token={TOKEN}",
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)  # noqa: ASYNC220 - see close
        deadline = time.monotonic() + 60
        while True:
            try:
                await self.ask("GET", "api")
                return self
            except OSError:
                assert self.process.poll() is None, self.log.read_text()[-4000:]
                assert time.monotonic() < deadline, self.log.read_text()[-4000:]
                await asyncio.sleep(0.1)

    async def fetch(self, method: str, path: str, body: Any = None, *, token: str = TOKEN) -> HTTPResponse:
        headers = {"Authorization": f"token {token}"} if token else {}
        text = None if method in ("GET", "DELETE") else json.dumps(body)
        request = HTTPRequest(
            f"http://127.0.0.1:{self.port}/{path}", method=method, headers=headers, body=text, request_timeout=120
        )
        return await AsyncHTTPClient().fetch(request, raise_error=False)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A call that must work."""
        answer = await self.fetch(method, path, body)
        assert answer.code < 400, f"{method} {path}: {answer.code} {answer.body!r}"
        return json.loads(answer.body) if answer.body else None

    async def open(self, spec: str) -> Page:
        kernel = await self.ask("POST", "api/kernels", {"name": spec})
        self.pages.append(await Page(self, str(kernel["id"])).connect())
        return self.pages[-1]

    async def close(self) -> None:
        for page in self.pages:
            await page.close()
        if self.process is None or self.process.poll() is not None:
            return
        for kernel in await self.ask("GET", "api/kernels"):
            await self.ask("DELETE", f"api/kernels/{kernel['id']}")
        self.process.terminate()
        deadline = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        self.process.kill()
        self.process.wait(10)


class Page:
    """One websocket to one kernel. Everything that arrives is kept in `seen`."""

    def __init__(self, server: Server, kernel: str) -> None:
        self.server, self.kernel = server, kernel
        self.session = uuid.uuid4().hex
        self.seen: list[dict[str, Any]] = []
        self.inputs: list[str] = []
        self.socket: WebSocketClientConnection = None  # type: ignore[assignment]
        self._reader: asyncio.Task[None] | None = None

    async def connect(self) -> Page:
        url = f"ws://127.0.0.1:{self.server.port}/api/kernels/{self.kernel}/channels?session_id={self.session}"
        self.socket = await websocket_connect(HTTPRequest(url, headers={"Authorization": f"token {TOKEN}"}, request_timeout=60))
        self._reader = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        while (text := await self.socket.read_message()) is not None:
            message = json.loads(text)
            self.seen.append(message)
            if message["msg_type"] == "input_request":
                self.send("stdin", "input_reply", {"value": self.inputs.pop(0)}, parent=message["header"])

    async def reconnect(self) -> Page:
        """As JupyterLab does when a kernel was restarted. The server answers when all channels reach the new one; on a connection
        that was there before, the channel of outputs may be back later than the one of requests."""
        await self.close()
        return await self.connect()

    @property
    def statuses(self) -> set[str]:
        """What the kernel and the server said about its state, as far as a page can see."""
        return {message["content"]["execution_state"] for message in self.seen if message["msg_type"] == "status"}

    @property
    def connected(self) -> bool:
        return self._reader is not None and not self._reader.done()

    def send(self, channel: str, kind: str, content: dict[str, Any], *, parent: dict[str, Any] | None = None) -> str:
        header = {"msg_id": uuid.uuid4().hex, "username": "page", "session": self.session, "msg_type": kind, "version": "5.3"}
        message = {"header": header, "parent_header": parent or {}, "metadata": {}, "content": content, "channel": channel}
        self.socket.write_message(json.dumps(message))
        return header["msg_id"]

    def send_cell(self, code: str) -> str:
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": True}
        return self.send("shell", "execute_request", {**content, "stop_on_error": True})

    async def until(self, what: str, found: Callable[[], Any], seconds: float = RUN_S) -> Any:
        deadline = time.monotonic() + seconds
        while not (answer := found()):
            if time.monotonic() > deadline:
                told = [(m["msg_type"], m["content"]) for m in self.seen[-20:]]
                raise AssertionError(f"{what}: not within {seconds} s; {told}\n{self.server.log.read_text()[-4000:]}")
            await asyncio.sleep(0.02)
        return answer

    def belonging(self, message: str) -> list[dict[str, Any]]:
        return [one for one in self.seen if one["parent_header"].get("msg_id") == message]

    async def reply(self, message: str, seconds: float = RUN_S) -> dict[str, Any]:
        def done() -> Any:
            belonging = self.belonging(message)
            idle = any(one["msg_type"] == "status" and one["content"]["execution_state"] == "idle" for one in belonging)
            return idle and [one["content"] for one in belonging if one["msg_type"] == "execute_reply"]

        return dict((await self.until("the reply", done, seconds))[0])

    def text(self, message: str) -> str:
        return "".join(one["content"]["text"] for one in self.belonging(message) if one["msg_type"] == "stream")

    async def run(self, code: str) -> str:
        """What it printed; the cell must succeed."""
        message = self.send_cell(code)
        reply = await self.reply(message)
        assert reply["status"] == "ok", reply
        return self.text(message)

    async def state(self) -> dict[str, Any]:
        return dict(await self.server.ask("GET", f"perdure/api/kernels/{self.kernel}"))

    async def close(self) -> None:
        self.socket.close()
        if self._reader is not None:
            await self._reader
