"""Use case: the agent is told to end, perhaps because its machine goes: what would be lost is saved, while there is time."""

from __future__ import annotations

import asyncio
import logging

from perdure.domain.errors import PerdureError
from perdure.domain.schedule import decide_last

from .kernel import Kernel
from .snapshots import Snapshots

log = logging.getLogger(__name__)


async def farewell(kernel: Kernel, snapshots: Snapshots) -> None:
    """Returns within the policy's `preemption_deadline_s`; what isn't published then is given up. The kernel runs on either way.

    What is being done to the kernel already is waited for: a snapshot that was begun before may hold all that there is to save.
    """
    memory = kernel.memory
    deadline_s = memory.policy.preemption_deadline_s
    if not memory.phase.alive or memory.policy.only_when_asked or deadline_s <= 0:
        return
    saving = kernel.errands.begin(_save(kernel, snapshots), f"farewell-{memory.kernel}")
    saved, _ = await asyncio.wait({saving}, timeout=deadline_s)
    if not saved:
        log.warning("%s: %g seconds were too short for a last snapshot", memory.kernel, deadline_s)
        kernel.closing = True
        kernel.cancelled.set()


async def _save(kernel: Kernel, snapshots: Snapshots) -> None:
    async with kernel.lock:
        decision = decide_last(kernel.memory.policy, await snapshots.loop.facts())
        if decision.snapshot is None:
            log.info("%s: no last snapshot: %s", kernel.memory.kernel, decision.why)
            return
        async with kernel.host.snapshot_slots:
            try:
                await snapshots.take_locked(decision.snapshot)
            except PerdureError as error:
                log.warning("%s: no last snapshot: %s", kernel.memory.kernel, error)
