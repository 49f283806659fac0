"""How a sandbox ends, who is reaped, who gets signals."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from shim_driver import Shim, gone, in_namespace, namespace, python, until

pytestmark = pytest.mark.root

SIGNALLED = """
import os, signal, sys
who = sys.argv[1] if len(sys.argv) > 1 else "kernel"
signal.signal(signal.SIGTERM, lambda *_: os.write(1, f"{who} TERM\\n".encode()))
signal.signal(signal.SIGINT, lambda *_: os.write(1, f"{who} INT\\n".encode()))
signal.signal(signal.SIGHUP, lambda *_: os.write(1, f"{who} HUP\\n".encode()))
if who == "kernel" and not os.fork():
    who = "child"
print(who, "ready", flush=True)
while True:
    signal.pause()
"""


@pytest.mark.parametrize("status", [0, 1, 7, 125, 255])
def test_exit_status_is_the_kernels(shim: Shim, status: int) -> None:
    shim.start("sh", "-c", f"exit {status}")
    assert shim.wait() == status
    assert shim.lines()[-1] == f"exit {status}"


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_end_by_signal_is_told_apart_from_an_exit(shim: Shim, signum: signal.Signals) -> None:
    shim.start("sleep", "1000")
    os.kill(shim.kernel, signum)
    assert shim.wait() == 128 + signum
    assert shim.lines()[-1] == f"signal {signum}"


def test_status_file_is_complete_and_in_order(shim: Shim) -> None:
    shim.start("true")
    shim.wait()
    assert [line.split()[0] for line in shim.lines()] == ["shim", "stdio", "ready", "exit"]


def test_last_output_of_a_kernel_is_in_the_log(shim: Shim) -> None:
    shim.start("sh", "-c", "head -c 60000 /dev/zero | tr '\\0' x; echo; echo last words")
    assert shim.wait() == 0
    assert shim.log().endswith("last words\n")
    assert shim.log().count("x") == 60000


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("target", ["pid 1", "starter"])
def test_signals_reach_the_kernels_whole_group(shim: Shim, signum: signal.Signals, target: str) -> None:
    shim.start(*python(SIGNALLED))
    shim.logged("kernel ready")
    shim.logged("child ready")
    assert shim.outer is not None
    os.kill(shim.pid if target == "pid 1" else shim.outer.pid, signum)
    name = signum.name.removeprefix("SIG")
    shim.logged(f"kernel {name}")
    shim.logged(f"child {name}")
    assert not shim.ended()


def test_orphans_are_reaped(shim: Shim) -> None:
    shim.start("sh", "-c", "for n in 1 2 3 4 5 6 7 8 9; do (sh -c 'sleep 0.01; exit 3' &) ; done; echo started; exec sleep 1000")
    shim.logged("started")
    children = Path(f"/proc/{shim.pid}/task/{shim.pid}/children")
    until(lambda: children.read_text().split() == [str(shim.kernel)], "reaping of all orphans")


def test_end_of_the_kernel_ends_its_stubborn_helpers(shim: Shim) -> None:
    stubborn = "trap '' TERM INT HUP; while :; do sleep 1; done"
    shim.start("sh", "-c", f'(setsid sh -c "{stubborn}" &); (sh -c "{stubborn}" &); kill -STOP $$')
    until(lambda: len(shim.inside()) >= 3, "start of the helpers")
    name = namespace(shim.pid)
    os.kill(shim.kernel, signal.SIGKILL)
    assert shim.wait() == 137
    assert in_namespace(name) == []
    assert shim.lines()[-1] == "signal 9"


def test_killed_pid_1_takes_everything_along(shim: Shim) -> None:
    shim.start("sh", "-c", "sleep 1000 & sleep 1000")
    until(lambda: len(shim.inside()) >= 2)
    name = namespace(shim.pid)
    os.kill(shim.pid, signal.SIGKILL)
    assert shim.wait() == 137
    assert in_namespace(name) == []
    assert shim.lines()[-1] == "ready"


def test_stopped_kernel_is_no_ended_kernel(shim: Shim) -> None:
    shim.start("sleep", "1000")
    kernel = shim.kernel
    os.kill(kernel, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{kernel}/stat").read_text().split()[2] == "T")
    os.kill(shim.pid, signal.SIGTERM)  # PID 1 has been through its loop when this has arrived
    until(lambda: int(_status(kernel, "ShdPnd"), 16) | int(_status(kernel, "SigPnd"), 16))
    assert not shim.ended()
    os.kill(kernel, signal.SIGCONT)
    assert shim.wait() == 128 + signal.SIGTERM


def _status(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(name + ":"))


def test_empty_sandbox_waits_and_keeps_the_kernels_pids_free(shim: Shim) -> None:
    shim.start()
    assert shim.said("ready") is not None
    assert shim.said("stdio") is not None
    assert shim.inside() == []
    with os.popen(f"nsenter -m -p -t {shim.pid} sh -c 'echo $$'") as helper:
        pid = int(helper.read())
    limit = int(Path("/proc/sys/kernel/pid_max").read_text())
    assert limit / 2 < pid < limit


ARRIVES_LATER = """
import os, signal, sys
open("/proc/sys/kernel/ns_last_pid", "w").write("999")
if not os.fork():
    os.setsid()
    assert os.getpid() == 1000
    signal.pause()
"""


@pytest.mark.parametrize(("signum", "last"), [(signal.SIGKILL, "signal 9"), (signal.SIGTERM, "signal 15")])
def test_end_of_a_kernel_that_arrived_later(shim: Shim, signum: signal.Signals, last: str) -> None:
    """As CRIU does it: a helper enters, makes pid 1000, and goes."""
    shim.start()
    assert os.spawnlp(os.P_WAIT, "nsenter", "nsenter", "-m", "-p", "-t", str(shim.pid), sys.executable, "-c", ARRIVES_LATER) == 0
    kernel = until(lambda: shim.kernel, "arrival")
    until(lambda: _status(kernel, "PPid") == str(shim.pid), "adoption by PID 1")
    assert not shim.ended()
    os.kill(kernel, signum)
    assert shim.wait() == 128 + signum
    assert gone(kernel)
    assert shim.lines()[-1] == last


def test_helper_that_comes_and_goes_ends_nothing(shim: Shim) -> None:
    shim.start()
    command = ["nsenter", "nsenter", "-m", "-p", "-t", str(shim.pid), "sh", "-c", "(sleep 0.01 &); exit 0"]
    assert os.spawnlp(os.P_WAIT, *command) == 0
    until(lambda: shim.inside() == [])
    assert not shim.ended()
