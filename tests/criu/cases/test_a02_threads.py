"""A2: a thread pool at work, an asyncio task, a held lock, a timer."""

from __future__ import annotations

import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]


def test_threads_tasks_locks_timers_go_on(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import asyncio, os, threading, time\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "token = int.from_bytes(os.urandom(4)) << 32; counts = [token, token]; ticks = token\n"
        "stop, fired, lock = threading.Event(), threading.Event(), threading.Lock()\n"
        "def work(n):\n"
        "    while not stop.is_set():\n"
        "        counts[n] += 1; time.sleep(.002)\n"
        "    return counts[n]\n"
        "pool = ThreadPoolExecutor(2); futures = [pool.submit(work, n) for n in range(2)]\n"
        "async def tick():\n"
        "    global ticks\n"
        "    while True:\n"
        "        ticks += 1; await asyncio.sleep(.002)\n"
        "waiter = ThreadPoolExecutor(1)\n"
        "def arm():\n"
        "    global timer, blocked\n"
        "    fired.clear(); timer = threading.Timer(3, fired.set); timer.start()\n"
        "    lock.acquire(); blocked = waiter.submit(lambda: (lock.acquire(), lock.release(), 'through')[2])"
    )
    kernel.run("task = asyncio.ensure_future(tick()); arm(); await asyncio.sleep(.2)")
    token = int(kernel.run("token"))

    def check() -> None:
        before = kernel.run("before = (*counts, ticks); print(*before)").split()
        assert all(token < int(count) < token + (1 << 32) for count in before)
        kernel.run(
            "deadline = time.monotonic() + 20\n"
            "while not all(now > then for now, then in zip((*counts, ticks), before)):\n"
            "    assert time.monotonic() < deadline, (counts, ticks, before)\n"
            "    await asyncio.sleep(.01)"
        )
        assert kernel.run("task.done(), [future.done() for future in futures], lock.locked(), blocked.done()") == (
            "(False, [False, False], True, False)"
        )
        assert kernel.run("lock.release(); blocked.result(20)") == "'through'"
        assert kernel.run("fired.wait(20)") == "True"
        kernel.run("arm()")

    survives(check)
    assert kernel.run("stop.set(); [future.result(20) for future in futures] == counts") == "True"
