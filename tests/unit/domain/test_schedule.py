"""When a snapshot is taken by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.domain.pace import Cost, pace
from perdure.domain.phases import Phase
from perdure.domain.policy import Policy
from perdure.domain.record import Trigger
from perdure.domain.schedule import LONGEST_RETRY_S, ScheduleFacts, decide, decide_last, retry_after

POLICY = Policy()
QUIET = ScheduleFacts(
    phase=Phase.RUNNING,
    started_at=0.0,
    last_snapshot_at=1000.0,
    last_attempt_at=1001.0,
    failures_in_a_row=0,
    ran_since=False,
    busy=False,
    cell_ended=False,
    work_s=0.0,
    growth_bytes=0,
)
WORKED = replace(QUIET, ran_since=True, cell_ended=True, work_s=0.1)

seconds = st.floats(0, 1e6, allow_nan=False)
policies = st.builds(
    Policy,
    snapshot_interval_s=st.one_of(st.just(0.0), st.floats(1, 1e5)),
    after_cell_work_s=st.floats(0, 1e4),
    after_cell_growth_bytes=st.integers(0, 1 << 40),
    after_cell_age_s=st.floats(0, 1e4),
    min_gap_s=st.floats(0, 1e3),
    loss_budget_s=st.floats(1, 1e5),
    stall_budget=st.floats(0.0001, 1),
    mean_time_between_failures_s=st.floats(60, 1e8),
)
costs = st.builds(Cost, stall_s=st.floats(0, 100), total_s=st.floats(0, 1000))
all_facts = st.builds(
    ScheduleFacts,
    phase=st.one_of(st.just(Phase.RUNNING), st.sampled_from(Phase)),
    started_at=seconds,
    last_snapshot_at=st.none() | seconds,
    last_attempt_at=st.none() | seconds,
    failures_in_a_row=st.integers(0, 10_000),
    ran_since=st.booleans(),
    busy=st.booleans(),
    cell_ended=st.booleans(),
    work_s=seconds,
    growth_bytes=st.integers(0, 1 << 45),
    costs=st.lists(costs, max_size=5).map(tuple),
)


def up_to(now: float, facts: ScheduleFacts) -> ScheduleFacts:
    """The same, with nothing that is dated later than `now`."""

    def cut(time: float | None) -> float | None:
        return None if time is None else min(time, now)

    return replace(
        facts,
        started_at=min(facts.started_at, now),
        last_snapshot_at=cut(facts.last_snapshot_at),
        last_attempt_at=cut(facts.last_attempt_at),
    )


@given(policies, seconds, all_facts)
def test_only_a_running_kernel_is_saved_and_only_when_something_ran(policy: Policy, now: float, facts: ScheduleFacts) -> None:
    decision = decide(policy, now, facts)
    if facts.phase is not Phase.RUNNING or not (facts.ran_since or facts.busy):
        assert decision.snapshot is None
        assert decision.at is None


@given(policies, seconds, all_facts)
def test_never_within_the_gap_after_an_attempt(policy: Policy, now: float, facts: ScheduleFacts) -> None:
    facts = replace(facts, last_attempt_at=min(facts.last_attempt_at or 0.0, now))
    if decide(policy, now, facts).snapshot is not None:
        assert facts.last_attempt_at is not None
        assert now >= facts.last_attempt_at + policy.min_gap_s
        assert now >= facts.last_attempt_at + retry_after(policy, facts.failures_in_a_row)


@given(policies, seconds, all_facts)
def test_what_is_put_off_happens_when_it_said(policy: Policy, now: float, facts: ScheduleFacts) -> None:
    facts = up_to(now, facts)
    decision = decide(policy, now, facts)
    if decision.at is not None:
        assert decision.snapshot is None
        assert decision.at > now
        assert decide(policy, decision.at, facts).snapshot is not None


@given(policies, seconds, all_facts)
def test_nothing_that_ran_waits_longer_than_interval_and_gap(policy: Policy, now: float, facts: ScheduleFacts) -> None:
    facts = replace(facts, phase=Phase.RUNNING, ran_since=True)
    facts = up_to(now, facts)
    policy = replace(policy, snapshot_interval_s=max(policy.snapshot_interval_s, 1.0))
    decision = decide(policy, now, facts)
    if decision.snapshot is None:
        assert decision.at is not None
        base = facts.started_at if facts.last_snapshot_at is None else facts.last_snapshot_at
        gap = max(policy.min_gap_s, retry_after(policy, facts.failures_in_a_row))
        assert decision.at <= max(base + pace(policy, facts.costs).interval_s, now + gap)


@given(policies, seconds, all_facts)
def test_each_stall_is_followed_by_its_share_of_time_without_one(policy: Policy, now: float, facts: ScheduleFacts) -> None:
    facts = up_to(now, facts)
    if decide(policy, now, facts).snapshot is not None and facts.costs and facts.last_snapshot_at is not None:
        assert now >= facts.last_snapshot_at + facts.costs[-1].stall_s / policy.stall_budget


@given(policies, seconds, all_facts)
def test_only_when_asked_means_never_by_itself(policy: Policy, now: float, facts: ScheduleFacts) -> None:
    policy = replace(policy, only_when_asked=True)
    decision = decide(policy, now, facts)
    assert (decision.snapshot, decision.at) == (None, None)
    assert decide_last(policy, facts).snapshot is None


@given(policies, seconds, all_facts)
def test_it_says_why(policy: Policy, now: float, facts: ScheduleFacts) -> None:
    assert decide(policy, now, facts).why
    assert decide_last(policy, facts).why


@given(policies, all_facts)
def test_at_the_end_what_would_be_lost_is_saved_and_nothing_else(policy: Policy, facts: ScheduleFacts) -> None:
    wanted = facts.phase is Phase.RUNNING and (facts.ran_since or facts.busy)
    assert decide_last(policy, facts).snapshot is (Trigger.PREEMPTION if wanted else None)
    assert decide_last(replace(policy, preemption_deadline_s=0), facts).snapshot is None


@given(policies, st.integers(0, 100_000))
def test_waits_grow_and_are_capped(policy: Policy, failures: int) -> None:
    assert retry_after(policy, failures) <= retry_after(policy, failures + 1) <= max(LONGEST_RETRY_S, policy.min_gap_s)


@given(policies, seconds, all_facts)
def test_more_work_never_delays(policy: Policy, now: float, facts: ScheduleFacts) -> None:
    more = replace(facts, work_s=facts.work_s * 2 + 1, growth_bytes=facts.growth_bytes * 2 + 1)
    if decide(policy, now, facts).snapshot is not None:
        assert decide(policy, now, more).snapshot is not None


def test_an_idle_kernel_is_left_alone_for_ever() -> None:
    assert decide(POLICY, 1e9, QUIET).snapshot is None


def test_a_small_cell_soon_after_a_snapshot_waits_for_the_age() -> None:
    decision = decide(POLICY, 1020.0, WORKED)
    assert (decision.snapshot, decision.at) == (None, 1000.0 + POLICY.after_cell_age_s)


@pytest.mark.parametrize(
    "facts",
    [
        replace(WORKED, work_s=POLICY.after_cell_work_s),
        replace(WORKED, growth_bytes=POLICY.after_cell_growth_bytes),
        replace(WORKED, last_snapshot_at=None, last_attempt_at=None),
    ],
)
def test_a_cell_that_is_worth_it_is_saved_at_once(facts: ScheduleFacts) -> None:
    assert decide(POLICY, 1010.0, facts).snapshot is Trigger.CELL


def test_a_running_cell_is_saved_by_the_interval() -> None:
    running = replace(QUIET, busy=True, work_s=1e4, growth_bytes=1 << 40)
    assert decide(POLICY, 1299.0, running).at == 1300.0
    assert decide(POLICY, 1300.0, running).snapshot is Trigger.INTERVAL
    assert decide(replace(POLICY, snapshot_interval_s=0.0), 1e6, running).snapshot is None


def test_a_second_cell_within_the_gap_waits_for_its_end() -> None:
    decision = decide(POLICY, 1003.0, replace(WORKED, work_s=60.0))
    assert (decision.snapshot, decision.at) == (None, 1001.0 + POLICY.min_gap_s)


def test_a_kernel_that_stands_still_for_long_is_saved_seldom() -> None:
    """Ten seconds a time, and one percent of the time."""
    facts = replace(WORKED, work_s=1e4, costs=(Cost(10.0, 15.0),))
    assert decide(POLICY, 1999.0, facts).at == 2000.0
    assert decide(POLICY, 2000.0, facts).snapshot is Trigger.CELL


def test_a_kernel_that_is_cheap_to_save_is_saved_more_often_than_it_must() -> None:
    facts = replace(QUIET, busy=True, costs=(Cost(0.05, 2.0),))
    at = decide(POLICY, 1100.0, facts).at
    assert at is not None
    assert 1150 < at < 1170


def test_failures_make_it_wait_longer_and_longer() -> None:
    facts = replace(WORKED, work_s=60.0, last_attempt_at=1100.0)
    waits = [(decide(POLICY, 1100.0, replace(facts, failures_in_a_row=count)).at or 0) - 1100 for count in range(1, 9)]
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600]
