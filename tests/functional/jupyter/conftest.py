"""Kernels through Jupyter's own managers."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.functional.jupyter.agents import Agent
from tests.functional.jupyter.live import Live, specs
from tests.functional.jupyter.registered import register
from tests.functional.jupyter.served import Server

Start = Callable[..., Awaitable[Live]]


@pytest.fixture(scope="session")
def python_path(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return register(tmp_path_factory.mktemp("registered"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short (a unix socket's path has room for 107 characters) and open to every user."""
    found = Path(tempfile.mkdtemp(prefix="perdure-jup-"))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found, ignore_errors=True)


@pytest.fixture
def env(folder: Path, python_path: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of the kernels and of this process: nobody's own IPython, no agent."""
    ours = {
        **python_path,
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "PERDURE_AGENT": f"unix://{folder}/nobody.sock",
        "PERDURE_STATE": str(folder / "state"),
    }
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    return {**os.environ, **ours}


@pytest_asyncio.fixture
async def start(folder: Path, env: dict[str, str]) -> AsyncIterator[Start]:
    """start(spec, **traits of the kernel manager): a kernel that is ended with the test."""
    manager = specs(folder / "kernels")
    started: list[Live] = []

    async def starter(spec: str, **traits: Any) -> Live:
        live = Live(folder, spec, manager, env, **traits)
        started.append(live)
        return await live.start()

    yield starter
    for live in started:
        await live.close()


@pytest.fixture
def agent(folder: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """Requested before `start`, so that kernels end first."""
    ours = Agent(folder)
    env["PERDURE_AGENT"] = f"unix://{ours.socket}"
    monkeypatch.setenv("PERDURE_AGENT", env["PERDURE_AGENT"])
    yield ours.start()
    ours.close()


@pytest_asyncio.fixture
async def server(folder: Path, env: dict[str, str]) -> AsyncIterator[Server]:
    """Its kernel specs are those of `live.specs`."""
    specs(folder / "kernels")
    ours = Server(folder, env)
    yield await ours.start()
    await ours.close()
