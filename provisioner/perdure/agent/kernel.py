"""One kernel as the agent knows it at this moment, and who is told when that changes.

The use cases (`snapshots`, `comebacks`, `supervisor`) act on it in the agent's event loop; what blocks is done in threads. `lock`
lets one of them at a time do something to the kernel's process tree.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from threading import Event

from perdure.domain.errors import NoRoom, PerdureError, StoreFailed
from perdure.domain.ids import Generation
from perdure.domain.phases import Phase, move
from perdure.runtime.sandbox import Sandbox
from perdure.wire.messages import Address, GenerationInfo, KernelStatus, Progress

from . import generations
from .activity import Activity
from .capture import Report
from .errands import Errands
from .host import Host
from .memory import Memory
from .news import News
from .watch import Watch

log = logging.getLogger(__name__)

ANSWER_S = 5.0
"""A repository on a file server that is gone may not answer for hours."""
_WORTH_TELLING = 0.05
"""Progress in smaller steps than this is not told."""


def _nothing() -> None:
    pass


class Kernel:
    """`on_end` is called when the sandbox has ended unasked, `on_activity` when the kernel has done something."""

    def __init__(self, host: Host, memory: Memory) -> None:
        self.host, self.memory = host, memory
        self.sandbox: Sandbox | None = None
        self.attempt: Sandbox | None = None
        """What a restore is being made in; set from its thread."""
        self.lock = asyncio.Lock()
        self.thawed = asyncio.Event()
        """Clear while the kernel can't take a signal: frozen, or being restored."""
        self.thawed.set()
        self.cancelled = Event()
        """Of the operation that holds the lock."""
        self.closing = False
        """The agent ends: what can't be brought to its end now is left to the next one."""
        self.kills = 0
        self.news = News(host.clock.now())
        self.errands = Errands()
        self.infos: dict[Generation, GenerationInfo] = {}
        self.progress: Progress | None = None
        self.next_snapshot = ""
        self.restore_warnings: tuple[str, ...] = ()
        self._repository_warnings: tuple[str, ...] = ()
        self._reading: asyncio.Task[None] | None = None
        self._unsaved = ""
        self.on_end: Callable[[], None] = _nothing
        self.on_activity: Callable[[], None] = _nothing
        self.watch = Watch(lambda: self.on_end())
        self.activity = Activity(memory.endpoint, host.clock, self._heard, self.errands, execution_count=memory.execution_count)

    @property
    def phase(self) -> Phase:
        return self.memory.phase

    @property
    def alive(self) -> bool:
        return self.sandbox is not None and self.sandbox.ended() is None

    def status(self) -> KernelStatus:
        """Without generations."""
        memory = self.memory
        process = self.sandbox.kernel() if self.sandbox and memory.phase.alive else None
        last = memory.lineage[-1] if memory.lineage else None
        return KernelStatus(
            kernel_id=memory.kernel,
            seq=self.news.seq,
            phase=memory.phase,
            host=self.host.name,
            owner=memory.owner,
            endpoint=Address(memory.endpoint.ip, dict(memory.endpoint.ports)),
            kernel_name=memory.kernel_name,
            notebook=memory.notebook,
            started=memory.started,
            incarnation=memory.incarnation,
            pid=process.pid if process else None,
            exit_status=memory.exit_status,
            busy=self.activity.busy and memory.phase.alive,
            execution_count=self.activity.execution_count,
            repository=memory.repository,
            policy=memory.policy,
            last_snapshot=self.infos.get(last) if last is not None else None,
            last_error=memory.last_error,
            next_snapshot=self.next_snapshot,
            progress=self.progress,
            restores=tuple(memory.restores),
            warnings=(*self.restore_warnings, *self._repository_warnings, *filter(None, [self._unsaved])),
        )

    def take(self, sandbox: Sandbox) -> None:
        """This is where the kernel lives from now on."""
        self.sandbox = sandbox
        self.memory.shim = sandbox.shim
        self.watch.follow(sandbox.shim)

    def operation(self) -> Event:
        """Something begins to be done to the process tree (the lock is held); what is set when it is to be given up."""
        self.cancelled = Event()
        return self.cancelled

    def to(self, phase: Phase) -> None:
        """Raises Conflict when there is no such move."""
        self.memory.phase = move(self.memory.phase, phase)
        self.save()
        self.news.tell()

    def note(self, error: PerdureError) -> None:
        self.memory.last_error = error
        log.warning("%s: %s%s", self.memory.kernel, error, f"\n{error.detail}" if error.detail else "")

    def save(self) -> None:
        """A full disk must not keep a kernel from being looked after: it is said, and tried again at the next change."""
        try:
            self.memory.save()
        except OSError as error:
            self._unsaved = f"The agent can't write down how this kernel is: {error.strerror or error}."
            log.error("%s: %s", self.memory.kernel, self._unsaved)
        else:
            self._unsaved = ""

    async def read_generations(self) -> None:
        """Brings `infos` up to date with the repository. One that can't be read is a warning, and so is one that gives no answer:
        all who ask share one question to it, and go on after a while with what is known."""
        reading = self._reading
        if reading is None or reading.done():
            reading = asyncio.get_running_loop().create_task(self._read(), name=f"perdure-read-{self.memory.kernel}")
            self._reading = reading
        answered, _ = await asyncio.wait({reading}, timeout=ANSWER_S)
        if answered:
            reading.result()
        else:
            self._repository_warnings = ("The repository does not answer; what is known of it is shown.",)

    async def _read(self) -> None:
        memory, before = self.memory, dict(self.infos)
        known = dict(before)
        try:
            found = await self.host.blocking(
                lambda: generations.read_all(self.host.open_repository(memory.repository), memory.kernel, known)
            )
        except (StoreFailed, NoRoom) as error:
            found = [f"The repository can't be read: {error.sentence}"]
        else:
            # What was learned in the meantime (a snapshot was taken, one proved damaged) is newer than what was read.
            known.update({number: one for number, one in self.infos.items() if one is not before.get(number)})
            self.infos.clear()
            self.infos.update(known)
        self._repository_warnings = tuple(found)

    def reporter(self) -> Report:
        """What a thread tells its progress to."""
        loop = asyncio.get_running_loop()

        def report(step: str, fraction: float | None) -> None:
            loop.call_soon_threadsafe(self._progressed, Progress(step, fraction))

        return report

    def _progressed(self, progress: Progress) -> None:
        if not self.lock.locked():
            return  # a late word of an operation that is over
        before, self.progress = self.progress, progress
        moved = (progress.fraction or 0) - ((before.fraction if before else 0) or 0)
        if before is None or before.step != progress.step or abs(moved) >= _WORTH_TELLING:
            self.news.tell()

    def _heard(self) -> None:
        self.memory.note_activity(self.activity.busy, self.activity.execution_count)
        self.news.tell()
        self.on_activity()
