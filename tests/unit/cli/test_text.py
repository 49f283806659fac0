"""Amounts, dates and tables as people read them."""

from __future__ import annotations

import pytest
from perdure.cli.amounts import ago, duration, mib
from perdure.cli.table import facts, table

NOON = 1_796_126_400.0  # 2026-12-01T12:00:00Z


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0.0 MiB"), (1 << 20, "1.0 MiB"), (157_286_400, "150 MiB"), (5 << 30, "5,120 MiB"), (None, "–")]
)
def test_mib(size: int | None, text: str) -> None:
    assert mib(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0734, "73 ms"), (1.26, "1.3 s"), (75, "75 s"), (150, "2 min"), (7200, "2 h"), (3 * 86400, "3 days"), (None, "–")],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("created", "text"),
    [
        ("2026-12-01T11:58:00Z", "2 min ago"),
        ("2026-12-01T12:58:00+01:00", "2 min ago"),
        ("2026-12-01T11:58:00", "2 min ago"),
        ("2026-12-01T12:00:05Z", "just now"),
        ("yesterday", "yesterday"),
    ],
)
def test_ago(created: str, text: str) -> None:
    assert ago(created, NOON) == text


def test_amounts_are_aligned_to_the_right() -> None:
    assert table(("NAME", "SIZE"), [("a", "5.0 MiB"), ("long", "150 MiB")]).splitlines() == [
        "NAME     SIZE",
        "a     5.0 MiB",
        "long  150 MiB",
    ]


def test_facts_of_several_lines() -> None:
    assert facts([("A", "one\ntwo"), ("None", ""), ("B", "three")]).splitlines() == ["A     one", "      two", "B     three"]
