"""Processes that are told apart although pids are reused."""

from __future__ import annotations

import os
import select
import subprocess
import time

import pytest
from perdure.runtime.identity import ProcessIdentity


def test_self() -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    assert me.alive()
    assert me == ProcessIdentity.of(os.getpid())
    assert ProcessIdentity.from_json(me.to_json()) == me


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1])
def test_nobody(pid: int) -> None:
    assert ProcessIdentity.of(pid) is None


def test_zombie_has_ended() -> None:
    child = subprocess.Popen(["true"])
    identity = ProcessIdentity.of(child.pid)
    assert identity is not None
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.alive()
    child.wait()
    assert not identity.alive()
    assert ProcessIdentity.of(child.pid) is None
    with pytest.raises(ProcessLookupError):
        identity.pidfd()


def test_reused_pid_is_somebody_else() -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    former = ProcessIdentity(me.pid, me.start_time - 1, me.boot_id)
    assert not former.alive()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ProcessLookupError):
        former.pidfd()
    assert len(os.listdir("/proc/self/fd")) == before


def test_pid_of_another_boot_is_somebody_else() -> None:
    me = ProcessIdentity.of(os.getpid())
    assert me is not None
    assert not ProcessIdentity(me.pid, me.start_time, "another").alive()


def test_pidfd_tells_the_end() -> None:
    child = subprocess.Popen(["sleep", "1000"])
    identity = ProcessIdentity.of(child.pid)
    assert identity is not None
    fd = identity.pidfd()
    try:
        assert select.select([fd], [], [], 0)[0] == []
        child.kill()
        assert select.select([fd], [], [], 30)[0] == [fd]
    finally:
        os.close(fd)
        child.wait()


def test_name_with_brackets_and_spaces() -> None:
    child = subprocess.Popen(
        ["sh", "-c", "printf '%s' ') R 1 (' > /proc/$$/comm; echo done; read x"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"done\n"
    identity = ProcessIdentity.of(child.pid)
    assert identity is not None
    assert identity.alive()
    hertz = os.sysconf("SC_CLK_TCK")
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - identity.start_time / hertz
    assert 0 <= age + 1 / hertz < 3600
    child.stdin.close()
    child.stdout.close()
    child.wait()
