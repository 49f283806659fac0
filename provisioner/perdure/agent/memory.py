"""What the agent remembers of a kernel over its own restart: a small file, replaced durably at every change that matters."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.domain.endpoint import Endpoint
from perdure.domain.errors import Corrupt, PerdureError
from perdure.domain.ids import Generation, KernelId, Owner, kernel_id
from perdure.domain.phases import Phase
from perdure.domain.policy import Policy
from perdure.runtime.identity import ProcessIdentity
from perdure.store import durable
from perdure.wire.messages import Restore, StartRequest

log = logging.getLogger(__name__)

SCHEMA = 1
_FILE = "record.json"
_ACTIVITY = "activity.json"
_MOST_RESTORES = 50
"""Older restores are of no interest to anybody, and a kernel may live for months."""


@dataclass
class Memory:
    """One kernel. Lives in `folder`; `save` after a change."""

    folder: Path
    kernel: KernelId
    owner: Owner
    argv: tuple[str, ...]
    cwd: str
    endpoint: Endpoint
    kernel_name: str
    display_name: str
    notebook: str
    policy: Policy
    repository: str
    started: str
    incarnation: int = 1
    phase: Phase = Phase.STARTING
    shim: ProcessIdentity | None = None
    exit_status: int | None = None
    execution_count: int | None = None
    busy: bool = False
    lineage: list[Generation] = field(default_factory=list)
    """The generations that the kernel's present life passed through, ascending: those that a death may go back to. Going back to
    an older one, or a fresh start, leaves the others out; they stay restorable on demand."""
    newest: int = 0
    """The highest generation that is known; a higher one in the repository was published just before this agent's end."""
    stopped: list[int] = field(default_factory=list)
    """Host pids that the user's program had stopped when the last snapshot began: an agent that mends after it leaves them so."""
    restores: list[Restore] = field(default_factory=list)
    last_error: PerdureError | None = None

    @classmethod
    def of_request(cls, folder: Path, request: StartRequest, owner: Owner, repository: str, started: str) -> Memory:
        return cls(
            folder=folder,
            kernel=request.kernel_id,
            owner=owner,
            argv=request.argv,
            cwd=request.cwd,
            endpoint=request.endpoint,
            kernel_name=request.kernel_name,
            display_name=request.display_name,
            notebook=request.notebook,
            policy=request.policy,
            repository=repository,
            started=started,
        )

    @property
    def sandbox_folder(self) -> Path:
        return self.folder / "sandbox"

    @property
    def staging(self) -> Path:
        """For an image between CRIU and the repository, either way."""
        return self.folder / "staging"

    def save(self) -> None:
        """Durable when it returns. Raises OSError."""
        data = {
            "schema": SCHEMA,
            "kernel_id": self.kernel,
            "owner": self.owner.to_json(),
            "argv": list(self.argv),
            "cwd": self.cwd,
            "endpoint": self.endpoint.to_json(),
            "kernel_name": self.kernel_name,
            "display_name": self.display_name,
            "notebook": self.notebook,
            "policy": self.policy.to_json(),
            "repository": self.repository,
            "started": self.started,
            "incarnation": self.incarnation,
            "phase": self.phase.value,
            "shim": self.shim.to_json() if self.shim else None,
            "exit_status": self.exit_status,
            "execution_count": self.execution_count,
            "busy": self.busy,
            "lineage": self.lineage,
            "newest": self.newest,
            "stopped": self.stopped,
            "restores": [vars(one) for one in self.restores[-_MOST_RESTORES:]],
            "last_error": self.last_error.to_json() if self.last_error else None,
        }
        durable.write(self.folder / _FILE, json.dumps(data, indent=1).encode(), replace=True, root=self.folder)

    def note_activity(self, busy: bool, execution_count: int | None) -> None:
        """For the next agent, should this one be killed. Not durable: a host that loses power has lost the kernel too, and cells
        may end a hundred times a second."""
        if (busy, execution_count) == (self.busy, self.execution_count):
            return
        self.busy, self.execution_count = busy, execution_count
        try:
            (self.folder / _ACTIVITY).write_text(json.dumps([busy, execution_count]))
        except OSError as error:
            log.debug("what %s does can't be written down: %s", self.kernel, error)

    def forget_activity(self) -> None:
        """What an earlier start of this kernel did is of no interest."""
        (self.folder / _ACTIVITY).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: Path) -> Memory | None:
        """None when there is none (an agent that died while it made the folder). Raises Corrupt."""
        path = folder / _FILE
        try:
            data = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise _damaged(path, error) from error
        try:
            memory = cls._from_json(folder, data)
        except (KeyError, TypeError, ValueError, AttributeError, PerdureError) as error:
            raise _damaged(path, error) from error
        memory._read_activity()
        return memory

    def _read_activity(self) -> None:
        try:
            busy, execution_count = json.loads((self.folder / _ACTIVITY).read_bytes())
        except (OSError, ValueError, TypeError):
            return  # never written, or half: then what the record says is the newest that is known
        self.busy, self.execution_count = busy is True, execution_count if isinstance(execution_count, int) else None

    @classmethod
    def _from_json(cls, folder: Path, data: dict[str, Any]) -> Memory:
        if data["schema"] > SCHEMA:
            raise ValueError(f"schema {data['schema']}")
        plain = ("cwd", "kernel_name", "display_name", "notebook", "repository", "started", "incarnation", "exit_status")
        return cls(
            **{name: data[name] for name in (*plain, "execution_count", "busy", "lineage", "newest", "stopped")},
            folder=folder,
            kernel=kernel_id(data["kernel_id"]),
            owner=Owner.from_json(data["owner"]),
            argv=tuple(data["argv"]),
            endpoint=Endpoint.from_json(data["endpoint"]),
            policy=Policy.from_json(data["policy"]),
            phase=Phase(data["phase"]),
            shim=ProcessIdentity.from_json(data["shim"]) if data["shim"] else None,
            restores=[Restore(**one) for one in data["restores"]],
            last_error=PerdureError.from_json(data["last_error"]) if data["last_error"] else None,
        )

    def forget(self) -> None:
        """Removes the folder, log and all."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _damaged(path: Path, error: Exception) -> Corrupt:
    return Corrupt(
        f"{path} can't be read, so its kernel is not looked after.",
        hint="Its snapshots are safe in the repository. A newer agent may have written it.",
        detail=repr(error),
    )
