"""A11: a cell runs at the snapshot. It goes on, and its output and its reply arrive at the page that sent it."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from live_kernel import Cell, CellFailed, LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]


def comes_back(kernel: LiveKernel, cell: Cell, *, times: int = 2) -> None:
    """Saved, killed and restored while the cell runs and its page listens all the time, as a Jupyter server does.

    What the kernel sent up to the snapshot has arrived before it is killed: only a kernel that dies within milliseconds takes
    some of that along.
    """
    for _ in range(times):
        snapshot = kernel.snapshot()
        kernel.settle()
        kernel.kill()
        kernel.settle = lambda timeout=0.0: None  # type: ignore[method-assign]
        try:
            with ThreadPoolExecutor(1) as pool:
                restored = pool.submit(kernel.restore, snapshot)
                kernel.follow(cell, lambda _, done=restored.done: done())
            restored.result()
        finally:
            del kernel.settle
        kernel.settle()


@pytest.mark.parametrize(
    ("code", "output"),
    [
        (
            "total = 0\nfor n in range(3_000):\n    total += n; time.sleep(.001)\n    if n % 1000 == 0: print(n)\nprint(total)",
            ["0", "1000", "2000", str(sum(range(3000)))],
        ),
        ("print(sum(n % 7 for n in range(28_000_000)))", [str(28_000_000 // 7 * 21)]),
        ("time.sleep(3); print('slept')", ["slept"]),
        ("print(np.isfinite(np.linalg.svd(matrix, compute_uv=False).sum()))", ["True"]),
    ],
    ids=["loop", "computing", "sleep", "numpy"],
)
def test_a_cell_goes_on(kernel: LiveKernel, still_a_kernel, code: str, output: list[str]) -> None:  # type: ignore[no-untyped-def]
    kernel.run("import time, numpy as np; matrix = np.random.default_rng(1).random((2500, 2500))")
    cell = kernel.begin("print('begun', flush=True)\n" + code)
    kernel.follow(cell, lambda one: "begun" in "".join(one.outputs))
    comes_back(kernel, cell)
    assert cell.reply is None, "it was over before it was tested"
    assert list(dict.fromkeys(kernel.finish(cell, timeout=120).split())) == ["begun", *output]  # some arrives twice: both lives
    still_a_kernel(kernel)


def asks(kernel: LiveKernel) -> Cell:
    """A cell that waits for input. A new kernel's stdin channel may not be connected yet: its question is lost then."""
    for _ in range(10):
        cell = kernel.begin("answer = input('name? '); print('hello', answer)", allow_stdin=True)
        try:
            assert kernel.client.get_stdin_msg(timeout=3)["content"]["prompt"] == "name? "
        except queue.Empty:
            kernel.interrupt()
            with pytest.raises(CellFailed):
                kernel.finish(cell)
        else:
            return cell
    raise TimeoutError("no question came")


def test_an_input_that_waits(kernel: LiveKernel, still_a_kernel) -> None:  # type: ignore[no-untyped-def]
    cell = asks(kernel)
    comes_back(kernel, cell)
    kernel.client.input("Ada")
    assert kernel.finish(cell) == "hello Ada"
    still_a_kernel(kernel)


@pytest.fixture
def silent_peer() -> Iterator[int]:
    """Port of a server outside the kernel that accepts and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_read_from_a_connection_inside(kernel: LiveKernel, still_a_kernel) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import socket, threading; listener = socket.create_server(('127.0.0.1', 0))\n"
        "client = socket.create_connection(listener.getsockname()); served, _ = listener.accept()\n"
        "def later():\n"
        "    import time; time.sleep(3); served.sendall(b'late')"
    )
    cell = kernel.begin("print('in', flush=True); threading.Thread(target=later).start(); print(client.recv(100))")
    kernel.follow(cell, lambda one: "in" in "".join(one.outputs))
    comes_back(kernel, cell)
    assert kernel.finish(cell).split() == ["in", "b'late'"]
    still_a_kernel(kernel)


def test_a_read_from_a_connection_to_the_outside_ends(kernel: LiveKernel, silent_peer: int, still_a_kernel) -> None:  # type: ignore[no-untyped-def]
    """The connection is gone: the read says so, instead of waiting for ever."""
    cell = kernel.begin(
        f"import socket; peer = socket.create_connection(('127.0.0.1', {silent_peer})); print('in', flush=True)\n"
        "try:\n    print('end' if peer.recv(100) == b'' else 'data')\nexcept OSError:\n    print('error')"
    )
    kernel.follow(cell, lambda one: "in" in "".join(one.outputs))
    comes_back(kernel, cell, times=1)
    assert kernel.finish(cell).split()[1] in ("end", "error")
    still_a_kernel(kernel)


def test_a_running_cell_can_be_interrupted_after_the_restore(kernel: LiveKernel) -> None:
    cell = kernel.begin("import time; print('in', flush=True); time.sleep(600)")
    kernel.follow(cell, lambda one: "in" in "".join(one.outputs))
    comes_back(kernel, cell)
    kernel.interrupt()
    with pytest.raises(CellFailed) as caught:
        kernel.finish(cell)
    assert caught.value.args[0] == "KeyboardInterrupt"
    assert kernel.run("1 + 1") == "2"
