"""`perdure du [KERNEL]`: what snapshots hold and what they take. Reads the repository itself, so it works without an agent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from perdure.domain.errors import Corrupt, WrongKey
from perdure.domain.ids import KernelId, kernel_id

from .amounts import ago, mib
from .app import PerdureApp
from .connection import pick
from .place import open_repository
from .table import table

if TYPE_CHECKING:
    from perdure.store.repository import Usage


class DuApp(PerdureApp):
    """What each snapshot holds (SIZE), what was written for it (ADDED), and what would be free without it (ALONE).

    Snapshots share what hasn't changed between them, so ALONE doesn't add up to what is stored.
    """

    name = "perdure-du"
    description = __doc__
    arguments = ("[KERNEL]",)

    def act(self, *arguments: str) -> int:
        repository = open_repository(self)
        there = repository.kernels()
        wanted = [pick(kernel_id(arguments[0]), there)] if arguments else there
        found: list[Usage] = []
        unknown: dict[KernelId, str] = {}
        for kernel in wanted:
            try:
                found.append(repository.usage(kernel))
            except (Corrupt, WrongKey) as error:
                unknown[kernel] = error.sentence
        self.show(
            {
                "repository": repository.url,
                "bytes_stored": sum(one.stored for one in found),
                "kernels": [one.to_json() for one in found],
                "unknown": [{"kernel": kernel, "why": why} for kernel, why in unknown.items()],
            },
            _text(repository.url, found, unknown, time.time()),
        )
        return 1 if unknown or any(one.problem for one in found) else 0


def _text(url: str, found: list[Usage], unknown: dict[KernelId, str], now: float) -> str:
    parts = []
    for one in found:
        rows = [
            (
                str(number),
                ago(str(manifest.record.get("created", "–")), now),
                mib(manifest.bytes_logical),
                mib(manifest.bytes_added),
                "–" if one.problem else mib(one.alone(number)),
            )
            for number, manifest in one.manifests.items()
        ]
        needed = one.problem or f"{mib(one.needed)} of it are needed"
        parts.append(f"{one.kernel}: {mib(one.stored)} are stored, {needed}.")
        parts += [f"  generation {number}: {why}" for number, why in {**one.damaged, **one.locked}.items()]
        if rows:
            parts.append(table(("GENERATION", "TAKEN", "SIZE", "ADDED", "ALONE"), rows) + "\n")
    parts += [f"{kernel}: {why}" for kernel, why in unknown.items()]
    parts.append(f"{mib(sum(one.stored for one in found))} in {len(found)} kernels at {url}.")
    return "\n".join(parts)
