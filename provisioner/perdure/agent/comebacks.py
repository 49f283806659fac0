"""One kernel's ways back: after its death, and because its user asked for it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from threading import Event

from perdure.domain.errors import Conflict, Corrupt, KernelGone, NotFound, PerdureError, PreflightRefused, RestoreFailed
from perdure.domain.ids import Generation
from perdure.domain.phases import Phase
from perdure.domain.record import Trigger
from perdure.runtime.sandbox import Sandbox
from perdure.wire.messages import Restore

from .capture import rfc3339
from .deaths import Deaths
from .kernel import Kernel
from .revive import Comeback, revive
from .snapshots import Snapshots

log = logging.getLogger(__name__)


class Comebacks:
    def __init__(self, kernel: Kernel, snapshots: Snapshots) -> None:
        self._kernel, self._snapshots = kernel, snapshots
        self.deaths = Deaths(kernel.memory.policy, kernel.host.clock)

    async def asked(self, generation: Generation | None, *, accept_changed_files: bool) -> None:
        """Back to `generation` (None: the newest one that can be restored). Raises what says why not; then the kernel is as it
        was, or as near to it as can be."""
        kernel, kills = self._kernel, self._kernel.kills
        begun = kernel.host.clock.monotonic()
        async with kernel.lock:
            self._check_wanted(kills)
            wanted = await self._wanted(generation)
            fallback, unsaved = await self._safety() if kernel.phase is Phase.RUNNING else ([], ())
            self._check_wanted(kills)  # a kill, or the agent's end, has cancelled that snapshot: nothing begins after it
            kernel.to(Phase.RESTORING)
            kernel.thawed.clear()
            try:
                await self._from(wanted, begun, "it was asked for", asked=True, accept_changed_files=accept_changed_files)
                kernel.restore_warnings += unsaved
            except PerdureError as error:
                kernel.note(error)
                await self._as_before(fallback, begun, f"generation {wanted[0]} could not be restored")
                if kernel.phase is not Phase.DEAD:
                    kernel.memory.last_error = error  # what the user asked for has failed, whatever came after it
                raise
            finally:
                self._over()

    async def died(self) -> None:
        """The sandbox has ended, and nobody asked for that."""
        kernel = self._kernel
        noticed = kernel.host.clock.monotonic()
        if kernel.phase is Phase.SNAPSHOTTING:
            kernel.cancelled.set()
        async with kernel.lock:
            memory, sandbox = kernel.memory, kernel.sandbox
            if self._let_be() or sandbox is None or kernel.alive:
                return
            status = memory.exit_status = sandbox.ended()
            await kernel.host.blocking(sandbox.kill)
            if self._let_be():
                return
            if status == 0:
                log.info("%s ended by itself", memory.kernel)
                kernel.to(Phase.DEAD)
                return
            how = f"it was ended by signal {-status}" if status is not None and status < 0 else f"it ended with status {status}"
            kernel.to(Phase.LOST)
            kernel.thawed.clear()
            self.deaths.died()
            wanted = self.deaths.candidates(memory.lineage) if memory.policy.restore_on_death else []
            log.warning("%s is lost: %s; generations to go back to: %s", memory.kernel, how, wanted or "none")
            try:
                if not wanted:
                    raise RestoreFailed(f"The kernel is lost: {how}.", hint=self.deaths.why(memory.lineage))
                kernel.to(Phase.RESTORING)
                await self._from(wanted, noticed, how)
            except PerdureError as error:
                kernel.note(error)
                self._failed()
            finally:
                self._over()

    def _check_wanted(self, kills: int) -> None:
        """Raises KernelGone when the kernel was ended since there were so many kills, Conflict when the agent ends."""
        if self._kernel.kills != kills:
            raise KernelGone("The kernel was ended while its restore waited.")
        if self._kernel.closing:
            raise Conflict("The agent is about to end.", hint="Try again when it is back.")

    async def _wanted(self, generation: Generation | None) -> list[Generation]:
        """Raises NotFound."""
        await self._kernel.read_generations()
        known = sorted(self._kernel.infos, reverse=True)
        if not known:
            raise NotFound("There is no snapshot of this kernel yet.", hint="`perdure snapshot` takes one.")
        if generation is None:
            return known
        if generation not in known:
            raise NotFound(
                f"There is no generation {generation} of this kernel.",
                hint=f"There are: {', '.join(map(str, reversed(known)))}.",
            )
        return [generation]

    async def _safety(self) -> tuple[list[Generation], tuple[str, ...]]:
        """A snapshot of how the kernel is now; what else to go back to when that can't be taken, and a warning.

        That is no reason to refuse: what is in the way of a snapshot may be why the user wants to go back.
        """
        kernel = self._kernel
        try:
            async with kernel.host.snapshot_slots:
                return [(await self._snapshots.take_locked(Trigger.BEFORE_RESTORE)).generation], ()
        except PerdureError as error:
            log.warning("%s is restored without a snapshot of how it is now: %s", kernel.memory.kernel, error)
            unsaved = f"How the kernel was before the restore could not be saved: {error.sentence}"
            return list(reversed(kernel.memory.lineage)), (unsaved,)

    async def _as_before(self, fallback: list[Generation], begun: float, reason: str) -> None:
        """What was asked for has failed."""
        kernel = self._kernel
        if kernel.phase is not Phase.RESTORING:
            return
        if kernel.alive:
            kernel.to(Phase.RUNNING)  # nothing was ended: the kernel goes on
            return
        try:
            await self._from(fallback, begun, reason)
        except PerdureError as error:
            log.error("%s can't go back to how it was either: %s\n%s", kernel.memory.kernel, error, error.detail)
            self._failed()

    async def _from(
        self, wanted: list[Generation], begun: float, reason: str, *, asked: bool = False, accept_changed_files: bool = False
    ) -> None:
        """The first of `wanted` that can be restored. Raises what was wrong with the first one when none can."""
        kernel = self._kernel
        cancelled = kernel.operation()
        first: PerdureError | None = None
        passed_over: list[str] = []
        for generation in wanted:
            try:
                back = await self._revive(generation, cancelled, accept_changed_files)
            except PerdureError as error:
                kernel.attempt = None
                if cancelled.is_set():
                    raise KernelGone("The kernel was ended while it was being restored.") from error
                log.warning("%s: generation %s can't be restored: %s\n%s", kernel.memory.kernel, generation, error, error.detail)
                first = first or error
                passed_over.append(f"Generation {generation} could not be restored: {error.sentence}")
                if isinstance(error, Corrupt) and generation in kernel.infos:
                    kernel.infos[generation] = replace(kernel.infos[generation], verified=False)
                if asked and isinstance(error, PreflightRefused):
                    break  # whether to accept that, or to go further back, is for the person who asks to say
                continue
            kernel.attempt = None
            if cancelled.is_set():
                await kernel.host.blocking(back.sandbox.kill)
                raise KernelGone("The kernel was ended while it was being restored.")
            self._is_back(back, begun, reason, asked=asked)
            kernel.restore_warnings = (*passed_over, *kernel.restore_warnings)
            return
        raise first or NotFound("There is no snapshot to go back to.")

    async def _revive(self, generation: Generation, cancelled: Event, accept_changed_files: bool) -> Comeback:
        kernel, old = self._kernel, self._kernel.sandbox
        loop, report = asyncio.get_running_loop(), self._kernel.reporter()

        def end_present() -> None:
            loop.call_soon_threadsafe(kernel.watch.stop)
            if old is not None:
                old.kill()

        def opened(sandbox: Sandbox) -> None:
            kernel.attempt = sandbox

        try:
            async with kernel.host.restore_slots:
                return await kernel.host.blocking(
                    lambda: revive(
                        kernel.host,
                        kernel.memory,
                        generation,
                        end_present=end_present,
                        opened=opened,
                        report=report,
                        cancelled=cancelled,
                        accept_changed_files=accept_changed_files,
                    )
                )
        except PerdureError:
            raise
        except OSError as error:  # a disk's, or of a sandbox that was ended under our hands
            why = error.strerror or str(error)
            raise RestoreFailed(f"The kernel could not be brought back: {why}.", detail=repr(error)) from error
        except Exception as error:  # a bug of ours, with one generation: the kernel must not stay half way, an older one may work
            log.exception("restore of %s from generation %s", kernel.memory.kernel, generation)
            raise RestoreFailed("The restore failed by a fault of Perdure's own.", detail=repr(error)) from error

    def _is_back(self, back: Comeback, begun: float, reason: str, *, asked: bool) -> None:
        kernel, memory, clock = self._kernel, self._kernel.memory, self._kernel.host.clock
        kernel.take(back.sandbox)
        same = back.record.incarnation == memory.incarnation
        memory.lineage = [one for one in memory.lineage if same and one < back.generation] + [back.generation]
        memory.incarnation = back.record.incarnation
        memory.endpoint = back.endpoint
        memory.exit_status = memory.last_error = None
        memory.note_activity(back.record.busy, back.record.execution_count)
        memory.restores.append(Restore(rfc3339(clock.now()), back.generation, clock.monotonic() - begun, reason))
        kernel.restore_warnings = back.warnings
        self.deaths.restored(back.generation, asked=asked)
        kernel.activity.went_back(busy=memory.busy, execution_count=memory.execution_count)
        kernel.activity.listen(back.endpoint)
        kernel.to(Phase.RUNNING)
        self._snapshots.loop.restored()
        log.info("%s is back from generation %s", memory.kernel, back.generation)

    def _let_be(self) -> bool:
        """It was ended by its user, or the agent ends: asked anew after every wait."""
        return not self._kernel.phase.alive or self._kernel.closing

    def _failed(self) -> None:
        """An agent that ends leaves the rest to the next one."""
        if self._kernel.phase is not Phase.DEAD and not self._kernel.closing:
            self._kernel.to(Phase.FAILED)

    def _over(self) -> None:
        self._kernel.thawed.set()
        self._kernel.progress = None
        self._kernel.save()
        self._kernel.news.tell()
