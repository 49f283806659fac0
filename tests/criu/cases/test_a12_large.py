"""A12: many threads, sparse and scattered memory, a deep stack, a tracing debugger."""

from __future__ import annotations

import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]


def test_three_hundred_threads(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import threading\n"
        "go = threading.Semaphore(0); done = []\n"
        "def work(n):\n"
        "    while True:\n"
        "        go.acquire(); done.append(n)\n"
        "        if len(done) == 300: complete.set()\n"
        "        turn.wait()\n"
        "complete, turn = threading.Event(), threading.Event()\n"
        "threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(300)]; [one.start() for one in threads]"
    )

    def check() -> None:
        assert kernel.run("go.release(300); complete.wait(60), sorted(done) == list(range(300))") == "(True, True)"
        kernel.run("done.clear(); complete.clear(); last = turn; turn = threading.Event(); last.set()")

    survives(check)


def test_sparse_memory_costs_what_is_used(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import mmap\nsparse = mmap.mmap(-1, 2 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE\n"
        "marks = {offset: bytes([n + 1]) for n, offset in enumerate(range(0, 2 << 30, 64 << 20))}\n"
        "for offset, mark in marks.items():\n    sparse[offset:offset + 1] = mark\n"
        "def resident():\n"
        "    return next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmRSS'))"
    )

    def check() -> None:
        assert (
            kernel.run("all(sparse[offset:offset + 1] == mark for offset, mark in marks.items()), sparse[12345]") == "(True, 0)"
        )
        assert int(kernel.run("resident()")) < 1 << 20

    survives(check)


def test_scattered_memory(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    """What hundreds of thousands of small allocations leave: tens of thousands of areas (Linux allows 65530)."""
    kernel.run(
        "import mmap\n"
        "areas = [mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "    for _ in range(20000)]\n"
        "for n, area in enumerate(areas):\n    area[:4] = n.to_bytes(4)\n"
        "import ctypes; libc = ctypes.CDLL(None)\n"
        "def address(area):\n"
        "    return ctypes.addressof(ctypes.c_char.from_buffer(area))\n"
        "split = sum(libc.mprotect(ctypes.c_void_p(address(area)), 4096, 1) == 0 for area in areas[::2])\n"
        "maps = lambda: sum(1 for _ in open('/proc/self/maps'))"
    )
    maps = int(kernel.run("maps()"))
    assert maps > 15_000

    def check() -> None:
        assert kernel.run("all(int.from_bytes(area[:4]) == n for n, area in enumerate(areas))") == "True"
        assert abs(int(kernel.run("maps()")) - maps) < 500

    survives(check)


def test_a_deep_stack(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import sys, threading\n"
        "sys.setrecursionlimit(100_000); threading.stack_size(512 << 20)\n"
        "ask, tell = threading.Semaphore(0), threading.Semaphore(0)\n"
        "depth = 0\n"
        "def down(n):\n"
        "    global depth\n"
        "    if n == 0:\n"
        "        deep.set()\n"
        "        while True:\n"
        "            ask.acquire(); depth = len(frames()); tell.release()\n"
        "    return down(n - 1) + n\n"
        "def frames():\n"
        "    frame, found = sys._getframe(), []\n"
        "    while frame:\n"
        "        found.append(frame); frame = frame.f_back\n"
        "    return found\n"
        "deep = threading.Event(); threading.Thread(target=down, args=(50_000,), daemon=True).start(); deep.wait(60)"
    )

    def check() -> None:
        assert kernel.run("ask.release(); tell.acquire(timeout=60), depth > 50_000") == "(True, True)"

    check()
    survives(check)


def test_a_debugger_is_attached(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    """Tracing inside the process survives: `sys.settrace`, as a debugger uses it."""
    kernel.run(
        "import sys, threading\n"
        "seen = []\n"
        "def trace(frame, event, _):\n"
        "    if frame.f_code.co_name == 'traced':\n"
        "        seen.append(event)\n"
        "    return trace\n"
        "def traced():\n"
        "    return 5\n"
        "go, done = threading.Semaphore(0), threading.Semaphore(0)\n"
        "def work():\n"
        "    sys.settrace(trace)\n"
        "    while True:\n"
        "        go.acquire(); traced(); done.release()\n"
        "threading.Thread(target=work, daemon=True).start()"
    )

    def check() -> None:
        assert kernel.run("seen.clear(); go.release(); done.acquire(timeout=20), seen") == ("(True, ['call', 'line', 'return'])")

    check()
    survives(check)
