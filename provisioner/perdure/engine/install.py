"""CRIU in a private prefix, through this machine's own apt, without touching the system.

apt resolves, downloads and checks signatures with its own lists and an empty package status, so that CRIU comes with every
library that it needs, libc included; the packages are only unpacked. A small script starts CRIU with that libc. Nothing is
registered, no package's scripts run, and removing the folder removes it all. Repeating it is quick and safe: a good CRIU that
is there is left alone, a new one appears whole by a rename.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perdure.domain.errors import BadRequest, NotProtected

from . import aptsources
from .criu import Criu, examine

_LOADERS = {"amd64": "ld-linux-x86-64.so.2", "arm64": "ld-linux-aarch64.so.1"}
_TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
_APT_S = 600
_UNPACK_S = 120
_BY_HAND = "Install CRIU 4.2 or newer by hand; PERDURE_CRIU names it."


def install(prefix: Path, *, suite: str | None = None) -> Criu:
    """The CRIU in `prefix`, put there if there is no good one yet. `suite`: the Debian or Ubuntu release to take it from.

    Raises NotProtected (no apt, no network, no such package, not good enough here), BadRequest (the folder is somebody else's).
    """
    prefix = prefix.absolute()
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with _alone(prefix):
        if (prefix / "criu").is_file():
            try:
                return examine(prefix / "criu")
            except NotProtected:
                pass  # it is replaced
        elif prefix.exists() and any(prefix.iterdir()):
            raise BadRequest(f"{prefix} holds something else than CRIU.", hint="Name a folder of its own.")
        with tempfile.TemporaryDirectory(prefix=f".{prefix.name}.", dir=prefix.parent) as staging:
            fresh = Path(staging) / "new"
            fresh.mkdir(mode=0o755)
            _fill(fresh, prefix, Path(staging), suite)
            _exchange(fresh, prefix, Path(staging))
    return examine(prefix / "criu")


def _fill(fresh: Path, prefix: Path, staging: Path, suite: str | None) -> None:
    architecture = _architecture()
    found = aptsources.distribution()
    apt = _apt(staging, found, suite or found.suite)
    _run([*apt, "update"], _APT_S, "The mirror's package lists can't be read.")
    _run([*apt, "--yes", "--download-only", "install", "criu"], _APT_S, "CRIU can't be downloaded.")
    packages = sorted((staging / "cache/archives").glob("*.deb"))
    if not packages:
        raise NotProtected("apt downloaded nothing.", hint=_BY_HAND)
    for package in packages:
        _run(["dpkg-deb", "--extract", str(package), str(fresh)], _UNPACK_S, f"The package {package.name} can't be unpacked.")
    loader = next((path for path in sorted(fresh.glob(f"usr/lib*/{_LOADERS[architecture]}"))), None)
    program = next((path for path in (fresh / "usr/sbin/criu", fresh / "usr/bin/criu") if path.is_file()), None)
    if loader is None or program is None:
        raise NotProtected("The downloaded packages hold no CRIU.", hint=_BY_HAND)
    libraries = f"{prefix}/usr/lib/{_TRIPLETS[architecture]}:{prefix}/usr/lib"
    words = [f"{prefix}/{loader.relative_to(fresh)}", "--library-path", libraries, f"{prefix}/{program.relative_to(fresh)}"]
    command = f'exec {shlex.join(words)} "$@"'
    wrapper = fresh / "criu"
    wrapper.write_text(f"#!/bin/sh\n{command}\n")
    wrapper.chmod(0o755)


def _apt(staging: Path, found: aptsources.Distribution, suite: str) -> list[str]:
    """apt-get with a world of its own below `staging`; the machine's proxies and the like (apt.conf) stay in force."""
    program = shutil.which("apt-get")
    if program is None or shutil.which("dpkg-deb") is None:
        raise NotProtected("This machine has no apt.", hint=_BY_HAND)
    for folder in ("lists/partial", "cache/archives/partial"):
        (staging / folder).mkdir(parents=True)
    (staging / "status").touch()
    keys = aptsources.keyring(found)
    sources = [f"deb [signed-by={keys}] {uri} {suite} {' '.join(found.components)}\n" for uri in aptsources.mirrors(found)]
    (staging / "sources.list").write_text("".join(sources))
    options = {
        "Dir::Etc::SourceList": staging / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "Dir::State::Lists": staging / "lists",
        "Dir::State::status": staging / "status",
        "Dir::Cache": staging / "cache",
        "Dir::Cache::archives": staging / "cache/archives",
        "APT::Install-Recommends": "0",
        "APT::Sandbox::User": "",
        "APT::Update::Error-Mode": "any",
        "Acquire::Languages": "none",
        "Acquire::Retries": "2",
        "Dpkg::Use-Pty": "0",
    }
    return [program, "-q", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]


def _architecture() -> str:
    try:
        found = subprocess.run(
            ["dpkg", "--print-architecture"], capture_output=True, text=True, timeout=20, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise NotProtected("This machine has no apt.", hint=_BY_HAND, detail=str(error)) from error
    if found not in _LOADERS:
        raise NotProtected(f"Perdure has no CRIU for {found}.", hint=f"It knows {' and '.join(_LOADERS)}.")
    return found


def _run(command: list[str], timeout_s: float, failure: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, 9)
        process.communicate()
        raise NotProtected(failure, hint="The mirror does not answer. Try again later.", detail=" ".join(command)) from error
    if process.returncode:
        lines = [line for line in output.splitlines() if line.startswith(("E:", "Err:", "W:", "dpkg"))]
        raise NotProtected(
            failure,
            hint="Is the network there, and does the mirror have that release? " + _BY_HAND,
            detail="\n".join(lines[-10:] or [output]),
        )


def _exchange(fresh: Path, prefix: Path, staging: Path) -> None:
    """The new one appears by a rename; what was there goes with the staging folder."""
    if prefix.exists():
        os.rename(prefix, staging / "old")
    os.rename(fresh, prefix)


@contextmanager
def _alone(prefix: Path) -> Iterator[None]:
    """One installation at a time; the second one finds the first one's result."""
    with open(prefix.parent / f".{prefix.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
