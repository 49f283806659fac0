"""A server between Perdure and the S3 server that does to their requests what networks and servers do."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import urlsplit

_TOO_FAR = timedelta(minutes=15)
_CONDITIONS = ("if-match", "if-none-match")


@dataclass
class Request:
    """As it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def conditional(self) -> bool:
        return any(name in self.headers for name in _CONDITIONS)


Fault = Callable[["Handler", Request], None]
Which = Callable[[Request], bool]


@dataclass
class Proxy:
    """`faults` are used up one by one, each by the first request that it is meant for."""

    target: tuple[str, int]
    endpoint: str = ""
    faults: list[tuple[Which, Fault]] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    ahead: timedelta = timedelta(0)
    """How much later it is for the server."""
    drop_conditions: bool = False
    over: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)

    def fail(self, fault: Fault, *, method: str = "", path: str = "", times: int = 1) -> None:
        """The next `times` requests of this method whose path contains `path` meet `fault`."""

        def meant(request: Request) -> bool:
            return method in ("", request.method) and path in request.path

        self.faults += [(meant, fault)] * times

    def fail_at(self, number: int, *faults: Fault) -> None:
        """From request `number` on (0: the next one), each request meets one of the faults."""
        last_that_passes = len(self.seen) + number
        self.faults += [(lambda _: len(self.seen) > last_that_passes, fault) for fault in faults]

    def take(self, request: Request) -> Fault | None:
        with self.lock:
            self.seen.append(f"{request.method} {request.path}")
            for number, (meant, fault) in enumerate(self.faults):
                if meant(request):
                    del self.faults[number]
                    return fault
        return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body follows the header: 40 ms per request otherwise
    proxy: Proxy

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def _serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        request = Request(self.command, self.path, headers, body)
        fault = self.proxy.take(request)
        if fault is not None:
            fault(self, request)
        elif self._off(request):
            answer(403, "RequestTimeTooSkewed")(self, request)
        else:
            self.give(*self.forward(request))

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve

    def _off(self, request: Request) -> bool:
        signed = datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        return abs(datetime.now(UTC) + self.proxy.ahead - signed) > _TOO_FAR

    def forward(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(*self.proxy.target)
        dropped = _CONDITIONS if self.proxy.drop_conditions else ()
        try:
            headers = {name: value for name, value in request.headers.items() if name not in (*dropped, "expect")}
            connection.request(request.method, request.path, request.body, headers)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def give(self, status: int, headers: dict[str, str], body: bytes, *, cut_at: int | None = None) -> None:
        self.send_response_only(status)
        skipped = ("connection", "transfer-encoding") + (() if self.command == "HEAD" else ("content-length",))
        for name, value in headers.items():
            if name.lower() not in skipped:
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:cut_at] if self.command != "HEAD" else b"")
        if cut_at is not None:
            self.hang_up()

    def hang_up(self) -> None:
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


def answer(status: int, code: str) -> Fault:
    """An error of S3's, and nothing is done."""

    def fault(handler: Handler, request: Request) -> None:
        date = format_datetime(datetime.now(UTC) + handler.proxy.ahead, usegmt=True)
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        handler.give(status, {"Date": date, "Content-Type": "application/xml"}, body)

    return fault


def no_connection(handler: Handler, request: Request) -> None:
    handler.hang_up()


def lost_answer(handler: Handler, request: Request) -> None:
    """Done, and nobody is told."""
    handler.forward(request)
    handler.hang_up()


def cut_answer(handler: Handler, request: Request) -> None:
    """Half of the body, then the connection breaks."""
    status, headers, body = handler.forward(request)
    handler.give(status, headers, body, cut_at=len(body) // 2)


def torn_upload(handler: Handler, request: Request) -> None:
    """Half of the body reaches the server."""
    with socket.create_connection(handler.proxy.target) as torn:
        lines = [f"{request.method} {request.path} HTTP/1.1", *(f"{name}: {value}" for name, value in request.headers.items())]
        torn.sendall("\r\n".join((*lines, "", "")).encode() + request.body[: len(request.body) // 2])
    handler.hang_up()


def silence(handler: Handler, request: Request) -> None:
    """No answer for as long as the test runs."""
    handler.proxy.over.wait()
    handler.close_connection = True


@contextmanager
def in_front_of(endpoint: str) -> Iterator[Proxy]:
    parts = urlsplit(endpoint)
    proxy = Proxy((str(parts.hostname), int(parts.port or 80)))
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"proxy": proxy}))
    proxy.endpoint = f"http://127.0.0.1:{server.server_port}"
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
