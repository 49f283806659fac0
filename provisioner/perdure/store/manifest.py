"""One published generation: its files with their recipes, and what the caller wrote beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perdure.domain.ids import Generation, KernelId

from . import canonical, envelope
from .backend import Backend
from .envelope import Kind, corrupt
from .names import HIGHEST_GENERATION, Claim, KernelNames, clash, generation_of, unsafe_file_name

NAME_BYTES = 32
LARGEST_FILE = 16 << 40
MOST_FILES = 1_000_000
MODE_BITS = 0o777
"""Set-uid and the like mean nothing in a staging folder and are not taken from a repository."""


@dataclass(frozen=True)
class StoredFile:
    """One file of a snapshot; `recipe` names the segments (32 bytes each) of its list of blocks. Size in bytes."""

    name: str
    size: int
    mode: int
    recipe: tuple[bytes, ...]


@dataclass(frozen=True)
class Manifest:
    """`bytes_added`: the packs and the index that were written for this generation."""

    kernel: KernelId
    generation: Generation
    claim: Claim
    files: tuple[StoredFile, ...]
    bytes_logical: int
    bytes_added: int
    record: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel_id": self.kernel,
            "generation": self.generation,
            "claim": self.claim,
            "bytes_logical": self.bytes_logical,
            "bytes_added": self.bytes_added,
            "files": [
                {"name": file.name, "size": file.size, "mode": file.mode, "recipe": [name.hex() for name in file.recipe]}
                for file in self.files
            ],
            "record": self.record,
        }

    def wrapped(self) -> bytearray:
        """The object's bytes. Raises ValueError, TypeError, RecursionError when `record` isn't JSON."""
        return envelope.wrap(Kind.MANIFEST, canonical.dump(self.to_json()))


def load(backend: Backend, kernel: KernelId, claim: Claim) -> Manifest:
    """Raises Corrupt, NewerFormat, StoreFailed."""
    name = KernelNames(kernel).manifest(claim)
    return parse(name, envelope.read_referenced(backend, name, Kind.MANIFEST), kernel, claim)


def parse(name: str, body: memoryview, kernel: KernelId, claim: Claim) -> Manifest:
    """The manifest in a checked body. Raises Corrupt."""
    data = canonical.load(name, body)
    number = canonical.integer(name, data, "generation", low=1, high=HIGHEST_GENERATION)
    if (canonical.text(name, data, "kernel_id"), canonical.text(name, data, "claim")) != (kernel, claim):
        raise corrupt(name, "it is another snapshot's")
    if number != generation_of(claim):
        raise corrupt(name, f"it says generation {number}")
    entries = canonical.items(name, data, "files")
    if len(entries) > MOST_FILES:
        raise corrupt(name, f"it lists {len(entries)} files")
    files = tuple(_file(name, entry) for entry in entries)
    twice = clash(file.name for file in files)
    if twice is not None:
        raise corrupt(name, f"the file name {twice!r} is there twice, or is a folder too")
    logical = canonical.integer(name, data, "bytes_logical")
    if logical != sum(file.size for file in files):
        raise corrupt(name, "its sizes don't add up")
    record = data.get("record")
    if not isinstance(record, dict):
        raise corrupt(name, "it has no record")
    return Manifest(kernel, Generation(number), claim, files, logical, canonical.integer(name, data, "bytes_added"), record)


def _file(name: str, entry: object) -> StoredFile:
    if not isinstance(entry, dict):
        raise corrupt(name, "a file's entry is none")
    file_name = canonical.text(name, entry, "name")
    why = unsafe_file_name(file_name)
    if why is not None:
        raise corrupt(name, f"the file name {file_name[:80]!r} is not allowed: {why}")
    segments: list[bytes] = []
    for value in canonical.items(name, entry, "recipe"):
        try:
            segment = bytes.fromhex(value)
        except (ValueError, TypeError):
            segment = b""
        if len(segment) != NAME_BYTES:
            raise corrupt(name, f"the recipe of {file_name!r} is none")
        segments.append(segment)
    size = canonical.integer(name, entry, "size", high=LARGEST_FILE)
    return StoredFile(file_name, size, canonical.integer(name, entry, "mode", high=MODE_BITS), tuple(segments))
