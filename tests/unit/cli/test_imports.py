"""A verb loads what it needs and no more: what makes `perdure list` quick."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = (
    "IPython", "blake3", "boto3", "ipykernel", "jupyter_client", "jupyter_server", "numpy", "pynvml", "rich", "zmq", "zstandard",
    "perdure.agent", "perdure.engine", "perdure.jupyter", "perdure.runtime", "perdure.store",
)  # fmt: skip


def test_list_is_light() -> None:
    code = """
import json, sys
from perdure.cli import main
main(["list", "--json"])
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PERDURE_AGENT": "unix:///nonexistent/agent.sock"}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    loaded = set(json.loads(ended.stderr.splitlines()[-1]))
    assert "perdure.wire.client" in loaded
    assert loaded.isdisjoint(HEAVY)
