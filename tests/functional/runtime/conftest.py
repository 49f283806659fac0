"""Sandboxes that are gone at the end of their test, whatever the test did."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from perdure.domain.ids import Owner
from perdure.runtime.sandbox import LaunchSpec, Sandbox

Starter = Callable[..., Sandbox]


def _inside(shim_namespace: str) -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/ns/pid") == shim_namespace and Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
        except OSError:
            continue
    return found


@pytest.fixture
def keep() -> Iterator[Callable[[Sandbox], Sandbox]]:
    """Register a sandbox: it is killed at the end, and the test fails when something of it stays."""
    kept: list[tuple[Sandbox, str]] = []

    def register(sandbox: Sandbox) -> Sandbox:
        try:
            namespace = os.readlink(f"/proc/{sandbox.shim.pid}/ns/pid")
        except FileNotFoundError:
            namespace = "ended already"
        kept.append((sandbox, namespace))
        return sandbox

    yield register
    for sandbox, _ in kept:
        sandbox.kill()
    assert [_inside(namespace) for _, namespace in kept] == [[] for _ in kept]


@pytest.fixture
def start(tmp_path: Path, keep: Callable[[Sandbox], Sandbox]) -> Starter:
    """Start a command as root, in tmp_path/sandbox."""

    def starter(*argv: str, folder: str = "sandbox", owner: Owner | None = None, **options: bool) -> Sandbox:
        spec = LaunchSpec(argv, {"PATH": os.environ["PATH"]}, "/", owner or Owner(0, 0))
        return keep(Sandbox.start(tmp_path / folder, spec, **options))

    return starter
