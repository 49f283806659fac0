"""Our native programs: built by native/Makefile, shipped in the wheel beside this package."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.domain.errors import NotProtected

SHIM = "perdure-shim"
CRIU_PRELOAD = "perdure-criu-preload.so"


def program(name: str) -> Path:
    """Where a native program lies; PERDURE_BIN names another folder. Raises NotProtected when it is not there."""
    folder = Path(os.environ.get("PERDURE_BIN") or Path(__file__).parents[1] / "bin")
    path = folder / name
    if not path.is_file():
        raise NotProtected(
            f"{name} is missing, so kernels can't be put into a sandbox.",
            hint="Install Perdure from a wheel, or build it: make -C native OUT=../provisioner/perdure/bin",
            detail=str(path),
        )
    return path
