"""Use case: a snapshot, from the running kernel to the published generation. Blocks; runs in a thread."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Any

from perdure.domain.errors import StoreFailed
from perdure.domain.record import Record, Trigger
from perdure.domain.target import Target
from perdure.engine import images
from perdure.engine.dump import Job
from perdure.engine.hostfacts import host_facts
from perdure.runtime.sandbox import Sandbox
from perdure.store.repository import PublishStats, SourceFile
from perdure.store.source import Content
from perdure.wire.messages import GenerationInfo

from .generations import info
from .host import Host
from .memory import Memory
from .saving import Saved, saved

log = logging.getLogger(__name__)

_NICE = 19
_UNHURRIED = frozenset({Trigger.INTERVAL, Trigger.CELL})
"""Nobody waits for these: they are stored when the processors have nothing better to do."""

Report = Callable[[str, float | None], None]
"""Called with the step's name and how much of it is done (0–1, None: unknown), from the thread."""


@dataclass(frozen=True)
class Moment:
    """What the kernel was doing at the instant that a snapshot holds."""

    busy: bool
    execution_count: int | None


def rfc3339(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def target_of(sandbox: Sandbox) -> Target:
    """Raises KernelGone."""
    fd, key = sandbox.stdio_pipe()
    kernel = sandbox.kernel()
    return Target(sandbox.shim.pid, kernel.pid if kernel else 0, fd, key)


def capture(
    host: Host,
    memory: Memory,
    sandbox: Sandbox,
    trigger: Trigger,
    *,
    moment: Callable[[], Moment],
    thawed: Callable[[], None],
    report: Report,
    cancelled: Event,
) -> GenerationInfo:
    """The generation, published and looked at again.

    `moment` is called while the kernel stands still, when everything that it had said before has been heard; `thawed` when it
    runs again; `report` on the way.

    Raises SnapshotFailed, NoRoom, KernelGone, StoreFailed …; the kernel runs on, nothing is published, no staging is left.
    """
    clock = host.clock
    begun, created = clock.monotonic(), rfc3339(clock.now())
    held = moment()

    def frozen() -> None:
        nonlocal held
        held = moment()

    shutil.rmtree(memory.staging, ignore_errors=True)
    try:
        report("saving", None)
        job = Job(target_of(sandbox), memory.staging, host.criu(), clock, owner=memory.owner, cancelled=cancelled, frozen=frozen)
        with saved(job, memory.policy, thawed) as kept:
            report("storing", 0.0)
            stored_from = clock.monotonic()

            def record(_: PublishStats) -> dict[str, Any]:
                now = clock.monotonic()
                return _record(memory, kept, trigger, created, held, now - begun, now - stored_from).to_json()

            manifest = host.open_repository(memory.repository).publish(
                memory.kernel,
                sources(memory.staging, kept.pages),
                record,
                progress=lambda done, size: report("storing", done / size if size else 1.0),
                cancelled=cancelled,
                niceness=_NICE if trigger in _UNHURRIED else 0,
            )
        report("verifying", None)
        checked = host.open_repository(memory.repository).verify(memory.kernel, manifest.generation, data=False)
        if not checked.ok:
            problems = "; ".join(problem for one in checked.generations for problem in one.problems)
            raise StoreFailed(
                f"Generation {manifest.generation} was stored and then found incomplete.",
                hint="The disk or file server of the repository loses data.",
                detail=problems,
            )
        return info(manifest, verified=True)
    finally:
        shutil.rmtree(memory.staging, ignore_errors=True)


def _record(memory: Memory, kept: Saved, trigger: Trigger, created: str, held: Moment, total_s: float, store_s: float) -> Record:
    taken = kept.capture
    timings = {**taken.timings, "store": store_s}
    timings["unaccounted"] = max(0.0, total_s - sum(timings.values()) + taken.timings["unaccounted"])
    return Record(
        incarnation=memory.incarnation,
        created=created,
        trigger=trigger,
        engine=kept.engine,
        owner=memory.owner,
        host=host_facts(taken.criu_version),
        endpoint=memory.endpoint.to_json(),
        kernel_name=memory.kernel_name,
        display_name=memory.display_name,
        notebook=memory.notebook,
        argv=memory.argv,
        cwd=memory.cwd,
        execution_count=held.execution_count,
        busy=held.busy,
        stdio_key=taken.stdio_key,
        stall_s=taken.stall_s,
        total_s=total_s,
        timings=timings,
        files=taken.files,
        warnings=kept.warnings,
    )


def sources(folder: Path, elsewhere: Mapping[str, Content] = MappingProxyType({})) -> list[SourceFile]:
    """The image's files, cut where the engine says. `elsewhere`: content that takes the place of files of these names."""
    cuts = images.cuts(folder, {name: content.size for name, content in elsewhere.items()})
    return [
        SourceFile(name, elsewhere.get(name, path), path.stat().st_mode & 0o777, cuts.get(name))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and (name := path.relative_to(folder).as_posix())
    ]
