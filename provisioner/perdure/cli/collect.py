"""`perdure collect [KERNEL]`: older snapshots go, and what nobody needs any more. Works without an agent."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from traitlets import Bool, Float, Int

from perdure.domain.errors import Conflict, Corrupt, WrongKey
from perdure.domain.ids import Generation, KernelId, kernel_id
from perdure.domain.retention import Rules, Shares, Snapshot, Verdict, fit, judge

from .amounts import mib
from .app import ALIASES, FLAGS, PerdureApp
from .connection import pick
from .place import open_repository

if TYPE_CHECKING:
    from perdure.store.repository import Collected, Repository, Usage

_ALIASES = {
    **ALIASES,
    "keep-last": "CollectApp.keep_last",
    "keep-hourly": "CollectApp.keep_hourly",
    "keep-daily": "CollectApp.keep_daily",
    "keep-bytes": "CollectApp.keep_bytes",
    "budget": "CollectApp.budget",
    "grace": "CollectApp.grace",
}
_FLAGS = {
    **FLAGS,
    "dry-run": ({"CollectApp": {"dry_run": True}}, "say what would go and why, and change nothing"),
    "now": (
        {"CollectApp": {"now": True, "grace": 0.0}},
        "spare neither who may be restoring nor a snapshot that is being stored: only when you know that there is none",
    ),
}


class CollectApp(PerdureApp):
    """Remove older snapshots by the rules given, and what no snapshot in the repository needs any more.

    Without rules no snapshot goes. A kernel's newest one always stays. What was needed within the last hour is left for a later
    run, since somebody may be restoring from it.
    """

    name = "perdure-collect"
    description = __doc__
    arguments = ("[KERNEL]",)
    aliases = _ALIASES
    flags = _FLAGS
    examples = """
    perdure collect --dry-run
    perdure collect --keep-last 3 --keep-daily 7
    perdure collect 3f --keep-last 1 --repository /mnt/backup/perdure
    """
    keep_last = Int(0, min=0, help="Keep each kernel's newest so many snapshots …").tag(config=True)
    keep_hourly = Int(0, min=0, help="… the newest of each of the last so many hours that have any …").tag(config=True)
    keep_daily = Int(0, min=0, help="… the newest of each of the last so many days that have any. All 0: keep all.").tag(
        config=True
    )
    keep_bytes = Int(
        0, min=0, help="Remove a kernel's oldest snapshots until it needs no more bytes than this; 0: no limit."
    ).tag(config=True)
    budget = Int(0, min=0, help="The same for all kernels in the repository together.").tag(config=True)
    grace = Float(3600.0, min=0, help="Seconds for which what is not needed any more is left where it is.").tag(config=True)
    dry_run = Bool(False, help="Change nothing.").tag(config=True)
    now = Bool(False, help="Spare nobody who may be at work in the repository.").tag(config=True)

    def act(self, *arguments: str) -> int:
        repository = open_repository(self)
        there = repository.kernels()
        wanted = [pick(kernel_id(arguments[0]), there)] if arguments else there
        verdicts, skipped = self._judge(repository, wanted)
        reports: list[Collected] = []
        for kernel, of in verdicts.items():
            gone = [one.generation for one in of if not one.keep]
            try:
                reports.append(
                    repository.collect(
                        kernel, gone=gone, now=time.time(), grace_s=self.grace, take_over=self.now, dry_run=self.dry_run
                    )
                )
            except Conflict as error:
                skipped[kernel] = str(error)
        self.show(_document(repository.url, self.dry_run, verdicts, reports, skipped), _text(self, verdicts, reports, skipped))
        return 1 if skipped or any(one.problem for one in reports) else 0

    def _judge(
        self, repository: Repository, kernels: Sequence[KernelId]
    ) -> tuple[dict[KernelId, list[Verdict]], dict[KernelId, str]]:
        """What becomes of each snapshot, and kernels that nothing can be said of."""
        verdicts: dict[KernelId, list[Verdict]] = {}
        skipped: dict[KernelId, str] = {}
        shares: dict[KernelId, Shares] = {}
        ages: dict[tuple[KernelId, Generation], float] = {}
        for kernel in kernels:
            try:
                usage = repository.usage(kernel)
            except (Corrupt, WrongKey) as error:
                skipped[kernel] = error.sentence
                continue
            snapshots = _snapshots(usage)
            shares[kernel] = usage.shares
            ages |= {(kernel, one.generation): one.created or 0.0 for one in snapshots}
            verdicts[kernel] = judge(snapshots, self._rules(len(snapshots)), usage.shares)
        if self.budget:
            verdicts = fit(verdicts, shares, self.budget, "of the repository", ages)
        return verdicts, skipped

    def _rules(self, number: int) -> Rules:
        asked = self.keep_last or self.keep_hourly or self.keep_daily
        return Rules(self.keep_last if asked else max(number, 1), self.keep_hourly, self.keep_daily, self.keep_bytes)


def _snapshots(usage: Usage) -> list[Snapshot]:
    found = [Snapshot(number, _created(one.record)) for number, one in usage.manifests.items()]
    found += [Snapshot(number, damaged=True) for number in usage.damaged]
    found += [Snapshot(number, pinned="its key is not here") for number in usage.locked]
    return sorted(found, key=lambda one: one.generation)


def _created(record: Mapping[str, Any]) -> float | None:
    try:
        return datetime.fromisoformat(str(record.get("created"))).timestamp()
    except ValueError:
        return None


def _document(
    url: str,
    dry_run: bool,
    verdicts: Mapping[KernelId, list[Verdict]],
    reports: Sequence[Collected],
    skipped: Mapping[KernelId, str],
) -> dict[str, Any]:
    def judged(kernel: KernelId) -> list[dict[str, Any]]:
        return [{"generation": one.generation, "keep": one.keep, "why": one.why} for one in verdicts[kernel]]

    return {
        "repository": url,
        "dry_run": dry_run,
        "kernels": [{**one.to_json(), "snapshots": judged(one.kernel)} for one in reports],
        "skipped": [{"kernel": kernel, "why": why} for kernel, why in skipped.items()],
        "bytes_removed": sum(one.bytes_removed for one in reports),
        "bytes_waiting": sum(one.bytes_waiting for one in reports),
    }


def _text(
    app: CollectApp, verdicts: Mapping[KernelId, list[Verdict]], reports: Sequence[Collected], skipped: Mapping[KernelId, str]
) -> str:
    lines: list[str] = []
    for one in reports:
        for verdict in verdicts[one.kernel]:
            if not verdict.keep or app.dry_run:
                lines.append(f"{one.kernel}, generation {verdict.generation}: {_word(verdict.keep, app.dry_run)}: {verdict.why}")
        for why in dict.fromkeys(removal.why for removal in one.removed):
            some = [removal for removal in one.removed if removal.why == why]
            size = mib(sum(removal.bytes for removal in some))
            lines.append(f"{one.kernel}: {len(some)} files with {size} {_word(False, app.dry_run)}: {why}")
        if one.problem:
            lines.append(f"{one.kernel}: {one.problem}")
    lines += [f"{kernel}: skipped. {why}" for kernel, why in skipped.items()]
    gone: list[Generation] = [generation for one in reports for generation in one.retired]
    verb = "would go" if app.dry_run else "went"
    lines.append(
        f"{len(gone)} snapshots and {mib(sum(one.bytes_removed for one in reports))} {verb}; "
        f"{mib(sum(one.bytes_waiting for one in reports))} more can go when nobody can be reading them any more."
    )
    return "\n".join(lines)


def _word(keep: bool, dry_run: bool) -> str:
    if keep:
        return "stays"
    return "would go" if dry_run else "went"
