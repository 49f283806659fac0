"""An agent starts: on demand, once; or not at all, and says why."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from perdure.domain.phases import Phase
from perdure.engine import tree

from tests.functional.agent.workplace import PATIENCE_S, LiveKernel, Workplace

pytestmark = pytest.mark.criu

_ENSURE = "import asyncio; from perdure.wire.spawn import ensure_agent; print(asyncio.run(ensure_agent()).pid)"


def test_servers_that_start_one_at_once_share_it(workplace: Workplace) -> None:
    env = {
        **os.environ,
        "PERDURE_AGENT": workplace.address,
        "PERDURE_SPAWN_AGENT": "1",
        "PERDURE_STATE": str(workplace.state),
    }
    servers = [subprocess.Popen([sys.executable, "-c", _ENSURE], env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    pids = {int(server.communicate(timeout=PATIENCE_S)[0]) for server in servers}
    assert len(pids) == 1
    agent = psutil.Process(pids.pop())
    try:
        assert os.getsid(agent.pid) == agent.pid  # what ends the server's session doesn't end it
        assert workplace.answers()
        assert (workplace.socket.parent / "agent.log").stat().st_mode & 0o777 == 0o600
    finally:
        agent.terminate()
        psutil.wait_procs([agent], PATIENCE_S)


def test_a_dead_agents_socket_is_replaced(workplace: Workplace) -> None:
    workplace.start_agent()
    workplace.kill_agent()
    assert workplace.socket.is_socket()
    workplace.start_agent()
    assert workplace.answers()


def test_what_is_in_the_way_is_said_and_stays(workplace: Workplace) -> None:
    file, foreign = workplace.folder / "file", workplace.folder / "foreign.sock"
    file.write_text("precious")
    theirs = workplace.folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(foreign))
        listener.listen()
        for option in (
            f"--socket={file}",
            f"--socket={foreign}",
            f"--socket={workplace.folder}/{'long' * 40}",
            f"--state={theirs}",
            f"--state={file}",
            "--group=no-such-group",
        ):
            agent = workplace.run_agent(option)
            assert (option, agent.wait(PATIENCE_S)) == (option, 1)
        assert foreign.is_socket()
    assert file.read_text() == "precious"


def test_only_root_runs_one(workplace: Workplace) -> None:
    argv = [sys.executable, "-c", "import os, sys; from perdure.agent.main import main; os.seteuid(65534); sys.exit(main([]))"]
    env = {**os.environ, "PERDURE_AGENT": workplace.address, "PERDURE_STATE": str(workplace.state)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert not workplace.state.exists()


def test_news_go_on_after_a_restart(agent: Workplace, kernel: LiveKernel) -> None:
    before = kernel.status().seq
    agent.kill_agent()
    agent.start_agent()
    assert kernel.status().seq > before


def test_a_killed_agents_successor_knows_what_the_kernel_does(agent: Workplace, kernel: LiveKernel) -> None:
    cell = kernel.begin("import time\nfor _ in range(60): time.sleep(0.1)\nprint('over')")
    count = kernel.until(lambda status: status.busy).execution_count
    agent.kill_agent()
    agent.start_agent()
    status = kernel.status()
    assert (status.busy, status.execution_count) == (True, count)
    assert kernel.finish(cell) == "over"
    kernel.until(lambda status: not status.busy)
    agent.kill_agent()
    agent.start_agent()
    assert not kernel.status().busy


@pytest.mark.slow
def test_what_the_user_had_stopped_stays_so(agent: Workplace, kernel: LiveKernel) -> None:
    kernel.run("import os, signal, subprocess; child = subprocess.Popen(['sleep', '1000'])")
    kernel.run("os.kill(child.pid, signal.SIGSTOP); big = os.urandom(1 << 20) * 300")
    agent.begin(lambda client: client.snapshot(kernel.id))
    kernel.until(lambda status: status.phase is Phase.SNAPSHOTTING)
    agent.kill_agent()
    agent.start_agent()
    status = kernel.until(lambda status: status.phase is Phase.RUNNING)
    states = {process.name: process.state for process in tree.descendants(status.pid or 0)}
    assert states["sleep"] == "T"
    assert kernel.run("print(len(big)); child.kill(); _ = child.wait()") == str(300 << 20)


def test_a_record_that_can_not_be_read_hides_no_other_kernel(agent: Workplace, kernel: LiveKernel) -> None:
    agent.end_agent()
    damaged = agent.state / "kernels" / "damaged"
    damaged.mkdir()
    (damaged / "record.json").write_text('{"schema": 1, "kernel_id": "damaged"')
    newer = agent.state / "kernels" / "newer"
    newer.mkdir()
    (newer / "record.json").write_text('{"schema": 1000}')
    agent.start_agent()
    assert [one.kernel_id for one in agent.ask(lambda client: client.kernels())] == [kernel.id]
    assert Path(damaged / "record.json").exists()
    assert Path(newer / "record.json").exists()
