"""What a repository knows of a kernel's generations."""

from __future__ import annotations

from perdure.domain.errors import Corrupt, PerdureError, WrongKey
from perdure.domain.ids import Generation, KernelId
from perdure.domain.record import Record
from perdure.store.repository import Manifest, Repository
from perdure.wire.messages import GenerationInfo


def record_of(manifest: Manifest) -> Record:
    """Raises Corrupt."""
    try:
        return Record.from_json(manifest.record)
    except (KeyError, TypeError, ValueError, AttributeError, PerdureError) as error:
        raise Corrupt(
            f"The record of generation {manifest.generation} of {manifest.kernel} can't be read.",
            hint="Restore an older generation.",
            detail=repr(error),
        ) from error


def info(manifest: Manifest, *, verified: bool) -> GenerationInfo:
    """Raises Corrupt."""
    record = record_of(manifest)
    return GenerationInfo(
        generation=manifest.generation,
        incarnation=record.incarnation,
        created=record.created,
        trigger=record.trigger,
        engine=record.engine,
        stall_s=record.stall_s,
        total_s=record.total_s,
        timings=record.timings,
        bytes_logical=manifest.bytes_logical,
        bytes_added=manifest.bytes_added,
        execution_count=record.execution_count,
        busy=record.busy,
        verified=verified,
        host=record.host.hostname,
        warnings=record.warnings,
    )


def read_all(repository: Repository, kernel: KernelId, known: dict[Generation, GenerationInfo]) -> list[str]:
    """Brings `known` up to date with what is published. Gives what is wrong with those that can't be read."""
    published = repository.generations(kernel)
    for gone in set(known) - set(published):
        del known[gone]
    troubles = []
    for number in published:
        if number in known:
            continue
        try:
            known[number] = info(repository.manifest(kernel, number), verified=True)
        except Corrupt as error:
            troubles.append(f"generation {number} is damaged: {error.sentence}")
        except WrongKey as error:
            troubles.append(f"generation {number} can't be read: {error.sentence}")
    return troubles
