"""What a test run left behind: processes, mounts, shared memory, files of a system-wide agent."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

MARK = "PERDURE_TEST_RUN"
"""An environment variable that everything started by this run inherits, unless it clears its environment."""
_OUR_PROGRAMS = ("perdure-shim", "perdure-shadow", "criu")
_FOLDERS = (Path("/dev/shm"), Path("/run/perdure"), Path("/var/lib/perdure"), Path("/var/lib/perdure/kernels"))


@dataclass
class Litter:
    """`ours` fails the run. `unsure` is new but may belong to another program on the machine, or to another run of the
    tests; with CI set nobody else is there, so that everything is ours."""

    mark: str
    before_processes: set[tuple[int, str]]
    before_mounts: set[str]
    before_files: set[str]
    ours: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)

    @classmethod
    def start(cls) -> Litter:
        mark = os.environ.setdefault(MARK, secrets.token_hex(8))
        return cls(mark, {(pid, born) for pid, born, _ in _processes()}, _mounts(), _files())

    def look(self, basetemp: Path | None) -> None:
        """Compare with the start. Called once, when all fixtures are gone."""
        alone = bool(os.environ.get("CI"))
        me = _ancestors()
        for pid, born, args in _processes():
            if (pid, born) in self.before_processes or pid in me:
                continue
            sure = self._marked(pid) or (basetemp is not None and str(basetemp) in args)
            if sure or _is_our_program(args):
                (self.ours if sure or alone else self.unsure).append(f"process {pid}: {' '.join(args.split())[:300]}")
        for what, new in (("mount", _mounts() - self.before_mounts), ("file", _files() - self.before_files)):
            for name in sorted(new):
                sure = alone or (basetemp is not None and str(basetemp) in name)
                (self.ours if sure else self.unsure).append(f"{what} {name}")

    def _marked(self, pid: int) -> bool:
        try:
            return f"{MARK}={self.mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False


def _processes() -> list[tuple[int, str, str]]:
    """(pid, start time in ticks, command line); zombies and kernel threads have no command line and are left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            args = entry.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            born = entry.joinpath("stat").read_text().rpartition(")")[2].split()[19]
        except (OSError, IndexError):
            continue
        if args:
            found.append((int(entry.name), born, args))
    return found


def _ancestors() -> set[int]:
    pids, pid = set(), os.getpid()
    while pid > 1:
        pids.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return pids


def _is_our_program(args: str) -> bool:
    words = args.split()
    return any(Path(word).name in _OUR_PROGRAMS for word in words[:3]) or "perdure agent" in args or "-m perdure" in args


def _mounts() -> set[str]:
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def _files() -> set[str]:
    found = set()
    for folder in _FOLDERS:
        try:
            found |= {str(path) for path in folder.iterdir()}
        except OSError:
            continue
    return found
