"""What is known of one snapshot, beside its bytes: the `record` in a manifest."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from .ids import Owner


class Trigger(StrEnum):
    """Why a snapshot was taken."""

    INTERVAL = "interval"
    CELL = "cell"
    DEMAND = "demand"
    BEFORE_RESTORE = "before-restore"
    SHUTDOWN = "shutdown"
    PREEMPTION = "preemption"
    """The agent was told to end: the machine may be about to go."""


@dataclass(frozen=True)
class OpenFile:
    """A file outside the image that the tree had open or mapped at the snapshot."""

    path: str
    """As seen in the sandbox, absolute."""
    size: int
    mtime_ns: int
    inode: int
    writable: bool
    append: bool
    """Every descriptor that could write had O_APPEND."""
    mapped: bool
    executable: bool
    """Mapped with PROT_EXEC: a program or a library, compared by build id and size."""
    build_id: str = ""
    captured: str = ""
    """Name of the captured copy in the snapshot (`files/3`), or nothing when it was too large or not ours to copy."""
    digest: str = ""
    """BLAKE3 of the captured copy."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> OpenFile:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})


@dataclass(frozen=True)
class HostFacts:
    """What a restore elsewhere has to match."""

    hostname: str
    boot_id: str
    kernel_release: str
    machine: str
    cpu_flags: tuple[str, ...]
    criu_version: str

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> HostFacts:
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(**{**known, "cpu_flags": tuple(data["cpu_flags"])})


@dataclass(frozen=True)
class Record:
    """One snapshot of one kernel. Times in seconds, sizes in bytes, `created` is UTC, RFC 3339."""

    incarnation: int
    created: str
    trigger: Trigger
    engine: str
    owner: Owner
    host: HostFacts
    endpoint: dict[str, Any]
    """The connection info, key included: a manifest is as secret as the memory beside it."""
    kernel_name: str
    display_name: str
    notebook: str
    argv: tuple[str, ...]
    cwd: str
    execution_count: int | None
    busy: bool
    """A cell was running."""
    stdio_key: str
    stall_s: float
    total_s: float
    timings: dict[str, float]
    """Step -> seconds; `unaccounted` is the rest of total_s."""
    files: tuple[OpenFile, ...] = ()
    warnings: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    """Fields of a newer release, kept as they are."""

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        extra = data.pop("extra")
        return {**extra, **data, "trigger": self.trigger.value}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Record:
        """Raises KeyError, TypeError or ValueError on a malformed one; the caller knows which object that was."""
        names = set(cls.__dataclass_fields__) - {"extra"}
        known = {name: data[name] for name in names if name in data}
        known["trigger"] = Trigger(data["trigger"])
        known["owner"] = Owner.from_json(data["owner"])
        known["host"] = HostFacts.from_json(data["host"])
        known["files"] = tuple(OpenFile.from_json(entry) for entry in data.get("files", ()))
        known["argv"] = tuple(data["argv"])
        known["warnings"] = tuple(data.get("warnings", ()))
        return cls(**known, extra={name: value for name, value in data.items() if name not in names})
