"""What all kernels of an agent share."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from perdure.domain.errors import Forbidden, NotProtected
from perdure.domain.ids import KernelId, Owner
from perdure.engine import criu as engine_criu
from perdure.engine.criu import Criu
from perdure.store.repository import Repository
from perdure.store.settings import DEFAULTS, StoreSettings

T = TypeVar("T")

MOST_AT_ONCE = 2
"""Snapshots that run at the same time, and restores: each reads or writes as fast as the disk does. Restores don't queue behind
snapshots: somebody waits for them."""
_THREADS = 64
"""Calls that wait (a sandbox's end, a restore's proof) must not keep others from starting."""


class SystemClock:
    """The machine's clocks, in seconds."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> float:
        return time.time()


@dataclass
class Host:
    """This machine, as the agent uses it. `state` is the agent's own folder, root's alone."""

    state: Path
    criu_prefix: Path | None = None
    repository: str = ""
    """Where snapshots go whose owner named no repository; empty: a folder per owner below `state`."""
    store: StoreSettings = DEFAULTS
    """How any repository is reached."""
    allowed_repositories: tuple[str, ...] = ()
    """Addresses that callers other than root may name; each owner gets a folder of the own in it."""
    die_with_agent: bool = False
    clock: SystemClock = field(default_factory=SystemClock)
    name: str = field(default_factory=socket.gethostname)

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="perdure")
        self.snapshot_slots = asyncio.Semaphore(MOST_AT_ONCE)
        self.restore_slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def blocking(self, call: Callable[[], T]) -> T:
        """The call's result, from a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def criu(self) -> Criu:
        """Raises NotProtected."""
        return engine_criu.find(self.criu_prefix)

    def folder(self, kernel: KernelId) -> Path:
        return self.state / "kernels" / kernel

    def default_repository(self, owner: Owner) -> str:
        base = self.repository or (self.state / "repository").as_uri()
        return f"{base.rstrip('/')}/{owner.uid}"

    def repository_for(self, asked: str | None, owner: Owner, caller_uid: int) -> str:
        """The repository that a caller's kernel gets.

        The agent reads and writes it as root, and restores from it what becomes a process: so a folder that others can write
        must be allowed by the administrator, not by whoever asks. Raises Forbidden.
        """
        default = self.default_repository(owner)
        if not asked or asked == default:
            return default
        if caller_uid == os.geteuid():
            return asked
        for one in self.allowed_repositories:
            own = f"{one.rstrip('/')}/{owner.uid}"
            if asked.rstrip("/") in (one.rstrip("/"), own):
                return own
        raise Forbidden(
            f"This agent does not keep snapshots at {asked} for you.",
            hint=f"Leave the repository out to use {default}, or have an administrator add it to AgentApp.allowed_repositories.",
        )

    def open_repository(self, url: str) -> Repository:
        """Raises StoreFailed, NewerFormat, NoRoom."""
        return Repository.open(url, settings=self.store)

    def why_unprotected(self) -> NotProtected | None:
        """None where CRIU is good enough."""
        try:
            self.criu()
        except NotProtected as error:
            return error
        return None
