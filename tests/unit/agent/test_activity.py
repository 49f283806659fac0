"""What the agent makes of a kernel's messages. They come over a real socket, signed as a kernel signs them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import zmq
import zmq.asyncio
from jupyter_client.session import Session
from perdure.agent.activity import OURS, Activity
from perdure.agent.errands import Errands
from perdure.domain.endpoint import CHANNELS, Endpoint


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> float:
        return self.time


class Speaker:
    """The iopub side of a kernel."""

    def __init__(self, socket: zmq.asyncio.Socket, key: str) -> None:
        self.session = Session(key=key.encode(), check_pid=False)
        self.stranger = Session(key=b"another", check_pid=False)
        self.socket = socket

    async def say(
        self, kind: str, content: dict[str, Any], parent: str, request: str, *, user: str = "u", forged: bool = False
    ) -> None:
        session = self.stranger if forged else self.session
        header = {
            "msg_id": parent,
            "msg_type": request,
            "username": user,
            "session": "s",
            "date": "2026-12-01T00:00:00Z",
            "version": "5.3",
        }
        message = session.msg(kind, content, parent={"header": header})
        await self.socket.send_multipart([b"topic", *session.serialize(message)])

    async def status(self, state: str, parent: str, request: str = "execute_request", **how: Any) -> None:
        await self.say("status", {"execution_state": state}, parent, request, **how)

    async def input(self, parent: str, count: int, **how: Any) -> None:
        await self.say("execute_input", {"code": "…", "execution_count": count}, parent, "execute_request", **how)


@asynccontextmanager
async def hearing() -> AsyncIterator[tuple[Activity, Speaker, Clock, Callable[[], Any]]]:
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.XPUB)
    socket.linger = 0
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    endpoint = Endpoint("127.0.0.1", dict.fromkeys(CHANNELS, port), os.urandom(8).hex())
    clock, errands, changes = Clock(), Errands(), asyncio.Queue[None]()
    activity = Activity(endpoint, clock, lambda: changes.put_nowait(None), errands)
    activity.listen(endpoint)
    assert await asyncio.wait_for(socket.recv(), 10) == b"\x01"  # it has subscribed

    async def changed() -> None:
        await asyncio.wait_for(changes.get(), 10)

    try:
        yield activity, Speaker(socket, endpoint.key), clock, changed
    finally:
        await activity.close()
        await errands.close()
        socket.close()
        context.term()


async def test_a_cell_from_its_start_to_its_end() -> None:
    async with hearing() as (activity, kernel, clock, changed):
        await kernel.status("busy", "a")
        await kernel.input("a", 7)
        await changed()
        assert (activity.busy, activity.ran_since, activity.cell_ended, activity.execution_count) == (True, True, False, 7)
        clock.time += 5
        assert activity.work_s == 5
        await kernel.status("idle", "a")
        await changed()
        assert (activity.busy, activity.cell_ended, activity.work_s) == (False, True, 5)
        activity.settle()
        assert (activity.ran_since, activity.cell_ended, activity.work_s) == (False, False, 0)


async def test_a_snapshot_in_the_middle_of_a_cell_counts_from_there() -> None:
    async with hearing() as (activity, kernel, clock, changed):
        await kernel.input("a", 1)
        await changed()
        clock.time += 5
        activity.settle()
        clock.time += 2
        assert (activity.busy, activity.ran_since, activity.work_s) == (True, True, 2)
        activity.unsettle(ran_since=True, cell_ended=False, work_s=5)
        assert activity.work_s == 7


@pytest.mark.parametrize(
    ("request_type", "user", "runs"),
    [
        ("comm_msg", "u", True),
        ("comm_open", "u", True),
        ("debug_request", "u", True),
        ("execute_request", "u", True),  # a silent one: no execute_input came
        ("execute_request", OURS, False),
        ("kernel_info_request", "u", False),
        ("complete_request", "u", False),
        ("comm_info_request", OURS, False),
    ],
)
async def test_what_counts_as_running_the_users_code(request_type: str, user: str, runs: bool) -> None:
    async with hearing() as (activity, kernel, _, changed):
        await kernel.status("busy", "m", request_type, user=user)
        await kernel.status("idle", "m", request_type, user=user)
        if not runs:
            await kernel.input("a-cell", 1)  # comes after them, so what is heard first tells
        await changed()
        assert activity.ran_since
        assert not activity.cell_ended
        assert activity.busy is not runs


async def test_forged_and_malformed_messages_are_nothing() -> None:
    async with hearing() as (activity, kernel, _, changed):
        await kernel.input("forged", 99, forged=True)
        word = b'"execute_input"'
        await kernel.socket.send_multipart([word, b"<IDS|MSG>", word, word, b"{", b"}", b"]"])
        await kernel.socket.send_multipart([b'"execute_input"'])
        await kernel.input("real", 3)
        await changed()
        assert activity.execution_count == 3
        await kernel.status("idle", "real")
        await changed()
        assert not activity.busy


async def test_a_restored_cell_ends_although_its_name_is_not_known() -> None:
    async with hearing() as (activity, kernel, clock, changed):
        activity.went_back(busy=True, execution_count=4)
        assert (activity.busy, activity.execution_count) == (True, 4)
        clock.time += 3
        await kernel.status("idle", "before-the-snapshot")
        await changed()
        assert (activity.busy, activity.cell_ended, activity.work_s) == (False, True, 3)


async def test_a_new_cell_ends_a_restored_one_that_was_missed() -> None:
    async with hearing() as (activity, kernel, _, changed):
        activity.went_back(busy=True, execution_count=4)
        await kernel.input("next", 5)
        await changed()
        assert (activity.busy, activity.cell_ended) == (True, True)
        await kernel.status("idle", "next")
        await changed()
        assert not activity.busy
