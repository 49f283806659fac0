"""A kernel dies and comes back: from which generation, how often, and when not."""

from __future__ import annotations

import signal
import socket
from dataclasses import replace

import pytest
from perdure.domain.errors import Corrupt, RestoreFailed
from perdure.domain.phases import Phase

from tests.functional.agent.workplace import QUIET, LiveKernel, Workplace, refusal

pytestmark = pytest.mark.criu


def test_killed_it_comes_back_as_it_was(agent: Workplace, kernel: LiveKernel) -> None:
    before = kernel.status()
    generation = kernel.snapshot()
    kernel.run("x = 43")
    pid = kernel.die()
    status = kernel.back(1)
    assert status.restores[0].generation == generation
    assert (status.endpoint, status.kernel_id, status.last_error) == (before.endpoint, before.kernel_id, None)
    assert status.pid not in (None, pid)
    assert kernel.run("import os; print(x, os.getpid())") == "42 1000"
    assert status.execution_count == before.execution_count


def test_it_comes_back_again_and_again(agent: Workplace, kernel: LiveKernel) -> None:
    for times, signum in enumerate((signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT), start=1):
        kernel.run(f"x = {times}")
        kernel.snapshot()
        kernel.die(signum)
        kernel.back(times)
        assert kernel.run("print(x)") == str(times)


def test_one_that_ends_by_itself_stays_away(agent: Workplace, kernel: LiveKernel) -> None:
    kernel.begin("import os; os._exit(0)")
    status = kernel.until(lambda status: not status.phase.alive)
    assert (status.phase, status.exit_status, status.restores) == (Phase.DEAD, 0, ())


def test_one_without_a_snapshot_fails_honestly(agent: Workplace) -> None:
    live = agent.kernel()
    live.die()
    status = live.until(lambda status: not status.phase.alive)
    assert (status.phase, status.exit_status) == (Phase.FAILED, -9)
    assert isinstance(status.last_error, RestoreFailed)


def test_a_policy_may_leave_it_dead(agent: Workplace, kernel: LiveKernel) -> None:
    generation = kernel.snapshot()
    agent.ask(lambda client: client.set_policy(kernel.id, replace(QUIET, restore_on_death=False)))
    kernel.die()
    status = kernel.until(lambda status: not status.phase.alive)
    assert status.phase is Phase.FAILED
    assert isinstance(status.last_error, RestoreFailed)
    assert agent.ask(lambda client: client.restore(kernel.id)).restores[-1].generation == generation
    assert kernel.run("print(x)") == "42"


@pytest.mark.slow
def test_a_generation_that_dies_at_once_is_given_up(agent: Workplace) -> None:
    policy = replace(QUIET, max_restores=2)
    live = agent.kernel(policy)
    live.run("import os, time")
    live.until(lambda status: status.last_snapshot)
    # The cell goes on for a second after each comeback, and then ends the process.
    live.begin("for _ in range(30): time.sleep(0.05)\nos.abort()")
    live.until(lambda status: status.busy)
    doomed = live.snapshot()
    status = live.until(lambda status: [one.generation for one in status.restores][2:], seconds=90)
    assert [one.generation for one in status.restores] == [doomed, doomed, doomed - 1]
    for _ in range(policy.max_restores):
        live.until(lambda status: status.phase is Phase.RUNNING)
        live.die()
        status = live.until(lambda status: status.phase is not Phase.RUNNING)
    status = live.until(lambda status: not status.phase.alive)
    assert status.phase is Phase.FAILED
    assert isinstance(status.last_error, RestoreFailed)
    assert agent.ask(lambda client: client.restore(live.id, doomed - 1)).phase is Phase.RUNNING
    assert live.run("print(os.getpid())") == "1000"


def test_a_damaged_generation_is_passed_over(agent: Workplace, kernel: LiveKernel) -> None:
    good = kernel.snapshot()
    kernel.run("x = bytearray(b'damaged' * 100000)")
    bad = kernel.snapshot()
    _damage(agent, kernel, bad)
    kernel.die()
    status = kernel.back(1)
    assert status.restores[0].generation == good
    assert kernel.run("print(x)") == "42"
    assert len(status.warnings) == 1, "that it isn't the newest one is said"
    assert {one.generation: one.verified for one in status.generations} == {1: True, good: True, bad: False}


def test_a_cell_that_was_running_goes_on(agent: Workplace, kernel: LiveKernel) -> None:
    cell = kernel.begin("import time\nfor i in range(40): time.sleep(0.1)\nprint('done', i)")
    kernel.until(lambda status: status.busy)
    kernel.snapshot()
    kernel.die()
    assert kernel.back(1).busy
    assert kernel.finish(cell) == "done 39"
    assert not kernel.until(lambda status: not status.busy).busy
    assert kernel.run("print(x, i)") == "42 39"


def test_going_back_on_demand_can_be_undone(agent: Workplace, kernel: LiveKernel) -> None:
    old = kernel.snapshot()
    kernel.run("x = 'new'")
    abandoned = kernel.snapshot()
    kernel.run("x = 'newest'")
    status = agent.ask(lambda client: client.restore(kernel.id, old))
    safety = status.generations[-1]
    assert (safety.trigger, safety.generation) == ("before-restore", abandoned + 1)
    assert (status.phase, kernel.run("print(x)")) == (Phase.RUNNING, "42")

    kernel.run("x = 'lost'")
    kernel.die()
    assert kernel.back(2).restores[-1].generation == old
    assert kernel.run("print(x)") == "42"
    agent.ask(lambda client: client.restore(kernel.id, safety.generation))
    assert kernel.run("print(x)") == "newest"


def test_a_restore_that_can_not_work_ends_nothing(agent: Workplace, kernel: LiveKernel) -> None:
    pid = kernel.status().pid
    kernel.run("y = bytearray(b'damaged' * 100000)")
    bad = kernel.snapshot()
    _damage(agent, kernel, bad)
    kernel.run("x = 'now'")
    assert isinstance(refusal(lambda: agent.ask(lambda client: client.restore(kernel.id, bad))), Corrupt)
    status = kernel.status()
    assert (status.phase, status.pid) == (Phase.RUNNING, pid)
    assert isinstance(status.last_error, Corrupt)
    assert kernel.run("print(x)") == "now"


def test_a_restore_that_fails_late_goes_back_to_how_it_was(agent: Workplace, kernel: LiveKernel) -> None:
    kernel.run("import socket; s = socket.create_server(('127.0.0.1', 0))")
    port = int(kernel.run("print(s.getsockname()[1])"))
    old = kernel.snapshot()
    kernel.run("s.close(); x = 'now'")
    with socket.create_server(("127.0.0.1", port)):  # what the old generation needs is somebody else's now
        error = refusal(lambda: agent.ask(lambda client: client.restore(kernel.id, old)))
        status = kernel.until(lambda status: status.phase is Phase.RUNNING)
    assert type(status.last_error) is type(error) is RestoreFailed
    assert status.restores[-1].generation == old + 1
    assert kernel.run("print(x)") == "now"


def _damage(workplace: Workplace, kernel: LiveKernel, generation: int) -> None:
    for pack in workplace.packs(kernel.id, generation):
        data = bytearray(pack.read_bytes())
        for at in range(64, len(data), 997):
            data[at] ^= 0xFF
        pack.chmod(0o600)
        pack.write_bytes(data)
