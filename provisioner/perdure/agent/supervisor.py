"""One kernel, looked after from its start to its end: phases, signals, snapshots, death and comeback.

All of this runs in the agent's event loop; what blocks is done in threads. `_lock` lets one thing at a time be done to the
kernel's process tree. A kernel's death is noticed by its sandbox's PID 1 ending, whatever else is going on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Coroutine
from threading import Event
from typing import Any

from perdure.domain.errors import Conflict, KernelGone, NotFound, PerdureError, RestoreFailed, SnapshotFailed, StoreFailed
from perdure.domain.ids import Generation
from perdure.domain.phases import Phase, move
from perdure.domain.policy import Policy
from perdure.domain.record import Trigger
from perdure.engine import mend
from perdure.runtime.identity import ProcessIdentity
from perdure.runtime.sandbox import LaunchSpec, Sandbox
from perdure.runtime.status import ShimStatus
from perdure.wire.messages import Address, GenerationInfo, KernelStatus, Progress, Restore

from . import generations
from .activity import Activity
from .capture import Moment, capture, rfc3339, target_of
from .deaths import Deaths
from .host import Host
from .loop import Loop
from .memory import Memory
from .revive import Comeback, revive

log = logging.getLogger(__name__)


class Supervisor:
    """Made by the registry. Everything raises PerdureError."""

    def __init__(self, host: Host, memory: Memory) -> None:
        self._host, self._memory = host, memory
        self._sandbox: Sandbox | None = None
        self._watched: int | None = None
        """pidfd of the sandbox's PID 1."""
        self._lock = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._thawed = asyncio.Event()
        """Clear while the kernel can't take a signal: frozen, or being restored."""
        self._thawed.set()
        self._cancelled = Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._seq = 1
        self._progress: Progress | None = None
        self._infos: dict[Generation, GenerationInfo] = {}
        self._warnings: list[str] = []
        self._deaths = Deaths(memory.policy, host.clock)
        self.activity = Activity(memory.endpoint, host.clock, self._heard, execution_count=memory.execution_count)
        self.loop = Loop(self, host.clock)

    # What is known ---------------------------------------------------------------------------------------------------------

    @property
    def memory(self) -> Memory:
        return self._memory

    @property
    def phase(self) -> Phase:
        return self._memory.phase

    @property
    def sandbox(self) -> Sandbox | None:
        return self._sandbox

    def status(self) -> KernelStatus:
        """Without generations."""
        memory = self._memory
        kernel = self._sandbox.kernel() if self._sandbox and memory.phase.alive else None
        last = memory.lineage[-1] if memory.lineage else None
        return KernelStatus(
            kernel_id=memory.kernel,
            seq=self._seq,
            phase=memory.phase,
            host=self._host.name,
            owner=memory.owner,
            endpoint=Address(memory.endpoint.ip, dict(memory.endpoint.ports)),
            kernel_name=memory.kernel_name,
            notebook=memory.notebook,
            started=memory.started,
            incarnation=memory.incarnation,
            pid=kernel.pid if kernel else None,
            exit_status=memory.exit_status,
            busy=self.activity.busy and memory.phase.alive,
            execution_count=self.activity.execution_count,
            repository=memory.repository,
            policy=memory.policy,
            last_snapshot=self._infos.get(last) if last is not None else None,
            last_error=memory.last_error,
            next_snapshot=self.loop.said,
            progress=self._progress,
            restores=tuple(memory.restores),
            warnings=tuple(self._warnings),
        )

    async def full_status(self) -> KernelStatus:
        """With generations, as the repository has them now."""
        await self._read_generations()
        status = self.status()
        return KernelStatus(**{**vars(status), "generations": tuple(self._infos[one] for one in sorted(self._infos))})

    async def wait(self, seq: int, seconds: float) -> KernelStatus:
        """The status once it is newer than `seq`, or after so many seconds."""
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(lambda: self._seq > seq), seconds)
            except TimeoutError:
                pass  # nothing has changed; the same answer tells the caller that we live
        return self.status()

    # Beginning and end ----------------------------------------------------------------------------------------------------

    async def start(self, env: dict[str, str]) -> None:
        """The kernel's program runs when this returns."""
        memory = self._memory
        spec = LaunchSpec(memory.argv, env, memory.cwd, memory.owner)
        memory.save()
        folder, die = memory.sandbox_folder, self._host.die_with_agent
        sandbox = await self._host.blocking(lambda: Sandbox.start(folder, spec, die_with_agent=die))
        self._take(sandbox)
        self._to(Phase.RUNNING)
        self.activity.listen()
        self.loop.begin()

    async def adopt(self) -> None:
        """After an agent's restart: the kernel is found as it is now, and what was being done to it is brought to an end."""
        memory = self._memory
        was = memory.phase
        await self._host.blocking(lambda: _clear(memory))
        if not was.alive:
            return
        sandbox = Sandbox.adopt(memory.sandbox_folder, memory.shim) if memory.shim else None
        if was in (Phase.STARTING, Phase.RESTORING, Phase.LOST):
            await self._host.blocking(lambda: _end_leftover(memory))
            sandbox = None
            if was is Phase.STARTING:
                memory.phase = Phase.DEAD
                memory.last_error = KernelGone("The agent ended while the kernel was started.", hint="Start it again.")
                memory.save()
                return
        try:
            await self._catch_up()
        except PerdureError as error:
            self._note(error)
        if sandbox is None or sandbox.ended() is not None:
            self._sandbox = sandbox or Sandbox(memory.sandbox_folder, memory.shim or _nobody())
            memory.phase = Phase.RUNNING if was is not Phase.LOST else was
            self._begin(self._died())
            return
        if was is Phase.SNAPSHOTTING:
            target = target_of(sandbox)
            await self._host.blocking(lambda: mend.mend(target, mend.Before(frozenset()), self._host.clock))
        memory.phase = Phase.RUNNING
        self._take(sandbox)
        self.activity.went_back(busy=memory.busy, execution_count=memory.execution_count)
        self.activity.ran_since = True
        self.activity.listen()
        self.loop.begin()
        self._touch()

    async def kill(self, signum: int) -> None:
        """Ends it for good. Idempotent."""
        if self.phase is Phase.DEAD:
            return
        self._to(Phase.DEAD)
        self._cancelled.set()
        sandbox = self._sandbox
        if sandbox is not None:
            await self._host.blocking(sandbox.kill)
        async with self._lock:  # a restore that was on its way has made another sandbox, and ends it when it sees the phase
            if self._sandbox is not None:
                await self._host.blocking(self._sandbox.kill)
            self._memory.exit_status = -signum
            self._memory.save()
        self._unwatch()
        await self.activity.close()
        self._touch()

    async def close(self) -> None:
        """The agent ends; the kernel doesn't."""
        self._cancelled.set()
        self._unwatch()
        self.loop.close()
        await self.activity.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def signal(self, signum: int) -> None:
        """Waits until the kernel can take it: a signal that meets a frozen process may be lost."""
        await self._thawed.wait()
        if self._sandbox is None or not self.phase.alive:
            raise KernelGone("The kernel has ended.")
        self._sandbox.signal(signum)

    async def set_policy(self, policy: Policy) -> None:
        self._memory.policy = policy
        self._deaths.policy = policy
        self._memory.save()
        self._touch()
        self.loop.look()

    # Snapshot -------------------------------------------------------------------------------------------------------------

    async def snapshot(self, trigger: Trigger) -> GenerationInfo:
        """Published when it returns; when it raises, the kernel runs on and `last_error` says why."""
        if self.phase is not Phase.RUNNING:
            raise Conflict(f"The kernel is {self.phase}.", hint="Try again in a moment.")
        async with self._lock, self._host.slots:
            return await self._snapshot(trigger)

    async def _snapshot(self, trigger: Trigger) -> GenerationInfo:
        memory, sandbox = self._memory, self._sandbox
        if self.phase is not Phase.RUNNING or sandbox is None:
            raise Conflict(f"The kernel is {self.phase}.", hint="Try again in a moment.")
        self._to(Phase.SNAPSHOTTING)
        moment = Moment(trigger, self.activity.busy, self.activity.execution_count)
        loop = asyncio.get_running_loop()
        self._cancelled.clear()
        self._thawed.clear()

        def thawed() -> None:
            loop.call_soon_threadsafe(self._thawed.set)

        try:
            self.loop.snapshot_begins()
            info = await self._host.blocking(
                lambda: capture(
                    self._host, memory, sandbox, moment, thawed=thawed, report=self._reporter(loop), cancelled=self._cancelled
                )
            )
        except PerdureError as error:
            self.loop.snapshot_failed()
            self._note(error)
            raise
        except Exception as error:  # a bug of ours must neither harm the kernel nor end the agent's care for it
            self.loop.snapshot_failed()
            log.exception("snapshot of %s", memory.kernel)
            failed = SnapshotFailed("The snapshot failed by a fault of Perdure's own.", detail=repr(error))
            self._note(failed)
            raise failed from error
        finally:
            self._thawed.set()
            self._progress = None
            if self.phase is Phase.SNAPSHOTTING:
                self._to(Phase.RUNNING)
            self._touch()
        self._infos[info.generation] = info
        memory.lineage.append(info.generation)
        memory.newest = info.generation
        memory.last_error = None
        memory.busy, memory.execution_count = moment.busy, moment.execution_count
        memory.save()
        self.loop.snapshot_done()
        self._touch()
        return info

    # Comeback -------------------------------------------------------------------------------------------------------------

    async def restore(self, generation: Generation | None, *, accept_changed_files: bool) -> None:
        """Asked for: back to `generation` (None: the newest one that can be restored). Raises what says why not."""
        await self._read_generations()
        if generation is not None and generation not in self._infos:
            raise NotFound(
                f"There is no generation {generation} of this kernel.",
                hint=f"There are: {', '.join(map(str, sorted(self._infos))) or 'none yet'}.",
            )
        wanted = [generation] if generation is not None else sorted(self._infos, reverse=True)
        if not wanted:
            raise NotFound("There is no snapshot of this kernel yet.", hint="`perdure snapshot` takes one.")
        begun = self._host.clock.monotonic()
        async with self._lock:
            fallback: list[Generation] = []
            if self.phase is Phase.RUNNING:
                try:
                    async with self._host.slots:
                        fallback = [(await self._snapshot(Trigger.BEFORE_RESTORE)).generation]
                except PerdureError as error:
                    log.warning("%s is restored without a snapshot of how it is now: %s", self._memory.kernel, error)
                    fallback = list(reversed(self._memory.lineage))
            self._to(Phase.RESTORING)
            self._thawed.clear()
            try:
                await self._come_back(wanted, begun, "it was asked for", accept_changed_files=accept_changed_files)
            except PerdureError as error:
                self._note(error)
                if self._alive():
                    self._to(Phase.RUNNING)  # nothing was ended: the kernel goes on as it was
                elif fallback and self.phase is Phase.RESTORING:
                    await self._come_back(fallback, begun, f"generation {wanted[0]} could not be restored")
                    self._note(error)
                else:
                    self._to_failed()
                raise
            finally:
                self._thawed.set()
                self._progress = None
                self._touch()

    async def _died(self) -> None:
        """PID 1 of the sandbox has ended, and nobody asked for that."""
        self._unwatch()
        self._cancelled.set()
        noticed = self._host.clock.monotonic()
        async with self._lock:
            memory, sandbox = self._memory, self._sandbox
            if not self.phase.alive or sandbox is None or self._alive():
                return
            status = sandbox.ended()
            await self._host.blocking(sandbox.kill)
            memory.exit_status = status
            if status == 0:
                log.info("%s ended by itself", memory.kernel)
                self._to(Phase.DEAD)
                await self._stop_listening()
                return
            how = f"it was ended by signal {-status}" if status is not None and status < 0 else f"it ended with status {status}"
            self._to(Phase.LOST)
            self._thawed.clear()
            self._deaths.died()
            wanted = self._deaths.candidates(memory.lineage) if memory.policy.restore_on_death else []
            log.warning("%s is lost: %s; generations to go back to: %s", memory.kernel, how, wanted or "none")
            try:
                if not wanted:
                    raise RestoreFailed(f"The kernel is lost: {how}.", hint=self._deaths.why(memory.lineage))
                self._to(Phase.RESTORING)
                await self._come_back(wanted, noticed, how)
            except PerdureError as error:
                self._note(error)
                self._to_failed()
                await self._stop_listening()
            finally:
                self._thawed.set()
                self._progress = None
                self._touch()

    async def _come_back(
        self, wanted: list[Generation], begun: float, reason: str, *, accept_changed_files: bool = False
    ) -> None:
        """The first of `wanted` that can be restored. Raises what was wrong with the first one when none can."""
        first: PerdureError | None = None
        loop = asyncio.get_running_loop()
        old = self._sandbox

        def end_present() -> None:
            loop.call_soon_threadsafe(self._unwatch)
            if old is not None:
                old.kill()

        for generation in wanted:
            try:
                async with self._host.slots:
                    back = await self._host.blocking(
                        lambda generation=generation: revive(  # type: ignore[misc]
                            self._host,
                            self._memory,
                            generation,
                            end_present=end_present,
                            report=self._reporter(loop),
                            accept_changed_files=accept_changed_files,
                        )
                    )
            except PerdureError as error:
                log.warning("generation %s of %s can't be restored: %s\n%s", generation, self._memory.kernel, error, error.detail)
                first = first or error
                continue
            if self.phase is Phase.DEAD:
                await self._host.blocking(back.sandbox.kill)
                raise KernelGone("The kernel was ended while it was being restored.")
            self._is_back(back, begun, reason)
            return
        raise first or NotFound("There is no snapshot to go back to.")

    def _is_back(self, back: Comeback, begun: float, reason: str) -> None:
        memory, clock = self._memory, self._host.clock
        self._take(back.sandbox)
        memory.lineage = [one for one in memory.lineage if one < back.generation] + [back.generation]
        memory.incarnation = back.record.incarnation
        memory.endpoint = back.endpoint
        memory.exit_status = None
        memory.last_error = None
        memory.busy, memory.execution_count = back.record.busy, back.record.execution_count
        memory.restores.append(Restore(rfc3339(clock.now()), back.generation, clock.monotonic() - begun, reason))
        self._warnings = list(back.warnings)
        self._deaths.restored(back.generation)
        self.activity.went_back(busy=memory.busy, execution_count=memory.execution_count)
        self.activity.listen_again(back.endpoint)
        self._to(Phase.RUNNING)
        self.loop.restored()
        log.info("%s is back from generation %s", memory.kernel, back.generation)

    # Small things ---------------------------------------------------------------------------------------------------------

    def _take(self, sandbox: Sandbox) -> None:
        self._unwatch()
        self._sandbox = sandbox
        self._memory.shim = sandbox.shim
        try:
            self._watched = sandbox.shim.pidfd()
        except ProcessLookupError:
            self._begin(self._died())
            return
        asyncio.get_running_loop().add_reader(self._watched, self._ended)

    def _ended(self) -> None:
        self._unwatch()
        self._begin(self._died())

    def _unwatch(self) -> None:
        fd, self._watched = self._watched, None
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    def _alive(self) -> bool:
        return self._sandbox is not None and self._sandbox.ended() is None

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop_listening(self) -> None:
        await self.activity.close()

    async def _read_generations(self) -> None:
        memory = self._memory

        def read() -> list[str]:
            return generations.read_all(self._host.open_repository(memory.repository), memory.kernel, self._infos)

        try:
            self._warnings = await self._host.blocking(read)
        except StoreFailed as error:
            self._warnings = [f"The repository can't be read: {error.sentence}"]

    async def _catch_up(self) -> None:
        """A generation that was published just before the last agent ended belongs to this life too."""
        await self._read_generations()
        memory = self._memory
        for number in sorted(self._infos):
            if number > memory.newest and self._infos[number].incarnation == memory.incarnation:
                memory.lineage.append(number)
                memory.newest = number

    def _to(self, phase: Phase) -> None:
        self._memory.phase = move(self._memory.phase, phase)
        self._memory.save()
        self._touch()

    def _to_failed(self) -> None:
        if self.phase is not Phase.DEAD:
            self._to(Phase.FAILED)

    def _note(self, error: PerdureError) -> None:
        self._memory.last_error = error
        log.warning("%s: %s\n%s", self._memory.kernel, error, error.detail)

    def _heard(self) -> None:
        self._touch()
        self.loop.look()

    def _reporter(self, loop: asyncio.AbstractEventLoop) -> Any:
        def report(step: str, fraction: float | None) -> None:
            loop.call_soon_threadsafe(self._set_progress, Progress(step, fraction))

        return report

    def _set_progress(self, progress: Progress) -> None:
        before = self._progress
        self._progress = progress
        moved = abs((progress.fraction or 0) - ((before.fraction if before else 0) or 0))
        if before is None or before.step != progress.step or moved >= 0.05:
            self._touch()

    def _touch(self) -> None:
        """Whoever waits for news hears of it."""
        self._seq += 1
        self._begin(self._tell())

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _clear(memory: Memory) -> None:
    shutil.rmtree(memory.staging, ignore_errors=True)


def _nobody() -> ProcessIdentity:
    return ProcessIdentity(0, 0, "")


def _end_leftover(memory: Memory) -> None:
    """Ends a sandbox that the last agent was starting or restoring into: nobody knows how far it came."""
    pid = ShimStatus.read(memory.sandbox_folder / "status").shim_pid
    shim = ProcessIdentity.of(pid) if pid else None
    leftover = Sandbox.adopt(memory.sandbox_folder, shim) if shim and _is_shim(shim.pid) else None
    if leftover is not None:
        leftover.kill()


def _is_shim(pid: int) -> bool:
    """The pid may be somebody else's by now."""
    try:
        return os.readlink(f"/proc/{pid}/exe").split(" (deleted)")[0].endswith("/perdure-shim")
    except OSError:
        return False
