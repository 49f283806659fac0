"""CRIU's log -> one sentence that names the object in the way."""

from __future__ import annotations

from pathlib import Path

_TAIL_LINES = 60


def tail(log: Path, stderr: str = "") -> str:
    """The end of the log, for an engineer."""
    return "\n".join([*_lines(log)[-_TAIL_LINES:], stderr]).strip()


def first_error(log: Path) -> str:
    """The first error line without its prefix; nothing when there is none."""
    for line in _lines(log):
        if "Error (" in line:
            return line.split("): ", 1)[-1].strip()
    return ""


def _lines(log: Path) -> list[str]:
    try:
        return log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
