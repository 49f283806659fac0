"""Snapshots that nobody asks for: looks at the kernel whenever something has happened, and asks `domain.schedule`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from perdure.domain.errors import PerdureError
from perdure.domain.pace import REMEMBERED, Cost
from perdure.domain.record import Trigger
from perdure.domain.schedule import Decision, ScheduleFacts, decide

from .capture import rfc3339
from .kernel import Kernel
from .usage import Usage

log = logging.getLogger(__name__)

_LOOK_S = 30.0
"""How often a quiet kernel is looked at: its threads may work without a word on iopub."""
_CALM_S = 0.2
"""Least time between two looks: a look reads all of /proc, and short cells may end a hundred times a second."""
_WORKED_S = 1.0
"""Processor time since the last snapshot that counts as work. A kernel that waits uses some milliseconds a minute."""


class Loop:
    """One kernel's schedule. `take` takes a snapshot, or raises PerdureError."""

    def __init__(self, kernel: Kernel, take: Callable[[Trigger], Awaitable[object]]) -> None:
        self._kernel, self._take, self._clock = kernel, take, kernel.host.clock
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._started_at = self._clock.monotonic()
        self._snapshot_at: float | None = None
        self._attempt_at: float | None = None
        self._begun: tuple[float, Usage, bool, bool, float] = (0.0, Usage(), False, False, 0.0)
        self._base = Usage()
        """What the kernel had used at the last snapshot."""
        self._failures = 0

    def begin(self) -> None:
        self._started_at = self._clock.monotonic()
        if self._kernel.memory.lineage:  # found again: an agent that starts doesn't save all of its kernels at once
            self._snapshot_at = self._started_at
        self._base = self._usage()
        self._task = self._kernel.errands.begin(self._run(), f"loop-{self._kernel.memory.kernel}")

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def look(self) -> None:
        """Something has changed."""
        self._wake.set()

    def snapshot_begins(self) -> None:
        """What happens from now on isn't in it."""
        activity = self._kernel.activity
        self._begun = (self._clock.monotonic(), self._usage(), activity.ran_since, activity.cell_ended, activity.work_s)
        activity.settle()

    def snapshot_done(self) -> None:
        self._snapshot_at, self._base = self._begun[:2]
        self._attempt_at = self._clock.monotonic()
        self._failures = 0
        self.look()

    def snapshot_failed(self) -> None:
        self._attempt_at = self._clock.monotonic()
        self._failures += 1
        _, _, ran_since, cell_ended, work_s = self._begun
        self._kernel.activity.unsettle(ran_since=ran_since, cell_ended=cell_ended, work_s=work_s)
        self.look()

    def restored(self) -> None:
        self._snapshot_at = self._clock.monotonic()
        self._base = self._usage()
        self._failures = 0
        if self._task is None:
            self.begin()
        self.look()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                wait_s = await self._once()
            except Exception:  # a fault of ours in one look must not end all later ones
                log.exception("the schedule of %s", self._kernel.memory.kernel)
                wait_s = _LOOK_S
            await asyncio.sleep(_CALM_S)
            try:
                await asyncio.wait_for(self._wake.wait(), wait_s)
            except TimeoutError:
                continue

    async def _once(self) -> float:
        """Seconds until the next look, if nothing happens before."""
        now = self._clock.monotonic()
        decision = decide(self._kernel.memory.policy, now, await self.facts())
        said = self._said(decision, now)
        if said != self._kernel.next_snapshot:
            self._kernel.next_snapshot = said
            self._kernel.news.tell()
        if decision.snapshot is None:
            return _LOOK_S if decision.at is None else min(max(decision.at - now, 0.0), _LOOK_S)
        try:
            await self._take(decision.snapshot)
        except PerdureError as error:
            log.info("%s: no snapshot: %s", self._kernel.memory.kernel, error)
        return 0.0

    def _said(self, decision: Decision, now: float) -> str:
        """For people: why, and not before when, as the wall clock shows it."""
        if decision.at is None:
            return decision.why
        at = rfc3339(round(self._clock.now() + decision.at - now))
        return f"{at[:10]} {at[11:19]} UTC or later: {decision.why}"

    def _usage(self) -> Usage:
        sandbox = self._kernel.sandbox
        return Usage.of(sandbox.processes()) if sandbox is not None else Usage()

    async def facts(self) -> ScheduleFacts:
        """How things are now."""
        usage = await self._kernel.host.blocking(self._usage)
        activity = self._kernel.activity
        return ScheduleFacts(
            phase=self._kernel.phase,
            started_at=self._started_at,
            last_snapshot_at=self._snapshot_at,
            last_attempt_at=self._attempt_at,
            failures_in_a_row=self._failures,
            ran_since=activity.ran_since or (self._snapshot_at is not None and usage.cpu_s - self._base.cpu_s > _WORKED_S),
            busy=activity.busy,
            cell_ended=activity.cell_ended,
            work_s=activity.work_s,
            growth_bytes=abs(usage.memory_bytes - self._base.memory_bytes),
            costs=self._costs(),
        )

    def _costs(self) -> tuple[Cost, ...]:
        """Of the last snapshots of this life, as their records say: an agent that has just been started knows them too."""
        infos = self._kernel.infos
        known = [infos[one] for one in self._kernel.memory.lineage[-REMEMBERED:] if one in infos]
        return tuple(Cost(one.stall_s, one.total_s) for one in known)
