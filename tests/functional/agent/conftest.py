"""A workplace per test, and a look at what stayed behind when it is over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional.agent.workplace import LiveKernel, Workplace


@pytest.fixture
def workplace() -> Iterator[Workplace]:
    place = Workplace()
    yield place
    place.close()


@pytest.fixture
def agent(workplace: Workplace) -> Workplace:
    """A workplace whose agent runs."""
    workplace.start_agent()
    return workplace


@pytest.fixture
def kernel(agent: Workplace) -> LiveKernel:
    """With nothing in it but `x`, and the snapshot after its first cell behind it."""
    live = agent.kernel()
    live.run("x = 41")
    live.until(lambda status: status.last_snapshot)
    live.run("x = 42")
    return live
