"""A17: a cluster whose processes talk to each other over TCP, all of them below the kernel."""

from __future__ import annotations

import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]


def test_a_dask_cluster(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    """Work goes on at the worker that did it before, with what it holds in its memory."""
    kernel.run(
        "import os\n"
        "from distributed import Client, LocalCluster\n"
        "cluster = LocalCluster(n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None,\n"
        "    local_directory=os.getcwd())\n"
        "client = Client(cluster)\n"
        "def make():\n"
        "    return os.getpid(), os.urandom(8)\n"
        "def slow(n):\n"
        "    import time; time.sleep(1); return n * n\n"
        "kept = client.submit(make, pure=False); facts = lambda: client.submit(lambda one: one, kept, pure=False).result(20)"
    )
    facts = kernel.run("facts()")
    assert kernel.run("facts()[0] == os.getpid()") == "False"
    kernel.run("running = client.map(slow, range(4), pure=False)")

    def check() -> None:
        assert kernel.run("facts()") == facts
        assert kernel.run("client.gather(running)") == "[0, 1, 4, 9]"
        assert kernel.run("client.status, [len(client.scheduler_info()['workers'])]") == "('running', [1])"
        kernel.run("running = client.map(slow, range(4), pure=False)")

    def end() -> None:
        kernel.run("client.close(); cluster.close()")

    survives(check, end=end)
