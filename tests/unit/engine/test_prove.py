"""Proofs over real sockets of a real kernel, and of things that only look like one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from perdure.domain.endpoint import CHANNELS, Endpoint
from perdure.domain.errors import NotProven
from perdure.domain.ids import KernelId
from perdure.engine.prove import prove

DEADLINE_S = 60.0


@dataclass
class Running:
    endpoint: Endpoint
    client: BlockingKernelClient
    process: subprocess.Popen[bytes]

    def run(self, code: str) -> tuple[str, int]:
        """(what was printed, execution count)."""
        printed: list[str] = []
        reply = self.client.execute_interactive(
            code, timeout=DEADLINE_S, output_hook=lambda message: printed.append(message["content"].get("text", ""))
        )
        assert reply["content"]["status"] == "ok"
        return "".join(printed).strip(), reply["content"]["execution_count"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An ipykernel with tips on: whoever asks it for kernel_info draws from its random numbers."""
    folder = tmp_path_factory.mktemp("kernel")
    endpoint = Endpoint.for_kernel(KernelId(uuid.uuid4().hex), "secret key")
    path = folder / "connection.json"
    path.write_text(json.dumps(endpoint.to_json()))
    path.chmod(0o600)
    environment = {**os.environ, "IPYTHONDIR": str(folder), "HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ipykernel_launcher", "-f", str(path), "--HistoryManager.enabled=False"],
            env=environment,
            stdout=log,
            stderr=log,
        )
    client = BlockingKernelClient()
    client.load_connection_info(endpoint.to_json())
    client.start_channels()
    try:
        client.wait_for_ready(timeout=DEADLINE_S)
        yield Running(endpoint, client, process)
    finally:
        client.stop_channels()
        client.context.term()
        process.kill()
        process.wait()


def test_everything_answers_and_nothing_stays_behind(running: Running) -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    proof = prove(running.endpoint, busy=False, deadline_s=DEADLINE_S)
    assert set(proof.seconds) == {"handshake", "heartbeat", "control", "execute"}
    assert proof.silent == ()
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_the_kernel_is_left_untouched(running: Running) -> None:
    names = "sorted(name for name in globals() if not name.startswith('_i'))"
    look = f"print(hash(random.getstate()), numpy.random.get_state()[1].sum(), {names}, len(Out), _, __, ___, len(In))"
    running.run("import random, numpy; random.seed(1); 'the last result'")
    before, count = running.run(look)
    for _ in range(3):
        prove(running.endpoint, busy=False, deadline_s=DEADLINE_S)
    after, count_after = running.run(look.replace("len(In)", "len(In) - 1"))
    assert after == before
    assert count_after == count + 1


def test_a_running_cell_is_no_obstacle_and_is_not_disturbed(running: Running) -> None:
    message = running.client.execute("import time\nwhile not globals().get('stop'):\n    time.sleep(0.01)")
    try:
        proof = prove(running.endpoint, busy=True, deadline_s=DEADLINE_S)
        assert {"handshake", "heartbeat", "control"} == set(proof.seconds)
        with pytest.raises(NotProven):
            prove(running.endpoint, busy=False, deadline_s=2.0)
        # A cell that had begun unseen: with more patience it is a kernel at work.
        assert prove(running.endpoint, busy=False, deadline_s=DEADLINE_S).silent == ("execute",)
    finally:
        running.process.send_signal(signal.SIGINT)
    assert running.client.get_shell_msg(timeout=DEADLINE_S)["parent_header"]["msg_id"] == message


def test_another_key_proves_nothing(running: Running) -> None:
    with pytest.raises(NotProven):
        prove(replace(running.endpoint, key="another key"), busy=False, deadline_s=2.0)


def test_a_stopped_kernel_is_not_proven(running: Running) -> None:
    running.process.send_signal(signal.SIGSTOP)
    try:
        for busy in (False, True):
            with pytest.raises(NotProven):
                prove(running.endpoint, busy=busy, deadline_s=1.0)
    finally:
        running.process.send_signal(signal.SIGCONT)
    assert prove(running.endpoint, busy=False, deadline_s=DEADLINE_S).silent == ()


@pytest.mark.parametrize("busy", [False, True])
def test_nobody_there(busy: bool) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(NotProven):
            prove(Endpoint("127.0.0.1", dict.fromkeys(CHANNELS, port), "k"), busy=busy, deadline_s=0.5)
        assert time.monotonic() - began < 10


def test_a_port_that_accepts_and_says_nothing_is_no_kernel() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        endpoint = Endpoint("127.0.0.1", dict.fromkeys(CHANNELS, server.getsockname()[1]), "k")
        with pytest.raises(NotProven):
            prove(endpoint, busy=True, deadline_s=0.5)


def test_a_busy_kernel_of_one_thread_shakes_hands_and_no_more() -> None:
    """Its ZeroMQ lives, its interpreter does not look at it: what an R kernel is like while it computes."""
    with zmq.Context() as context, ExitStack() as sockets:
        ports = {}
        for channel in CHANNELS:
            one = sockets.enter_context(context.socket(zmq.REP if channel == "hb" else zmq.ROUTER))
            ports[channel] = one.bind_to_random_port("tcp://127.0.0.1")
        with pytest.raises(NotProven):
            prove(Endpoint("127.0.0.1", ports, "k"), busy=True, deadline_s=1.0)
        proof = prove(Endpoint("127.0.0.1", ports, "k"), busy=True, deadline_s=DEADLINE_S)
        assert proof.silent == ("heartbeat", "control")
        with pytest.raises(NotProven):
            prove(Endpoint("127.0.0.1", ports, "k"), busy=False, deadline_s=1.0)


@pytest.mark.rkernel
def test_a_kernel_that_is_silent_on_control(tmp_path: Path) -> None:
    endpoint = Endpoint.for_kernel(KernelId(uuid.uuid4().hex), "k")
    path = tmp_path / "connection.json"
    path.write_text(json.dumps(endpoint.to_json()))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(["R", "--slave", "-e", "IRkernel::main()", "--args", str(path)], stdout=log, stderr=log)
    try:
        assert prove(endpoint, busy=False, deadline_s=DEADLINE_S).silent in ((), ("control",))
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(NotProven):
            prove(endpoint, busy=False, deadline_s=1.0)
    finally:
        process.kill()
        process.wait()
