"""A process that publishes, drops or collects, and dies at the n-th change that it makes to the file system.

Reads lines `REPOSITORY VERB N` on stdin; for each, forks a child that kills itself before system call N (of those that change a
file, counted from 1), and answers `killed` or `done`. One process for all, since importing takes longer than the work.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perdure.domain.ids import KernelId
from perdure.store import pack, waste
from perdure.store.repository import Repository, SourceFile

NOW = 1_800_000_000
CHANGES = ("open", "write", "fsync", "link", "rename", "unlink", "mkdir", "rmdir")


def die_at(number: int) -> None:
    """The process ends right before its `number`-th change."""
    count = 0

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            if name != "open" or args[1] & os.O_CREAT:
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapper

    for name in CHANGES:
        setattr(os, name, counting(name, getattr(os, name)))


def work(url: str, verb: str) -> None:
    repository = Repository.open(url)
    kernel = KernelId("kernel-1")
    if verb == "drop":
        repository.drop(kernel)
        return
    if verb == "collect":
        repository.collect(kernel, gone=repository.generations(kernel)[:-1], now=NOW, grace_s=0, take_over=True)
        return
    sources = [SourceFile(path.name, path, 0o600) for path in sorted(Path(sys.argv[1]).iterdir())]
    repository.publish(kernel, sources, lambda _: {})


def main() -> None:
    pack.FULL = 100_000
    waste.SAVED_FLOOR = 0
    for line in sys.stdin:
        url, verb, number = line.split()
        child = os.fork()
        if child == 0:
            die_at(int(number))
            work(url, verb)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print("killed" if killed else "done" if status == 0 else f"failed {status}", flush=True)


if __name__ == "__main__":
    main()
