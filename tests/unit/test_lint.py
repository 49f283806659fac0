"""The linters are part of the tests: a tree that they refuse is not finished."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("linter", ["lint-python", "lint-types", "lint-imports", "lint-web"])
def test_linter_is_content(linter: str) -> None:
    if linter == "lint-web" and not (ROOT / "node_modules" / "eslint").is_dir():
        pytest.skip("node_modules is not there; `make setup` gets it")
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    make = shutil.which("make")
    assert make is not None
    done = subprocess.run(
        [make, "-s", linter, f"VENV={sys.prefix}"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"make {linter}\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
