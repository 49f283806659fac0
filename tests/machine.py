"""What this machine can test: one line each in pytest's header, and the reason of every skip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ability:
    there: bool
    detail: str
    """What was found, or what is missing."""

    def __str__(self) -> str:
        return self.detail if self.there else f"no ({self.detail})"


def chromium() -> str | None:
    """Path of a Chromium or Chrome that can be driven; $CHROMIUM first."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return os.environ.get("CHROMIUM") or next((found for name in names if (found := shutil.which(name))), None)


def abilities() -> dict[str, Ability]:
    """Marker -> what there is. `native` is no marker: it is there for the header."""
    root = _root()
    return {
        "root": root,
        "criu": _criu() if root.there else Ability(False, "not root"),
        "browser": _browser(),
        "rkernel": _rkernel(),
        "gpu": _gpu(),
        "native": _native(),
    }


def _root() -> Ability:
    if os.geteuid() != 0:
        return Ability(False, f"uid {os.geteuid()}")
    status = Path("/proc/self/status").read_text()
    effective = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    sys_admin = 21
    if not effective >> sys_admin & 1:
        return Ability(False, "root without CAP_SYS_ADMIN")
    return Ability(True, f"uid 0, capabilities {effective:x}")


def _criu() -> Ability:
    from perdure.domain.errors import NotProtected

    try:
        from perdure.engine import criu

        found = criu.find()
    except ImportError as problem:
        return Ability(False, str(problem))
    except NotProtected as problem:
        return Ability(False, str(problem))
    return Ability(True, f"{'.'.join(map(str, found.version))} at {found.path}")


def _browser() -> Ability:
    path = chromium()
    if path is None:
        return Ability(False, "no chromium or google-chrome on PATH; $CHROMIUM names another one")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return Ability(version.returncode == 0, version.stdout.strip() or version.stderr.strip())


def _rkernel() -> Ability:
    rscript = shutil.which("Rscript")
    if rscript is None:
        return Ability(False, "no Rscript on PATH")
    asked = subprocess.run(
        [rscript, "-e", "cat(as.character(packageVersion('IRkernel')))"], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        return Ability(False, "R has no IRkernel package")
    return Ability(True, f"IRkernel {asked.stdout.strip()}")


def _gpu() -> Ability:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as problem:
        return Ability(False, f"NVML: {problem}")
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        count = int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()
    return Ability(count > 0, f"{count} GPU, driver {driver}")


def _native() -> Ability:
    import perdure

    folder = Path(perdure.__file__).parent / "bin"
    programs = sorted(path.name for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []
    return Ability(bool(programs), ", ".join(programs) if programs else f"nothing built for {sys.prefix}; `make setup`")
