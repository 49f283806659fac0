"""Use case: a kernel comes back from one generation. Blocks; runs in a thread."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event

from perdure.domain.compat import Severity, refusal
from perdure.domain.endpoint import Endpoint
from perdure.domain.errors import RestoreFailed
from perdure.domain.ids import Generation
from perdure.domain.record import Record
from perdure.engine import restore
from perdure.engine.hostfacts import host_facts
from perdure.engine.preflight import preflight
from perdure.runtime.sandbox import Sandbox

from .capture import Report, target_of
from .generations import record_of
from .host import Host
from .memory import Memory
from .proof import proven


@dataclass(frozen=True)
class Comeback:
    """A kernel that is back and has proven it."""

    generation: Generation
    sandbox: Sandbox
    record: Record
    endpoint: Endpoint
    warnings: tuple[str, ...]


def revive(
    host: Host,
    memory: Memory,
    generation: Generation,
    *,
    end_present: Callable[[], None],
    opened: Callable[[Sandbox], None],
    report: Report,
    cancelled: Event,
    accept_changed_files: bool = False,
) -> Comeback:
    """`end_present` is called when everything that can be known beforehand is good: it ends what is left of the kernel, which
    holds its address. `opened` is told the new sandbox before anything is in it: whoever sets `cancelled` kills that too.

    Raises what says why not; then no process of the attempt is left.
    """

    def go_on() -> None:
        if cancelled.is_set():
            raise RestoreFailed("The restore was cancelled.")

    def fetched(done: int, size: int) -> None:
        go_on()
        report("fetching", done / size if size else 1.0)

    criu = host.criu()
    repository = host.open_repository(memory.repository)
    shutil.rmtree(memory.staging, ignore_errors=True)
    try:
        report("fetching", 0.0)
        manifest = repository.fetch(memory.kernel, generation, memory.staging, progress=fetched)
        record = record_of(manifest)
        report("checking", None)
        findings = preflight(memory.staging, record, memory.owner, host_facts(criu.name))
        refused = refusal(findings, accept_changed_files=accept_changed_files)
        if refused is not None:
            raise refused
        go_on()
        end_present()
        report("restoring", None)
        sandbox = Sandbox.empty(memory.sandbox_folder, owner=memory.owner, die_with_agent=host.die_with_agent)
        opened(sandbox)
        try:
            go_on()
            revived = restore.revive(
                target_of(sandbox), memory.staging, record, criu, clock=host.clock, accept_changed_files=accept_changed_files
            )
            report("proving", None)
            endpoint = Endpoint.from_json(record.endpoint)
            proven(sandbox, endpoint, busy=record.busy, cancelled=cancelled)
        except BaseException:  # whatever it was, a half-restored kernel must not stay
            sandbox.kill()
            raise
    finally:
        shutil.rmtree(memory.staging, ignore_errors=True)
    said = [one.sentence for one in findings if one.severity is Severity.WARNING]
    warnings = tuple(dict.fromkeys([*revived.warnings, *said]))
    return Comeback(generation, sandbox, record, replace(endpoint, kernel_name=memory.kernel_name), warnings)
