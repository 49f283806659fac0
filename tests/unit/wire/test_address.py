"""Where the agent is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from perdure.domain.errors import BadRequest
from perdure.wire.address import DEFAULT_SOCKET, VARIABLE, agent_address, socket_path


def test_what_is_given_counts_more_than_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert socket_path(agent_address()) == DEFAULT_SOCKET
    monkeypatch.setenv(VARIABLE, "unix:///run/mine.sock")
    assert socket_path(agent_address()) == Path("/run/mine.sock")
    assert socket_path(agent_address("unix:///run/other%20one.sock")) == Path("/run/other one.sock")


@pytest.mark.parametrize("address", ["/run/agent.sock", "unix://agent.sock", "unix:agent.sock", "http://127.0.0.1:80", "unix://"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(BadRequest):
        socket_path(address)
