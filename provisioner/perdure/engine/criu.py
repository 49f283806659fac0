"""Which CRIU: found, asked what it can do, given a clean surrounding.

Distributions ship a CRIU that is too old for today's kernels (they fail from Linux 6.16 on, in ways that look like bugs of the
dumped program), so a good one mostly sits in a private prefix where `perdure engine install` put it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from perdure.domain.errors import NotProtected

LEAST = (4, 2, 0)
"""Older ones don't know this kernel generation's guard pages, and their check doesn't tell."""
FEATURES = ("pagemap_scan", "clone3_set_tid", "get_rseq_conf", "kcmp_epoll", "seccomp_suspend", "seccomp_filters")
"""What a dump or a restore of a kernel can't do without: pids of our choice, rseq, epoll sets, the sandbox's own filter."""
PREFIXES = ("/opt/perdure/criu", "~/.local/share/perdure/criu", "/var/lib/perdure/criu", "/usr/local/lib/perdure/criu")
_NO_PLUGINS = "/proc/sys/vm"
"""A folder that is everywhere and never has a plugin in it; CRIU wants one that exists."""
_CAP_SYS_RESOURCE = 24
_INSTALL_HINT = "`perdure engine install` puts a good one into a private folder."
_ANSWER_S = 20


@dataclass(frozen=True)
class Criu:
    """A CRIU that is good enough."""

    path: Path
    version: tuple[int, int, int]

    @property
    def name(self) -> str:
        return ".".join(str(part) for part in self.version)


def find(prefix: Path | None = None) -> Criu:
    """The first good CRIU: PERDURE_CRIU (a program; nothing else is tried when it is set), `prefix`, the private prefixes, PATH.

    Raises NotProtected with what was found and why it won't do.
    """
    refusals: list[str] = []
    for path in candidates(prefix):
        try:
            return examine(path)
        except NotProtected as error:
            refusals.append(f"{path}: {error.sentence}")
    if not refusals:
        raise NotProtected("There is no CRIU on this machine.", hint=_INSTALL_HINT)
    raise NotProtected(f"No CRIU on this machine is good enough: {refusals[0]}", hint=_INSTALL_HINT, detail="\n".join(refusals))


def environment_prefix() -> Path:
    """Where `perdure engine install` puts CRIU: into the environment that Perdure itself is installed in."""
    return Path(sys.prefix) / "share" / "perdure" / "criu"


def candidates(prefix: Path | None = None) -> Iterator[Path]:
    """Programs worth asking, best first."""
    told = os.environ.get("PERDURE_CRIU")
    if told:
        yield Path(told)
        return
    seen: set[Path] = set()
    folders = [prefix] if prefix else []
    folders += [environment_prefix(), *(Path(folder).expanduser() for folder in PREFIXES)]
    for path in [*(folder / "criu" for folder in folders), *(Path(found) for found in [shutil.which("criu")] if found)]:
        if path not in seen and os.path.isfile(path):  # unlike Path.is_file, no error where a folder above is closed to us
            seen.add(path)
            yield path


def examine(path: Path) -> Criu:
    """Asks the program. Raises NotProtected when it is not a CRIU, too old, or can't work on this kernel."""
    try:
        status = path.stat()
    except OSError as error:
        raise NotProtected(f"{path} can't be read: {error.strerror}.", hint=_INSTALL_HINT) from error
    return _examine(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _examine(path: Path, _mtime_ns: int, _size: int) -> Criu:
    answer = _ask(path, "--version")
    found = re.search(r"Version:\s*(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    if answer.returncode or not found:
        raise NotProtected("It is not a CRIU that runs here.", hint=_INSTALL_HINT, detail=answer.stdout + answer.stderr)
    criu = Criu(path, (int(found[1]), int(found[2]), int(found[3] or 0)))
    if criu.version < LEAST:
        least = ".".join(str(part) for part in LEAST[:2])
        raise NotProtected(f"CRIU {criu.name} is too old, {least} is the oldest that works.", hint=_INSTALL_HINT)
    if os.geteuid() == 0:
        missing = [feature for feature in FEATURES if _ask(path, "check", "--feature", feature).returncode]
        if missing:
            raise NotProtected(
                f"This machine lacks what CRIU needs: {', '.join(missing)}.",
                hint="A newer Linux kernel, or more capabilities for a container, mend that.",
                detail=(lambda check: check.stdout + check.stderr)(_ask(path, "check")),
            )
    return criu


def environment() -> dict[str, str]:
    """CRIU's whole environment. Nobody's settings reach it, and its CUDA plugin stays out: Perdure drives the GPU itself."""
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/nonexistent", "CRIU_LIBS_DIR": _NO_PLUGINS}


def preload() -> Path | None:
    """The library that reads another user's limits for CRIU where CAP_SYS_RESOURCE is missing; None where it isn't needed."""
    if _has_capability(_CAP_SYS_RESOURCE):
        return None
    library = Path(str(files("perdure") / "bin" / "perdure-criu-preload.so"))
    return library if library.is_file() else None


def _has_capability(number: int) -> bool:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return bool(found and int(found[1], 16) >> number & 1)


def _ask(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(path), *arguments]
    try:
        return subprocess.run(
            command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer within {_ANSWER_S} s")
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))
