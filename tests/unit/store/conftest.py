"""Fixtures of the store's tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from perdure.store import pack, waste

from tests.unit.store.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that a few blocks fill one, and that rewriting one is always worth it."""
    monkeypatch.setattr(pack, "FULL", 100_000)
    monkeypatch.setattr(waste, "SMALL", 0)
    monkeypatch.setattr(waste, "SAVED_FLOOR", 0)


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes file systems of a given size in bytes; unmounted at the end."""
    mounted: list[Path] = []

    def make(size: int) -> Path:
        path = tmp_path / f"tmpfs-{len(mounted)}"
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "perdure-test", path], check=True)
        mounted.append(path)
        return path

    try:
        yield make
    finally:
        for path in mounted:
            subprocess.run(["umount", path], check=True)
