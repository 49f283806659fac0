"""A dump that fails: the kernel is named what is in the way, goes on unharmed, leaves no litter, and is saved the next time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_kernel import CLOCK, LiveKernel
from perdure.domain.errors import KernelGone, NoRoom, SnapshotFailed
from perdure.engine import classic, tree
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
PREPARE = """
import ctypes, os, socket, subprocess, threading, time
c = ctypes.CDLL(None)
ticks, longest, stop = 0, 0.0, False
def tick():
    global ticks, longest
    last = time.monotonic()
    while not stop:
        time.sleep(0.002); now = time.monotonic(); longest = max(longest, now - last); last = now; ticks += 1
threading.Thread(target=tick, daemon=True).start()
def away(p, space):
    while os.readlink(f'/proc/{p.pid}/ns/{space}') == os.readlink(f'/proc/self/ns/{space}'): time.sleep(0.01)
server = socket.create_server(('127.0.0.1', 0)); near = socket.create_connection(server.getsockname()); far, _ = server.accept()
child = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
"""
HEALTH = """
before = ticks
near.sendall(b'ping'); assert far.recv(4) == b'ping'; far.sendall(b'pong'); assert near.recv(4) == b'pong'
child.stdin.write(b'line\\n'); child.stdin.flush(); assert child.stdout.readline() == b'line\\n'
while ticks == before: time.sleep(0.001)
print('well')
"""


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


def litter(kernel: LiveKernel) -> set[str]:
    """Everything below the kernel's folder that a failed dump could have left, and who is in the sandbox."""
    files = {str(path) for path in kernel.folder.rglob("*") if "link_remap" in path.name or path.name.startswith("images-")}
    return files | {f"process {process.name}" for process in tree.in_sandbox(kernel.target.shim_pid) if process.ppid == 0}


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


def criu_in(kernel: LiveKernel) -> int | None:
    """Host pid of the CRIU that works in the kernel's sandbox."""
    mine = {process.pid for process in tree.descendants(kernel.target.kernel_pid)}
    others = [process for process in tree.in_sandbox(kernel.sandbox.shim.pid) if process.pid not in mine]
    return next((process.pid for process in others if process.name not in ("sh", "nsenter")), None)


def when_frozen(kernel: LiveKernel, action: Callable[[int], None], delay_s: float) -> threading.Thread:
    """Runs `action(CRIU's pid)` a while after CRIU has begun to stop the kernel."""
    pid = kernel.target.kernel_pid

    def wait() -> None:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            process = tree.read(pid)
            if process is not None and process.tracer:
                at = time.monotonic() + delay_s
                while time.monotonic() < at:
                    os.sched_yield()
                action(process.tracer)
                return

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize("delay_ms", [0, 2, 5, 10, 20, 30, 40])
def test_criu_killed_in_the_middle_leaves_a_kernel_that_goes_on(kernel: LiveKernel, delay_ms: int) -> None:
    kernel.run(PREPARE)
    kernel.run("ballast = bytearray(os.urandom(1 << 20) * 64)")
    killer = when_frozen(kernel, lambda pid: os.kill(pid, signal.SIGKILL), delay_ms / 1000)
    with pytest.raises(SnapshotFailed):
        kernel.snapshot()
    killer.join()
    assert kernel.run(HEALTH) == "well"
    assert litter(kernel) == set()
    snapshot = kernel.snapshot()
    assert kernel.run(HEALTH) == "well"
    kernel.kill()
    kernel.restore(snapshot)
    assert kernel.run(HEALTH) == "well"


def test_criu_that_hangs_is_given_up_and_the_kernel_goes_on(kernel: LiveKernel) -> None:
    kernel.run(PREPARE)
    stopper = when_frozen(kernel, lambda pid: os.kill(pid, signal.SIGSTOP), 0.005)
    with pytest.raises(SnapshotFailed):
        kernel.snapshot(limits=CaptureLimits(dump_s=1.0, abort_s=0.5))
    stopper.join()
    assert kernel.run(HEALTH) == "well"
    assert litter(kernel) == set()


def test_a_cancelled_dump_is_undone_by_criu_itself(kernel: LiveKernel) -> None:
    kernel.run(PREPARE)
    kernel.run("ballast = [bytearray(os.urandom(1 << 20)) * 256 for _ in range(4)]")
    cancelled = threading.Event()
    canceller = when_frozen(kernel, lambda _: cancelled.set(), 0.0)
    with pytest.raises(SnapshotFailed):
        classic.capture(
            kernel.target, kernel.folder / "images-x", kernel.criu, limits=CaptureLimits(), clock=CLOCK, cancelled=cancelled
        )
    canceller.join()
    assert kernel.run(HEALTH) == "well"
    assert litter(kernel) == set()


def test_a_kernel_that_has_ended_is_reported_as_gone(kernel: LiveKernel) -> None:
    target = kernel.target
    kernel.kill()
    with pytest.raises(KernelGone):
        classic.capture(target, kernel.folder / "images-x", kernel.criu, limits=CaptureLimits(), clock=CLOCK)


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
