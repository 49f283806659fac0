"""A3: children with pipes, pools idle and busy, joblib's workers."""

from __future__ import annotations

import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]


def test_a_child_with_pipes(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import os, subprocess\n"
        "script = 'n=0; while read l; do n=$((n+1)); echo $n:$0:$l; done'\n"
        "pipe = subprocess.PIPE; token = os.urandom(8).hex()\n"
        "child = subprocess.Popen(['sh', '-c', script, token], stdin=pipe, stdout=pipe, text=True)\n"
        "def say(word):\n"
        "    child.stdin.write(word + '\\n'); child.stdin.flush(); return child.stdout.readline().strip()"
    )
    first = kernel.run("print(say('a'))").split(":")
    number = 1

    def check() -> None:
        nonlocal number
        number += 1
        assert kernel.run("print(say('b'))") == f"{number}:{first[1]}:b"
        assert kernel.run("child.poll() is None") == "True"

    def end() -> None:
        assert kernel.run("child.kill(); child.wait()") == "-9"

    survives(check, end=end)


def test_pools_idle_and_busy(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import multiprocessing as mp, time\n"
        "context = mp.get_context('fork')\n"
        "def slow(n):\n"
        "    time.sleep(.02); return n * n\n"
        "idle, busy = context.Pool(2), context.Pool(2)\n"
        "idle.map(abs, [-1, -2]); result = busy.map_async(slow, range(200), chunksize=1); time.sleep(.2)"
    )

    def check() -> None:
        assert kernel.run("result.get(60) == [n * n for n in range(200)]") == "True"
        assert kernel.run("idle.map_async(abs, [-3, -4]).get(20)") == "[3, 4]"
        kernel.run("result = busy.map_async(slow, range(200), chunksize=1); time.sleep(.2)")

    # An interrupt goes to the pools' workers too and kills some that hold a lock: Python, with or without a restore.
    survives(check, end=lambda: kernel.run("[(pool.terminate(), pool.join()) for pool in (idle, busy)]"))


def test_joblib_workers(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import operator; from joblib import Parallel, delayed; from joblib.externals.loky import reusable_executor\n"
        "def neg(numbers):\n"
        "    return Parallel(n_jobs=2)(delayed(operator.neg)(n) for n in numbers)"
    )
    assert kernel.run("neg(range(4))") == "[0, -1, -2, -3]"
    workers = kernel.run("sorted(reusable_executor._executor._processes)")

    def check() -> None:
        assert kernel.run("sorted(reusable_executor._executor._processes)") == workers
        assert kernel.run("neg(range(4))") == "[0, -1, -2, -3]"

    survives(check, end=lambda: kernel.run("reusable_executor._executor.shutdown(wait=True)"))
