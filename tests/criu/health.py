"""After an attack: is the kernel well, is there litter, does the next snapshot work? `when` finds the moment to attack."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from live_kernel import LiveKernel
from perdure.engine import shadows, tree

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


def litter(kernel: LiveKernel, *keep: Path) -> set[str]:
    """Everything below the kernel's folder that a failed dump could have left, and who is in the sandbox."""
    files = {str(path) for path in kernel.folder.rglob("*") if "link_remap" in path.name or path.name.startswith("images-")}
    files -= {str(kept) for kept in keep}
    inside = tree.in_sandbox(kernel.target.shim_pid)
    pids = {process.pid for process in inside}
    # A CRIU that was killed is this machine's init to reap; what is below the kernel's processes is ours.
    return files | {
        f"process {process.name} ({process.state})"
        for process in inside
        if process.name == shadows.NAME or (process.state == "Z" and process.ppid in pids)
    }


def goes_on(kernel: LiveKernel, *keep: Path, engine: str = "") -> None:
    """The kernel is well, there is no litter, and the next snapshot of it can be restored."""
    assert kernel.run(HEALTH) == "well"
    assert litter(kernel, *keep) == set()
    snapshot = kernel.snapshot(engine=engine)
    assert kernel.run(HEALTH) == "well"
    kernel.kill()
    kernel.restore(snapshot)
    assert kernel.run(HEALTH) == "well"


def when(condition: Callable[[], int | None], action: Callable[[int], None]) -> threading.Thread:
    """Runs `action(CRIU's pid)` as soon as `condition` gives that pid."""

    def wait() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            pid = condition()
            if pid:
                action(pid)
                return

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def tracer_of(pid: int) -> int | None:
    process = tree.read(pid)
    return process.tracer if process is not None else None
