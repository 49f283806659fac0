"""A9: io_uring is refused to programs, which know how to live without it; uvloop goes on."""

from __future__ import annotations

import errno

import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]

IO_URING_SETUP = 425
"""The same on every architecture."""


def test_a_ring_is_refused(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def ring():\n"
        f"    return libc.syscall({IO_URING_SETUP}, 8, ctypes.create_string_buffer(120)), ctypes.get_errno()"
    )

    def check() -> None:
        assert kernel.run("ring()") == f"(-1, {errno.ENOSYS})"

    check()
    survives(check)


def test_uvloop_goes_on(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import asyncio, threading, time, uvloop\n"
        "loop = uvloop.new_event_loop(); ticks = 0\n"
        "async def tick():\n"
        "    global ticks\n"
        "    while True:\n"
        "        ticks += 1; await asyncio.sleep(.002)\n"
        "async def echo(reader, writer):\n"
        "    writer.write((await reader.readline()).upper()); await writer.drain(); writer.close()\n"
        "async def talk(port):\n"
        "    reader, writer = await asyncio.open_connection('127.0.0.1', port)\n"
        "    writer.write(b'hello\\n'); answer = await reader.readline(); writer.close(); return answer\n"
        "thread = threading.Thread(target=loop.run_forever, daemon=True); thread.start()\n"
        "run = lambda what: asyncio.run_coroutine_threadsafe(what, loop)\n"
        "ticking = run(tick()); server = run(asyncio.start_server(echo, '127.0.0.1', 0)).result(20)\n"
        "port = server.sockets[0].getsockname()[1]"
    )

    def check() -> None:
        assert kernel.run("before = ticks; print(ticking.done(), thread.is_alive())") == "False True"
        kernel.run(
            "deadline = time.monotonic() + 20\nwhile ticks <= before:\n    assert time.monotonic() < deadline; time.sleep(.01)"
        )
        assert kernel.run("run(talk(port)).result(20)") == "b'HELLO\\n'"

    survives(check)
