"""From start to end: what the agent is asked for, and by whom."""

from __future__ import annotations

import os
import signal

import pytest
from perdure.domain.errors import BadRequest, Conflict, KernelGone, NotFound, SandboxFailed
from perdure.domain.ids import kernel_id
from perdure.domain.phases import Phase
from perdure.domain.policy import Policy

from tests.functional.agent.workplace import LiveKernel, Workplace, refusal

pytestmark = pytest.mark.criu


def test_a_kernel_starts_is_listed_and_ends(agent: Workplace) -> None:
    request = agent.request(display_name="Shown", notebook="a.ipynb")
    status = agent.ask(lambda client: client.start(request))
    assert (status.kernel_id, status.phase, status.incarnation) == (request.kernel_id, Phase.RUNNING, 1)
    live = agent.connect(request)
    assert live.run("import os; print(os.getpid(), os.getsid(0), oct(os.umask(0o022)))") == "1000 1000 0o22"
    assert [one.kernel_id for one in agent.ask(lambda client: client.kernels())] == [request.kernel_id]

    ended = agent.ask(lambda client: client.kill(request.kernel_id))
    assert (ended.phase, ended.pid, ended.exit_status) == (Phase.DEAD, None, -9)
    assert agent.ask(lambda client: client.kill(request.kernel_id)).phase is Phase.DEAD
    assert isinstance(refusal(lambda: agent.ask(lambda client: client.signal(request.kernel_id, 2))), KernelGone)
    for _ in range(2):
        agent.ask(lambda client: client.forget(request.kernel_id, snapshots="drop"))
    assert agent.ask(lambda client: client.kernels()) == []
    assert isinstance(refusal(live.status), NotFound)
    assert not (agent.state / "kernels" / request.kernel_id).exists()


def test_only_root_can_look_into_the_agents_files(agent: Workplace, kernel: LiveKernel) -> None:
    assert os.stat(agent.socket).st_mode & 0o777 == 0o600
    assert os.stat(agent.state).st_mode & 0o777 == 0o700
    open_to_others = [path for path in agent.state.rglob("*") if path.lstat().st_mode & 0o077]
    assert open_to_others == []


def test_a_second_start_of_a_living_kernel_is_refused(agent: Workplace, kernel: LiveKernel) -> None:
    again = agent.request(kernel_id=kernel.id)
    assert isinstance(refusal(lambda: agent.ask(lambda client: client.start(again))), Conflict)
    assert kernel.run("print(x)") == "42"


def test_a_program_that_is_not_there_leaves_nothing(agent: Workplace) -> None:
    request = agent.request(argv=("/nowhere/python",))
    assert isinstance(refusal(lambda: agent.ask(lambda client: client.start(request))), SandboxFailed)
    assert agent.ask(lambda client: client.kernels()) == []
    assert list((agent.state / "kernels").iterdir()) == []


def test_a_restart_by_the_user_begins_afresh(agent: Workplace, kernel: LiveKernel) -> None:
    agent.ask(lambda client: client.kill(kernel.id))
    request = agent.request(kernel_id=kernel.id)
    status = agent.ask(lambda client: client.start(request))
    assert (status.phase, status.incarnation, status.last_snapshot) == (Phase.RUNNING, 2, None)
    fresh = agent.connect(request)
    assert fresh.run("print('x' in globals())") == "False"
    assert fresh.until(lambda status: status.last_snapshot).last_snapshot.incarnation == 2  # type: ignore[union-attr]
    assert [one.generation for one in fresh.status().generations] == [1, 2]
    fresh.die()
    assert fresh.back(1).restores[0].generation == 2
    assert fresh.run("print('x' in globals())") == "False"


def test_incarnations_count_without_snapshots_too(agent: Workplace) -> None:
    request = agent.request()
    for expected in (1, 2, 3):
        assert agent.ask(lambda client: client.start(request)).incarnation == expected
        agent.ask(lambda client: client.kill(request.kernel_id))


def test_an_interrupt_reaches_the_kernel(agent: Workplace, kernel: LiveKernel) -> None:
    cell = kernel.begin("import time\ntry:\n    while True: time.sleep(0.01)\nexcept KeyboardInterrupt:\n    print('stopped')")
    kernel.until(lambda status: status.busy)
    agent.ask(lambda client: client.signal(kernel.id, signal.SIGINT))
    assert kernel.finish(cell) == "stopped"


def test_a_policy_is_changed_and_remembered(agent: Workplace, kernel: LiveKernel) -> None:
    policy = Policy(snapshot_interval_s=7, restore_on_death=False)
    assert agent.ask(lambda client: client.set_policy(kernel.id, policy)).policy == policy
    agent.kill_agent()
    agent.start_agent()
    assert kernel.status().policy == policy


def test_what_makes_no_sense_is_refused(agent: Workplace, kernel: LiveKernel) -> None:
    for call in (
        lambda client: client.signal(kernel.id, 0),
        lambda client: client.signal(kernel.id, 4711),
        lambda client: client.forget(kernel.id, snapshots="perhaps"),
    ):
        assert isinstance(refusal(lambda call=call: agent.ask(call)), BadRequest)  # type: ignore[misc]
    for absent in (
        lambda client: client.kernel(kernel_id("nobody")),
        lambda client: client.snapshot(kernel_id("nobody")),
        lambda client: client.restore(kernel.id, 99),
    ):
        assert isinstance(refusal(lambda call=absent: agent.ask(call)), NotFound)  # type: ignore[misc]
    assert kernel.run("print(x)") == "42"


def test_news_arrive_as_they_happen(agent: Workplace, kernel: LiveKernel) -> None:
    seen = kernel.status()
    news = agent.begin(lambda client: client.wait(kernel.id, seen.seq))
    kernel.snapshot()
    assert news.result(10).seq > seen.seq
