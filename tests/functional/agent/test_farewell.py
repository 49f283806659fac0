"""The agent is told to end: what would be lost is saved, while there is time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from perdure.domain.errors import PerdureError
from perdure.domain.phases import Phase
from perdure.domain.policy import Policy
from perdure.wire.messages import GenerationInfo, KernelStatus

from tests.functional.agent.workplace import QUIET, LiveKernel, Workplace

pytestmark = pytest.mark.criu

SAVED = replace(QUIET, preemption_deadline_s=25)
_LARGE = "import os; big = os.urandom(1 << 20) * 600; print(len(big))"
"""A snapshot of it takes seconds."""


def ready(agent: Workplace, policy: Policy = SAVED) -> LiveKernel:
    """With the snapshot after its first cell behind it, and nothing done since."""
    live = agent.kernel(policy)
    live.run("x = 41")
    live.until(lambda status: status.last_snapshot and status.phase is Phase.RUNNING)
    return live


def published(live: LiveKernel) -> tuple[GenerationInfo, ...]:
    return live.status().generations


def test_unsaved_work_is_saved_and_the_kernel_goes_on(agent: Workplace) -> None:
    kernels = [ready(agent) for _ in range(2)]
    pids = [live.status().pid for live in kernels]
    for live in kernels:
        live.run("x = 'unsaved'")
    assert agent.end_agent() == 0
    assert [live.run("print(x)") for live in kernels] == ["unsaved"] * 2
    assert agent.staging() == []

    agent.start_agent()
    for live, pid in zip(kernels, pids, strict=True):
        status = live.status()
        assert (status.phase, status.pid, status.restores) == (Phase.RUNNING, pid, ())
        assert [one.trigger for one in status.generations] == ["cell", "preemption"]
    kernels[0].die()
    assert kernels[0].back(1).restores[0].generation == 2
    assert kernels[0].run("print(x)") == "unsaved"


def test_a_cell_that_runs_is_saved_where_it_is(agent: Workplace) -> None:
    live = ready(agent)
    # Busy for six seconds, whatever the machine does: the agent ends in the middle of it.
    cell = live.begin("import time\nfor step in range(60): time.sleep(0.1)\nprint(step)")
    live.until(lambda status: status.busy)
    assert agent.end_agent() == 0
    assert live.finish(cell) == "59"
    agent.start_agent()
    last = published(live)[-1]
    assert (last.trigger, last.busy) == ("preemption", True)


def test_what_is_saved_already_is_not_saved_again(agent: Workplace) -> None:
    live = ready(agent)
    agent.end_agent()
    agent.start_agent()
    assert [one.trigger for one in published(live)] == ["cell"]


def test_only_when_asked_means_never_by_itself(agent: Workplace) -> None:
    live = agent.kernel(Policy(only_when_asked=True, after_cell_work_s=0))
    live.run("x = 41")
    assert "asked" in live.until(lambda status: status.next_snapshot).next_snapshot
    agent.end_agent()
    agent.start_agent()
    assert published(live) == ()
    assert live.snapshot() == 1
    assert live.status().generations[0].trigger == "demand"


def test_a_snapshot_that_is_being_taken_is_brought_to_its_end(agent: Workplace) -> None:
    live = ready(agent)
    live.run(_LARGE)
    snapshot = agent.begin(lambda client: client.snapshot(live.id))
    live.until(lambda status: status.phase is Phase.SNAPSHOTTING)
    assert agent.end_agent() == 0
    assert snapshot.result(1).trigger == "demand"
    agent.start_agent()
    assert [one.trigger for one in published(live)] == ["cell", "demand"]


def _in_time(end: Callable[[Workplace, LiveKernel], None], policy: Policy, agent: Workplace) -> None:
    """The agent ends without a last snapshot, soon, and the kernel is none the worse for it."""
    live = ready(agent, policy)
    live.run(_LARGE)
    pid = live.status().pid
    assert agent.agent is not None
    begun = time.monotonic()
    end(agent, live)
    assert agent.agent.wait(60) == 0
    assert time.monotonic() - begun < 15  # a whole snapshot and its proof take no longer on a slow machine; a hang would
    assert agent.staging() == []
    assert live.run("print(x, len(big))") == f"41 {600 << 20}"
    agent.start_agent()
    status = live.status()
    assert (status.phase, status.pid) == (Phase.RUNNING, pid)
    assert [one.trigger for one in status.generations] == ["cell"]


def _saving(status: KernelStatus) -> bool:
    return status.phase is Phase.SNAPSHOTTING


@pytest.mark.slow
def test_a_deadline_that_is_too_short(agent: Workplace) -> None:
    _in_time(lambda agent, _: agent.agent.terminate(), replace(QUIET, preemption_deadline_s=0.3), agent)  # type: ignore[union-attr]


@pytest.mark.slow
def test_told_twice_it_ends_at_once(agent: Workplace) -> None:
    def twice(agent: Workplace, live: LiveKernel) -> None:
        assert agent.agent is not None
        agent.agent.terminate()
        live.until(_saving)  # it answers meanwhile
        agent.agent.terminate()

    _in_time(twice, SAVED, agent)


def test_an_interrupt_ends_it_at_once(agent: Workplace) -> None:
    _in_time(lambda agent, _: agent.agent.send_signal(signal.SIGINT), SAVED, agent)  # type: ignore[union-attr]


def test_a_repository_that_is_gone_keeps_nobody(agent: Workplace) -> None:
    live = ready(agent)
    live.run("x = 42")
    repository, aside = agent.state / "repository" / "0", agent.folder / "aside"
    repository.rename(aside)
    repository.write_text("in the way")
    assert agent.end_agent() == 0
    assert live.run("print(x)") == "42"
    repository.unlink()
    aside.rename(repository)
    agent.start_agent()
    assert isinstance(live.status().last_error, PerdureError)
    assert live.snapshot() == 2
