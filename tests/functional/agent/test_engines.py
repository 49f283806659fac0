"""Which engine a snapshot is taken with, and that an encrypted one comes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from perdure.cli import main
from perdure.domain.errors import NotLive
from perdure.wire.messages import GenerationInfo

from tests.functional.agent.workplace import QUIET, LiveKernel, Workplace

pytestmark = [pytest.mark.root, pytest.mark.criu]

_SUBREAPER = "import ctypes; assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0"


def _newest(kernel: LiveKernel) -> GenerationInfo:
    kernel.snapshot()
    info = kernel.status().last_snapshot
    assert info is not None
    return info


def test_live_where_it_works_and_classic_with_the_reason(agent: Workplace) -> None:
    kernel = agent.kernel()
    kernel.run("x = 1")
    info = _newest(kernel)
    assert (info.engine, info.warnings) == ("live", ())
    assert {"check", "dump", "files", "shadows", "merge", "store", "unaccounted"} <= info.timings.keys()
    kernel.run(_SUBREAPER)
    kernel.run("x = 2")
    info = _newest(kernel)
    assert info.engine == "classic"
    assert "SUBREAPER" in " ".join(info.warnings)
    kernel.run("x = 3")
    kernel.die()
    kernel.back(1)
    assert kernel.run("print(x)") == "2"


def test_as_the_policy_says(agent: Workplace) -> None:
    kernel = agent.kernel(policy=replace(QUIET, engine="classic"))
    kernel.run("x = 1")
    info = _newest(kernel)
    assert (info.engine, info.warnings) == ("classic", ())
    kernel = agent.kernel(policy=replace(QUIET, engine="live", only_when_asked=True))
    kernel.run(_SUBREAPER)
    with pytest.raises(NotLive):
        kernel.snapshot()
    assert kernel.run("print(1 + 1)") == "2"


def test_an_encrypted_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "correct-horse-battery-staple"
    assert main(["key", "new", str(tmp_path / "key")]) == 0
    monkeypatch.setenv("PERDURE_KEY_FILE", str(tmp_path / "key"))
    workplace = Workplace()
    try:
        workplace.start_agent("--repository", (tmp_path / "repository").as_uri())
        kernel = workplace.kernel()
        kernel.run(f"word = '{secret}'")
        kernel.snapshot()
        kernel.die()
        kernel.back(1)
        assert kernel.run("print(word)") == secret
        stored = [path for path in (tmp_path / "repository").rglob("*") if path.is_file()]
        assert len(stored) > 3
        assert not [path for path in stored if secret.encode() in path.read_bytes()]
    finally:
        workplace.close()
