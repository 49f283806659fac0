"""Live snapshots: what they hold is the instant, what they leave behind is nothing."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import pytest
from health import HEALTH, PREPARE, goes_on, litter, tracer_of, when
from live_kernel import LiveKernel, write_pages
from perdure.domain.errors import NotLive, SnapshotFailed
from perdure.engine import blindfold, imagefile, live, room, shadows, tree
from perdure.engine.images import PAGE, processes, run_of
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
            pages.readinto(0, memoryview(bytearray(pages.size)))


def test_the_instant_comes_back_although_all_was_overwritten(kernel: LiveKernel) -> None:
    kernel.run(_BUSY)
    digest = kernel.run("digest")
    images = kernel.new_images()
    with live.capture(kernel.job(images)) as alive:
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
    images = kernel.new_images()
    with live.capture(kernel.job(images)) as alive:
        for pid in shadows.find(kernel.target).values():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(OSError, match="read"):
            _read_until_it_fails(alive)
    assert kernel.run("len(x)") == str(4 << 20)
    kernel.snapshot(engine="live")


def test_a_cancelled_one_leaves_no_shadow(kernel: LiveKernel) -> None:
    images, cancelled = kernel.new_images(), Event()
    cancelled.set()
    with pytest.raises(SnapshotFailed):
        live.capture(kernel.job(images, cancelled=cancelled))
    assert shadows.find(kernel.target) == {}
    assert not images.exists()
    assert kernel.run("1 + 1") == "2"


def _stopped(kernel: LiveKernel, signum: int) -> None:
    for process in tree.descendants(kernel.target.kernel_pid):
        os.kill(process.pid, signum)


def _memory(images: Path, pid: int) -> dict[int, bytes]:
    """Address -> page, without those that are zero: a page that was never written and one that holds zeros restore alike."""
    raw = imagefile.raw_entries((images / f"pagemap-{pid}.img").read_bytes())
    number = imagefile.read_entries(images / f"pagemap-{pid}.img")[1][0].number(1)
    next(raw)
    pages: dict[int, bytes] = {}
    with (images / f"pages-{number}.img").open("rb") as file:
        for entry in raw:
            address, count, _ = run_of(entry)
            for page in range(count):
                content = file.read(PAGE)
                if any(content):
                    pages[address + page * PAGE] = content
    return pages


def _only_in_rseq(one: bytes, other: bytes) -> bool:
    """The pages differ in one `struct rseq` alone, which is 32 bytes long and aligned to that."""
    return len({at // 32 for at in range(PAGE) if one[at] != other[at]}) == 1


def _threads(images: Path) -> dict[str, bytes]:
    """Registers, signal masks and pending signals of every thread, as CRIU saw them."""
    return {path.name: path.read_bytes() for path in sorted(images.glob("core-*.img"))}


def test_live_and_classic_hold_the_same_and_making_twins_changes_nothing(kernel: LiveKernel) -> None:
    """All at one instant: the tree is stopped from outside. Below what is in use of the main thread's stack, twins may leave
    pages of zeros, and Linux notes in each thread's `struct rseq` on which processor it is; everything else is the same to the
    byte, before, in and after a live snapshot."""
    kernel.run(
        PREPARE + "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); signal.raise_signal(signal.SIGUSR1)"
    )
    _stopped(kernel, signal.SIGSTOP)
    try:
        kernel.snapshot(engine="classic")  # CRIU itself ends timed waits, once
        snapshots = [kernel.snapshot(engine=engine) for engine in ("classic", "live", "classic")]
    finally:
        _stopped(kernel, signal.SIGCONT)
    first, *others = snapshots
    for process in (1000, *(one.inner_pid for one in tree.descendants(kernel.target.kernel_pid)[1:])):
        expected = _memory(first.images, process)
        threads = next(len(one.threads) for one in processes(first.images) if one.pid == process)
        assert len(expected) > 10
        for other in others:
            found = _memory(other.images, process)
            differing = {address for address in expected | found if expected.get(address) != found.get(address)}
            assert all(_only_in_rseq(expected[address], found[address]) for address in differing)
            assert len(differing) <= threads
    for other in others:
        assert _threads(other.images) == _threads(first.images)
    assert kernel.run(HEALTH) == "well"


@pytest.mark.parametrize("delay_ms", [0, 1, 2, 4, 8, 16])
def test_criu_killed_while_it_makes_twins(kernel: LiveKernel, monkeypatch: pytest.MonkeyPatch, delay_ms: int) -> None:
    """From the moment in which the image is complete. Whoever it was that CRIU had borrowed, it returns by itself."""
    kernel.run(PREPARE + "ballast = bytearray(os.urandom(1 << 20) * 256)")
    real = blindfold.Blindfold.arm
    killers = []

    def kill(pid: int) -> None:
        at = time.monotonic() + delay_ms / 1000
        while time.monotonic() < at:
            os.sched_yield()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def arm_and_kill(self: blindfold.Blindfold, images: Path) -> None:
        real(self, images)
        killers.append(when(lambda: tracer_of(kernel.target.kernel_pid), kill))

    monkeypatch.setattr(blindfold.Blindfold, "arm", arm_and_kill)
    try:
        kernel.snapshot(engine="live")
    except SnapshotFailed:
        kept: list[Path] = []
    else:
        kept = list(kernel.folder.glob("images-*"))
    killers[0].join()
    monkeypatch.undo()
    kernel.run("del ballast")
    goes_on(kernel, *kept, engine="live")


def test_a_twin_that_hangs_is_given_up(kernel: LiveKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.run(PREPARE)
    real = blindfold.Blindfold.arm

    def arm_and_stop(self: blindfold.Blindfold, images: Path) -> None:
        real(self, images)
        os.kill(tracer_of(kernel.target.kernel_pid) or 0, signal.SIGSTOP)

    monkeypatch.setattr(blindfold.Blindfold, "arm", arm_and_stop)
    with pytest.raises(SnapshotFailed):
        kernel.snapshot(engine="live", limits=CaptureLimits(dump_s=3.0, abort_s=0.5))
    monkeypatch.undo()
    goes_on(kernel, engine="live")


def test_a_subreaper_never_sees_a_shadow(kernel: LiveKernel) -> None:
    kernel.run(PREPARE + "assert c.prctl(36, 1, 0, 0, 0) == 0")
    with pytest.raises(NotLive):
        kernel.snapshot(engine="live")
    assert litter(kernel) == set()
    kernel.run("assert os.waitpid(-1, os.WNOHANG | 0x40000000) == (0, 0)")
    goes_on(kernel)


def test_shadows_go_before_memory_is_gone(kernel: LiveKernel) -> None:
    kernel.run(PREPARE)
    scarce = CaptureLimits(memory_margin_bytes=4 * room.available_memory())
    assert live.obstacle(kernel.target, scarce)
    with live.capture(kernel.job(kernel.new_images(), limits=scarce)) as alive:
        with pytest.raises(OSError, match="read"):
            _read_until_it_fails(alive)
        assert alive.given_up
    shutil.rmtree(kernel.folder / "images-1")
    goes_on(kernel, engine="live")


def test_shadows_die_with_the_agent(kernel: LiveKernel) -> None:
    kernel.run(PREPARE)
    target = kernel.target
    code = (
        "import time\nfrom pathlib import Path\nfrom perdure.domain.target import Target\n"
        "from perdure.engine import criu, live\nfrom perdure.engine.dump import Job\n"
        f"with live.capture(Job({target!r}, Path({str(kernel.new_images())!r}), criu.find(), time)):\n"
        "    print('kept', flush=True)\n    input()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == "kept\n"
        handles = [os.pidfd_open(pid) for pid in shadows.find(target).values()]
        assert len(handles) == len(tree.descendants(target.kernel_pid))
        agent.kill()
    for handle in handles:
        assert select.select([handle], [], [], 20)[0]
        os.close(handle)
    shutil.rmtree(kernel.folder / "images-1")
    goes_on(kernel, engine="live")


def test_a_failed_live_capture_leaves_room_for_a_classic_one(kernel: LiveKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.run(PREPARE)
    images = kernel.new_images()
    monkeypatch.setattr(shadows, "find", lambda _: {})
    with pytest.raises(NotLive):
        live.capture(kernel.job(images))
    monkeypatch.undo()
    assert shadows.sweep(kernel.target) > 0
    assert not images.exists()
    goes_on(kernel)
