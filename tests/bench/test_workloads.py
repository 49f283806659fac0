"""Workloads of the bench, for the peer `perdure`: each must come out right."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import run
import suite

HERE = ("w01", "w01b", "w05b", "w10", "w13")
"""Those that hold what nobody else can save; `run.py` does them all."""

pytestmark = [
    pytest.mark.criu,
    pytest.mark.slow,
    pytest.mark.skipif(suite.folder() is None, reason="needs the bench: PERDURE_BENCH names its folder"),
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short: a socket's path has room for 107 characters."""
    path = Path(tempfile.mkdtemp(prefix="perdure-bench-"))
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("workload", HERE)
def test_workload(workload: str, folder: Path) -> None:
    result = run.run("perdure", workload, folder)
    assert result.get("error") is None
    assert result["saved"], result["note"]
    assert result["restored"]
    assert result["failed"] == {}
    assert result["correct"] is True
    assert list((folder / "run").iterdir()) == []
