"""The agent ends, at any moment, and another one takes over."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from perdure.domain.errors import AgentUnreachable, PerdureError
from perdure.domain.phases import Phase
from perdure.engine import tree
from perdure.wire.messages import KernelStatus

from tests.functional.agent.workplace import LiveKernel, Workplace

pytestmark = pytest.mark.criu

Moment = Callable[[KernelStatus], bool]
_LARGE = "import os; big = os.urandom(1 << 20) * 400; print(len(big))"
"""A snapshot of it takes long enough to be met half way."""


@pytest.mark.parametrize("end", ["kill_agent", "end_agent"])
def test_kernels_outlive_their_agent(agent: Workplace, kernel: LiveKernel, end: str) -> None:
    before = kernel.status()
    kernel.snapshot()
    getattr(agent, end)()
    assert kernel.run("print(x)") == "42"
    kernel.run("x = 'meanwhile'")
    agent.start_agent()
    status = kernel.status()
    assert (status.phase, status.pid, status.restores) == (Phase.RUNNING, before.pid, ())
    assert [one.generation for one in status.generations] == [1, 2]
    assert kernel.run("print(x)") == "meanwhile"
    assert kernel.snapshot() == 3
    kernel.die()
    assert kernel.back(1).restores[0].generation == 3


def test_a_kernel_that_died_meanwhile_comes_back(agent: Workplace, kernel: LiveKernel) -> None:
    generation = kernel.snapshot()
    pid = kernel.status().pid
    agent.kill_agent()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    agent.start_agent()
    assert kernel.back(1).restores[0].generation == generation
    assert kernel.run("print(x)") == "42"


def test_a_kernel_that_ended_meanwhile_stays_away(agent: Workplace, kernel: LiveKernel) -> None:
    kernel.snapshot()
    agent.kill_agent()
    kernel.begin("import os; os._exit(0)")
    agent.start_agent()
    assert kernel.until(lambda status: not status.phase.alive).phase is Phase.DEAD


def test_a_cell_that_runs_over_the_agents_end_is_known_to_end(agent: Workplace, kernel: LiveKernel) -> None:
    cell = kernel.begin("import time\nfor _ in range(50): time.sleep(0.1)\nprint('over')")
    kernel.until(lambda status: status.busy)
    agent.end_agent()
    agent.start_agent()
    assert kernel.status().busy
    assert kernel.finish(cell) == "over"
    assert not kernel.until(lambda status: not status.busy).busy


def _dumping(status: KernelStatus) -> bool:
    return status.progress is not None and status.progress.step == "saving"


def _frozen(kernel: LiveKernel) -> Moment:
    """CRIU is at work: the kernel's first thread is traced."""

    def look(status: KernelStatus) -> bool:
        process = tree.read(status.pid or 0)
        return _dumping(status) and process is not None and bool(process.tracer)

    return look


def _storing(status: KernelStatus) -> bool:
    return status.progress is not None and status.progress.step == "storing" and (status.progress.fraction or 0) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["dump", "publish"])
def test_killed_in_the_middle_of_a_snapshot(agent: Workplace, kernel: LiveKernel, moment: str) -> None:
    before = kernel.snapshot()
    assert kernel.run(_LARGE) == str(400 << 20)
    pid = kernel.status().pid
    snapshot = agent.begin(lambda client: client.snapshot(kernel.id))
    kernel.until(_frozen(kernel) if moment == "dump" else _storing)
    agent.kill_agent()
    assert isinstance(snapshot.exception(60), AgentUnreachable)
    agent.start_agent()

    status = kernel.until(lambda status: status.phase is Phase.RUNNING)
    assert (status.pid, status.restores, status.progress) == (pid, (), None)
    assert [one.generation for one in status.generations][-1] == before
    assert kernel.run("print(x, len(big))") == f"42 {400 << 20}"
    assert agent.staging() == []
    assert _helpers(agent) == []
    assert {process.state for process in tree.descendants(pid or 0)} <= set("SR")
    assert kernel.snapshot() > before
    assert agent.repository().verify(kernel.id).ok
    kernel.die()
    kernel.back(1)
    assert kernel.run("print(x, len(big))") == f"42 {400 << 20}"


def _fetching(status: KernelStatus) -> bool:
    return status.progress is not None and status.progress.step == "fetching"


def _restoring(status: KernelStatus) -> bool:
    return status.progress is not None and status.progress.step in ("restoring", "proving")


@pytest.mark.slow
@pytest.mark.parametrize("moment", [_fetching, _restoring])
def test_killed_in_the_middle_of_a_comeback(agent: Workplace, kernel: LiveKernel, moment: Moment) -> None:
    kernel.run(_LARGE)
    generation = kernel.snapshot()
    kernel.die()
    kernel.until(moment)
    agent.kill_agent()
    agent.start_agent()
    status = kernel.back(1)
    assert status.restores[0].generation == generation
    assert kernel.run("print(x, len(big))") == f"42 {400 << 20}"
    assert agent.staging() == []
    assert _helpers(agent) == []


@pytest.mark.slow
@pytest.mark.parametrize("moment", [_fetching, _restoring])
def test_killed_while_it_goes_back_on_demand(
    agent: Workplace, kernel: LiveKernel, moment: Callable[[KernelStatus], bool]
) -> None:
    kernel.run(_LARGE)
    old = kernel.snapshot()
    kernel.run("x = 'newest'")
    pid = kernel.status().pid
    restore = agent.begin(lambda client: client.restore(kernel.id, old))
    kernel.until(moment)
    agent.kill_agent()
    assert isinstance(restore.exception(60), AgentUnreachable)
    agent.start_agent()
    status = kernel.until(lambda status: status.phase is Phase.RUNNING)
    assert kernel.run("print(x)") == "newest"
    if moment is _fetching:
        assert (status.pid, status.restores) == (pid, ())
    assert agent.staging() == []
    assert _helpers(agent) == []


@pytest.mark.slow
@pytest.mark.parametrize("moment", [_dumping, _storing])
def test_told_to_end_in_the_middle_of_a_snapshot(agent: Workplace, kernel: LiveKernel, moment: Moment) -> None:
    before = kernel.snapshot()
    kernel.run(_LARGE)
    pid = kernel.status().pid
    snapshot = agent.begin(lambda client: client.snapshot(kernel.id))
    kernel.until(moment)
    assert agent.end_agent() == 0
    assert isinstance(snapshot.exception(60), PerdureError)
    assert agent.staging() == []
    assert kernel.run("print(x, len(big))") == f"42 {400 << 20}"
    agent.start_agent()
    status = kernel.status()
    assert (status.phase, status.pid, status.generations[-1].generation) == (Phase.RUNNING, pid, before)
    assert kernel.snapshot() > before


@pytest.mark.slow
@pytest.mark.parametrize("moment", [_fetching, _restoring])
def test_told_to_end_in_the_middle_of_a_comeback(agent: Workplace, kernel: LiveKernel, moment: Moment) -> None:
    kernel.run(_LARGE)
    generation = kernel.snapshot()
    kernel.die()
    kernel.until(moment)
    assert agent.end_agent() == 0
    assert agent.staging() == []
    agent.start_agent()
    assert kernel.back(1).restores[0].generation == generation
    assert kernel.run("print(x, len(big))") == f"42 {400 << 20}"


def test_two_agents_do_not_get_in_each_others_way(agent: Workplace, kernel: LiveKernel) -> None:
    for options in ((), (f"--state={agent.folder}/other",), (f"--socket={agent.folder}/other.sock",)):
        second = agent.run_agent(*options)
        assert second.wait(60) == 1
    assert kernel.run("print(x)") == "42"
    assert kernel.snapshot() == 2
    said = agent.log()
    assert str(agent.socket) in said
    assert str(agent.state) in said


def test_an_idle_agent_ends_by_itself(workplace: Workplace) -> None:
    agent = workplace.start_agent("--exit-when-idle=1")
    kernel = workplace.kernel()
    kernel.run("x = 1")
    assert kernel.until(lambda status: status.last_snapshot).phase is Phase.RUNNING
    with pytest.raises(TimeoutError):
        kernel.until(lambda _: agent.poll() is not None, seconds=3)
    workplace.ask(lambda client: client.forget(kernel.id, snapshots="drop"))
    assert agent.wait(60) == 0
    assert not workplace.socket.exists()


def test_kernels_die_with_it_if_that_is_wished(workplace: Workplace) -> None:
    workplace.start_agent("--kernels-die")
    pid = workplace.kernel().status().pid
    workplace.kill_agent()
    assert pid is not None
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(10_000)
    finally:
        os.close(fd)


def test_descriptors_do_not_leak(agent: Workplace, kernel: LiveKernel) -> None:
    assert agent.agent is not None
    fds = Path(f"/proc/{agent.agent.pid}/fd")

    def round_trip(times: int) -> int:
        kernel.snapshot()
        kernel.die()
        kernel.back(times)
        kernel.run("pass")
        return len(list(fds.iterdir()))

    first = round_trip(1)
    for times in range(2, 5):
        last = round_trip(times)
    assert last <= first + 1  # a client's connection more or less


def _helpers(workplace: Workplace) -> list[str]:
    """CRIUs that are still about, of any kernel of this workplace."""
    found = []
    for status in workplace.ask(lambda client: client.kernels()):
        assert status.pid is not None
        own = {process.pid for process in tree.descendants(status.pid)}
        space = os.readlink(f"/proc/{status.pid}/ns/pid")
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{name}/ns/pid") == space and int(name) not in own:
                    words = Path(f"/proc/{name}/cmdline").read_text().split("\0")
                    found += [name] if "swrk" in words else []
            except OSError:
                continue
    return found
