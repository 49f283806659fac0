"""A real agent that keeps the snapshots of a real kernel in a bucket."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from perdure.cli import main
from perdure.domain.errors import StoreFailed
from perdure.store.repository import Repository
from perdure.store.settings import StoreSettings

from tests.functional.agent.workplace import LiveKernel, Workplace
from tests.s3.proxy import Proxy, answer

pytestmark = [pytest.mark.root, pytest.mark.criu, pytest.mark.slow]


@pytest.fixture
def kernel(url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveKernel]:
    monkeypatch.setenv("PERDURE_S3_ENDPOINT", proxy.endpoint)
    monkeypatch.setenv("PERDURE_S3_PATH_STYLE", "1")
    workplace = Workplace()
    try:
        workplace.start_agent("--repository", url)
        yield workplace.kernel()
    finally:
        workplace.close()


def test_a_kernel_comes_back_from_a_bucket(
    kernel: LiveKernel, url: str, settings: StoreSettings, proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel.run("x = 41")
    kernel.until(lambda status: status.last_snapshot)
    kernel.run("x = 42")

    proxy.fail(answer(400, "ExpiredToken"), times=1000)
    with pytest.raises(StoreFailed):
        kernel.snapshot()
    assert kernel.run("print(x)") == "42"

    proxy.faults = []
    kernel.snapshot()
    kernel.run("x = 43")
    kernel.die()
    kernel.back(1)
    assert kernel.run("print(x)") == "42"

    own = f"{url}/{os.geteuid()}"
    assert Repository.open(own, create=False, settings=settings).kernels() == [kernel.id]
    assert main(["verify", "--data", "--repository", own]) == 0
    assert "are whole" in capsys.readouterr().out
