"""A14: children that were forked without exec, a zombie that nobody reaped, groups and sessions of the user's own."""

from __future__ import annotations

import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]


def test_a_forked_child(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import os, signal\n"
        "asked, ask = os.pipe(); answer, answering = os.pipe(); secret = os.urandom(8)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.signal(signal.SIGINT, signal.SIG_IGN); n = 0\n"
        "    while os.read(asked, 1):\n"
        "        n += 1; os.write(answering, secret + bytes([n]))\n"
        "    os._exit(0)\n"
        "def say():\n"
        "    os.write(ask, b'?'); found = os.read(answer, 9); return found[:8] == secret, found[8]"
    )
    number = 0

    def check() -> None:
        nonlocal number
        number += 1
        assert kernel.run("say()") == f"(True, {number})"
        assert kernel.run("os.waitpid(child, os.WNOHANG)") == "(0, 0)"

    check()
    survives(check)
    assert kernel.run("os.kill(child, 9); os.waitpid(child, 0)[1]") == "9"


def test_a_zombie(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import os, time\n"
        "def zombie():\n"
        "    global child\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os._exit(7)\n"
        "    deadline = time.monotonic() + 20\n"
        "    while open(f'/proc/{child}/stat').read().rpartition(')')[2].split()[0] != 'Z':\n"
        "        assert time.monotonic() < deadline; time.sleep(.01)\n"
        "zombie()"
    )

    def check() -> None:
        assert kernel.run("os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])") == "7"
        kernel.run("zombie()")

    survives(check)


def test_groups_and_sessions(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import os, subprocess\n"
        "session = subprocess.Popen(['sh', '-c', 'sleep 1000 & exec sleep 1000'], start_new_session=True)\n"
        "group = subprocess.Popen(['sleep', '1000'], process_group=0)\n"
        "facts = lambda: [(p.pid, os.getpgid(p.pid), os.getsid(p.pid)) for p in (session, group)]"
    )
    facts = kernel.run("facts()")

    def check() -> None:
        assert kernel.run("facts()") == facts
        assert kernel.run("session.poll(), group.poll()") == "(None, None)"

    survives(check)
    assert kernel.run("os.killpg(session.pid, 9); os.killpg(group.pid, 15); session.wait(), group.wait()") == "(-9, -15)"
