"""A15: clocks that must not go backwards don't, the wall clock says what time it is, what is due comes."""

from __future__ import annotations

import time

import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]


def test_clocks(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run("import time\nclocks = lambda: (time.monotonic(), time.perf_counter(), time.time()); then = clocks()")

    def check() -> None:
        assert kernel.run("now = clocks(); print([after >= before for before, after in zip(then, now)])") == (
            "[True, True, True]"
        )
        before = time.time()
        assert before - 1 <= float(kernel.run("time.time()")) <= time.time() + 1
        kernel.run("then = clocks()")

    survives(check)


def test_what_is_due_comes(kernel: LiveKernel) -> None:
    """Two seconds of a sleep are left at the snapshot; being dead doesn't prolong it beyond that."""
    kernel.run(
        "import asyncio, time\n"
        "async def sleep():\n"
        "    began = time.monotonic(); await asyncio.sleep(4); return time.monotonic() - began\n"
        "task = asyncio.ensure_future(sleep())"
    )
    snapshot = kernel.snapshot()
    kernel.kill()
    kernel.restore(snapshot)
    slept = float(kernel.run("print(await asyncio.wait_for(task, 30))"))
    assert slept >= 4
