"""Sizes, durations and dates as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def mib(size: int | None) -> str:
    """Bytes in MiB."""
    if size is None:
        return "–"
    amount = size / (1 << 20)
    return f"{amount:.1f} MiB" if amount < 100 else f"{amount:,.0f} MiB"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for limit, text in ((1, f"{seconds * 1000:.0f} ms"), (10, f"{seconds:.1f} s"), (120, f"{seconds:.0f} s")):
        if seconds < limit:
            return text
    for limit, unit, name in ((2 * 3600, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds // 86400:.0f} days"


def ago(created: str, now: float) -> str:
    """`created` is RFC 3339, `now` seconds since 1970. What can't be read as a date is shown as it is."""
    try:
        when = datetime.fromisoformat(created)
    except ValueError:
        return created
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    passed = now - when.timestamp()
    if passed < 1:
        return "just now"
    return f"{duration(passed)} ago"
