"""Older snapshots go after a new one, and nothing that goes wrong there reaches the kernel."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import pytest
from perdure.agent.host import Host
from perdure.agent.keeping import COLLECT_EVERY_S, PRESSED_GRACE_S, Keeping, keep
from perdure.agent.kernel import Kernel
from perdure.agent.memory import Memory
from perdure.domain.endpoint import Endpoint
from perdure.domain.errors import Conflict, NoRoom
from perdure.domain.ids import Generation, KernelId, Owner
from perdure.domain.phases import Phase
from perdure.domain.policy import Policy
from perdure.domain.record import HostFacts, Record, Trigger
from perdure.store.repository import Repository, SourceFile

KERNEL = KernelId("kernel-1")
START, HOUR = 1_800_000_000.0, 3600.0
POLICY = Policy(keep_last=2, keep_hourly=3, keep_daily=0)


def when(number: int) -> str:
    return datetime.fromtimestamp(START + number * HOUR / 2, UTC).isoformat().replace("+00:00", "Z")


def record(number: int) -> Record:
    return Record(
        incarnation=1,
        created=when(number),
        trigger=Trigger.DEMAND,
        engine="classic",
        owner=Owner(0, 0),
        host=HostFacts("h", "b", "6", "x86_64", (), "4"),
        endpoint={},
        kernel_name="k",
        display_name="K",
        notebook="",
        argv=("k",),
        cwd="/",
        execution_count=None,
        busy=False,
        stdio_key="",
        stall_s=0.1,
        total_s=0.2,
        timings={},
    )


def publish(repository: Repository, folder: Path, number: int) -> None:
    path = folder / "data"
    path.write_bytes(bytes([number]) * 70_000)
    repository.publish(KERNEL, [SourceFile("data", path, 0o600)], lambda _: record(number).to_json())


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Six generations, half an hour apart."""
    opened = Repository.open((tmp_path / "repository").as_uri())
    for number in range(1, 7):
        publish(opened, tmp_path, number)
    return opened


CREATED = {Generation(number): when(number) for number in range(1, 7)}


@pytest.mark.parametrize("collect", [False, True])
def test_what_the_policy_leaves(repository: Repository, collect: bool) -> None:
    gone = keep(repository, KERNEL, POLICY, CREATED, [], START, collect=collect)
    assert gone == [1, 2, 4]
    assert repository.generations(KERNEL) == [3, 5, 6]
    assert repository.verify().ok


def test_what_a_death_goes_back_to_stays(repository: Repository) -> None:
    keep(repository, KERNEL, Policy(keep_last=1, keep_hourly=0, keep_daily=0), CREATED, [Generation(2)], START, collect=False)
    assert repository.generations(KERNEL) == [2, 6]


def test_what_cant_be_read_is_left_alone(repository: Repository) -> None:
    known = {number: text for number, text in CREATED.items() if number not in (1, 6)}
    keep(repository, KERNEL, Policy(keep_last=1, keep_hourly=0, keep_daily=0), known, [], START, collect=False)
    assert repository.generations(KERNEL) == [1, 5, 6]


def test_a_budget(repository: Repository) -> None:
    keep(repository, KERNEL, Policy(keep_bytes=1), CREATED, [], START, collect=True)
    assert repository.generations(KERNEL) == [6]


def test_called_off(repository: Repository) -> None:
    cancelled = Event()
    cancelled.set()
    with pytest.raises(Conflict):
        keep(repository, KERNEL, POLICY, CREATED, [], START, collect=True, cancelled=cancelled)
    assert repository.verify().ok


class Clock:
    time = START

    def monotonic(self) -> float:
        return self.time

    def now(self) -> float:
        return self.time


def kernel_in(repository: Repository, folder: Path) -> Kernel:
    state = folder / "state"
    (state / "kernel").mkdir(parents=True)
    endpoint = Endpoint.from_json(
        {
            "ip": "127.1.2.3",
            "transport": "tcp",
            "key": "k",
            "signature_scheme": "hmac-sha256",
            "kernel_name": "k",
            **{f"{channel}_port": 50000 + at for at, channel in enumerate(("shell", "iopub", "stdin", "control", "hb"))},
        }
    )
    memory = Memory(
        state / "kernel",
        KERNEL,
        Owner(0, 0),
        ("k",),
        "/",
        endpoint,
        "k",
        "K",
        "",
        POLICY,
        repository.url,
        when(0),
        phase=Phase.RUNNING,
    )
    memory.lineage = [Generation(number) for number in range(1, 7)]
    return Kernel(Host(state, clock=Clock()), memory)  # type: ignore[arg-type]


async def settled(kernel: Kernel) -> None:
    while kernel.errands._tasks:
        await asyncio.gather(*kernel.errands._tasks)


async def test_after_a_snapshot(repository: Repository, tmp_path: Path) -> None:
    kernel = kernel_in(repository, tmp_path)
    keeping = Keeping(kernel)
    keeping.after_snapshot()
    keeping.after_snapshot()
    await settled(kernel)
    left = repository.generations(KERNEL)
    assert 2 <= len(left) < 6
    assert kernel.memory.lineage == left == sorted(kernel.infos)
    packs = list((tmp_path / "repository").glob("kernels/*/packs/*"))
    assert len(packs) == 6, "nothing is collected yet"
    for passed in (COLLECT_EVERY_S, 2 * HOUR):
        kernel.host.clock.time += passed  # type: ignore[attr-defined]
        keeping.after_snapshot()
        await settled(kernel)
    assert len(list((tmp_path / "repository").glob("kernels/*/packs/*"))) == len(left)
    assert repository.verify().ok


async def test_no_room(repository: Repository, tmp_path: Path) -> None:
    """A snapshot has failed for it, half stored: what nobody needs goes sooner, and what that one has left."""
    kernel = kernel_in(repository, tmp_path)
    keeping = Keeping(kernel)
    keeping.after_snapshot()
    await settled(kernel)

    def full(_: object) -> dict[str, object]:
        raise NoRoom("full")

    with pytest.raises(NoRoom):
        repository.publish(KERNEL, [SourceFile("data", tmp_path / "data", 0o600)], full)
    for passed in (1, PRESSED_GRACE_S):
        kernel.host.clock.time += passed  # type: ignore[attr-defined]
        keeping.after_snapshot(pressed=True)
        await settled(kernel)
    assert len(list((tmp_path / "repository").glob("kernels/*/packs/*"))) == len(repository.generations(KERNEL))
    assert repository.verify().ok


async def test_a_repository_that_is_away_is_logged_and_thats_all(
    repository: Repository, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel = kernel_in(repository, tmp_path)
    (tmp_path / "repository").rename(tmp_path / "away")
    (tmp_path / "repository").touch()
    with caplog.at_level(logging.ERROR):
        Keeping(kernel).after_snapshot()
        await settled(kernel)
    assert kernel.memory.last_error is None
    assert kernel.memory.lineage == [1, 2, 3, 4, 5, 6]
    assert not caplog.records, "no fault of ours"


async def test_no_removal_while_the_kernel_is_being_restored(repository: Repository, tmp_path: Path) -> None:
    kernel = kernel_in(repository, tmp_path)
    kernel.memory.phase = Phase.RESTORING
    Keeping(kernel).after_snapshot()
    await settled(kernel)
    assert repository.generations(KERNEL) == [1, 2, 3, 4, 5, 6]
