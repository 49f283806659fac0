"""Restores that fail, and what a restore leaves around it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from live_kernel import CLOCK, LiveKernel
from perdure.domain.errors import PerdureError, RestoreFailed
from perdure.engine import connections, images, restore, tree
from perdure.runtime.sandbox import Sandbox

pytestmark = [pytest.mark.criu, pytest.mark.root]


def damage_pages(folder: Path) -> None:
    with next(folder.glob("pages-*.img")).open("r+b") as file:
        file.truncate(4096)


def cut_file_table(folder: Path) -> None:
    with (folder / "files.img").open("r+b") as file:
        file.truncate(os.fstat(file.fileno()).st_size - 3)


def lose_core(folder: Path) -> None:
    (folder / "core-1000.img").unlink()


@pytest.mark.parametrize("damage", [damage_pages, cut_file_table, lose_core])
def test_a_damaged_image_fails_and_leaves_an_empty_sandbox(kernel: LiveKernel, damage) -> None:
    kernel.run("x = 5")
    snapshot = kernel.snapshot()
    kernel.kill()
    bad = kernel.folder / "bad"
    shutil.copytree(snapshot.images, bad)
    damage(bad)
    with pytest.raises(PerdureError) as caught:
        kernel.restore(replace(snapshot, images=bad))
    assert caught.value.code in ("restore-failed", "corrupt")
    assert tree.in_sandbox(kernel.sandbox.shim.pid) == []
    assert kernel.sandbox.ended() is None
    kernel.kill()
    kernel.restore(snapshot)
    assert kernel.run("x") == "5"


def test_the_same_sandbox_takes_a_good_image_after_a_bad_one(kernel: LiveKernel) -> None:
    kernel.run("x = 5")
    snapshot = kernel.snapshot()
    kernel.kill()
    bad = kernel.folder / "bad"
    shutil.copytree(snapshot.images, bad)
    lose_core(bad)
    kernel.sandbox = Sandbox.empty(kernel.folder / "again", owner=kernel.owner, die_with_agent=True)
    with pytest.raises(RestoreFailed):
        restore.revive(kernel.target, bad, snapshot.record, kernel.criu, clock=CLOCK)
    restore.revive(kernel.target, snapshot.images, snapshot.record, kernel.criu, clock=CLOCK)
    kernel.settle()
    assert kernel.run("x") == "5"


def test_an_address_that_is_taken_fails_by_name(kernel: LiveKernel) -> None:
    import socket

    snapshot = kernel.snapshot()
    kernel.kill()
    with socket.create_server((kernel.endpoint.ip, kernel.endpoint.ports["hb"])), pytest.raises(RestoreFailed):
        kernel.restore(snapshot)
    kernel.kill()
    kernel.restore(snapshot)
    assert kernel.run("1 + 1") == "2"


def test_a_port_that_was_just_closed_is_free_for_its_owner(kernel: LiveKernel) -> None:
    """A server that didn't ask for SO_REUSEADDR, and clients whose closed connections linger on its port for a minute."""
    import socket

    kernel.run("import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); port = s.getsockname()[1]")
    port = int(kernel.run("print(port)"))
    with socket.create_connection(("127.0.0.1", port)):
        kernel.run("c, _ = s.accept()")
        snapshot = kernel.snapshot()
        kernel.kill()
    kernel.restore(snapshot)
    with socket.create_connection(("127.0.0.1", port)) as again:
        kernel.run("d, _ = s.accept(); d.sendall(b'here')")
        assert again.recv(4) == b"here"


def test_connections_inside_the_tree_stay_and_others_are_closed(kernel: LiveKernel) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as outside:
        kernel.run(
            "import socket, subprocess, sys\n"
            f"out = socket.create_connection({outside.getsockname()!r})\n"
            "server = socket.create_server(('127.0.0.1', 0)); near = socket.create_connection(server.getsockname())\n"
            "far, _ = server.accept(); near.sendall(b'in flight')\n"
            "six = socket.create_server(('::', 0), family=socket.AF_INET6, dualstack_ipv6=True)\n"
            "mapped = socket.create_connection(('127.0.0.1', six.getsockname()[1])); end, _ = six.accept()\n"
            "code = 'import socket, sys; s = socket.create_connection((\"127.0.0.1\", int(sys.argv[1])))\\n'\n"
            "code += 'while data := s.recv(100): s.sendall(data.upper())'\n"
            "echo = subprocess.Popen([sys.executable, '-c', code, str(server.getsockname()[1])]); other, _ = server.accept()\n"
        )
        peer, _ = outside.accept()
        with peer:
            snapshot = kernel.snapshot()
            assert [str(outside.getsockname()[1]) in warning for warning in snapshot.capture.warnings] == [True]
            kernel.run("out.sendall(b'still')")
            assert peer.recv(5) == b"still"
            for _ in range(2):
                kernel.kill()
                kernel.restore(snapshot)
                assert kernel.run("print(far.recv(9)); far.sendall(b'back'); print(near.recv(4))") == "b'in flight'\nb'back'"
                assert kernel.run("mapped.sendall(b'm'); print(end.recv(1))") == "b'm'"
                assert kernel.run("other.sendall(b'shout'); print(other.recv(5))") == "b'SHOUT'"
                assert kernel.run("try: out.sendall(b'x')\nexcept OSError as e: print('closed')") == "closed"
                kernel.run("near.sendall(b'in flight')")
                snapshot = kernel.snapshot()


def test_a_connection_whose_address_is_not_here_is_closed(kernel: LiveKernel) -> None:
    kernel.run(
        "import socket; s = socket.create_server(('127.77.1.1', 0))\n"
        "a = socket.create_connection(s.getsockname()); b, _ = s.accept()"
    )
    snapshot = kernel.snapshot()
    before = connections.connections(snapshot.images)
    assert len(before) >= 2
    closed = connections.close_outside(snapshot.images, lambda address: str(address) != "127.77.1.1")
    assert {str(end.local[0]) for end in closed} & {"127.77.1.1"}
    assert all("127.77.1.1" not in (str(end.local[0]), str(end.remote[0])) for end in connections.connections(snapshot.images))


def test_a_file_that_lost_one_of_its_names_comes_back(kernel: LiveKernel) -> None:
    kernel.run("import os; f = open('one', 'w+'); f.write('content'); f.flush(); os.link('one', 'two'); os.unlink('one')")
    for _ in range(2):
        snapshot = kernel.snapshot()
        assert kernel.run("sorted(n for n in os.listdir('.') if 'remap' in n or n in ('one', 'two'))") == "['two']"
        kernel.kill()
        kernel.restore(snapshot)
        assert kernel.run("f.seek(0), f.read(), [n for n in os.listdir('.') if 'remap' in n]") == "(0, 'content', [])"


def test_an_image_holds_nothing_but_the_image(kernel: LiveKernel) -> None:
    snapshot = kernel.snapshot()
    names = {path.name for path in snapshot.images.rglob("*") if path.is_file()}
    assert (
        {name for name in names if not name.endswith(".img") and "/" not in name} <= set(os.listdir(snapshot.images / "files"))
        if (snapshot.images / "files").exists()
        else {name for name in names if not name.endswith(".img")} == set()
    )
    assert snapshot.capture.bytes_logical == images.logical_bytes(snapshot.images)
    assert 0 < snapshot.capture.stall_s <= sum(snapshot.capture.timings.values())
    cuts = images.cuts(snapshot.images)
    for pages, offsets in cuts.items():
        size = (snapshot.images / pages).stat().st_size
        assert offsets == sorted(set(offsets))
        assert offsets[0] == 0
        assert offsets[-1] < size
        assert all(offset % images.PAGE == 0 for offset in offsets)
        assert max(b - a for a, b in zip(offsets, [*offsets[1:], size], strict=True)) <= images.BLOCK


def test_the_agent_dies_in_the_middle_of_a_dump(kernel: LiveKernel) -> None:
    """The process that asked for the dump is killed; CRIU finds nobody to answer to, and lets the kernel go."""
    kernel.run("import os; ballast = [os.urandom(1 << 20) * 64 for _ in range(4)]")
    target = kernel.target
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom threading import Event\n"
        "from perdure.domain.target import Target\nfrom perdure.engine import classic, criu\n"
        "from perdure.engine.limits import CaptureLimits\n"
        f"target, images = {target!r}, Path({str(kernel.folder / 'images-x')!r})\n"
        "classic.capture(classic.Job(target, images, criu.find(), time))\n"
    )
    for _ in range(3):
        agent = subprocess.Popen([sys.executable, "-c", program])
        until = time.monotonic() + 30
        while (process := tree.read(target.kernel_pid)) is None or not process.tracer:
            assert agent.poll() is None
            assert time.monotonic() < until
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        assert kernel.run("len(ballast)") == "4"
        while [process for process in tree.in_sandbox(kernel.sandbox.shim.pid) if process.ppid == 0]:
            assert time.monotonic() < until
        shutil.rmtree(kernel.folder / "images-x")
    snapshot = kernel.snapshot()
    kernel.kill()
    kernel.restore(snapshot)
    assert kernel.run("len(ballast)") == "4"
