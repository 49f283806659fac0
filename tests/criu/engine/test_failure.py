"""A dump that fails: the kernel is named what is in the way, goes on unharmed, leaves no litter, and is saved the next time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from health import HEALTH, PREPARE, goes_on, litter, tracer_of, when
from live_kernel import LiveKernel
from perdure.domain.errors import KernelGone, NoRoom, SnapshotFailed
from perdure.domain.record import OpenFile
from perdure.domain.target import Target
from perdure.engine import classic, files
from perdure.engine.criu import Criu
from perdure.engine.limits import CaptureLimits

pytestmark = [pytest.mark.criu, pytest.mark.root]

OBSTACLES = {
    "outside unix socket": ("s = socket.socket(socket.AF_UNIX); s.connect({daemon!r})", "s.close()", "daemon.sock"),
    "outside datagram socket": (
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect({log!r})",
        "s.close()",
        "log.sock",
    ),
    "device": ("f = open('/dev/net/tun', 'rb+', buffering=0)", "f.close()", "/dev/net/tun"),
    "perf event": (
        "import struct; fd = c.syscall(298, struct.pack('IIQ', 1, 112, 0) + bytes(96), 0, -1, -1, 0); assert fd >= 0",
        "os.close(fd)",
        "perf_event",
    ),
    "network namespace": (
        "p = subprocess.Popen(['unshare', '-n', 'sleep', '1000']); away(p, 'net')",
        "p.kill(); p.wait()",
        "network",
    ),
    "traced child": (
        "p = subprocess.Popen(['sleep', '1000']); assert c.ptrace(0x4206, p.pid, 0, 0) == 0",
        "p.kill(); p.wait()",
        "traced",
    ),
    "large deleted file": (
        "f = open('big', 'wb+'); f.write(bytes(3 << 20)); f.flush(); os.unlink('big')",
        "f.close()",
        "big",
    ),
    "shell with job control on a terminal": (
        "import pty; p, m = pty.fork()\nif p == 0: os.execvp('sh', ['sh', '-i'])\nwhile b'#' not in os.read(m, 100): pass",
        "os.kill(p, 9); os.waitpid(p, 0); os.close(m)",
        "terminal",
    ),
    "System V shared memory": (
        "s = c.shmget(0, 4096, 0o1600); c.shmat.restype = ctypes.c_void_p; a = c.shmat(s, 0, 0)",
        "c.shmdt(ctypes.c_void_p(a)); c.shmctl(s, 0, 0)",
        "System V",
    ),
}


@pytest.fixture
def sockets(kernel_folder: Path) -> Iterator[dict[str, str]]:
    """Daemons outside the kernel: a stream one that accepts, a datagram one."""
    import socket

    paths = {"daemon": str(kernel_folder / "daemon.sock"), "log": str(kernel_folder / "log.sock")}
    with socket.socket(socket.AF_UNIX) as daemon, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as log:
        daemon.bind(paths["daemon"])
        daemon.listen()
        log.bind(paths["log"])
        yield paths


@pytest.mark.parametrize("name", OBSTACLES)
def test_an_obstacle_is_named_and_the_kernel_goes_on(kernel: LiveKernel, sockets: dict[str, str], name: str) -> None:
    kernel.run(PREPARE)
    setup, undo, named = OBSTACLES[name]
    kernel.run(setup.replace("{daemon!r}", repr(sockets["daemon"])).replace("{log!r}", repr(sockets["log"])))
    with pytest.raises(SnapshotFailed) as caught:
        kernel.snapshot(limits=CaptureLimits(ghost_bytes=1 << 20))
    assert named in caught.value.sentence
    assert kernel.run(HEALTH) == "well"
    assert litter(kernel) == set()
    kernel.run(undo)
    snapshot = kernel.snapshot()
    kernel.kill()
    kernel.restore(snapshot)
    assert kernel.run(HEALTH) == "well"


def while_memory_is_written(kernel: LiveKernel) -> Callable[[], int | None]:
    """CRIU's pid, once a good part of the memory is in the image and before all of it is."""
    pid = kernel.target.kernel_pid

    def condition() -> int | None:
        written = sum(path.stat().st_size for path in kernel.folder.glob("images-*/pages-*.img"))
        return tracer_of(pid) if written > 64 << 20 else None

    return condition


BALLAST = "ballast = bytearray(os.urandom(1 << 20) * 1024)"


def test_criu_killed_while_it_writes(kernel: LiveKernel) -> None:
    kernel.run(PREPARE + BALLAST)
    killer = when(while_memory_is_written(kernel), lambda pid: os.kill(pid, signal.SIGKILL))
    with pytest.raises(SnapshotFailed):
        kernel.snapshot()
    killer.join()
    kernel.run("del ballast")
    goes_on(kernel)


def test_criu_killed_when_the_image_is_complete(kernel: LiveKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is still stopped then, and every connection in repair mode."""
    kernel.run(PREPARE)
    real = files.capture_beside

    def kill_and_copy(target: Target, *arguments: Any) -> tuple[OpenFile, ...]:
        os.kill(tracer_of(target.kernel_pid) or 0, signal.SIGKILL)
        return real(target, *arguments)

    monkeypatch.setattr(files, "capture_beside", kill_and_copy)
    with pytest.raises(SnapshotFailed):
        kernel.snapshot()
    monkeypatch.undo()
    goes_on(kernel)


@pytest.mark.parametrize("delay_ms", [0, 3, 10, 20, 30])
def test_criu_killed_at_any_moment_is_reported_as_it_is(kernel: LiveKernel, delay_ms: int) -> None:
    """There are moments in which nobody can kill CRIU without harm (docs/engine.md); then the kernel is said to be gone, and
    the last snapshot brings it back."""
    kernel.run(PREPARE)
    good = kernel.snapshot()

    def kill(pid: int) -> None:
        at = time.monotonic() + delay_ms / 1000
        while time.monotonic() < at:
            os.sched_yield()
        os.kill(pid, signal.SIGKILL)

    pid = kernel.target.kernel_pid
    killer = when(lambda: tracer_of(pid), kill)
    with pytest.raises((SnapshotFailed, KernelGone)) as caught:
        kernel.snapshot()
    killer.join()
    if caught.type is KernelGone:
        kernel.kill()
        kernel.restore(good)
    goes_on(kernel, good.images)


def test_criu_that_hangs_is_given_up_and_the_kernel_goes_on(kernel: LiveKernel) -> None:
    kernel.run(PREPARE + BALLAST)
    stopper = when(while_memory_is_written(kernel), lambda pid: os.kill(pid, signal.SIGSTOP))
    with pytest.raises(SnapshotFailed):
        kernel.snapshot(limits=CaptureLimits(dump_s=5.0, abort_s=0.5))
    stopper.join()
    kernel.run("del ballast")
    goes_on(kernel)


def test_a_cancelled_dump_is_undone_by_criu_itself(kernel: LiveKernel) -> None:
    kernel.run(PREPARE + BALLAST)
    cancelled = threading.Event()
    canceller = when(while_memory_is_written(kernel), lambda _: cancelled.set())
    images = kernel.folder / "images-x"
    with pytest.raises(SnapshotFailed) as caught:
        classic.capture(kernel.job(images, cancelled=cancelled))
    canceller.join()
    assert "killed" not in caught.value.sentence
    kernel.run("del ballast")
    goes_on(kernel)


def test_a_kernel_that_has_ended_is_reported_as_gone(kernel: LiveKernel) -> None:
    target = kernel.target
    kernel.kill()
    with pytest.raises(KernelGone):
        classic.capture(replace(kernel.job(kernel.folder / "images-x"), target=target))


def test_no_room_is_said_before_anything_starts(kernel: LiveKernel) -> None:
    with pytest.raises(NoRoom):
        kernel.snapshot(limits=CaptureLimits(disk_margin_bytes=1 << 60))
    with pytest.raises(NoRoom):
        kernel.snapshot(limits=CaptureLimits(memory_margin_bytes=1 << 60))
    assert litter(kernel) == set()


def test_a_program_that_is_no_criu(kernel: LiveKernel) -> None:
    kernel.run(PREPARE)
    with pytest.raises(SnapshotFailed):
        kernel.snapshot(criu=Criu(Path("/bin/false"), (9, 9, 9)))
    assert kernel.run(HEALTH) == "well"
    assert litter(kernel) == set()


def test_a_process_that_was_stopped_stays_stopped(kernel: LiveKernel) -> None:
    kernel.run(PREPARE)
    kernel.run("p = subprocess.Popen(['sleep', '1000']); os.kill(p.pid, 19); os.waitpid(p.pid, os.WUNTRACED)")
    state = "open(f'/proc/{p.pid}/stat').read().split()[2]"
    with pytest.raises(SnapshotFailed):
        kernel.snapshot(criu=Criu(Path("/bin/false"), (9, 9, 9)))
    assert kernel.run(state) == "'T'"
    snapshot = kernel.snapshot()
    assert kernel.run(state) == "'T'"
    kernel.kill()
    kernel.restore(snapshot)
    assert kernel.run(state) == "'T'"
