"""Runs the real perdure-shim and looks at what it made, from outside and from inside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
DEADLINE_S = 30.0
NOBODY = 65534


def until(ask: Callable[[], T], what: str = "it") -> T:
    """The first true answer; fails when there is none before the deadline."""
    end = time.monotonic() + DEADLINE_S
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < end, f"{what} did not happen within {DEADLINE_S} s"
        time.sleep(0.005)


def namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def in_namespace(name: str | None) -> list[int]:
    """Host pids of everybody in a PID namespace. A zombie that its parent outside has yet to reap is left out."""
    pids = [int(pid) for pid in os.listdir("/proc") if pid.isdigit()]
    return [pid for pid in pids if name and namespace(pid) == name and not gone(pid)]


def mentioning(text: str) -> list[str]:
    """Command lines of processes that mention `text` (zombies have none)."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            args = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in args and int(pid) != os.getpid():
            found.append(f"{pid} {args}")
    return found


def gone(pid: int) -> bool:
    """Ended; a zombie that its parent has yet to reap counts."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@dataclass
class Shim:
    """One sandbox of a test. `env` is the kernel's; `outer_env` what the shim itself gets."""

    program: Path
    folder: Path
    outer_env: dict[str, str]
    outer: subprocess.Popen[bytes] | None = None
    namespaces: set[str] = field(default_factory=set)

    @property
    def status_file(self) -> Path:
        return self.folder / "status"

    @property
    def log_file(self) -> Path:
        return self.folder / "kernel.log"

    def command(self, argv: Sequence[str], options: Sequence[str] = (), log: Path | None = None) -> list[str]:
        what = ["--", *argv] if argv else ["--empty"]
        return [
            str(self.program), "--status", str(self.status_file), "--log", str(log or self.log_file), *options, *what
        ]  # fmt: skip

    def start(
        self,
        *argv: str,
        options: Sequence[str] = (),
        env: dict[str, str] | None = None,
        prefix: Sequence[str] = (),
        log: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Shim:
        """Start and wait for `ready`, `error` or the end; no argv: --empty."""
        kernel_env = {"PATH": os.environ["PATH"]} if env is None else env
        read = os.memfd_create("environment")
        os.write(read, b"".join(f"{name}={value}".encode() + b"\0" for name, value in kernel_env.items()))
        os.lseek(read, 0, os.SEEK_SET)
        options = [*options, "--env-fd", str(read)] if argv else list(options)
        self.outer = subprocess.Popen(
            [*prefix, *self.command(argv, options, log)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=self.outer_env,
            pass_fds=[read, *pass_fds],
        )
        os.close(read)
        until(lambda: self.said("ready") is not None or self.said("error") is not None or self.ended(), "ready")
        if self.said("shim"):
            self.namespaces.add(namespace(self.pid) or "")
        return self

    def lines(self) -> list[str]:
        try:
            return self.status_file.read_text().splitlines()
        except FileNotFoundError:
            return []

    def said(self, word: str) -> str | None:
        """What follows a word in the status file; None when it isn't there."""
        return next((line.partition(" ")[2] for line in self.lines() if line.split(" ")[0] == word), None)

    @property
    def pid(self) -> int:
        return int(self.said("shim") or 0)

    @property
    def kernel(self) -> int:
        """Host pid of pid 1000."""
        for pid in in_namespace(namespace(self.pid)):
            try:
                text = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            if next(line for line in text.splitlines() if line.startswith("NSpid")).split()[-1] == "1000":
                return pid
        return 0

    def inside(self) -> list[int]:
        return [pid for pid in in_namespace(namespace(self.pid)) if pid != self.pid]

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def logged(self, text: str) -> str:
        """The log, once it holds `text`."""
        until(lambda: text in self.log(), f"{text!r} in the log")
        return self.log()

    def ended(self) -> bool:
        return self.outer is not None and self.outer.poll() is not None

    def wait(self) -> int:
        """Exit status of the starter."""
        assert self.outer is not None
        return self.outer.wait(DEADLINE_S)

    def stderr(self) -> str:
        """What the starter said; it must have ended or let go."""
        assert self.outer is not None
        assert self.outer.stderr is not None
        return self.outer.stderr.read().decode()

    def clean(self) -> list[str]:
        """End everything; what can't be ended is the answer."""
        pid = self.pid
        if pid and not gone(pid) and namespace(pid) in self.namespaces:
            os.kill(pid, 9)
        if self.outer is not None:
            if self.outer.poll() is None and not pid:
                self.outer.kill()
            self.outer.wait(DEADLINE_S)
            if self.outer.stderr is not None:
                self.outer.stderr.close()
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            left = mentioning(str(self.folder)) + [str(p) for name in self.namespaces for p in in_namespace(name)]
            if not left:
                return []
            time.sleep(0.01)
        return left
