"""Text in columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"[\d.,]+( (MiB|ms|s|min|h|days))?|–")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as needed; those that hold amounts only are aligned to the right."""
    columns = list(zip(header, *rows, strict=True))
    lines: list[list[str]] = [[] for _ in range(len(rows) + 1)]
    for column in columns:
        width = max(len(cell) for cell in column)
        right = bool(rows) and all(_NUMBER.fullmatch(cell) for cell in column[1:])
        for line, cell in zip(lines, column, strict=True):
            line.append(cell.rjust(width) if right else cell.ljust(width))
    return "\n".join("  ".join(line).rstrip() for line in lines)


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """A name and a value per line; values of several lines are indented, empty ones left out."""
    width = max(len(name) for name, _ in pairs)
    lines = []
    for name, value in pairs:
        if value:
            lines.append(f"{name.ljust(width)}  {value.replace(chr(10), chr(10) + ' ' * (width + 2))}")
    return "\n".join(lines)
