from __future__ import annotations

import threading

import pytest
from perdure.engine.sequence import Cancelled, Sequence


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = 0.0

    def monotonic(self) -> float:
        return self.at

    def now(self) -> float:
        return self.at


def test_undo_runs_backwards_and_a_failing_one_stops_nothing() -> None:
    done = []

    def fail() -> None:
        done.append("fails")
        raise RuntimeError("undo")

    def body() -> None:
        with Sequence(Hand()) as sequence:
            sequence.undo("a", lambda: done.append("a"))
            sequence.undo("b", fail)
            sequence.undo("c", lambda: done.append("c"))
            raise KeyError

    with pytest.raises(KeyError):
        body()
    assert done == ["c", "fails", "a"]


def test_nothing_is_undone_after_success() -> None:
    with Sequence(Hand()) as sequence:
        sequence.undo("a", lambda: pytest.fail("undone"))


def test_timings_add_up_to_the_whole() -> None:
    clock = Hand()
    with Sequence(clock) as sequence:
        with sequence.step("x"):
            clock.at += 2
        clock.at += 0.5
        with sequence.step("x"):
            clock.at += 1
        assert sequence.timings() == {"x": 3.0, "unaccounted": 0.5}


def test_a_cancelled_sequence_starts_no_step() -> None:
    cancelled, done = threading.Event(), []

    def body() -> None:
        with Sequence(Hand(), cancelled) as sequence:
            with sequence.step("one"):
                cancelled.set()
            with sequence.step("two"):
                done.append("two")

    with pytest.raises(Cancelled):
        body()
    assert done == []
