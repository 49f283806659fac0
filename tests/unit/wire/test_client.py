"""The client against peers that speak HTTP on a real socket: an agent's errors, and what is no agent at all."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from perdure.domain import errors
from perdure.domain.errors import AgentUnreachable, PerdureError, ProtocolMismatch
from perdure.domain.ids import kernel_id
from perdure.wire import spawn
from perdure.wire.client import AgentClient
from perdure.wire.messages import PROTOCOL, PROTOCOL_HEADER

ID = kernel_id("k")
HEADER = f"{PROTOCOL_HEADER}: {PROTOCOL}\r\n"
Serve = Callable[[bytes], Awaitable[AgentClient]]


def classes(base: type[PerdureError] = PerdureError) -> list[type[PerdureError]]:
    return [base, *(one for child in base.__subclasses__() for one in classes(child))]


def answer(status: int, body: object, header: str = HEADER) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status} Said\r\n{header}Content-Length: {len(data)}\r\n\r\n".encode() + data


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """serve(bytes): a client of a peer that says these bytes to whatever it is asked, and hangs up."""
    path = tmp_path / "peer.sock"
    servers: list[asyncio.Server] = []
    clients: list[AgentClient] = []

    async def start(said: bytes) -> AgentClient:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(said)
            writer.close()

        servers.append(await asyncio.start_unix_server(talk, str(path)))
        clients.append(AgentClient(f"unix://{path}"))
        return clients[-1]

    yield start
    for client in clients:
        await client.close()
    for server in servers:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("kind", classes())
async def test_an_error_arrives_as_the_class_that_it_was(serve: Serve, kind: type[PerdureError]) -> None:
    raised = kind("A sentence.", hint="A hint.", detail="log")
    client = await serve(answer(422, {"error": raised.to_json()}))
    with pytest.raises(kind) as caught:
        await client.host()
    assert type(caught.value) is kind
    assert caught.value.to_json() == raised.to_json()


async def test_an_error_of_a_newer_release_is_still_an_error(serve: Serve) -> None:
    client = await serve(answer(422, {"error": {"code": "moon-phase", "sentence": "The moon is wrong."}}))
    with pytest.raises(PerdureError) as caught:
        await client.kernels()
    assert type(caught.value) is PerdureError
    assert caught.value.sentence == "The moon is wrong."


@pytest.mark.parametrize("header", ["", f"{PROTOCOL_HEADER}: {PROTOCOL + 1}\r\n", f"{PROTOCOL_HEADER}: yes\r\n"])
async def test_another_protocol_is_a_mismatch(serve: Serve, header: str) -> None:
    client = await serve(answer(200, {"kernels": []}, header))
    with pytest.raises(ProtocolMismatch):
        await client.kernels()


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b'"text"', b"\xff\xfe"])
@pytest.mark.parametrize("status", [200, 404])
async def test_what_is_no_agent_is_a_mismatch(serve: Serve, status: int, body: bytes) -> None:
    client = await serve(answer(status, body))
    with pytest.raises(ProtocolMismatch):
        await client.kernels()


@pytest.mark.parametrize("body", [{}, {"error": None}, {"error": "text"}, {"error": {}}])
async def test_an_error_without_a_document_is_still_an_error(serve: Serve, body: object) -> None:
    client = await serve(answer(500, body))
    with pytest.raises(PerdureError):
        await client.kernels()


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", b"what?\r\n\r\n"])
async def test_one_that_hangs_up_is_unreachable(serve: Serve, said: bytes) -> None:
    client = await serve(said)
    with pytest.raises(AgentUnreachable):
        await client.kernel(ID)


async def test_nobody_there_is_unreachable(tmp_path: Path) -> None:
    nobody, dead = tmp_path / "nobody.sock", tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(dead))
    (tmp_path / "file.sock").touch()
    for path in (nobody, dead, tmp_path / "file.sock", tmp_path / ("long" * 40)):
        client = AgentClient(f"unix://{path}")
        with pytest.raises(AgentUnreachable) as caught:
            await client.host()
        assert caught.value.hint
        await client.close()


async def test_an_agent_that_an_administrator_looks_after_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(spawn.SPAWN_VARIABLE, raising=False)
    address = f"unix://{tmp_path}/theirs.sock"
    with pytest.raises(AgentUnreachable):
        await spawn.ensure_agent(address)
    monkeypatch.setenv("PERDURE_AGENT", address)
    with pytest.raises(AgentUnreachable):
        await spawn.ensure_agent()
    assert list(tmp_path.iterdir()) == []


def test_every_error_has_a_code_of_its_own() -> None:
    ours = [one for one in classes() if one.__module__ == errors.__name__]
    assert len({one.code for one in ours}) == len(ours)
