"""After a snapshot: older ones go as the kernel's policy says, and now and then what they alone needed.

It runs beside the kernel, holds no lock, and never fails a snapshot: the repository spares a publish that has begun, and a new
snapshot stops what is left of this. Whatever goes wrong is logged, and done at the next snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import datetime
from threading import Event

from perdure.domain.errors import Conflict, PerdureError
from perdure.domain.ids import Generation, KernelId
from perdure.domain.phases import Phase
from perdure.domain.policy import Policy
from perdure.domain.retention import Rules, Snapshot, judge
from perdure.store.collect import GRACE_S
from perdure.store.repository import Repository

from .kernel import Kernel

log = logging.getLogger(__name__)

COLLECT_EVERY_S = 900.0
"""A collection reads the recipes of all kept snapshots, and what it condemns has to wait for an hour anyway."""
PRESSED_GRACE_S = 300.0
"""When there is no room: long enough for nearly every restore, short enough that snapshots go on."""
_NEEDED = 2
"""Of the kernel's present life: what a death goes back to, and the one before it, should that one fail."""


class Keeping:
    """One kernel's. `after_snapshot` begins it, `stop` ends it soon; both return at once."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._cancelled = Event()
        self._running = False
        self._collected_at = kernel.host.clock.monotonic()

    def after_snapshot(self, *, pressed: bool = False) -> None:
        """`pressed`: there was no room for it. What nobody needs goes sooner then, or none would ever be taken again."""
        if not self._running:
            self._cancelled = Event()
            self._running = True
            self._kernel.errands.begin(self._keep(pressed), f"keeping-{self._kernel.memory.kernel}")

    def stop(self) -> None:
        self._cancelled.set()

    async def _keep(self, pressed: bool) -> None:
        kernel, memory, clock = self._kernel, self._kernel.memory, self._kernel.host.clock
        cancelled = self._cancelled
        try:
            await kernel.read_generations()
            if kernel.phase is not Phase.RUNNING or kernel.closing:
                return
            created = {number: one.created for number, one in kernel.infos.items()}
            pinned, policy, name = memory.lineage[-_NEEDED:], memory.policy, memory.kernel
            collect = pressed or clock.monotonic() - self._collected_at >= COLLECT_EVERY_S

            def work() -> list[Generation]:
                repository = kernel.host.open_repository(memory.repository)
                try:
                    keep(
                        repository,
                        name,
                        policy,
                        created,
                        pinned,
                        clock.now(),
                        collect=collect,
                        pressed=pressed,
                        cancelled=cancelled,
                    )
                except Conflict as error:  # what was retired before stays so
                    log.debug("%s: a snapshot came in between: %s", name, error)
                return repository.generations(name)

            left = await kernel.host.blocking(work)
            if collect:
                self._collected_at = clock.monotonic()
            # One that is newer than what was read has been published since.
            gone = {one for one in {*kernel.infos, *memory.lineage} if left and one not in left and one < left[-1]}
            if gone:
                for number in gone:
                    kernel.infos.pop(number, None)
                memory.lineage = [one for one in memory.lineage if one not in gone]
                kernel.save()
                kernel.news.tell()
        except PerdureError as error:
            log.warning("%s: older snapshots could not be removed: %s\n%s", memory.kernel, error, error.detail)
        finally:
            cancelled.set()  # the thread may still be at work when the errand is called off
            self._running = False


def keep(
    repository: Repository,
    kernel: KernelId,
    policy: Policy,
    created: Mapping[Generation, str],
    pinned: Collection[Generation],
    now: float,
    *,
    collect: bool,
    pressed: bool = False,
    cancelled: Event | None = None,
) -> list[Generation]:
    """The generations that went. `created`: RFC 3339, of those that can be read; the others are left alone. Blocks.

    The budget of bytes is looked at only with `collect`. `pressed`: the snapshot that has begun last is known to have failed.

    Raises Conflict when a snapshot is being stored, StoreFailed.
    """
    rules = Rules.of(policy)
    shares = repository.usage(kernel).shares if collect and rules.bytes else None
    snapshots = [
        Snapshot(number, _seconds(text), pinned="a death may go back to it" if number in pinned else "")
        for number, text in created.items()
    ]
    newest = max(repository.generations(kernel), default=0)
    gone = [one.generation for one in judge(snapshots, rules, shares) if not one.keep and one.generation != newest]
    for number in gone:
        log.info("%s: generation %s goes", kernel, number)
    if collect:
        grace_s = PRESSED_GRACE_S if pressed else GRACE_S
        report = repository.collect(kernel, gone=gone, now=now, grace_s=grace_s, take_over=pressed, cancelled=cancelled)
        log.info("%s: collected %d bytes, %d wait", kernel, report.bytes_removed, report.bytes_waiting)
        if report.problem:
            log.warning("%s: %s", kernel, report.problem)
    elif gone:
        repository.retire(kernel, gone, now=now)
    return gone


def _seconds(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
