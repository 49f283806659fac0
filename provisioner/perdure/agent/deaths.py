"""Which generation a lost kernel goes back to, and when to stop trying.

A kernel that dies again and again right after its comeback would be restored for ever: a cell that was running at the snapshot
and ends in a segmentation fault does that. So a generation whose kernel died `max_restores` times within `stable_s` is set aside
and the next older one is tried, and after twice as many quick deaths in a row nothing is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perdure.domain.clock import Clock
from perdure.domain.ids import Generation
from perdure.domain.policy import Policy


class Deaths:
    """Counts them, for one kernel."""

    def __init__(self, policy: Policy, clock: Clock) -> None:
        self.policy = policy
        self._clock = clock
        self._last: tuple[Generation, float] | None = None
        self._quick: Counter[Generation] = Counter()
        self._in_a_row = 0

    def restored(self, generation: Generation, *, asked: bool) -> None:
        """Back from `generation`. A death after a restore that the user asked for says nothing about that generation."""
        self._last = None if asked else (generation, self._clock.monotonic())

    def died(self) -> None:
        if self._last is not None and self._clock.monotonic() - self._last[1] < self.policy.stable_s:
            self._quick[self._last[0]] += 1
            self._in_a_row += 1
        else:
            self._in_a_row = 0

    def candidates(self, lineage: Sequence[Generation]) -> list[Generation]:
        """Newest first."""
        if self._in_a_row >= 2 * max(1, self.policy.max_restores):
            return []
        return [one for one in reversed(lineage) if self._quick[one] < max(1, self.policy.max_restores)]

    def why(self, lineage: Sequence[Generation]) -> str:
        """Why there are no candidates, in words."""
        if not self.policy.restore_on_death:
            return "Its policy is not to restore it by itself; `perdure restore` does."
        if not lineage:
            return "There was no snapshot of it yet."
        return "It was restored several times and died each time at once; `perdure restore --generation N` tries an older one."
