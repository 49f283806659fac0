"""How often a working kernel is saved: Young and Daly's interval, under a budget of stalls and one of lost work.

Too seldom, and a failure costs much work; too often, and the snapshots themselves cost it. With a cost C of one snapshot and a
mean time M between failures, the least is lost in all with about sqrt(2 C M) from one snapshot to the next (Young 1974; Daly
2006 has the exact terms). C is measured, M can only be assumed. Two promises stand above that optimum: the kernel stands still
for no more than `stall_budget` of the time, and a failure costs no more than `loss_budget_s` of work. Where a kernel is so slow
to save that both can't be kept, the first one is: a user notices a freeze every few minutes, and a failure once a day. `why`
says how it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .policy import Policy

BACKGROUND_SHARE = 0.05
"""How much of a kernel's speed is lost while its snapshot is stored in the background, at the most that we allow ourselves."""
REMEMBERED = 5
"""So many of the last snapshots say what the next one will cost: enough to even out a busy minute, few enough to follow a
kernel that grows."""


@dataclass(frozen=True)
class Cost:
    """What one snapshot took, in seconds."""

    stall_s: float
    """The kernel stood still."""
    total_s: float
    """From its beginning until it was published: what is done in that time isn't safe yet."""

    @property
    def work_s(self) -> float:
        """How much work of the kernel it cost."""
        return self.stall_s + BACKGROUND_SHARE * max(0.0, self.total_s - self.stall_s)


@dataclass(frozen=True)
class Pace:
    """In seconds, from the beginning of one snapshot to the beginning of the next."""

    interval_s: float
    """For a kernel that works all the time."""
    rest_s: float
    """No snapshot that nobody asked for comes sooner, whatever its reason. That keeps the stall budget exactly: each stall is
    followed by its share of time without one."""
    why: str


def pace(policy: Policy, costs: Sequence[Cost]) -> Pace:
    """`costs`: of the last snapshots, the newest last; none when nothing has been measured yet."""
    wanted = [(policy.loss_budget_s, f"at most {span(policy.loss_budget_s)} of work may be lost")]
    if policy.snapshot_interval_s > 0:
        wanted.append((policy.snapshot_interval_s, f"the longest interval is set to {span(policy.snapshot_interval_s)}"))
    if not costs:
        interval, why = _least(wanted)
        return Pace(interval, 0.0, why)

    newest, usual = costs[-1], sum(cost.work_s for cost in costs) / len(costs)
    storing = max(cost.total_s for cost in costs)
    wanted[0] = (policy.loss_budget_s - storing, wanted[0][1])
    best = usual + daly(usual, policy.mean_time_between_failures_s)
    wanted.append((best, f"a snapshot costs {span(usual)}, a failure comes every {span(policy.mean_time_between_failures_s)}"))
    interval, why = _least(wanted)

    rest = max(0.0, newest.stall_s) / policy.stall_budget
    floor, reason = max(
        (rest, f"a stall of {span(newest.stall_s)} may be {policy.stall_budget:.2%} of the time"),
        (newest.total_s + policy.min_gap_s, f"a snapshot takes {span(newest.total_s)}"),
    )
    if interval >= floor:
        return Pace(interval, rest, why)
    if floor + storing > policy.loss_budget_s:
        reason = f"{reason}, so more than {span(policy.loss_budget_s)} of work may be lost"
    return Pace(floor, rest, reason)


def daly(cost_s: float, failure_s: float) -> float:
    """Seconds of work between two snapshots with which the least is lost in all (Daly 2006, equation 37)."""
    if cost_s >= 2 * failure_s:
        return failure_s
    part = max(0.0, cost_s) / (2 * failure_s)
    return math.sqrt(2 * cost_s * failure_s) * (1 + math.sqrt(part) / 3 + part / 9) - cost_s


def span(seconds: float) -> str:
    """For people: 0.05 s, 12 s, 4 min 40 s, 24 h."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 90:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{seconds / 3600:.3g} h"


def _least(wanted: list[tuple[float, str]]) -> tuple[float, str]:
    return min(wanted, key=lambda one: one[0])
