"""The repository: what the rest of Perdure sees of the store."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from threading import Event

from perdure.domain.errors import BadRequest, Corrupt, PerdureError, StoreFailed
from perdure.domain.ids import Generation, KernelId, kernel_id

from . import canonical, damage, envelope, leftovers, manifest, rescue
from .backend import Absent, Backend, Changed
from .collect import GRACE_S, Collected, collect, retire
from .envelope import Kind, corrupt
from .fetch import fetch
from .index import Index
from .keys import Keys
from .keys import load as load_keys
from .manifest import Manifest
from .names import KERNELS, REPOSITORY, KernelNames, generation_of
from .opening import open_backend
from .publish import MakeRecord, PublishStats, publish
from .seal import Sealed, outdated
from .settings import DEFAULTS, StoreSettings
from .source import SourceFile
from .usage import Usage, usage
from .verify import VerifyReport, verify

__all__ = ["Collected", "Manifest", "PublishStats", "Repository", "SourceFile", "Usage", "VerifyReport"]

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""
_NOBODYS = frozenset({"lost+found/"})
"""What a fresh file system has in its top folder."""
_ID = re.compile(r"[0-9a-f]{32}")


class Repository:
    """Snapshots of kernels. Every call reads the repository's present state; nothing is cached between calls.

    Any method may raise StoreFailed (Corrupt, NewerFormat, WrongKey) or NoRoom. Calls for different kernels may run at the same
    time, in any number of processes; two publishes of one kernel end with one Conflict.
    """

    def __init__(self, backend: Backend, id: str) -> None:
        self._backend = backend
        self.id = id

    @classmethod
    def open(cls, url: str, *, create: bool = True, settings: StoreSettings = DEFAULTS) -> Repository:
        """`file:///path` or `s3://bucket/prefix`. A place that is missing or empty becomes a repository if `create`.

        Raises BadRequest, StoreFailed: NewerFormat, NoKey, WrongKey among them.
        """
        keys = load_keys(settings)
        return cls.on(open_backend(url, create=create, settings=settings), create=create, keys=keys)

    @classmethod
    def on(cls, backend: Backend, *, create: bool = True, keys: Keys | None = None) -> Repository:
        """The repository in `backend`; with `keys` a sealed one, and no other."""
        if keys is None:
            return cls(backend, _find_id(backend, create=create))
        door = Sealed(backend, keys, "")
        id = _find_id(door, create=create)
        if create:
            _renew(door, id)
        return cls(Sealed(backend, keys, id), id)

    @property
    def url(self) -> str:
        return self._backend.url

    def kernels(self) -> list[KernelId]:
        """Those that have a head."""
        found: list[KernelId] = []
        for entry in self._backend.list(KERNELS):
            try:
                kernel = kernel_id(entry.name.removeprefix(KERNELS).rstrip("/"))
            except BadRequest:
                continue  # not made by Perdure
            if any(below.name == KernelNames(kernel).head for below in self._backend.list(entry.name)):
                found.append(kernel)
        return found

    def generations(self, kernel: KernelId) -> list[Generation]:
        """Published ones, ascending, whole or damaged; none for a kernel that isn't there."""
        return [generation_of(claim) for claim in rescue.load(self._backend, kernel_id(kernel)).generations]

    def manifest(self, kernel: KernelId, generation: Generation) -> Manifest:
        """Raises NotFound, Corrupt."""
        return manifest.load(self._backend, kernel, rescue.load(self._backend, kernel_id(kernel)).find(generation))

    def publish(
        self,
        kernel: KernelId,
        files: Sequence[SourceFile],
        record: MakeRecord,
        *,
        progress: Progress | None = None,
        cancelled: Event | None = None,
        niceness: int = 0,
    ) -> Manifest:
        """Store `files` as the next generation; they must not change meanwhile. Published and durable when this returns.

        `niceness`: of the threads that read and hash, 0 to 19. `record` is called when the files are stored, just before
        the manifest is written. On any failure nothing is published.

        Raises BadRequest, Conflict (another one publishes the same kernel), NoRoom, and SnapshotFailed when `cancelled` was set.
        """
        return publish(self._backend, kernel_id(kernel), files, record, progress=progress, cancelled=cancelled, niceness=niceness)

    def fetch(self, kernel: KernelId, generation: Generation, into: Path, *, progress: Progress | None = None) -> Manifest:
        """Write a generation's files below `into` (made if need be), sparse where they were zero.

        Existing files are never overwritten. On any failure what was written is removed. Raises NotFound, Corrupt, NoRoom.
        """
        current = rescue.load(self._backend, kernel_id(kernel))
        wanted = manifest.load(self._backend, kernel, current.find(generation))
        index = Index.load(self._backend, kernel, current.indexes)
        try:
            fetch(self._backend, wanted, index, into, progress=progress)
        except Corrupt as error:
            rescue.load(self._backend, kernel).find(generation)  # it may have been removed meanwhile: no damage then
            damage.mark(self._backend, kernel, error.detail)
            raise
        return wanted

    def verify(self, kernel: KernelId | None = None, generation: Generation | None = None, *, data: bool = True) -> VerifyReport:
        """Check what is published: all, one kernel's, or one generation.

        `data`: read and hash every block; without it, whether everything that is named is there with the right size.
        Damage is in the report. Raises NotFound, BadRequest.
        """
        if kernel is None and generation is not None:
            raise BadRequest("A generation needs its kernel.")
        return verify(self._backend, self.kernels() if kernel is None else [kernel_id(kernel)], generation, data=data)

    def usage(self, kernel: KernelId) -> Usage:
        """What its generations hold and need. Reads all recipes. Raises NotFound."""
        return usage(self._backend, kernel_id(kernel))

    def retire(self, kernel: KernelId, generations: Collection[Generation], *, now: float) -> None:
        """They are published no more; the next collections free what only they needed. The newest one can't be retired.

        Raises Conflict when a snapshot is stored at the same time, NotFound.
        """
        retire(self._backend, kernel_id(kernel), generations, int(now))

    def collect(
        self,
        kernel: KernelId,
        *,
        gone: Collection[Generation] = (),
        now: float,
        grace_s: float = GRACE_S,
        take_over: bool = False,
        dry_run: bool = False,
        cancelled: Event | None = None,
    ) -> Collected:
        """Retire `gone` and remove what no generation needs. What was needed less than `grace_s` ago waits for a later
        collection, since somebody may be reading it, on any host.

        `take_over`: a publish that has begun and not ended isn't spared: it may have died. `dry_run`: only say what would go.

        Raises Conflict (a publish was spared or came in between; `cancelled` was set), NotFound.
        """
        return collect(
            self._backend,
            kernel_id(kernel),
            gone=gone,
            now=int(now),
            grace_s=int(grace_s),
            take_over=take_over,
            dry_run=dry_run,
            cancelled=cancelled,
        )

    def drop(self, kernel: KernelId) -> None:
        """Remove everything of a kernel. Idempotent; interrupted, it can be done again."""
        leftovers.remove_kernel(self._backend, kernel_id(kernel))


def _find_id(backend: Backend, *, create: bool) -> str:
    """The repository's id; an empty place becomes a repository if `create`."""
    try:
        return _read_id(backend)
    except Absent:
        pass
    if any(entry.name not in _NOBODYS for entry in backend.list("")):
        raise StoreFailed(f"{backend.url} holds other things than a repository.", hint="Use an empty folder, or the right one.")
    if not create:
        raise StoreFailed(f"There is no repository at {backend.url}.", hint="Is the address right, and the file system mounted?")
    try:
        backend.put(REPOSITORY, _object(secrets.token_hex(16)), if_absent=True)
    except Changed:
        pass  # somebody else has made it at the same time
    try:
        return _read_id(backend)
    except Absent:
        raise StoreFailed(f"The repository at {backend.url} went away.") from None


def _renew(door: Sealed, id: str) -> None:
    """`repository` sealed with the present key, so that an older one can be thrown away some day."""
    try:
        if outdated(door, REPOSITORY):
            door.put(REPOSITORY, _object(id), if_match=door.stat(REPOSITORY).tag)
    except (Changed, PerdureError):
        pass  # somebody else does it; or it can't be written, and who wants to write is told so


def _object(id: str) -> bytearray:
    return envelope.wrap(Kind.REPOSITORY, canonical.dump({"id": id}))


def _read_id(backend: Backend) -> str:
    body = envelope.read(backend, REPOSITORY, Kind.REPOSITORY)
    id = canonical.text(REPOSITORY, canonical.load(REPOSITORY, body), "id")
    if not _ID.fullmatch(id):
        raise corrupt(REPOSITORY, "its id is none")
    return id
