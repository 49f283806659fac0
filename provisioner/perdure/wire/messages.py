"""What client and agent say to each other: JSON documents with these fields.

Unknown fields are ignored, so that an older side understands a newer one of the same protocol version; a missing or malformed
field raises BadRequest naming it. Dates are RFC 3339 in UTC, times seconds, sizes bytes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from perdure.domain.endpoint import Endpoint
from perdure.domain.errors import BadRequest, PerdureError
from perdure.domain.ids import Generation, KernelId, Owner, generation, kernel_id
from perdure.domain.phases import Phase
from perdure.domain.policy import Policy
from perdure.domain.record import Trigger

PROTOCOL = 1
PROTOCOL_HEADER = "Perdure-Protocol"

T = TypeVar("T")
_HIGHEST_PORT = 65535


def _read(name: str, build: Callable[[], T]) -> T:
    try:
        return build()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRequest(
            f"The {name} is malformed.", hint="Do client and agent have the same version?", detail=repr(error)
        ) from error


def _text(data: dict[str, Any], name: str, default: str | None = None) -> str:
    """Raises KeyError without a default, TypeError for what is no text."""
    found = data[name] if default is None else data.get(name, default)
    if not isinstance(found, str):
        raise TypeError(f"{name} is {found!r}")
    return found


def _endpoint(data: dict[str, Any]) -> Endpoint:
    """Raises BadRequest for an address where nothing can listen, and what `Endpoint.from_json` does."""
    endpoint = Endpoint.from_json(data)
    try:
        ipaddress.IPv4Address(endpoint.ip)
    except ValueError as error:
        raise BadRequest(f"{endpoint.ip!r} is no address for a kernel.", hint="It is an IPv4 address like 127.64.1.2.") from error
    if not all(0 < port <= _HIGHEST_PORT for port in endpoint.ports.values()):
        raise BadRequest("A kernel's ports are numbers between 1 and 65535.")
    return endpoint


@dataclass(frozen=True)
class StartRequest:
    """Start this kernel. `argv` is complete, `env` too; `repository` None means the agent's own for this owner."""

    kernel_id: KernelId
    argv: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
    cwd: str
    endpoint: Endpoint
    kernel_name: str = ""
    display_name: str = ""
    notebook: str = ""
    policy: Policy = field(default_factory=Policy)
    repository: str | None = None
    owner: Owner | None = None
    """Only root may name somebody else; None: the caller."""

    def to_json(self) -> dict[str, Any]:
        return {
            "kernel_id": self.kernel_id,
            "argv": list(self.argv),
            "env": self.env,
            "cwd": self.cwd,
            "endpoint": self.endpoint.to_json(),
            "kernel_name": self.kernel_name,
            "display_name": self.display_name,
            "notebook": self.notebook,
            "policy": self.policy.to_json(),
            "repository": self.repository,
            "owner": self.owner.to_json() if self.owner else None,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> StartRequest:
        return _read("start request", lambda: cls._from_json(data))

    @classmethod
    def _from_json(cls, data: dict[str, Any]) -> StartRequest:
        argv, env = data["argv"], data["env"]
        if not isinstance(argv, list) or not argv or not all(isinstance(word, str) and "\0" not in word for word in argv):
            raise BadRequest("A kernel's command is a list of words.")
        if not isinstance(env, dict) or not all(isinstance(text, str) for pair in env.items() for text in pair):
            raise BadRequest("A kernel's environment maps names to texts.")
        return cls(
            kernel_id=kernel_id(_text(data, "kernel_id")),
            argv=tuple(argv),
            env=dict(env),
            cwd=_text(data, "cwd"),
            endpoint=_endpoint(data["endpoint"]),
            kernel_name=_text(data, "kernel_name", ""),
            display_name=_text(data, "display_name", ""),
            notebook=_text(data, "notebook", ""),
            policy=Policy.from_json(dict(data.get("policy") or {})),
            repository=_text(data, "repository") if data.get("repository") else None,
            owner=Owner.from_json(data["owner"]) if data.get("owner") else None,
        )


@dataclass(frozen=True)
class Address:
    """Where a kernel listens: its endpoint without the key."""

    ip: str
    ports: dict[str, int]


@dataclass(frozen=True)
class GenerationInfo:
    """One published snapshot. `verified`: what it consists of was looked for after it had been published, and all was there in
    its full length; `perdure verify` reads the bytes too."""

    generation: Generation
    incarnation: int
    created: str
    trigger: Trigger
    engine: str
    stall_s: float
    total_s: float
    timings: dict[str, float]
    bytes_logical: int
    bytes_added: int
    execution_count: int | None
    busy: bool
    verified: bool
    host: str
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "trigger": self.trigger.value, "warnings": list(self.warnings)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> GenerationInfo:
        def build() -> GenerationInfo:
            known = {name: data[name] for name in cls.__dataclass_fields__}
            known["generation"] = generation(data["generation"])
            known["trigger"] = Trigger(data["trigger"])
            known["warnings"] = tuple(data["warnings"])
            return cls(**known)

        return _read("generation", build)


@dataclass(frozen=True)
class Restore:
    """One restore that was done. `seconds`: from the loss (or the request) until the kernel had proven itself."""

    at: str
    generation: Generation
    seconds: float
    reason: str


@dataclass(frozen=True)
class Progress:
    """What is being done to the kernel right now; `fraction` 0–1, None while it isn't known."""

    step: str
    fraction: float | None


@dataclass(frozen=True)
class KernelStatus:
    """All that is known of a kernel. `seq` grows with each change."""

    kernel_id: KernelId
    seq: int
    phase: Phase
    host: str
    owner: Owner
    endpoint: Address
    kernel_name: str
    notebook: str
    started: str
    incarnation: int
    pid: int | None
    exit_status: int | None
    busy: bool
    execution_count: int | None
    repository: str
    policy: Policy
    last_snapshot: GenerationInfo | None = None
    last_error: PerdureError | None = None
    next_snapshot: str = ""
    """When the next one is due and why, in words."""
    progress: Progress | None = None
    restores: tuple[Restore, ...] = ()
    warnings: tuple[str, ...] = ()
    generations: tuple[GenerationInfo, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "phase": self.phase.value,
            "owner": self.owner.to_json(),
            "endpoint": asdict(self.endpoint),
            "policy": self.policy.to_json(),
            "last_snapshot": self.last_snapshot.to_json() if self.last_snapshot else None,
            "last_error": self.last_error.to_json() if self.last_error else None,
            "progress": asdict(self.progress) if self.progress else None,
            "restores": [asdict(restore) for restore in self.restores],
            "warnings": list(self.warnings),
            "generations": [one.to_json() for one in self.generations],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> KernelStatus:
        def build() -> KernelStatus:
            known = {name: data[name] for name in cls.__dataclass_fields__}
            return cls(
                **{
                    **known,
                    "kernel_id": kernel_id(data["kernel_id"]),
                    "phase": Phase(data["phase"]),
                    "owner": Owner.from_json(data["owner"]),
                    "endpoint": Address(**data["endpoint"]),
                    "policy": Policy.from_json(data["policy"]),
                    "last_snapshot": GenerationInfo.from_json(data["last_snapshot"]) if data["last_snapshot"] else None,
                    "last_error": PerdureError.from_json(data["last_error"]) if data["last_error"] else None,
                    "progress": Progress(**data["progress"]) if data["progress"] else None,
                    "restores": tuple(Restore(**one) for one in data["restores"]),
                    "warnings": tuple(data["warnings"]),
                    "generations": tuple(GenerationInfo.from_json(one) for one in data["generations"]),
                }
            )

        return _read("kernel status", build)


@dataclass(frozen=True)
class HostInfo:
    """An agent and its host. `checks`: what doctor shows, each with name, ok, found, means, fix."""

    hostname: str
    version: str
    pid: int
    criu: dict[str, str] | None
    """`path` and `version`; None where none is good enough."""
    protects: bool
    why: str
    """Why kernels can't be protected here, or nothing."""
    fix: str
    repository: str
    """The caller's default one."""
    state: str
    checks: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "checks": list(self.checks)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> HostInfo:
        def build() -> HostInfo:
            known = {name: data[name] for name in cls.__dataclass_fields__}
            return cls(**{**known, "checks": tuple(data["checks"])})

        return _read("host info", build)
