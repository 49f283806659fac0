"""Kernels of other languages: what "survives" and "is interrupted" mean for all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from live_kernel import CellFailed, LiveKernel

Check = Callable[[], object]
Survives = Callable[[LiveKernel, Check, Check], None]
IsInterrupted = Callable[[LiveKernel, str], None]


@pytest.fixture
def survives() -> Survives:
    """survives(kernel, check, change): snapshot, `change` something, signal 9 for the whole tree, restore, `check`; all of it
    once more with the restored kernel."""

    def run(kernel: LiveKernel, check: Check, change: Check) -> None:
        for _ in range(2):
            snapshot = kernel.snapshot()
            change()
            kernel.kill()
            kernel.restore(snapshot)
            check()

    return run


@pytest.fixture
def is_interrupted() -> IsInterrupted:
    """is_interrupted(kernel, code): `code` prints "in" and waits for ever; an interrupt ends it and not the kernel."""

    def run(kernel: LiveKernel, code: str) -> None:
        cell = kernel.begin(code)
        kernel.follow(cell, lambda one: "in" in "".join(one.outputs))
        kernel.interrupt()
        with pytest.raises(CellFailed):
            kernel.finish(cell)

    return run
