"""What "survives" means, once for all cases."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from live_kernel import CellFailed, LiveKernel

Check = Callable[[], object]
Survives = Callable[..., None]


@pytest.fixture
def survives(kernel: LiveKernel) -> Survives:
    """survives(check): snapshot, `change` something, signal 9 for the whole tree, restore, `check`; all of it once more with the
    restored kernel; `end` what must not feel an interrupt; then the kernel executes, is interrupted and answers input()."""

    def run(check: Check, change: Check = lambda: None, end: Check = lambda: None) -> None:
        for _ in range(2):
            snapshot = kernel.snapshot()
            change()
            kernel.kill()
            kernel.restore(snapshot)
            check()
        end()
        still_a_kernel(kernel)

    return run


@pytest.fixture(name="still_a_kernel")
def still_a_kernel_fixture() -> Callable[[LiveKernel], None]:
    return still_a_kernel


def still_a_kernel(kernel: LiveKernel) -> None:
    """It executes, is interrupted, answers input()."""
    assert kernel.run("6 * 7") == "42"
    cell = kernel.begin("import time\nprint('in', flush=True)\ntime.sleep(600)")
    kernel.follow(cell, lambda one: "in" in "".join(one.outputs))
    kernel.interrupt()
    with pytest.raises(CellFailed) as caught:
        kernel.finish(cell)
    assert caught.value.args[0] == "KeyboardInterrupt"
    cell = kernel.begin("print(input('?') * 2)", allow_stdin=True)
    assert kernel.client.get_stdin_msg(timeout=20)["msg_type"] == "input_request"
    kernel.client.input("ab")
    assert kernel.finish(cell) == "abab"


@pytest.fixture(autouse=True)
def live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases are saved as the agent saves kernels where it can. PERDURE_TEST_ENGINE=classic runs them with the other engine."""
    monkeypatch.setenv("PERDURE_TEST_ENGINE", os.environ.get("PERDURE_TEST_ENGINE", "live"))
