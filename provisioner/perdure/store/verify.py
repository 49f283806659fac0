"""Whether what is published is whole. Damage is reported, generation by generation, with the object that it is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from perdure.domain.errors import Corrupt, NewerFormat, NotFound, WrongKey
from perdure.domain.ids import Generation, KernelId

from . import damage, envelope, head, leftovers, manifest, pack, rescue
from .backend import Absent, Backend
from .blocks import BadBlock, decode
from .envelope import Kind, corrupt
from .head import Head
from .index import Index
from .names import Claim, KernelNames, generation_of
from .reader import BlockReader

_MOST_PROBLEMS = 10
"""Per generation; a lost pack has thousands of blocks."""


@dataclass(frozen=True)
class GenerationReport:
    """`problems` is empty when it is whole; each names an object."""

    kernel: KernelId
    generation: Generation
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass
class VerifyReport:
    """What was found. `damaged_kernels`: those whose head is damaged, and how.

    Unreferenced packs are leftovers and no damage: the next publish of that kernel removes them.
    """

    generations: list[GenerationReport] = field(default_factory=list)
    damaged_kernels: dict[KernelId, str] = field(default_factory=dict)
    unreferenced_packs: int = 0
    unreferenced_bytes: int = 0
    bytes_read: int = 0

    @property
    def ok(self) -> bool:
        return not self.damaged_kernels and all(one.ok for one in self.generations)

    def to_json(self) -> dict[str, Any]:
        generations = [{**asdict(one), "problems": list(one.problems), "ok": one.ok} for one in self.generations]
        return {**asdict(self), "generations": generations, "ok": self.ok}


def verify(backend: Backend, kernels: Sequence[KernelId], generation: Generation | None, *, data: bool) -> VerifyReport:
    """Raises NotFound for a generation that isn't published, and StoreFailed when the repository can't be read at all."""
    report = VerifyReport()
    for kernel in kernels:
        try:
            current = head.load(backend, kernel)
        except Corrupt as error:
            report.damaged_kernels[kernel] = error.sentence
            current = rescue.load(backend, kernel)
        except (NewerFormat, WrongKey) as error:
            report.damaged_kernels[kernel] = error.sentence
            continue
        if not current.tag and generation is None:
            raise NotFound(f"There is no kernel {kernel} in the repository.")
        claims = current.generations if generation is None else (current.find(generation),)
        _Kernel(backend, current, report, data).check(claims)
    return report


class _Kernel:
    """One kernel's check; every pack is read once, however many generations use it."""

    def __init__(self, backend: Backend, current: Head, report: VerifyReport, data: bool) -> None:
        self._backend = backend
        self._head = current
        self._names = KernelNames(current.kernel)
        self._report = report
        self._data = data
        self._packs: dict[str, str | None] = {}
        """Checked ones, with what is wrong with the whole of it."""
        self._bad: dict[bytes, str] = {}
        """Blocks that are damaged in a pack that is otherwise readable."""
        self._sizes: dict[str, int] = {}

    def check(self, claims: Sequence[Claim]) -> None:
        for entry in leftovers.find(self._backend, self._head):
            if entry.name.startswith(self._names.packs):
                self._report.unreferenced_packs += 1
                self._report.unreferenced_bytes += entry.size
        self._sizes = {entry.name: entry.size for entry in self._backend.list(self._names.packs)}
        index = Index.load(self._backend, self._head.kernel, self._head.indexes)
        for claim in claims:
            problems = self._generation(claim, index)
            found = tuple(dict.fromkeys(problems))[:_MOST_PROBLEMS]
            self._report.generations.append(GenerationReport(self._head.kernel, generation_of(claim), found))

    def _generation(self, claim: Claim, index: Index) -> list[str]:
        problems: list[str] = []
        try:
            found = manifest.load(self._backend, self._head.kernel, claim)
        except (Corrupt, NewerFormat, WrongKey) as error:
            return [error.sentence]
        reader = BlockReader(self._backend, found, index)
        seen = set[bytes]()
        for file in found.files:
            try:
                for name in file.recipe:
                    problems += self._block(reader, name, None, seen)
                for entry in reader.entries(file):
                    if not entry.zeros:
                        problems += self._block(reader, entry.name, entry.length, seen)
                    if len(problems) > _MOST_PROBLEMS:
                        return problems
            except (Corrupt, NewerFormat, WrongKey) as error:
                problems.append(error.sentence)
        return problems

    def _block(self, reader: BlockReader, name: bytes, length: int | None, seen: set[bytes]) -> list[str]:
        if name in seen:
            return []
        seen.add(name)
        location = reader.locate(name)
        if length is not None and location.plain != length:
            return [corrupt(reader.manifest_name, f"block {name.hex()[:16]}… has another size than the recipe says").sentence]
        whole = self._pack(location.pack, reader.index.packs[location.pack])
        if whole is not None:
            return [whole]
        bad = self._bad.get(name)
        return [bad] if bad is not None else []

    def _pack(self, name: str, size: int) -> str | None:
        if name not in self._packs:
            try:
                self._check_pack(name, size)
                self._packs[name] = None
            except Corrupt as error:
                self._packs[name] = error.sentence
                damage.mark(self._backend, self._head.kernel, name)
        return self._packs[name]

    def _check_pack(self, name: str, size: int) -> None:
        """Raises Corrupt and what the backend raises."""
        if name not in self._sizes:
            raise corrupt(name, "it is missing")
        if self._sizes[name] != size:
            raise corrupt(name, f"it has {self._sizes[name]} bytes, not {size}")
        if not self._data:
            return
        try:
            whole = self._backend.get(name, 0, size)
        except Absent:
            raise corrupt(name, "it is missing") from None
        self._report.bytes_read += len(whole)
        for placed, stored in pack.walk(name, envelope.unwrap(name, whole, Kind.PACK)):
            try:
                decode(placed.name, placed.plain, placed.codec, stored)
            except BadBlock as error:
                self._bad[placed.name] = corrupt(name, str(error)).sentence
                damage.mark(self._backend, self._head.kernel, name)
