"""`python tests/bench/run.py OUT.jsonl [--peers a,b] [--workloads w01,w02] [--repeat N]`: Perdure beside its rivals.

The peers of one workload run one after the other before the next workload begins, so that whatever else the machine does falls
on all of them. Every run is appended to OUT.jsonl; at the end the table of that file is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import suite
from columns import table

PEERS = ("perdure", "criu-disk", "criu-shm", "dill", "cloudpickle", "rerun")
_SHARED = Path("/dev/shm")
"""Peers that fail, and those that keep their files in memory, leave some there."""
LIMIT_S = 80
"""A run that takes longer has failed; the bench's own value."""


def run(peer: str, workload: str, folder: Path) -> dict[str, Any]:
    """One run; what the bench prints, and how long it took. Never raises because of the peer."""
    env = {**os.environ, "BENCH_DIR": str(folder), "LIMIT": str(LIMIT_S), **_criu()}
    there = set(_SHARED.iterdir())
    began = time.monotonic()
    command = [sys.executable, str(Path(__file__).parent / "one.py"), "--peer", peer, "--workload", workload]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S * 2, check=False)
    for litter in set(_SHARED.glob("peers*")) - there:
        shutil.rmtree(litter) if litter.is_dir() else litter.unlink()
    lines = ended.stdout.strip().splitlines()
    result = json.loads(lines[-1]) if lines else {"peer": peer, "workload": workload, "error": ended.stderr[-500:]}
    return {**result, "total_s": round(time.monotonic() - began, 1), "load1": os.getloadavg()[0]}


def _criu() -> dict[str, str]:
    """The rivals that use CRIU get the same one as we."""
    if "CRIU" in os.environ:
        return {}
    from perdure.engine.criu import find

    return {"CRIU": str(find().path)}


def main(argv: Sequence[str] | None = None) -> int:
    """0 when every run of perdure was correct."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--workloads", default=",".join(suite.ALL))
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/perdure-bench"), help="for snapshots and kernels' files")
    told = parser.parse_args(argv)
    good = True
    for workload in told.workloads.split(",") * told.repeat:
        for peer in told.peers.split(","):
            result = run(peer, workload, told.folder)
            with open(told.out, "a") as file:
                file.write(json.dumps(result) + "\n")
            trouble = result.get("failed") or result.get("error") or result.get("note") or ""
            figures = [result.get(name) for name in ("total_s", "saved", "restored", "correct", "stall_s", "restore_s")]
            print(workload, peer, *figures, trouble, file=sys.stderr, flush=True)
            good = good and (peer != "perdure" or result.get("correct") is True)
    print(table([json.loads(line) for line in told.out.read_text().splitlines()]))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
