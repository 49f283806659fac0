"""Sandbox against the real shim: start, look, signal, adopt, end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from perdure.domain.errors import BadRequest, KernelGone, NotProtected, SandboxFailed
from perdure.domain.ids import Owner
from perdure.runtime.identity import ProcessIdentity
from perdure.runtime.sandbox import LaunchSpec, Sandbox

pytestmark = pytest.mark.root

T = TypeVar("T")
Starter = Callable[..., Sandbox]
PYTHON = (sys.executable, "-c")


def until(ask: Callable[[], T]) -> T:
    end = time.monotonic() + 30
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < end
        time.sleep(0.005)


def ended(sandbox: Sandbox) -> int:
    until(lambda: sandbox.ended() is not None)
    status = sandbox.ended()
    assert status is not None
    return status


def test_started_kernel_runs_and_is_known(start: Starter) -> None:
    sandbox = start(*PYTHON, "import os, time; print('pid', os.getpid(), flush=True); time.sleep(1000)")
    kernel = sandbox.kernel()
    assert kernel is not None
    assert kernel.alive()
    assert sandbox.shim.alive()
    assert sandbox.ended() is None
    until(lambda: "pid 1000" in sandbox.log.read_text())
    assert sandbox.processes() == [kernel.pid]


@pytest.mark.parametrize(("command", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -SEGV $$", -11), ("kill -9 $$", -9)])
def test_ended_tells_how(start: Starter, command: str, status: int) -> None:
    sandbox = start("sh", "-c", f"sleep 0.05; {command}")
    assert ended(sandbox) == status
    assert sandbox.kernel() is None
    assert sandbox.processes() == []
    sandbox.kill()
    assert sandbox.ended() == status


def test_kernel_that_ends_at_once_is_no_failed_start(start: Starter) -> None:
    for n in range(20):
        sandbox = start("sh", "-c", f"echo no module named ipykernel; exit {n}", folder=str(n))
        assert ended(sandbox) == n
        assert sandbox.log.read_text() == "no module named ipykernel\n"
        assert sandbox.kernel() is None


def test_kill_ends_everything_and_may_be_repeated(start: Starter) -> None:
    stubborn = "trap '' TERM INT HUP; while :; do sleep 1; done"
    sandbox = start("sh", "-c", f'(setsid sh -c "{stubborn}" &); (unshare -p -f sh -c "{stubborn}" &); {stubborn}')
    until(lambda: len(sandbox.processes()) >= 5)
    inside = [ProcessIdentity.of(pid) for pid in sandbox.processes()]
    sandbox.kill()
    assert not any(process is not None and process.alive() for process in inside)
    assert not sandbox.shim.alive()
    assert sandbox.ended() == -9
    sandbox.kill()
    assert sandbox.ended() == -9


def test_processes_in_nested_namespaces_belong_to_it(start: Starter) -> None:
    sandbox = start("sh", "-c", "unshare -p -f sleep 1000 & sleep 1000")

    def names() -> list[str]:
        return sorted(Path(f"/proc/{pid}/comm").read_text().strip() for pid in sandbox.processes())

    until(lambda: names() == ["sh", "sleep", "sleep", "unshare"])


def test_no_zombie_of_the_starter_stays(start: Starter) -> None:
    sandbox = start("sleep", "1000")
    outer = sandbox._outer
    assert outer is not None
    sandbox.kill()
    assert ProcessIdentity.of(outer.pid) is None


def test_many_threads_may_end_it_at_once(start: Starter) -> None:
    sandbox = start("sleep", "1000")
    failures: list[BaseException] = []

    def end() -> None:
        try:
            sandbox.kill()
            assert sandbox.ended() == -9
        except BaseException as problem:  # a thread's failure would be lost
            failures.append(problem)

    threads = [threading.Thread(target=end) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_signal_goes_to_the_kernels_group(start: Starter) -> None:
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, lambda *_: os.write(1, b'got '))\n"
        "os.fork(); print('ready', flush=True)\n"
        "while True: signal.pause()"
    )
    sandbox = start(*PYTHON, code)
    until(lambda: sandbox.log.read_text().count("ready") == 2)
    sandbox.signal(signal.SIGINT)
    until(lambda: sandbox.log.read_text().count("got") == 2)


def test_signal_to_a_gone_kernel(start: Starter) -> None:
    sandbox = start("sleep", "1000")
    sandbox.kill()
    with pytest.raises(KernelGone):
        sandbox.signal(signal.SIGINT)


def test_owner_environment_and_folder(start: Starter, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "TWO": "a\nb=ü"}
    spec = LaunchSpec(("sh", "-c", "id -u; id -g; id -G; pwd; env -0 >&2"), env, "/usr", Owner(65534, 65534, (4242,)))
    sandbox = Sandbox.start(tmp_path / "s", spec)
    assert ended(sandbox) == 0
    sandbox.kill()
    said, _, environment = sandbox.log.read_text().partition("/usr\n")
    assert said.split() == ["65534", "65534", "65534", "4242"]
    found = dict(entry.split("=", 1) for entry in environment.rstrip("\0").split("\0"))
    found.pop("PWD", None)  # the shell's own
    assert found == env


@pytest.mark.parametrize(
    "spec",
    [
        ((), {}, "/"),
        (("",), {}, "/"),
        (("true", "a\0b"), {}, "/"),
        (("true",), {"A": "a\0b"}, "/"),
        (("true",), {"A=B": "c"}, "/"),
        (("true",), {"": "c"}, "/"),
        (("true",), {}, "tmp"),
        (("true",), {}, ""),
    ],
)
def test_launch_that_makes_no_sense(spec: tuple[tuple[str, ...], dict[str, str], str]) -> None:
    with pytest.raises(BadRequest):
        LaunchSpec(*spec, Owner(0, 0))


@pytest.mark.parametrize(
    ("program", "cwd", "named"), [("gone", "", "gone"), ("text", "", "text"), ("sh", "no/folder", "no/folder")]
)
def test_failed_start_says_why_and_leaves_nothing(tmp_path: Path, program: str, cwd: str, named: str) -> None:
    (tmp_path / "text").write_text("not a program")
    (tmp_path / "sh").symlink_to("/bin/sh")
    spec = LaunchSpec((str(tmp_path / program),), {"PATH": os.environ["PATH"]}, str(tmp_path / cwd), Owner(0, 0))
    with pytest.raises(SandboxFailed) as caught:
        Sandbox.start(tmp_path / "sandbox", spec)
    assert str(tmp_path / named) in caught.value.detail
    assert caught.value.hint
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in running


def test_no_descriptor_is_lost(start: Starter, tmp_path: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    for n in range(3):
        start("sleep", "1000", folder=str(n), die_with_agent=True).kill()
        with pytest.raises(SandboxFailed):
            start("/no/such/program", folder=f"bad{n}", die_with_agent=True)
    assert count() == before


def test_missing_shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_BIN", str(tmp_path))
    with pytest.raises(NotProtected):
        Sandbox.empty(tmp_path / "s")


def test_empty_sandbox(tmp_path: Path, keep: Callable[[Sandbox], Sandbox]) -> None:
    sandbox = keep(Sandbox.empty(tmp_path, owner=Owner(65534, 65534)))
    assert sandbox.kernel() is None
    assert sandbox.processes() == []
    assert sandbox.ended() is None
    fd, key = sandbox.stdio_pipe()
    assert key.startswith("pipe:[")
    assert Path(f"/proc/{sandbox.shim.pid}/fd/{fd}").stat().st_uid == 65534
    with pytest.raises(KernelGone):
        sandbox.signal(signal.SIGINT)
    sandbox.kill()
    assert sandbox.ended() == -9
    with pytest.raises(KernelGone):
        sandbox.stdio_pipe()


def test_stdio_pipe_is_the_kernels(start: Starter) -> None:
    sandbox = start("sleep", "1000")
    kernel = sandbox.kernel()
    assert kernel is not None
    _, key = sandbox.stdio_pipe()
    assert {os.readlink(f"/proc/{kernel.pid}/fd/{fd}") for fd in (1, 2)} == {key}


def test_shared_memory_is_reached_from_outside(start: Starter) -> None:
    sandbox = start("sh", "-c", "echo inside > /dev/shm/a; sleep 1000")
    until(lambda: (sandbox.shm() / "a").exists() and (sandbox.shm() / "a").read_text())
    (sandbox.shm() / "b").write_text("from outside")
    assert not Path("/dev/shm/b").exists()
    assert sorted(path.name for path in sandbox.shm().iterdir()) == ["a", "b"]


def test_one_folder_sandbox_after_sandbox(start: Starter) -> None:
    first = start("sh", "-c", "echo one; exit 4")
    assert ended(first) == 4
    first.kill()
    second = start("sh", "-c", "echo two; sleep 1000")
    assert second.ended() is None
    assert second.shim != first.shim
    until(lambda: second.log.read_text() == "one\ntwo\n")


ADOPTER = """
import json, os, sys
from pathlib import Path
from perdure.domain.ids import Owner
from perdure.runtime.sandbox import LaunchSpec, Sandbox
spec = LaunchSpec(("sh", "-c", "while :; do echo tick; sleep 0.02; done"), {"PATH": os.environ["PATH"]}, "/", Owner(0, 0))
sandbox = Sandbox.start(Path(sys.argv[1]), spec, die_with_agent=sys.argv[2] == "die")
print(json.dumps(sandbox.shim.to_json()), flush=True)
os.kill(os.getpid(), 9)
"""


def killed_agent(folder: Path, fate: str) -> ProcessIdentity:
    import json

    agent = subprocess.run([*PYTHON, ADOPTER, str(folder), fate], stdout=subprocess.PIPE, text=True, check=False)
    assert agent.returncode == -9
    return ProcessIdentity.from_json(json.loads(agent.stdout))


def test_sandbox_is_adopted_after_its_agent_was_killed(tmp_path: Path, keep: Callable[[Sandbox], Sandbox]) -> None:
    shim = killed_agent(tmp_path, "live")
    found = Sandbox.adopt(tmp_path, shim)
    assert found is not None
    sandbox = keep(found)
    ticks = sandbox.log.read_text().count("tick")
    until(lambda: sandbox.log.read_text().count("tick") > ticks + 3)
    assert sandbox.ended() is None
    sandbox.signal(signal.SIGTERM)
    assert ended(sandbox) == -15
    assert until(lambda: Sandbox.adopt(tmp_path, shim) is None)


def test_sandbox_dies_with_its_agent_where_that_was_asked_for(tmp_path: Path) -> None:
    shim = killed_agent(tmp_path, "die")
    until(lambda: not shim.alive())
    assert Sandbox.adopt(tmp_path, shim) is None


def test_nothing_is_adopted_by_mistake(start: Starter, tmp_path: Path) -> None:
    sandbox = start("sleep", "1000")
    shim = sandbox.shim
    assert Sandbox.adopt(tmp_path / "sandbox", ProcessIdentity(shim.pid, shim.start_time + 1, shim.boot_id)) is None
    assert Sandbox.adopt(tmp_path / "sandbox", ProcessIdentity(shim.pid, shim.start_time, "another boot")) is None
    other = ProcessIdentity.of(os.getpid())
    assert other is not None
    assert Sandbox.adopt(tmp_path / "sandbox", other) is None
    assert Sandbox.adopt(tmp_path / "nothing", shim) is None
