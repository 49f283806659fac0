"""How often a working kernel is saved."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from perdure.domain.pace import Cost, daly, pace, span
from perdure.domain.policy import Policy

POLICY = Policy()
costs = st.builds(Cost, stall_s=st.floats(0, 100), total_s=st.floats(0, 1000))
histories = st.lists(costs, max_size=5).map(tuple)
policies = st.builds(
    Policy,
    snapshot_interval_s=st.just(0.0) | st.floats(1, 1e5),
    loss_budget_s=st.floats(1, 1e5),
    stall_budget=st.floats(0.0001, 1),
    mean_time_between_failures_s=st.floats(60, 1e8),
    min_gap_s=st.floats(0, 1e3),
)


def expected_s(interval: float, cost: float, failure: float) -> float:
    """Daly's complete model: how long one second of work takes, with failures at random and no time for the restart."""
    return failure * math.expm1((interval + cost) / failure) / interval


@given(st.floats(0.001, 1000), st.floats(60, 1e8), st.floats(0.01, 100))
def test_no_other_interval_is_better_by_more_than_a_hair(cost: float, failure: float, factor: float) -> None:
    best = daly(cost, failure)
    assume(cost < failure / 2 and best * factor / failure < 100)
    assert expected_s(best, cost, failure) <= 1.01 * expected_s(best * factor, cost, failure)


@given(st.floats(0.001, 1), st.floats(1e5, 1e8))
def test_with_rare_failures_it_is_youngs(cost: float, failure: float) -> None:
    assert daly(cost, failure) == pytest.approx(math.sqrt(2 * cost * failure), rel=0.01)


@given(st.floats(0, 1e6), st.floats(60, 1e8))
def test_it_is_never_negative_and_never_longer_than_between_two_failures(cost: float, failure: float) -> None:
    assert 0 <= daly(cost, failure) <= failure * 1.2


def test_a_hopeless_cost() -> None:
    assert daly(1000, 100) == 100
    assert daly(0, 100) == 0


@given(policies, histories)
def test_the_stall_budget_is_kept_whatever_else_is_wanted(policy: Policy, history: tuple[Cost, ...]) -> None:
    found = pace(policy, history)
    if history:
        assert history[-1].stall_s <= policy.stall_budget * found.rest_s * (1 + 1e-9)
        assert found.interval_s >= found.rest_s
    else:
        assert found.rest_s == 0


@given(policies, st.lists(costs, min_size=1, max_size=40))
def test_over_a_long_time_the_stalls_are_within_the_budget(policy: Policy, future: list[Cost]) -> None:
    now = stalled = 0.0
    for number, cost in enumerate(future, 1):
        stalled += cost.stall_s
        now += pace(policy, tuple(future[:number])[-5:]).interval_s
    assert stalled <= policy.stall_budget * now * (1 + 1e-9)


@given(policies, histories)
def test_the_loss_budget_is_kept_where_the_kernel_can_be_saved_so_fast(policy: Policy, history: tuple[Cost, ...]) -> None:
    found = pace(policy, history)
    storing = max((cost.total_s for cost in history), default=0.0)
    slow = max((found.rest_s, history[-1].total_s + policy.min_gap_s)) if history else 0.0
    if slow + storing <= policy.loss_budget_s:
        assert found.interval_s + storing <= policy.loss_budget_s * (1 + 1e-9)
        assert "more than" not in found.why
    elif found.interval_s + storing > policy.loss_budget_s * (1 + 1e-9):
        assert f"more than {span(policy.loss_budget_s)}" in found.why


@given(policies, histories)
def test_the_longest_interval_that_was_set_gives_way_to_the_stall_budget_only(policy: Policy, history: tuple[Cost, ...]) -> None:
    found = pace(policy, history)
    floor = max(found.rest_s, history[-1].total_s + policy.min_gap_s) if history else 0.0
    if policy.snapshot_interval_s > 0:
        assert found.interval_s <= max(policy.snapshot_interval_s, floor)


@given(policies, costs, st.floats(1, 10))
def test_what_costs_more_comes_no_more_often(policy: Policy, cost: Cost, factor: float) -> None:
    """As long as it is no slower to be stored: that takes from the loss budget."""
    cost = replace(cost, total_s=max(cost.total_s, 100.0))
    dearer = replace(cost, stall_s=min(cost.stall_s * factor, cost.total_s))
    assume(dearer.stall_s >= cost.stall_s)
    assert pace(policy, [dearer]).interval_s >= pace(policy, [cost]).interval_s * (1 - 1e-9)


@given(policies, histories)
def test_it_says_why(policy: Policy, history: tuple[Cost, ...]) -> None:
    assert pace(policy, history).why


@pytest.mark.parametrize(
    ("history", "interval", "rest"),
    [
        ((), 300, 0),
        ((Cost(0.05, 2.0),), 160, 5),  # live: what it costs and what a failure a day costs are equal
        ((Cost(1.8, 3.0),), 297, 180),  # classic, 1 GiB: the optimum would be more than may be lost
        ((Cost(10.0, 15.0),), 1000, 1000),  # classic, 8 GiB: that often it would be too much
        ((Cost(1.8, 3.0), Cost(0.05, 2.0)), 297, 5),  # the mean of both costs, the rest after the last one
        ((Cost(0.1, 400.0),), 405, 10),  # a slow line to the repository
    ],
)
def test_by_default(history: tuple[Cost, ...], interval: float, rest: float) -> None:
    found = pace(POLICY, history)
    assert (found.interval_s, found.rest_s) == (pytest.approx(interval, abs=1), pytest.approx(rest))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.0, "0 s"), (0.054, "0.054 s"), (9.99, "10 s"), (59.6, "60 s"), (300, "5 min"), (280.2, "4 min 40 s"), (86400, "24 h")],
)
def test_spans(seconds: float, said: str) -> None:
    assert span(seconds) == said
