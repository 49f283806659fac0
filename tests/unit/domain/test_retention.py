"""Which snapshots stay: properties over any history, and the rules by example."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from perdure.domain.ids import Generation, KernelId
from perdure.domain.retention import Rules, Shares, Snapshot, Verdict, fit, judge, needed

HOUR, DAY = 3600.0, 86400.0
START = 1_800_000_000.0

RULES = st.builds(Rules, last=st.integers(0, 5), hourly=st.integers(0, 4), daily=st.integers(0, 4))


@st.composite
def histories(draw: st.DrawFn) -> list[Snapshot]:
    """Ascending; clocks may stand still or go back, some snapshots are damaged, pinned, or of unknown age."""
    steps = draw(st.lists(st.floats(-HOUR, 3 * DAY), max_size=25))
    return [
        Snapshot(
            Generation(number),
            START + at if draw(st.integers(0, 9)) else None,
            pinned="needed" if draw(st.integers(0, 9)) == 0 else "",
            damaged=draw(st.integers(0, 4)) == 0,
        )
        for number, at in enumerate(itertools.accumulate(steps), 1)
    ]


@st.composite
def shared(draw: st.DrawFn, history: list[Snapshot]) -> Shares:
    numbers = [one.generation for one in history]
    if not numbers:
        return {}
    return draw(st.dictionaries(st.frozensets(st.sampled_from(numbers), min_size=1), st.integers(0, 1000), max_size=12))


def kept(verdicts: list[Verdict]) -> set[int]:
    return {one.generation for one in verdicts if one.keep}


@given(st.data(), RULES)
def test_what_holds_of_any_history(data: st.DataObject, rules: Rules) -> None:
    history = data.draw(histories())
    verdicts = judge(history, rules)
    assert [one.generation for one in verdicts] == [one.generation for one in history]
    assert all(one.why for one in verdicts)
    stays = kept(verdicts)
    whole = [one for one in history if not one.damaged]
    assert {one.generation for one in history[-1:] + whole[-max(rules.last, 1) :]} <= stays
    assert {one.generation for one in history if one.pinned} <= stays
    assert len([one for one in whole if not one.pinned and one.generation in stays]) <= (
        1 + max(rules.last, 1) + rules.hourly + rules.daily
    )
    assert kept(judge([one for one in history if one.generation in stays], rules)) == stays, "once more takes nothing more"


@given(st.data(), RULES, st.integers(0, 3000))
def test_a_budget_is_kept_or_nothing_more_may_go(data: st.DataObject, rules: Rules, budget: int) -> None:
    histories_of = {KernelId(name): data.draw(histories()) for name in ("a", "b")}
    shares = {kernel: data.draw(shared(history)) for kernel, history in histories_of.items()}
    verdicts = {kernel: judge(history, rules) for kernel, history in histories_of.items()}
    ages = {(kernel, one.generation): one.created or 0.0 for kernel, history in histories_of.items() for one in history}
    fitted = fit(verdicts, shares, budget, "in all", ages)
    for kernel, history in histories_of.items():
        assert kept(fitted[kernel]) <= kept(verdicts[kernel])
        fixed = {one.generation for one in history[-1:]} | {one.generation for one in history if one.pinned}
        assert fixed <= kept(fitted[kernel])
    left = sum(needed(fitted[kernel], shares[kernel]) for kernel in fitted)
    assert left <= budget or all(one.fixed for of in fitted.values() for one in of if one.keep)


@given(st.data(), st.integers(1, 2000))
def test_a_larger_budget_keeps_no_less(data: st.DataObject, budget: int) -> None:
    history = data.draw(histories())
    shares = data.draw(shared(history))
    some = kept(judge(history, Rules(bytes=budget), shares))
    assert some <= kept(judge(history, Rules(bytes=budget * 2), shares))


def every(seconds: float, number: int) -> list[Snapshot]:
    return [Snapshot(Generation(at + 1), START + at * seconds) for at in range(number)]


def test_last_hourly_daily() -> None:
    half_hours = every(HOUR / 2, 200)
    stays = kept(judge(half_hours, Rules(last=3, hourly=4, daily=3)))
    assert {198, 199, 200} <= stays
    hours = {int((START + (one - 1) * HOUR / 2) // HOUR) for one in stays}
    newest = int((START + 199 * HOUR / 2) // HOUR)
    assert {newest, newest - 1, newest - 2, newest - 3} <= hours
    assert len({int((START + (one - 1) * HOUR / 2) // DAY) for one in stays}) == 3
    assert len(stays) <= 3 + 4 + 3


def test_hours_in_which_nothing_was_saved_dont_count() -> None:
    pause = [
        Snapshot(Generation(1), START),
        Snapshot(Generation(2), START + 50 * HOUR),
        Snapshot(Generation(3), START + 99 * HOUR),
    ]
    assert kept(judge(pause, Rules(last=1, hourly=3, daily=0))) == {1, 2, 3}


def test_damaged_ones_push_no_good_one_out() -> None:
    history = [Snapshot(Generation(number), START + number, damaged=number > 2) for number in range(1, 8)]
    assert {1, 2} <= kept(judge(history, Rules(last=2, hourly=0, daily=0)))


def test_a_budget_counts_what_is_shared_once() -> None:
    """The first one's memory is the others' too: its going frees nothing, so the second goes as well."""
    history = every(HOUR, 3)
    one, two, three = (each.generation for each in history)
    shares: Shares = {frozenset({one, two, three}): 1000, frozenset({one}): 1, frozenset({two}): 100, frozenset({three}): 100}
    assert kept(judge(history, Rules(bytes=1300), shares)) == {1, 2, 3}
    assert kept(judge(history, Rules(bytes=1200), shares)) == {2, 3}
    assert kept(judge(history, Rules(bytes=500), shares)) == {3}
    assert kept(judge(history, Rules(bytes=500))) == {1, 2, 3}, "nothing is known of sizes"
