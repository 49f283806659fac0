"""One kernel, looked after from its start to its end."""

from __future__ import annotations

import logging

from perdure.domain.errors import KernelGone
from perdure.domain.ids import Generation
from perdure.domain.phases import Phase
from perdure.domain.policy import Policy
from perdure.domain.record import Trigger
from perdure.engine import mend
from perdure.runtime.identity import ProcessIdentity
from perdure.runtime.sandbox import LaunchSpec, Sandbox
from perdure.wire.messages import GenerationInfo, KernelStatus

from . import leftovers
from .capture import target_of
from .comebacks import Comebacks
from .farewell import farewell
from .host import Host
from .kernel import Kernel
from .memory import Memory
from .snapshots import Snapshots

log = logging.getLogger(__name__)

_NOBODY = ProcessIdentity(0, 0, "")


class Supervisor:
    """Made by the registry. Everything raises PerdureError. A death is noticed by the sandbox's PID 1 ending, whatever else is
    going on."""

    def __init__(self, host: Host, memory: Memory) -> None:
        self._host, self.memory = host, memory
        self._kernel = Kernel(host, memory)
        self._snapshots = Snapshots(self._kernel)
        self._comebacks = Comebacks(self._kernel, self._snapshots)
        self._kernel.on_end = lambda: self._died()
        self._kernel.on_activity = self._snapshots.loop.look

    @property
    def phase(self) -> Phase:
        return self.memory.phase

    def status(self) -> KernelStatus:
        """Without generations."""
        return self._kernel.status()

    async def full_status(self) -> KernelStatus:
        """With generations, as the repository has them now."""
        await self._kernel.read_generations()
        infos = self._kernel.infos
        return KernelStatus(**{**vars(self.status()), "generations": tuple(infos[one] for one in sorted(infos))})

    async def wait(self, seq: int, seconds: float) -> KernelStatus:
        """The status once it is newer than `seq`, or after so many seconds."""
        await self._kernel.news.newer(seq, seconds)
        return self.status()

    async def start(self, env: dict[str, str]) -> None:
        """The kernel's program runs when this returns. Raises OSError when the agent can't write down that it does."""
        memory = self.memory
        spec = LaunchSpec(memory.argv, env, memory.cwd, memory.owner)
        memory.forget_activity()
        memory.save()
        folder, die = memory.sandbox_folder, self._host.die_with_agent
        sandbox = await self._host.blocking(lambda: Sandbox.start(folder, spec, die_with_agent=die))
        self._lives_in(sandbox)

    async def adopt(self) -> None:
        """After an agent's restart: the kernel is found as it is now, and what was being done to it is brought to an end."""
        memory, kernel = self.memory, self._kernel
        was = memory.phase
        await self._host.blocking(lambda: leftovers.clear_staging(memory))
        found = Sandbox.adopt(memory.sandbox_folder, memory.shim) if memory.shim and was.alive else None
        if found is None:
            await self._host.blocking(lambda: leftovers.end_sandbox(memory))
        if not was.alive:
            return
        if was is Phase.STARTING:
            memory.phase = Phase.DEAD
            memory.last_error = KernelGone("The agent ended while the kernel was started.", hint="Start it again.")
            kernel.save()
            return
        await self._catch_up()
        memory.phase = Phase.RUNNING
        if found is None:
            kernel.sandbox = Sandbox(memory.sandbox_folder, memory.shim or _NOBODY)
            self._died()
            return
        await self._host.blocking(lambda: self._mend(found, dumped=was is Phase.SNAPSHOTTING))
        log.info("%s was found: it runs", memory.kernel)
        kernel.activity.went_back(busy=memory.busy, execution_count=memory.execution_count)
        kernel.activity.ran_since = True  # what it did while nobody listened is not known
        self._lives_in(found)

    async def kill(self, signum: int) -> None:
        """Ends it for good. Idempotent."""
        kernel = self._kernel
        if self.phase is Phase.DEAD:
            return
        kernel.kills += 1
        kernel.to(Phase.DEAD)
        kernel.watch.stop()
        kernel.cancelled.set()
        await self._host.blocking(self._end_sandboxes)
        async with kernel.lock:  # what was being done to it is over now; a restore may have made another sandbox meanwhile
            await self._host.blocking(self._end_sandboxes)
            self.memory.exit_status = -signum
            kernel.save()
        await self._rest()

    async def farewell(self) -> None:
        """The agent is told to end: a last snapshot, if there is something to save and time for it."""
        await farewell(self._kernel, self._snapshots)

    async def close(self) -> None:
        """The agent ends; the kernel doesn't."""
        kernel = self._kernel
        kernel.closing = True
        kernel.cancelled.set()
        attempt = kernel.attempt
        if attempt is not None:
            await self._host.blocking(attempt.kill)
        async with kernel.lock:
            kernel.watch.stop()
            self._snapshots.loop.close()
            if self.phase.alive:
                self.memory.busy, self.memory.execution_count = kernel.activity.busy, kernel.activity.execution_count
                kernel.save()
        await kernel.activity.close()
        await kernel.errands.close()

    async def signal(self, signum: int) -> None:
        """Waits until the kernel can take it: a signal that meets a frozen process may be lost."""
        await self._kernel.thawed.wait()
        sandbox = self._kernel.sandbox
        if sandbox is None or not self.phase.alive:
            raise KernelGone("The kernel has ended.")
        sandbox.signal(signum)

    async def set_policy(self, policy: Policy) -> None:
        self.memory.policy = self._comebacks.deaths.policy = policy
        self._kernel.save()
        self._kernel.news.tell()
        self._snapshots.loop.look()

    async def snapshot(self, trigger: Trigger) -> GenerationInfo:
        return await self._snapshots.take(trigger)

    async def restore(self, generation: Generation | None, *, accept_changed_files: bool) -> None:
        await self._comebacks.asked(generation, accept_changed_files=accept_changed_files)
        if not self.phase.alive:
            await self._rest()

    def _lives_in(self, sandbox: Sandbox) -> None:
        self._kernel.take(sandbox)
        if self.phase is Phase.STARTING:
            self._kernel.to(Phase.RUNNING)
        else:
            self._kernel.save()
        self._kernel.activity.listen(self.memory.endpoint)
        self._snapshots.loop.begin()

    def _died(self) -> None:
        async def care() -> None:
            await self._comebacks.died()
            if not self.phase.alive:
                await self._rest()

        self._kernel.errands.begin(care(), f"death-{self.memory.kernel}")

    async def _rest(self) -> None:
        """Nobody lives there any more."""
        self._snapshots.loop.close()
        await self._kernel.activity.close()
        self._kernel.news.tell()

    def _end_sandboxes(self) -> None:
        for sandbox in (self._kernel.sandbox, self._kernel.attempt):
            if sandbox is not None:
                sandbox.kill()

    def _mend(self, sandbox: Sandbox, *, dumped: bool) -> None:
        target, before = target_of(sandbox), mend.Before(frozenset(self.memory.stopped))
        if not leftovers.end_dump(target, before, self._host.clock) and dumped:
            mend.mend(target, before, self._host.clock)

    async def _catch_up(self) -> None:
        """A generation that was published just before the last agent ended belongs to this life too."""
        memory, infos = self.memory, self._kernel.infos
        await self._kernel.read_generations()
        for number in sorted(infos):
            if number > memory.newest and infos[number].incarnation == memory.incarnation:
                memory.lineage.append(number)
                memory.newest = number
