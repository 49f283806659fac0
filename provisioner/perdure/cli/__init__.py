"""The `perdure` command: a client of the agent, like Jupyter, and a few verbs that work without one. One file per verb."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; `argv` is sys.argv's by default. Returns the exit status: 0, 1 failed, 2 wrong usage."""
    from .run import run

    # Not list(…): in this namespace `list` is the verb's module once that has been imported.
    return run([*(sys.argv[1:] if argv is None else argv)])
