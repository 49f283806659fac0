"""What several callers ask of one kernel at the same moment, and what is left when one of them fails."""

from __future__ import annotations

import asyncio
import os

import pytest
from perdure.domain.errors import Conflict, KernelGone, PerdureError, StoreFailed
from perdure.domain.phases import Phase
from perdure.wire.client import AgentClient
from perdure.wire.messages import KernelStatus, StartRequest

from tests.functional.agent.workplace import LiveKernel, Workplace, refusal

pytestmark = [pytest.mark.criu, pytest.mark.root]


async def _restarted(address: str, request: StartRequest) -> list[BaseException]:
    """Three callers forget the kernel while three start it, again and again; what was not a plain refusal."""
    clients = [AgentClient(address) for _ in range(6)]
    try:
        odd: list[BaseException] = []
        for _ in range(10):
            calls = [
                one.forget(request.kernel_id, snapshots="keep") if number % 2 else one.start(request)
                for number, one in enumerate(clients)
            ]
            odd += [
                one
                for one in await asyncio.gather(*calls, return_exceptions=True)
                if isinstance(one, BaseException) and not isinstance(one, Conflict)
            ]
        return odd
    finally:
        for one in clients:
            await one.close()


def test_a_kernel_that_is_forgotten_and_started_at_once(agent: Workplace) -> None:
    """However that ends, a process that runs is a kernel that is known."""
    request = agent.request(argv=("/bin/sleep", "1000"))
    assert asyncio.run(_restarted(agent.address, request)) == []
    known = agent.ask(lambda client: client.kernels())
    agent.ask(lambda client: client.forget(request.kernel_id, snapshots="drop"))
    assert not (agent.state / "kernels" / request.kernel_id).exists()
    assert not [one for one in agent.left_behind() if "perdure-shim" in one], known


def test_a_kernel_that_is_ended_while_its_restore_saves_it(kernel: LiveKernel) -> None:
    """The restore on demand takes a snapshot first. Who ends the kernel meanwhile wants it to stay so."""
    kernel.run("ballast = __import__('random').randbytes(200 << 20)")
    restore = kernel.workplace.begin(lambda agent: agent.restore(kernel.id, 1))
    kernel.until(lambda status: status.phase is Phase.SNAPSHOTTING)
    kernel.workplace.ask(lambda agent: agent.kill(kernel.id))
    with pytest.raises(KernelGone):
        restore.result(60)
    status = kernel.status()
    assert (status.phase, status.pid) == (Phase.DEAD, None)
    kernel.workplace.kill_agent()
    kernel.workplace.start_agent()
    assert kernel.status().phase is Phase.DEAD


def test_an_agent_that_ends_while_a_restore_saves_the_kernel(kernel: LiveKernel) -> None:
    """The kernel goes on as it was; the restore has not happened."""
    kernel.run("ballast = __import__('random').randbytes(200 << 20)")
    restore = kernel.workplace.begin(lambda agent: agent.restore(kernel.id, 1))
    kernel.until(lambda status: status.phase is Phase.SNAPSHOTTING)
    kernel.workplace.end_agent()
    with pytest.raises(PerdureError):
        restore.result(60)
    kernel.workplace.start_agent()
    kernel.until(lambda status: status.phase is Phase.RUNNING)
    assert kernel.run("print(x, len(ballast))") == f"42 {200 << 20}"


def test_snapshots_that_can_not_be_dropped(kernel: LiveKernel) -> None:
    """The kernel is ended and still known: its snapshots can be dropped, or restored, when the repository is back."""
    workplace = kernel.workplace
    repository = workplace.state / "repository" / "0"
    aside = repository.rename(repository.with_name("aside"))
    repository.write_bytes(b"")
    assert isinstance(refusal(lambda: workplace.ask(lambda agent: agent.forget(kernel.id, snapshots="drop"))), StoreFailed)
    assert kernel.status().phase is Phase.DEAD
    repository.unlink()
    aside.rename(repository)
    workplace.ask(lambda agent: agent.restore(kernel.id))
    assert kernel.run("print(x)") == "41"
    workplace.ask(lambda agent: agent.forget(kernel.id, snapshots="drop"))
    assert workplace.repository().kernels() == []


def test_a_repository_that_does_not_answer(kernel: LiveKernel) -> None:
    """As one on a file server that is gone. More callers than the agent has threads ask for the kernel: all get an answer, and
    others' kernels are looked after meanwhile."""
    workplace = kernel.workplace
    other = workplace.kernel(repository=(workplace.folder / "other").as_uri())
    head = workplace.state / "repository" / "0" / "kernels" / kernel.id / "head"
    aside = head.rename(head.with_name("aside"))
    os.mkfifo(head)

    async def many(agent: AgentClient) -> list[KernelStatus]:
        return list(await asyncio.gather(*(agent.kernel(kernel.id) for _ in range(100))))

    try:
        assert {len(one.warnings) for one in workplace.ask(many)} == {1}
        assert workplace.ask(lambda agent: agent.snapshot(other.id)).verified
    finally:
        os.close(os.open(head, os.O_WRONLY))  # who waits at the pipe's other end gets its end
        aside.replace(head)
    kernel.until(lambda status: not status.warnings)
