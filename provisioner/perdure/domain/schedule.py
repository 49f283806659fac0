"""When to take the next snapshot that nobody asked for.

The aim is to lose little work and to cost nothing where there is nothing to lose: an idle kernel is left alone for ever, a
working one is saved at the pace that its snapshots' cost suggests (`pace`), and the end of a cell is a good moment (the user
looks at the result and types) as soon as enough would be lost. A kernel that can't be saved now is tried again, less and less
often. The machine's end knows no budget: what would be lost is saved then.
"""

from __future__ import annotations

from dataclasses import dataclass

from .pace import Cost, Pace, pace, span
from .phases import Phase
from .policy import Policy
from .record import Trigger

FIRST_RETRY_S = 10.0
"""Wait after a first failure; it doubles with each further one. Most obstacles (an open socket, a full disk) outlast seconds."""
LONGEST_RETRY_S = 600.0
"""A kernel that can't be saved for hours is still tried this often: nobody has to tell us that the obstacle has gone."""


@dataclass(frozen=True)
class ScheduleFacts:
    """What is known of a kernel. Times are seconds of one clock, the one of `now` (a monotonic one); sizes in bytes."""

    phase: Phase
    started_at: float
    """When it began to run, afresh or restored."""
    last_snapshot_at: float | None
    """When the newest snapshot that holds this life of the kernel was begun; for a restored one, the end of the restore."""
    last_attempt_at: float | None
    """When the last attempt ended, good or bad."""
    failures_in_a_row: int
    ran_since: bool
    """User code ran since the last snapshot (or start)."""
    busy: bool
    """A cell is running now."""
    cell_ended: bool
    """A cell has ended since the last snapshot (or start). It stays true until the next snapshot."""
    work_s: float
    """Running time since the last snapshot (or start), of ended cells and of the running one."""
    growth_bytes: int
    """By how much memory has changed since then, as far as is known."""
    costs: tuple[Cost, ...] = ()
    """Of the last snapshots, the newest last, at most `pace.REMEMBERED`."""


@dataclass(frozen=True)
class Decision:
    snapshot: Trigger | None
    """Take one now, for this reason."""
    at: float | None
    """Else: ask again then, even if nothing happens until then. None: only when a fact changes."""
    why: str


def decide(policy: Policy, now: float, facts: ScheduleFacts) -> Decision:
    """Whether to take a snapshot now. Ask again whenever a fact changes, and at `Decision.at`."""
    if policy.only_when_asked:
        return Decision(None, None, "snapshots are taken only when they are asked for")
    if (nothing := _nothing_to_do(facts)) is not None:
        return nothing

    rhythm = pace(policy, facts.costs)
    due = _due(policy, now, facts, rhythm)
    if due is None:
        return Decision(None, None, "no snapshots by time, and no cell has ended")
    at, trigger, why = due
    earliest, hindrance = _earliest(policy, now, facts, rhythm)
    if at <= now and earliest <= now:
        return Decision(trigger, None, why)
    return Decision(None, max(at, earliest), f"{why}; {hindrance}" if earliest > at else why)


def decide_last(policy: Policy, facts: ScheduleFacts) -> Decision:
    """Whether to take a last snapshot, now that the agent is to end. No gap, budget or earlier failure is a reason not to."""
    if policy.only_when_asked or policy.preemption_deadline_s <= 0:
        return Decision(None, None, "a last snapshot is not wanted")
    return _nothing_to_do(facts) or Decision(Trigger.PREEMPTION, None, "the agent is told to end")


def retry_after(policy: Policy, failures: int) -> float:
    """Seconds between the end of an attempt and the next, after so many failures in a row (0: it was good)."""
    if failures <= 0:
        return policy.min_gap_s
    wait = FIRST_RETRY_S * 2.0 ** min(failures - 1, 32)
    return max(policy.min_gap_s, min(wait, LONGEST_RETRY_S))


def _nothing_to_do(facts: ScheduleFacts) -> Decision | None:
    if facts.phase is Phase.SNAPSHOTTING:
        return Decision(None, None, "a snapshot is being taken")
    if facts.phase is not Phase.RUNNING:
        return Decision(None, None, f"the kernel is {facts.phase}")
    if not (facts.ran_since or facts.busy):
        return Decision(None, None, "nothing ran since the last snapshot")
    return None


def _due(policy: Policy, now: float, facts: ScheduleFacts, rhythm: Pace) -> tuple[float, Trigger, str] | None:
    """(when, why it is called, in words) of the first reason; what holds already is due `now`."""
    base = facts.started_at if facts.last_snapshot_at is None else facts.last_snapshot_at
    reasons: list[tuple[float, Trigger, str]] = []
    if facts.cell_ended:
        if facts.last_snapshot_at is None:
            reasons.append((now, Trigger.CELL, "the first cell has ended"))
        if facts.work_s >= policy.after_cell_work_s:
            reasons.append((now, Trigger.CELL, f"a cell has ended, {span(facts.work_s)} of work would be lost"))
        if facts.growth_bytes >= policy.after_cell_growth_bytes:
            reasons.append((now, Trigger.CELL, f"a cell has ended, {facts.growth_bytes >> 20} MiB of memory have changed"))
        age = f"a cell has ended, and {span(policy.after_cell_age_s)} after the last snapshot that counts"
        reasons.append((base + policy.after_cell_age_s, Trigger.CELL, age))
    if policy.snapshot_interval_s > 0:
        every = f"the kernel works and is saved every {span(rhythm.interval_s)}: {rhythm.why}"
        reasons.append((base + rhythm.interval_s, Trigger.INTERVAL, every))
    return min(reasons, key=lambda reason: max(reason[0], now), default=None)


def _earliest(policy: Policy, now: float, facts: ScheduleFacts, rhythm: Pace) -> tuple[float, str]:
    """When nothing is in the way any more, and what was in the way longest. What is dated later than `now` counts as of now."""
    waits = [(now, "nothing is in the way")]
    if facts.last_attempt_at is not None:
        wait, failures = retry_after(policy, facts.failures_in_a_row), facts.failures_in_a_row
        attempt = "the last attempt" if failures == 1 else f"the last {failures} attempts"
        why = f"{attempt} failed, the next one waits {span(wait)}" if failures else "the last snapshot is too recent"
        waits.append((min(facts.last_attempt_at, now) + wait, why))
    if facts.last_snapshot_at is not None and facts.costs:
        why = f"after a stall of {span(facts.costs[-1].stall_s)} the kernel is left alone for {span(rhythm.rest_s)}"
        waits.append((min(facts.last_snapshot_at, now) + rhythm.rest_s, why))
    return max(waits, key=lambda wait: wait[0])
