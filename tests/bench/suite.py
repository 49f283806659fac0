"""Where the side-by-side bench is. It is no part of this repository: PERDURE_BENCH names its folder, else it is ../shared/bench
beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

ALL = ("w01", "w01b", "w02", "w03", "w04", "w05", "w05b", "w06", "w07", "w08", "w09", "w10", "w11", "w12", "w13")


def folder() -> Path | None:
    """None when it is not there."""
    told = os.environ.get("PERDURE_BENCH")
    path = Path(told) if told else Path(__file__).resolve().parents[2].parent / "shared" / "bench"
    return path if (path / "bench.py").is_file() else None


def title(workload: str) -> str:
    """What the workload's first line says about it."""
    found = folder()
    if found is None:
        return ""
    with open(found / "workloads" / f"{workload}.py") as file:
        return file.readline().removeprefix("#").strip()
