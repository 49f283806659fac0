"""Implementations that the contract suites run over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from perdure.store.backend import Backend
from perdure.store.local import LocalBackend


def _local(folder: Path) -> Backend:
    root = folder / "repository"
    root.mkdir(exist_ok=True)
    return LocalBackend(root)


BACKENDS: dict[str, Callable[[Path], Backend]] = {"local": _local}
"""Each gives a backend on the same objects whenever it is called with the same folder."""


@pytest.fixture(params=sorted(BACKENDS))
def open_backend(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Backend]:
    return lambda: BACKENDS[request.param](tmp_path)


@pytest.fixture
def backend(open_backend: Callable[[], Backend]) -> Backend:
    return open_backend()
