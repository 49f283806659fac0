"""The lab extension's own tests run under Node.js; this brings them into the one run that counts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not (ROOT / "node_modules/typescript").is_dir(), reason="node_modules is not there; `make setup` gets it")
def test_node_tests_pass() -> None:
    done = subprocess.run(["npm", "run", "-s", "test"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
