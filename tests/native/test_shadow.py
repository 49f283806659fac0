"""Twins of processes that are doing something: the process goes on as if nothing had been, the twin holds its memory."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import perdure
import pytest

pytestmark = pytest.mark.root

NATIVE = Path(__file__).parents[2] / "native"
_EVERYBODYS = "/usr/bin/python3"
"""The tests' own Python may lie where nobody else can enter."""
_STATES = {
    "in nanosleep": "time.sleep(0.2)",
    "in epoll_wait": "poll = select.epoll(); poll.poll(0.2)",
    "in read": "threading.Timer(0.2, os.write, (w, b'x')).start(); assert os.read(r, 1) == b'x'",
    "in a futex": "lock = threading.Lock(); lock.acquire(); lock.acquire(timeout=0.2)",
    "in user code": "sum(range(2_000_000))",
    "in the vDSO": "[time.monotonic() for _ in range(300_000)]",
}
_CODE = """
import ctypes, os, resource, select, signal, sys, threading, time
r, w = os.pipe()
seen = []
signal.signal(signal.SIGCHLD, lambda *_: seen.append("SIGCHLD"))
data = ctypes.create_string_buffer(b"before", 64 << 10)
print(os.getpid(), ctypes.addressof(data), flush=True)
go_on = threading.Event()
def listen():
    sys.stdin.readline()
    data.value = b"after"
    print("written", flush=True)
    sys.stdin.readline()
    go_on.set()
threading.Thread(target=listen, daemon=True).start()
sleepers = [threading.Thread(target=go_on.wait, daemon=True) for _ in range(int(sys.argv[1]))]
for one in sleepers:
    one.start()
while not go_on.is_set():
    BODY
try:
    os.waitpid(-1, os.WNOHANG | 0x40000000)
    seen.append("a child")
except ChildProcessError:
    pass
print("ended", seen, flush=True)
"""


@pytest.fixture(params=["shipped", "sanitized"])
def shadow(request: pytest.FixtureRequest) -> Path:
    if request.param == "shipped":
        return Path(perdure.__file__).parent / "bin" / "perdure-shadow"
    request.getfixturevalue("sanitized")
    return NATIVE / "build" / "sanitize" / "perdure-shadow"


@contextmanager
def victim(body: str, threads: int = 3, python: str = sys.executable, **more: Any) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process whose main thread runs `body` again and again, and the address of its data. The naps in a body are what is
    attacked, or let others run: no test waits for one."""
    code = _CODE.replace("BODY", body)
    command = [python, "-c", code, str(threads)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more) as process:
        assert process.stdout is not None
        address = int(process.stdout.readline().split()[1])
        try:
            yield process, address
        finally:
            process.kill()


def _say(process: subprocess.Popen[str], answer: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    line = process.stdout.readline()
    assert line.startswith(answer), line
    return line


@contextmanager
def twin_of(shadow: Path, pid: int) -> Iterator[int]:
    with subprocess.Popen([str(shadow), str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdin is not None
        words = keeper.stdout.readline().split()
        assert words[0] == "twin", words
        yield int(words[2])
        keeper.stdin.close()
        assert keeper.wait() == 0


def _ended(pid: int) -> bool:
    """Gone, or waiting for init to notice: outside a sandbox that may take its time."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True


def _bytes(pid: int, address: int, size: int) -> bytes:
    fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        return os.pread(fd, size, address)
    finally:
        os.close(fd)


@pytest.mark.parametrize("state", _STATES)
def test_a_process_goes_on_and_its_twin_keeps_the_instant(shadow: Path, state: str) -> None:
    with victim(_STATES[state]) as (process, address):
        for _ in range(3):
            with twin_of(shadow, process.pid):
                pass
        with twin_of(shadow, process.pid) as twin:
            assert Path(f"/proc/{twin}/comm").read_text().strip() == "perdure-shadow"
            assert os.listdir(f"/proc/{twin}/fd") == []
            _say(process, "written")
            assert _bytes(twin, address, 6) == b"before"
            assert _bytes(process.pid, address, 5) == b"after"
        assert _ended(twin)
        assert _say(process, "ended") == "ended []\n"
        assert process.wait() == 0


def test_a_thousand_threads(shadow: Path) -> None:
    with victim("time.sleep(0.05)", threads=1000) as (process, address):
        with twin_of(shadow, process.pid) as twin:
            assert _bytes(twin, address, 6) == b"before"
        _say(process, "written")
        assert _say(process, "ended") == "ended []\n"


def test_twins_die_with_their_keeper(shadow: Path) -> None:
    with victim("time.sleep(0.05)") as (process, _):
        with subprocess.Popen(
            [str(shadow), str(process.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as keeper:
            assert keeper.stdout is not None
            pidfd = os.pidfd_open(int(keeper.stdout.readline().split()[2]))
            keeper.kill()
        with os.fdopen(pidfd, "rb") as ended:
            assert select.select([ended], [], [], 20)[0]
        _say(process, "written")
        assert _say(process, "ended") == "ended []\n"


def test_no_such_process(shadow: Path) -> None:
    done = subprocess.run([str(shadow), "4194303"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith("failed 4194303")


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    source = Path(__file__).with_name("ptrace_faults.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(source)], check=True)
    return library


def _with_fault(pid: int, faults: Path, **fault: str) -> int:
    """Exit status of a perdure-shadow that has nothing to wait for."""
    program = Path(perdure.__file__).parent / "bin" / "perdure-shadow"
    env = {"LD_PRELOAD": str(faults), **fault}
    return subprocess.run(
        [str(program), str(pid)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env, check=False
    ).returncode


@pytest.mark.parametrize("state", ["in nanosleep", "in read", "in user code"])
@pytest.mark.parametrize("how", ["killed", "fails"])
def test_every_step_of_making_a_twin(state: str, how: str, faults: Path, tmp_path: Path) -> None:
    """Wherever perdure-shadow is killed, and whichever of its requests fails: the process goes on, and no twin is left."""
    count = tmp_path / "count"
    with victim(_STATES[state], threads=1) as (process, _):
        assert _with_fault(process.pid, faults, FAULT_COUNT=str(count)) == 0
        steps = int(count.read_text())
        assert steps > 40
        for step in range(1, steps + 1):
            status = _with_fault(process.pid, faults, FAULT_AT=str(step), **({"FAULT_FAILS": "1"} if how == "fails" else {}))
            assert process.poll() is None, f"the process ended of step {step}"
            assert status == -signal.SIGKILL if how == "killed" else status in (0, 1)
        assert not [pid for pid in _named_like_twins() if _parent(pid) == 1]
        _say(process, "written")
        answer = _say(process, "ended")
        # Killed, or with a request that Linux never refuses for a thread that is there, it may leave the companion (twin.h).
        assert answer in ("ended []\n", "ended ['a child']\n")
        assert process.wait() == 0


def test_a_companion_that_was_left_is_reaped(faults: Path, tmp_path: Path) -> None:
    program = Path(perdure.__file__).parent / "bin" / "perdure-shadow"
    with victim("time.sleep(0.05)", threads=1) as (process, _):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        left: list[str] = []
        for step in range(1, 80):
            _with_fault(process.pid, faults, FAULT_AT=str(step))
            left = children.read_text().split()
            if left:
                break
        assert len(left) == 1
        assert subprocess.run([str(program), "--reap", str(process.pid), left[0]], check=False).returncode == 0
        assert children.read_text().split() == []
        assert subprocess.run([str(program), "--reap", str(process.pid), left[0]], check=False).returncode == 1
        _say(process, "written")
        assert _say(process, "ended") == "ended []\n"


@pytest.mark.parametrize("spare", [0, 1])
def test_no_room_for_one_more_process(shadow: Path, spare: int) -> None:
    """The companion can't be made, or it can and the twin can't: both are gone, and the process has never had a child."""
    most = f"len(os.listdir('/proc/self/task')) + {spare}"
    body = f"resource.setrlimit(resource.RLIMIT_NPROC, ({most}, {most})); time.sleep(0.05)"
    user = {"user": 64_321, "group": 64_321, "extra_groups": ()}
    with victim(body, threads=0, python=_EVERYBODYS, **user) as (process, _):
        while "Max processes             " + str(2 + spare) not in Path(f"/proc/{process.pid}/limits").read_text():
            os.sched_yield()
        asked = [str(shadow), str(process.pid)]
        done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.stdout.startswith("failed"), done.stdout
        _say(process, "written")
        assert _say(process, "ended") == "ended []\n"


def _named_like_twins() -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and Path(f"/proc/{name}/comm").read_text().strip() == "perdure-shadow" and not _ended(int(name)):
                found.append(int(name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
