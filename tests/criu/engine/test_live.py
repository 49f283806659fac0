"""Live snapshots: what they hold is the instant, what they leave behind is nothing."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from threading import Event

import pytest
from live_kernel import CLOCK, LiveKernel, write_pages
from perdure.engine import live, shadows
from perdure.engine.limits import CaptureLimits

pytestmark = [pytest.mark.criu, pytest.mark.root]

_BUSY = """
import hashlib, os, subprocess, threading
array = bytearray(os.urandom(8 << 20))
digest = hashlib.sha256(array).hexdigest()
child = subprocess.Popen(["sleep", "1000"])
"""


def _read_until_it_fails(alive: live.LiveCapture) -> None:
    while True:
        for pages in alive.pages.values():
            pages.read(0, pages.size)


def _images(kernel: LiveKernel, name: str) -> Path:
    return kernel.folder / name


def test_the_instant_comes_back_although_all_was_overwritten(kernel: LiveKernel) -> None:
    kernel.run(_BUSY)
    digest = kernel.run("digest")
    images = _images(kernel, "live")
    with live.capture(kernel.target, images, kernel.criu, limits=CaptureLimits(), clock=CLOCK) as alive:
        kernel.run("array[:] = os.urandom(len(array))")
        write_pages(images, alive)
        assert sum(pages.size for pages in alive.pages.values()) > 8 << 20
    assert shadows.find(kernel.target) == {}
    snapshot = kernel.snapshot(engine="live")
    kernel.kill()
    kernel.restore(snapshot)
    assert kernel.run("hashlib.sha256(array).hexdigest() == digest") == "False"
    kernel.kill()
    kernel.restore(type(snapshot)(images, snapshot.capture, snapshot.record))
    assert kernel.run("hashlib.sha256(array).hexdigest()") == digest
    assert kernel.run("child.poll() is None") == "True"


def test_nothing_of_it_is_seen_from_within(kernel: LiveKernel) -> None:
    kernel.run("import os, signal; seen = []; _ = signal.signal(signal.SIGCHLD, lambda *_: seen.append(1))")
    kernel.snapshot(engine="live")
    kernel.run("try:\n    os.waitpid(-1, os.WNOHANG | 0x40000000)\nexcept ChildProcessError:\n    seen.append(0)")
    assert kernel.run("seen") == "[0]"


def test_shadows_that_are_killed_cost_the_snapshot_alone(kernel: LiveKernel) -> None:
    kernel.run("x = bytearray(4 << 20)")
    images = _images(kernel, "killed")
    with live.capture(kernel.target, images, kernel.criu, limits=CaptureLimits(), clock=CLOCK) as alive:
        for pid in shadows.find(kernel.target).values():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(OSError, match="read"):
            _read_until_it_fails(alive)
    assert kernel.run("len(x)") == str(4 << 20)
    kernel.snapshot(engine="live")


def test_a_cancelled_one_leaves_no_shadow(kernel: LiveKernel) -> None:
    cancelled = Event()
    cancelled.set()
    with pytest.raises(live.SnapshotFailed):
        live.capture(kernel.target, _images(kernel, "no"), kernel.criu, limits=CaptureLimits(), clock=CLOCK, cancelled=cancelled)
    assert shadows.find(kernel.target) == {}
    assert not _images(kernel, "no").exists()
    assert kernel.run("1 + 1") == "2"
