"""CRIU's peer side of the socket, played by a small program: one that lies, hangs, dies or talks nonsense at a given moment."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_kernel import CLOCK
from perdure.engine.criu import Criu
from perdure.engine.protobuf import Message
from perdure.engine.worker import Worker, WorkerDied
from perdure.runtime.sandbox import Sandbox

pytestmark = pytest.mark.root

PLAYER = """
import os, resource, signal, socket, sys, time
peer = socket.socket(fileno=int(sys.argv[-1]))
def NOTIFY(name):
    peer.send(b"\\x08\\x06\\x10\\x01\\x2a" + bytes([len(name) + 2]) + b"\\x0a" + bytes([len(name)]) + name)
ANSWER = lambda good: peer.send(b"\\x08\\x01\\x10" + bytes([good]) + b"\\x4a\\x03why")
request = peer.recv(1 << 16)
"""


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    empty = Sandbox.empty(tmp_path / "sandbox", die_with_agent=True)
    yield empty
    empty.kill()


@pytest.fixture
def play(tmp_path: Path, sandbox: Sandbox) -> Iterator[Callable[[str], Worker]]:
    workers: list[Worker] = []

    def start(script: str) -> Worker:
        program = tmp_path / "player.py"
        program.write_text(PLAYER + textwrap.dedent(script))
        wrapper = tmp_path / "criu"
        ignored = f"grep SigIgn /proc/$$/status > {tmp_path}/ignored"
        wrapper.write_text(f'#!/bin/sh\n{ignored}\nexec {sys.executable} {program} "$@"\n')
        wrapper.chmod(0o755)
        workers.append(Worker(Criu(wrapper, (4, 2, 1)), sandbox.shim.pid, [], CLOCK, abort_s=0.5))
        return workers[-1]

    yield start
    for worker in workers:
        worker.__exit__()
    assert sandbox.processes() == []


REQUEST = Message().set(1, 1).encode()


def test_hooks_run_while_criu_waits(play: Callable[[str], Worker]) -> None:
    seen: list[str] = []
    worker = play("""
        NOTIFY(b"pre-dump"); first = peer.recv(100)
        NOTIFY(b"post-dump"); second = peer.recv(100)
        ANSWER(first == second == b"\\x08\\x06\\x18\\x01")
    """)
    reply = worker.call(REQUEST, seen.append, deadline_s=20)
    assert (reply.success, seen) == (True, ["pre-dump", "post-dump"])


def test_a_failing_hook_is_told_to_criu_and_raised_when_criu_is_done(play: Callable[[str], Worker], tmp_path: Path) -> None:
    worker = play(f"""
        NOTIFY(b"post-dump"); answer = peer.recv(100)
        open({str(tmp_path / "answer")!r}, "wb").write(answer)
        ANSWER(False)
    """)

    def hook(name: str) -> None:
        raise LookupError(name)

    with pytest.raises(LookupError):
        worker.call(REQUEST, hook, deadline_s=20)
    assert (tmp_path / "answer").read_bytes() == b"\x08\x06\x18\x00"


def test_a_refusal_carries_the_reason(play: Callable[[str], Worker]) -> None:
    reply = play("ANSWER(False)").call(REQUEST, lambda name: None, deadline_s=20)
    assert (reply.success, reply.error) == (False, "why")


@pytest.mark.parametrize(
    "script",
    [
        "sys.exit(3)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "peer.close(); time.sleep(60)",
        "peer.send(b'\\xff\\xff')",
        "time.sleep(60)",
    ],
)
def test_death_silence_and_nonsense_end_in_time(play: Callable[[str], Worker], script: str) -> None:
    with pytest.raises(WorkerDied):
        play(script).call(REQUEST, lambda name: None, deadline_s=0.5)


def test_giving_up_makes_its_writes_fail_before_it_is_killed(play: Callable[[str], Worker], tmp_path: Path) -> None:
    """So a CRIU that is slow, not stuck, takes its own error path and lets the kernel go by itself."""
    worker = play(f"""
        file = open({str(tmp_path / "image")!r}, "wb", buffering=0)
        try:
            while True:
                file.write(b"x"); time.sleep(0.01)
        except OSError as error:
            os.symlink(str(error.errno), {str(tmp_path / "undone")!r})
    """)
    with pytest.raises(WorkerDied):
        worker.call(REQUEST, lambda name: None, deadline_s=0.3)
    assert os.readlink(tmp_path / "undone")


def test_cancelling_counts_while_criu_works(play: Callable[[str], Worker]) -> None:
    cancelled = threading.Event()
    threading.Timer(0.2, cancelled.set).start()
    begun = time.monotonic()
    with pytest.raises(WorkerDied):
        play("time.sleep(60)").call(REQUEST, lambda name: None, deadline_s=50, cancelled=cancelled)
    assert time.monotonic() - begun < 20


def test_a_closed_pipe_does_not_kill_criu(play: Callable[[str], Worker], tmp_path: Path) -> None:
    """It has a frozen kernel in its hands when its client dies."""
    worker = play(f"""
        NOTIFY(b"pre-dump")
        peer.recv(100)
        for _ in range(200):
            try:
                NOTIFY(b"x")
            except OSError:
                open({str(tmp_path / "alive")!r}, "w").close(); break
            time.sleep(0.01)
    """)

    def hook(name: str) -> None:
        worker._socket.shutdown(2)

    with pytest.raises(WorkerDied):
        worker.call(REQUEST, hook, deadline_s=20)
    deadline = time.monotonic() + 10
    while not (tmp_path / "alive").exists():
        assert time.monotonic() < deadline


def test_criu_starts_with_nothing_but_its_own(
    play: Callable[[str], Worker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRIU_CONFIG_FILE", "/x")
    worker = play("""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        ANSWER("CRIU_CONFIG_FILE" not in os.environ and sys.argv[1:3] == ["--no-default-config", "swrk"] and soft == hard)
    """)
    assert worker.call(REQUEST, lambda name: None, deadline_s=20).success
    ignored = int((tmp_path / "ignored").read_text().split()[1], 16)
    assert all(ignored >> (number - 1) & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))
