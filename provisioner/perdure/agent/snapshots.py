"""Snapshots of one kernel, asked for or by its schedule."""

from __future__ import annotations

import asyncio
import logging

from perdure.domain.errors import Conflict, NoRoom, PerdureError, SnapshotFailed
from perdure.domain.phases import Phase
from perdure.domain.record import Trigger
from perdure.engine import mend
from perdure.wire.messages import GenerationInfo

from .capture import Moment, capture, target_of
from .keeping import Keeping
from .kernel import Kernel
from .loop import Loop

log = logging.getLogger(__name__)


class Snapshots:
    """`loop` asks for those that nobody else asks for."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.loop = Loop(kernel, self.take)
        self._keeping = Keeping(kernel)

    async def take(self, trigger: Trigger) -> GenerationInfo:
        """Published when it returns; when it raises, the kernel runs on and `last_error` says why. Waits for one that is being
        taken: that one may not hold what the caller wants saved."""
        if self._kernel.phase is not Phase.SNAPSHOTTING:
            self._check()
        async with self._kernel.lock, self._kernel.host.snapshot_slots:
            try:
                info = await self.take_locked(trigger)
            except NoRoom:
                self._keeping.after_snapshot(pressed=True)
                raise
        self._keeping.after_snapshot()
        return info

    async def take_locked(self, trigger: Trigger) -> GenerationInfo:
        """`take` for one who holds the kernel's lock."""
        kernel, memory = self._kernel, self._kernel.memory
        self._check()
        self._keeping.stop()
        sandbox = kernel.sandbox
        if sandbox is None:
            raise Conflict("The kernel has no process.")
        loop, cancelled, report = asyncio.get_running_loop(), kernel.operation(), kernel.reporter()
        memory.stopped = sorted(mend.Before.of(target_of(sandbox)).stopped)
        kernel.to(Phase.SNAPSHOTTING)
        kernel.thawed.clear()
        self.loop.snapshot_begins()

        def moment() -> Moment:
            return Moment(kernel.activity.busy, kernel.activity.execution_count)

        def thawed() -> None:
            loop.call_soon_threadsafe(kernel.thawed.set)

        try:
            info = await kernel.host.blocking(
                lambda: capture(
                    kernel.host, memory, sandbox, trigger, moment=moment, thawed=thawed, report=report, cancelled=cancelled
                )
            )
        except PerdureError as error:
            self.loop.snapshot_failed()
            kernel.note(error)
            raise
        except Exception as error:  # a bug of ours must neither harm the kernel nor end the agent's care for it
            self.loop.snapshot_failed()
            log.exception("snapshot of %s", memory.kernel)
            failed = SnapshotFailed("The snapshot failed by a fault of Perdure's own.", detail=repr(error))
            kernel.note(failed)
            raise failed from error
        else:
            kernel.infos[info.generation] = info
            memory.lineage.append(info.generation)
            memory.newest = info.generation
            memory.last_error = None
            self.loop.snapshot_done()
            log.info("%s: generation %s, stall %.3f s", memory.kernel, info.generation, info.stall_s)
            return info
        finally:
            kernel.thawed.set()
            kernel.progress = None
            if kernel.phase is Phase.SNAPSHOTTING:
                kernel.to(Phase.RUNNING)
            else:
                kernel.save()
                kernel.news.tell()
            self.loop.look()

    def _check(self) -> None:
        if self._kernel.closing:
            raise Conflict("The agent is about to end.", hint="Try again when it is back.")
        if self._kernel.phase is not Phase.RUNNING:
            raise Conflict(f"The kernel is {self._kernel.phase}.", hint="Try again in a moment.")
