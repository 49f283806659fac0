"""A7: connections to the outside, a server of the kernel's own, a daemon's Unix socket. A17: connections inside."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_kernel import LiveKernel
from perdure.domain.errors import SnapshotFailed

pytestmark = [pytest.mark.criu, pytest.mark.root]


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def outside() -> Iterator[int]:
    """Port of an HTTP server that is no part of the kernel and keeps connections alive."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_connection_to_the_outside_raises_a_normal_error(kernel: LiveKernel, outside: int, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import http.client\n"
        f"web = http.client.HTTPConnection('127.0.0.1', {outside}, timeout=20)\n"
        "def get():\n"
        "    web.request('GET', '/'); return web.getresponse().read()"
    )
    assert kernel.run("get()") == "b'ok'"

    def check() -> None:
        answer = kernel.run(
            "try:\n    print('answered', get())\n"
            "except (OSError, http.client.HTTPException) as error:\n    print(type(error).__name__)"
        )
        assert answer in ("BrokenPipeError", "ConnectionResetError", "RemoteDisconnected", "ConnectionAbortedError")
        assert kernel.run("web.close(); get()") == "b'ok'"

    survives(check)


def test_a_server_in_a_thread_listens_again(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    port = kernel.run(
        "import socketserver, threading\n"
        "class Echo(socketserver.StreamRequestHandler):\n"
        "    def handle(self):\n"
        "        for line in self.rfile:\n"
        "            self.wfile.write(line.upper())\n"
        "class Server(socketserver.ThreadingTCPServer):\n"
        "    daemon_threads = True\n"
        f"server = Server(({kernel.endpoint.ip!r}, 0), Echo)\n"
        "threading.Thread(target=server.serve_forever, daemon=True).start()\n"
        "print(server.server_address[1])"
    )

    def check() -> None:
        with socket.create_connection((kernel.endpoint.ip, int(port)), timeout=20) as client, client.makefile("rb") as answers:
            client.sendall(b"hello\n")
            assert answers.readline() == b"HELLO\n"

    check()
    survives(check)


def test_a_connection_inside_stays_open(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    """A17, with bytes on their way."""
    kernel.run(
        "import socket, threading\n"
        f"listener = socket.create_server(({kernel.endpoint.ip!r}, 0))\n"
        "client = socket.create_connection(listener.getsockname()); served, _ = listener.accept()\n"
        "client.settimeout(20); served.settimeout(20); client.sendall(b'on its way')"
    )

    def check() -> None:
        assert kernel.run("served.recv(100)") == "b'on its way'"
        assert kernel.run("served.sendall(b'and back'); client.recv(100)") == "b'and back'"
        kernel.run("client.sendall(b'on its way')")

    survives(check)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    """Unix socket of a program that is no part of the kernel."""
    path = tmp_path / "daemon.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield path


def test_a_daemons_socket_is_refused_by_name_and_the_kernel_goes_on(kernel: LiveKernel, daemon: Path, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(f"import socket; x = 5; peer = socket.socket(socket.AF_UNIX); peer.connect({str(daemon)!r})")
    with pytest.raises(SnapshotFailed) as caught:
        kernel.snapshot()
    assert str(daemon) in caught.value.sentence
    assert kernel.run("peer.send(b'still there')") == "11"
    kernel.run("peer.close()")

    def check() -> None:
        assert kernel.run("x") == "5"

    survives(check)
