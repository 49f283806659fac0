"""Snapshot, kill -9 of the whole tree, restore: what comes back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from live_kernel import LiveKernel
from perdure.domain.ids import Owner

pytestmark = [pytest.mark.criu, pytest.mark.root]


def again(kernel: LiveKernel) -> None:
    """Snapshot, death and restore of whatever the kernel is now."""
    snapshot = kernel.snapshot()
    kernel.kill()
    kernel.restore(snapshot)


def test_variables_come_back(kernel: LiveKernel) -> None:
    kernel.run("import os, random; random.seed(7); data = {'a': [1, 2], 'b': b'\\0' * 100_000}; alias = data['a']")
    expected = kernel.run("state = random.getstate(); n = random.random(); random.setstate(state); print(n, os.getpid())")
    snapshot = kernel.snapshot()
    kernel.run("data.clear(); alias.append(3)")
    kernel.kill()
    kernel.restore(snapshot)
    assert kernel.run("data['a'] is alias, alias, len(data['b'])") == "(True, [1, 2], 100000)"
    assert kernel.run("print(random.random(), os.getpid())") == expected


def test_a_restored_kernel_is_saved_and_restored_again(kernel: LiveKernel) -> None:
    for generation in range(1, 4):
        kernel.run(f"generation = {generation}")
        again(kernel)
        assert kernel.run("generation") == str(generation)


def test_one_image_is_restored_twice(kernel: LiveKernel) -> None:
    kernel.run("x = 1")
    snapshot = kernel.snapshot()
    for _ in range(2):
        kernel.kill()
        kernel.restore(snapshot)
        assert kernel.run("x") == "1"
        kernel.run("x = 2")


def test_a_running_cell_goes_on_and_its_output_arrives(kernel: LiveKernel) -> None:
    cell = kernel.begin("import time\nprint('begun', flush=True)\nfor i in range(40):\n    time.sleep(0.05)\nprint('done', i)")
    kernel.follow(cell, lambda one: "begun" in "".join(one.outputs))
    snapshot = kernel.snapshot()
    kernel.kill()
    kernel.restore(snapshot)
    assert kernel.finish(cell).splitlines() == ["begun", "done 39"]


def test_interrupt_and_input_work_after_a_restore(kernel: LiveKernel) -> None:
    again(kernel)
    cell = kernel.begin(
        "import time\nprint('in', flush=True)\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('out')"
    )
    kernel.follow(cell, lambda one: "in" in "".join(one.outputs))
    kernel.interrupt()
    assert kernel.finish(cell).splitlines() == ["in", "out"]
    cell = kernel.begin("print(input('?') * 2)", allow_stdin=True)
    assert kernel.client.get_stdin_msg(timeout=20)["msg_type"] == "input_request"
    kernel.client.input("ab")
    assert kernel.finish(cell) == "abab"


def test_processes_with_pipes_come_back(kernel: LiveKernel) -> None:
    kernel.run(
        "import subprocess, multiprocessing as mp\n"
        "cat = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "cat.stdin.write(b'early\\n'); cat.stdin.flush()\n"
        "pool = mp.get_context('fork').Pool(2); print(pool.map(abs, [-1, -2]))"
    )
    again(kernel)
    assert kernel.run("cat.stdin.write(b'late\\n'); cat.stdin.flush(); print(cat.stdout.readline(), cat.stdout.readline())") == (
        "b'early\\n' b'late\\n'"
    )
    assert kernel.run("pool.map(abs, [-3, -4])") == "[3, 4]"
    again(kernel)
    assert kernel.run("pool.map(abs, [-5]), cat.poll()") == "([5], None)"


def test_a_child_of_another_owner_keeps_its_credentials(start_kernel: Callable[..., LiveKernel]) -> None:
    kernel = start_kernel(owner=Owner(65534, 65534, (65534, 1000)))
    who = (
        "import os; print(os.getresuid(), os.getresgid(), sorted(os.getgroups()), "
        "open('/proc/self/status').read().split('CapEff:')[1].split()[0])"
    )
    before = kernel.run(who)
    assert before.startswith("(65534, 65534, 65534) (65534, 65534, 65534) [1000, 65534] 0000000000000000")
    for _ in range(2):
        again(kernel)
        assert kernel.run(who) == before


def test_what_the_kernel_prints_by_itself_reaches_the_log_after_a_restore(kernel: LiveKernel) -> None:
    again(kernel)
    kernel.run("import subprocess; subprocess.run(['sh', '-c', 'echo to the log >&2'])")
    assert "to the log" in kernel.log()
    again(kernel)
    kernel.run("subprocess.run(['sh', '-c', 'echo once more'])")
    assert "once more" in kernel.log()


def test_new_threads_and_processes_after_a_restore_get_numbers_that_were_free(kernel: LiveKernel) -> None:
    kernel.run(
        "import threading\nstop = threading.Event()\n"
        "threads = [threading.Thread(target=stop.wait, daemon=True) for _ in range(50)]\n"
        "for t in threads: t.start()\n"
        "ids = [t.native_id for t in threads]"
    )
    again(kernel)
    assert kernel.run("[t.native_id for t in threads] == ids, all(t.is_alive() for t in threads)") == "(True, True)"
    kernel.run("more = threading.Thread(target=stop.wait); more.start(); stop.set(); [t.join() for t in threads + [more]]")
    assert kernel.run("more.native_id in ids") == "False"


TERMINAL = """
import os, pty, select
pid, master = pty.fork()
if pid == 0:
    os.execvp({program!r}, {argv!r})
def ask(text, end):
    os.write(master, text)
    seen = b''
    while end not in seen and select.select([master], [], [], 20)[0]:
        seen += os.read(master, 4096)
    return end in seen
"""


def test_a_terminal_of_a_child_comes_back(kernel: LiveKernel) -> None:
    loop = "while read line; do echo $((line + 2)); done"
    kernel.run(TERMINAL.format(program="sh", argv=["sh", "-c", loop]))
    assert kernel.run("ask(b'40\\n', b'42')") == "True"
    for _ in range(2):
        again(kernel)
        assert kernel.run("ask(b'400\\n', b'402')") == "True"


def test_io_uring_stays_denied_after_a_restore(kernel: LiveKernel) -> None:
    ask = (
        "import ctypes, errno; c = ctypes.CDLL(None, use_errno=True)\n"
        "c.syscall(425, 4, bytes(120)), ctypes.get_errno() == errno.ENOSYS"
    )
    assert kernel.run(ask) == "(-1, True)"
    again(kernel)
    assert kernel.run(ask) == "(-1, True)"
