"""The agent's socket, spoken to by hand: what is answered to those that are no clients of ours."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import pytest
from perdure.wire.messages import PROTOCOL, PROTOCOL_HEADER

from tests.functional.agent.workplace import Workplace

pytestmark = pytest.mark.criu
OURS = {PROTOCOL_HEADER: str(PROTOCOL)}


class Connection(http.client.HTTPConnection):
    def __init__(self, workplace: Workplace) -> None:
        super().__init__("agent", timeout=30)
        self._path = str(workplace.socket)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def said(workplace: Workplace, method: str, path: str, body: Any = None, headers: dict[str, str] = OURS) -> tuple[int, str]:
    """Status and the error's code; every answer is a document and names the agent's protocol."""
    connection = Connection(workplace)
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        document = json.loads(response.read())
    finally:
        connection.close()
    assert response.headers[PROTOCOL_HEADER] == str(PROTOCOL)
    return response.status, document.get("error", {}).get("code", "")


def test_what_is_malformed_is_refused_by_name(agent: Workplace) -> None:
    request = json.dumps(agent.request().to_json())
    for method, path, body, expected in (
        ("GET", "/v1/kernels", None, (200, "")),
        ("GET", "/", None, (404, "not-found")),
        ("GET", "/v2/host", None, (404, "not-found")),
        ("GET", "/v1/kernels/nobody", None, (404, "not-found")),
        ("GET", "/v1/kernels/..%2f..", None, (404, "not-found")),
        ("GET", f"/v1/kernels/{'k' * 200}", None, (400, "bad-request")),
        ("POST", "/v1/kernels", "", (400, "bad-request")),
        ("POST", "/v1/kernels", "{", (400, "bad-request")),
        ("POST", "/v1/kernels", b"\xff", (400, "bad-request")),
        ("POST", "/v1/kernels", "[]", (400, "bad-request")),
        ("POST", "/v1/kernels", "[" * 100_000, (400, "bad-request")),
        ("POST", "/v1/kernels", request.replace("kernel_id", "id"), (400, "bad-request")),
        ("POST", "/v1/kernels/nobody/signal", '{"signum": 2}', (404, "not-found")),
        ("POST", "/v1/kernels/nobody/restore", '{"generation": 0}', (404, "not-found")),
        ("DELETE", "/v1/kernels/nobody?snapshots=keep", None, (200, "")),
        ("DELETE", "/v1/kernels/nobody?snapshots=all", None, (400, "bad-request")),
    ):
        assert (path, body and body[:20], said(agent, method, path, body)) == (path, body and body[:20], expected)
    assert agent.ask(lambda client: client.kernels()) == []


def test_methods_that_there_are_not(agent: Workplace) -> None:
    for method, path in (("PUT", "/v1/kernels"), ("DELETE", "/v1/host"), ("PATCH", "/v1/kernels/nobody")):
        assert said(agent, method, path) == (405, "bad-request")


@pytest.mark.parametrize("headers", [{}, {PROTOCOL_HEADER: str(PROTOCOL + 1)}, {PROTOCOL_HEADER: ""}])
def test_another_protocol_is_a_mismatch(agent: Workplace, headers: dict[str, str]) -> None:
    assert said(agent, "GET", "/v1/kernels", headers=headers) == (426, "protocol-mismatch")
    assert said(agent, "DELETE", "/v1/kernels/k?snapshots=drop", headers=headers) == (426, "protocol-mismatch")


def test_noise_does_not_end_it(agent: Workplace) -> None:
    for noise in (
        b"\0" * 1000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/kernels HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n",
        b"",
    ):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(agent.socket))
            peer.sendall(noise)
            peer.shutdown(socket.SHUT_WR)
            peer.settimeout(30)
            while peer.recv(1 << 16):
                pass
    assert agent.answers()
