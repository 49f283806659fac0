"""The agent's small parts."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from perdure.agent.deaths import Deaths
from perdure.agent.errands import Errands
from perdure.agent.host import Host
from perdure.agent.memory import Memory
from perdure.agent.news import News
from perdure.agent.peers import Peer
from perdure.agent.watch import Watch
from perdure.domain.endpoint import Endpoint
from perdure.domain.errors import Corrupt, Forbidden, NoRoom
from perdure.domain.ids import Generation, Owner, kernel_id
from perdure.domain.phases import Phase
from perdure.domain.policy import Policy
from perdure.runtime.identity import ProcessIdentity
from perdure.wire.messages import Restore, StartRequest


class Clock:
    time = 100.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> float:
        return self.time


def generations(*numbers: int) -> list[Generation]:
    return [Generation(one) for one in numbers]


def test_deaths_set_a_generation_aside_and_end_at_last() -> None:
    clock = Clock()
    deaths = Deaths(Policy(max_restores=2, stable_s=60), clock)
    lineage = generations(1, 2)
    assert deaths.candidates(lineage) == [2, 1]
    for expected in ([2, 1], [1], [1], []):
        deaths.restored(deaths.candidates(lineage)[0], asked=False)
        deaths.died()
        assert deaths.candidates(lineage) == expected
    assert deaths.why(lineage)


def test_deaths_after_a_stable_while_are_forgiven() -> None:
    clock = Clock()
    deaths = Deaths(Policy(max_restores=1, stable_s=60), clock)
    for _ in range(10):
        deaths.restored(Generation(1), asked=False)
        clock.time += 61
        deaths.died()
        assert deaths.candidates(generations(1)) == [1]


def test_a_death_after_a_restore_that_was_asked_for_counts_for_nothing() -> None:
    deaths = Deaths(Policy(max_restores=1, stable_s=60), Clock())
    for _ in range(10):
        deaths.restored(Generation(1), asked=True)
        deaths.died()
        assert deaths.candidates(generations(1)) == [1]


async def test_news_wake_those_who_wait_and_only_them() -> None:
    news = News(0.001)
    waiting = [asyncio.create_task(news.newer(1, 10)) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    news.tell()
    await asyncio.wait_for(asyncio.gather(*waiting), 5)
    later = asyncio.create_task(news.newer(2, 10))
    await asyncio.sleep(0)
    assert (news.seq, later.done()) == (2, False)
    await asyncio.wait_for(news.newer(1, 10), 5)
    news.tell()
    await asyncio.wait_for(later, 5)
    await asyncio.wait_for(news.newer(3, 0.01), 5)


async def test_news_for_one_who_knows_a_later_time() -> None:
    """An agent before this one told a higher number: the clock was set back in between."""
    news = News(0.001)
    await asyncio.wait_for(news.newer(10**13, 3600), 5)


async def test_an_errand_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("of our own")

    async def hangs() -> None:
        await asyncio.Event().wait()

    errands = Errands()
    await asyncio.gather(errands.begin(fails(), "failing"), return_exceptions=True)
    hanging = errands.begin(hangs(), "hanging")
    await errands.close()
    assert hanging.cancelled()
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


async def test_a_watch_notices_an_end_and_closes_its_descriptor() -> None:
    ended = asyncio.Event()
    watch = Watch(ended.set)
    before = len(os.listdir("/proc/self/fd"))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:  # noqa: ASYNC220
        identity = ProcessIdentity.of(process.pid)
        assert identity is not None
        watch.follow(identity)
        await asyncio.sleep(0)
        assert not ended.is_set()
        process.kill()
        await asyncio.wait_for(ended.wait(), 10)
    assert len(os.listdir("/proc/self/fd")) == before
    ended.clear()
    watch.follow(identity)  # gone already
    await asyncio.wait_for(ended.wait(), 10)
    watch.stop()
    assert len(os.listdir("/proc/self/fd")) == before


def memory(folder: Path) -> Memory:
    endpoint = Endpoint.for_kernel(kernel_id("k"), "secret")
    request = StartRequest(
        kernel_id("k"), ("python",), {"TOKEN": "secret"}, "/", endpoint, "n", "d", "a.ipynb", Policy(min_gap_s=1)
    )
    return Memory.of_request(folder, request, Owner(7, 8, (8, 9)), "file:///r", "2026-12-01T00:00:00Z")


def test_memory_comes_back_as_it_was(tmp_path: Path) -> None:
    written = memory(tmp_path)
    written.phase, written.shim, written.lineage, written.newest = Phase.RUNNING, ProcessIdentity(5, 6, "b"), generations(1, 3), 3
    written.restores = [Restore("2026-12-01T00:00:00Z", Generation(1), 0.5, "why")]
    written.last_error = NoRoom("full", hint="make room")
    written.save()
    read = Memory.load(tmp_path)
    assert read is not None
    assert isinstance(read.last_error, NoRoom)
    read.last_error = written.last_error
    assert read == written
    assert "TOKEN" not in (tmp_path / "record.json").read_text()
    assert stat.S_IMODE((tmp_path / "record.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"schema": 99}'])
def test_memory_that_can_not_be_read_is_said_to_be(tmp_path: Path, damage: str) -> None:
    (tmp_path / "record.json").write_text(damage)
    with pytest.raises(Corrupt):
        Memory.load(tmp_path)
    assert (tmp_path / "record.json").read_text() == damage


def test_memory_of_a_newer_agent_with_more_fields_is_read(tmp_path: Path) -> None:
    memory(tmp_path).save()
    data = json.loads((tmp_path / "record.json").read_text())
    (tmp_path / "record.json").write_text(json.dumps({**data, "new": 1}))
    assert Memory.load(tmp_path) == memory(tmp_path)
    assert Memory.load(tmp_path / "absent") is None


def test_what_a_kernel_did_is_remembered_without_a_save(tmp_path: Path) -> None:
    written = memory(tmp_path)
    written.save()
    written.note_activity(True, 7)
    read = Memory.load(tmp_path)
    assert read is not None
    assert (read.busy, read.execution_count) == (True, 7)
    (tmp_path / "activity.json").write_text('[true, "se')
    assert Memory.load(tmp_path) == memory(tmp_path)
    written.forget_activity()
    assert Memory.load(tmp_path) == memory(tmp_path)


def test_a_peer_is_who_the_system_says() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = Peer.of(ours)
    assert (peer.uid, peer.gid) == (os.geteuid(), os.getegid())
    user = Peer(4711, 4712)
    assert user.as_owner() == Owner(4711, 4712, (4712,))
    assert user.may_touch(Owner(4711, 0))
    assert not user.may_touch(Owner(0, 4712))
    assert Peer(0, 0).may_touch(Owner(4711, 4712))


async def test_repositories_are_named_by_root_or_allowed(tmp_path: Path) -> None:
    host = Host(tmp_path, allowed_repositories=("file:///shared/",))
    owner, me = Owner(4711, 4711), os.geteuid()
    own = f"{tmp_path.as_uri()}/repository/4711"
    assert host.repository_for(None, owner, 4711) == own
    assert host.repository_for(own, owner, 4711) == own
    for url in ("file:///shared", "file:///shared/", "file:///shared/4711"):
        assert host.repository_for(url, owner, 4711) == "file:///shared/4711"
    assert host.repository_for("file:///any", owner, me) == "file:///any"
    for url in (
        "file:///any",
        "file:///shared/below",
        "file:///shared/0",
        "file:///shared/../any",
        f"{tmp_path.as_uri()}/repository/0",
    ):
        with pytest.raises(Forbidden):
            host.repository_for(url, owner, 4711)
