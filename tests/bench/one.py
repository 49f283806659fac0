"""`python tests/bench/one.py --peer P --workload wNN`: the bench's own program, with `perdure` among its peers.

Prints one JSON line.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import suite

    bench = suite.folder()
    if bench is None:
        sys.exit("The bench is not there; PERDURE_BENCH names its folder.")
    sys.path.insert(0, str(bench))
    peers = importlib.import_module("peers")
    from peer import make_peer

    peers.PEERS["perdure"] = make_peer(peers.Peer)
    importlib.import_module("bench")  # runs what the command line says, and ends the process


if __name__ == "__main__":
    main()
