"""Real kernels for every test below: `kernel` (root's), `start_kernel` for others."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live_kernel import LiveKernel

pytest.register_assert_rewrite("health")


@pytest.fixture
def kernel_folder() -> Iterator[Path]:
    """Short and open to every user: pytest's own folders are neither."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def start_kernel(kernel_folder: Path) -> Iterator[Callable[..., LiveKernel]]:
    """start_kernel(**LiveKernel's arguments): a kernel that is ended with the test."""
    started: list[LiveKernel] = []

    def start(**arguments: Any) -> LiveKernel:
        folder = kernel_folder / str(len(started))
        folder.mkdir()
        started.append(LiveKernel(folder, **arguments))
        return started[-1]

    yield start
    for kernel in started:
        kernel.close()


@pytest.fixture
def kernel(start_kernel: Callable[..., LiveKernel]) -> LiveKernel:
    return start_kernel()
