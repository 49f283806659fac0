"""Full disks, signals at the wrong moment, kernels that are ended while something is done to them."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest
from perdure.domain.errors import KernelGone, NoRoom, PerdureError, StoreFailed
from perdure.domain.phases import Phase
from perdure.engine import tree
from perdure.wire.messages import KernelStatus

from tests.functional.agent.workplace import LiveKernel, Workplace, refusal, small_disk

pytestmark = pytest.mark.criu


def test_a_full_repository_does_the_kernel_no_harm(workplace: Workplace) -> None:
    with small_disk(workplace.folder / "disk", 64 << 20) as disk:
        workplace.start_agent(f"--repository={(disk / 'r').as_uri()}")
        live = workplace.kernel()
        live.run("import os; x = 42")
        good = live.until(lambda status: status.last_snapshot).last_snapshot
        pid = live.status().pid
        live.run("big = os.urandom(96 << 20)")
        assert isinstance(refusal(live.snapshot), NoRoom)
        status = live.status()
        assert (status.phase, status.pid, type(status.last_error)) == (Phase.RUNNING, pid, NoRoom)
        assert good is not None
        assert [one.generation for one in status.generations] == [good.generation]
        assert workplace.staging() == []
        assert live.run("print(x, len(big))") == f"42 {96 << 20}"

        live.run("del big")
        newest = live.snapshot()
        assert live.status().last_error is None
        live.die()
        assert live.back(1).restores[0].generation == newest
        assert live.run("print(x)") == "42"
        workplace.ask(lambda client: client.forget(live.id, snapshots="drop"))
        workplace.end_agent()
        assert [path for path in disk.rglob("*") if live.id in str(path)] == []
        workplace.start_agent()


def test_a_full_disk_under_the_agents_own_files(workplace: Workplace) -> None:
    with small_disk(workplace.state, 512 << 20):
        workplace.start_agent(f"--repository={(workplace.folder / 'r').as_uri()}")
        live = workplace.kernel()
        live.run("x = 42")
        live.until(lambda status: status.last_snapshot)
        filler = workplace.state / "filler"
        _fill(filler)
        assert isinstance(refusal(live.snapshot), NoRoom)
        live.run("x = 43")
        status = live.status()
        assert (status.phase, type(status.last_error)) == (Phase.RUNNING, NoRoom)
        assert status.warnings
        assert live.run("print(x)") == "43"
        filler.unlink()
        newest = live.snapshot()
        assert live.status().warnings == ()
        live.die()
        assert live.back(1).restores[0].generation == newest
        workplace.ask(lambda client: client.forget(live.id, snapshots="drop"))
        workplace.end_agent()
    workplace.state.rmdir()


def test_a_repository_that_went_away_does_the_kernel_no_harm(agent: Workplace, kernel: LiveKernel) -> None:
    repository, aside = agent.state / "repository" / "0", agent.folder / "aside"
    repository.rename(aside)
    repository.write_text("in the way")
    error = refusal(kernel.snapshot)
    assert isinstance(error, StoreFailed)
    status = kernel.status()
    assert (status.phase, type(status.last_error)) == (Phase.RUNNING, type(error))
    assert status.warnings
    assert kernel.run("print(x)") == "42"
    repository.unlink()
    aside.rename(repository)
    assert kernel.snapshot() == 2


_COUNTS = """
import signal, threading, time
count = 0
def counted(*_):
    global count
    count += 1
signal.signal(signal.SIGUSR1, counted)
big = bytearray(b'x') * (300 << 20)
"""


@pytest.mark.slow
def test_signals_during_the_freeze_arrive_after_it(agent: Workplace, kernel: LiveKernel) -> None:
    kernel.run(_COUNTS)
    snapshot = agent.begin(lambda client: client.snapshot(kernel.id))

    def frozen(status: KernelStatus) -> bool:
        process = tree.read(status.pid or 0)
        return process is not None and bool(process.tracer)

    kernel.until(frozen)
    signals = [agent.begin(lambda client: client.signal(kernel.id, 10)) for _ in range(3)]
    snapshot.result(60)
    for one in signals:
        one.result(60)
    kernel.run("while not count: time.sleep(0.01)")


@pytest.mark.slow
def test_an_interrupt_during_the_freeze_stops_the_cell(agent: Workplace, kernel: LiveKernel) -> None:
    kernel.run(_COUNTS)
    cell = kernel.begin("try:\n    while True: time.sleep(0.01)\nexcept KeyboardInterrupt:\n    print('stopped')")
    kernel.until(lambda status: status.busy)
    snapshot = agent.begin(lambda client: client.snapshot(kernel.id))
    kernel.until(lambda status: status.phase is Phase.SNAPSHOTTING)
    agent.ask(lambda client: client.signal(kernel.id, 2))
    assert kernel.finish(cell) == "stopped"
    snapshot.result(60)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["saving", "storing"])
def test_ended_in_the_middle_of_a_snapshot(agent: Workplace, kernel: LiveKernel, step: str) -> None:
    kernel.run("import os; big = os.urandom(1 << 20) * 300")
    snapshot = agent.begin(lambda client: client.snapshot(kernel.id))
    kernel.until(lambda status: status.progress is not None and status.progress.step == step)
    begun = time.monotonic()
    assert agent.ask(lambda client: client.kill(kernel.id)).phase is Phase.DEAD
    assert time.monotonic() - begun < 30  # the kill itself takes milliseconds; a hang would take minutes
    assert isinstance(snapshot.exception(1), PerdureError)
    _nothing_left(agent, kernel)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["fetching", "restoring", "proving"])
def test_ended_in_the_middle_of_a_restore(agent: Workplace, kernel: LiveKernel, step: str) -> None:
    kernel.run("import os; big = os.urandom(1 << 20) * 300")
    generation = kernel.snapshot()
    restore = agent.begin(lambda client: client.restore(kernel.id, generation))
    kernel.until(lambda status: status.progress is not None and status.progress.step == step)
    begun = time.monotonic()
    assert agent.ask(lambda client: client.kill(kernel.id)).phase is Phase.DEAD
    assert time.monotonic() - begun < 30
    ended = restore.exception(1)  # none: it was back in the moment before the kill arrived
    assert isinstance(ended, KernelGone) or (ended is None and step == "proving")
    _nothing_left(agent, kernel)
    fresh = agent.request(kernel_id=kernel.id)
    assert agent.ask(lambda client: client.start(fresh)).phase is Phase.RUNNING
    assert agent.connect(fresh).run("print('big' in globals())") == "False"


def test_a_kernel_that_dies_in_the_middle_of_a_snapshot(agent: Workplace, kernel: LiveKernel) -> None:
    good = kernel.snapshot()
    kernel.run("big = bytearray(b'x') * (300 << 20)")
    snapshot = agent.begin(lambda client: client.snapshot(kernel.id))
    kernel.until(lambda status: status.phase is Phase.SNAPSHOTTING)
    kernel.die()
    assert isinstance(snapshot.exception(60), PerdureError)
    assert kernel.back(1).restores[0].generation == good
    assert kernel.run("print(x)") == "42"
    assert [one.generation for one in kernel.status().generations] == [1, good]


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 12))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def _nothing_left(agent: Workplace, kernel: LiveKernel) -> None:
    status = kernel.status()
    assert (status.phase, status.pid, status.progress) == (Phase.DEAD, None, None)
    assert agent.staging() == []
    assert [line for line in agent.left_behind() if "perdure-shim" in line or kernel.id in line] == []
