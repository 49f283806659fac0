"""A repository in a folder, with short calls for tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from perdure.domain.ids import Generation, KernelId
from perdure.store import head
from perdure.store.local import LocalBackend
from perdure.store.names import KernelNames
from perdure.store.reach import Reach
from perdure.store.repository import Manifest, Repository, SourceFile

KERNEL = KernelId("kernel-1")


class Bench:
    """A repository, and one call to publish bytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "repository"
        self.repository = self.open()
        self._fetched = 0

    def open(self) -> Repository:
        return Repository.open(self.root.as_uri())

    def source(self, name: str, data: bytes, cuts: Sequence[int] | None = None, mode: int = 0o600) -> SourceFile:
        path = self.folder / f"source-{name.encode(errors='surrogateescape').hex()[:200]}"
        path.write_bytes(data)
        return SourceFile(name, path, mode, cuts)

    def publish(
        self, files: dict[str, bytes], cuts: dict[str, Sequence[int]] | None = None, kernel: KernelId = KERNEL
    ) -> Manifest:
        sources = [self.source(name, data, (cuts or {}).get(name)) for name, data in files.items()]
        return self.repository.publish(kernel, sources, lambda stats: {"added": stats.bytes_added})

    def fetch(self, generation: int, kernel: KernelId = KERNEL) -> dict[str, bytes]:
        self._fetched += 1
        into = self.folder / f"fetched-{self._fetched}"
        self.repository.fetch(kernel, Generation(generation), into)
        return {str(path.relative_to(into)): path.read_bytes() for path in sorted(into.rglob("*")) if path.is_file()}

    def objects(self) -> set[str]:
        """Everything in the repository's folder, hidden files and empty folders included."""
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file() or not any(path.iterdir())}

    def litter(self, kernel: KernelId = KERNEL) -> set[str]:
        """What is in the folder and belongs to nothing that is published."""
        manifests = [self.repository.manifest(kernel, generation) for generation in self.repository.generations(kernel)]
        claims = {manifest.claim for manifest in manifests}
        folder = f"kernels/{kernel}"
        kept = {f"{folder}/{part}/{claim}" for part in ("manifests", "index") for claim in claims}
        kept |= {
            name
            for name in self.objects()
            if name.startswith(f"{folder}/packs/") and name.split("/")[-1].rpartition("-")[0] in claims
        }
        return self.objects() - kept - {"repository", ".lock", f"{folder}/head"}

    def dead(self, kernel: KernelId = KERNEL) -> set[str]:
        """Files of which nothing that is published needs a byte, worked out from the manifests alone."""
        backend = LocalBackend(self.root)
        current = head.load(backend, kernel)
        reach = Reach(backend, current).walk()
        places = {place.pack for name in reach.users if (place := reach.index.find(name)) is not None}
        names = KernelNames(kernel)
        kept = {names.head, *map(names.manifest, current.generations), *map(names.index, current.indexes), *places}
        return self.objects() - kept - {"repository", ".lock"}


def noise(size: int, seed: int) -> bytes:
    """Bytes that don't compress, the same for the same seed."""
    return random.Random(seed).randbytes(size)
