"""Results of the bench as a table in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import suite


def verdict(runs: Sequence[dict[str, Any]]) -> str:
    """In a word, for several runs of one peer and workload: the worst of them."""
    return max((_verdict(one) for one in runs), key=_WORSE.index)


_WORSE = ("right", "not saved", "too slow", "not restored", "partly right", "wrong")


def _verdict(run: dict[str, Any]) -> str:
    if run.get("correct"):
        return "right"
    if "time limit" in run.get("error", ""):
        return "too slow"
    if not run.get("saved"):
        return "not saved"
    if not run.get("restored"):
        return "not restored"
    return "partly right" if any(value is True for value in run.get("checks", {}).values()) else "wrong"


def table(runs: Sequence[dict[str, Any]]) -> str:
    """One line a workload, one column a peer: verdict; stall / restore in seconds (medians); MB stored; number of runs."""
    peers = list(dict.fromkeys(run["peer"] for run in runs))
    workloads = sorted({run["workload"] for run in runs})
    lines = ["| workload | " + " | ".join(peers) + " |", "|---" * (len(peers) + 1) + "|"]
    for workload in workloads:
        cells = [f"**{workload}** {suite.title(workload)}"]
        for peer in peers:
            cells.append(_cell([run for run in runs if (run["peer"], run["workload"]) == (peer, workload)]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(runs: Sequence[dict[str, Any]]) -> str:
    if not runs:
        return "–"
    stored = _median(runs, "bytes")
    size = "–" if stored is None else f"{stored / 1e6:.1f} MB" if stored >= 1e5 else f"{stored / 1e3:.1f} kB"
    return f"{verdict(runs)}; {_seconds(runs, 'stall_s')} / {_seconds(runs, 'restore_s')} s; {size} (n={len(runs)})"


def _median(runs: Sequence[dict[str, Any]], name: str) -> float | None:
    values = [run[name] for run in runs if run.get(name) is not None]
    return median(values) if values else None


def _seconds(runs: Sequence[dict[str, Any]], name: str) -> str:
    value = _median(runs, name)
    return "–" if value is None else f"{value:.2f}"
