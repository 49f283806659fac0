"""One tree for everything that can go wrong.

Every error has a stable `code` (scripts and tests rely on it, never on the text), one plain sentence, a hint, and what to do
next. The agent sends errors over the wire as JSON and the client raises the same class again, so a person reads the same
sentence in a notebook, in a terminal and in a log.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar


class Next(StrEnum):
    """What the caller can do about an error."""

    RETRY = "retry"
    OTHER_HOST = "other-host"
    ASK_USER = "ask-user"
    BUG = "bug"


class PerdureError(Exception):
    """Base of all. `detail` holds what an engineer wants to see: a log's tail, a command, figures."""

    code: ClassVar[str] = "error"
    next: ClassVar[Next] = Next.BUG

    def __init__(self, sentence: str, *, hint: str = "", detail: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.sentence} {self.hint}".rstrip()

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "sentence": self.sentence,
            "hint": self.hint,
            "detail": self.detail,
            "next": self.next.value,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> PerdureError:
        """The error that `to_json` wrote; one of a newer release (unknown code) comes back as a plain PerdureError."""
        cls = _by_code().get(str(data.get("code")), PerdureError)
        return cls(
            str(data.get("sentence", "Unknown error.")),
            hint=str(data.get("hint", "")),
            detail=str(data.get("detail", "")),
        )


class BadRequest(PerdureError):
    """The caller asked for something that makes no sense."""

    code = "bad-request"
    next = Next.ASK_USER


class NotFound(PerdureError):
    """No such kernel or generation (or not yours: the two look alike on purpose)."""

    code = "not-found"
    next = Next.ASK_USER


class Conflict(PerdureError):
    """It can't be done in the kernel's present phase, or another one does it already."""

    code = "conflict"
    next = Next.RETRY


class Forbidden(PerdureError):
    """The caller may not do this."""

    code = "forbidden"
    next = Next.ASK_USER


class NotProtected(PerdureError):
    """This host can't checkpoint: no agent, no privilege, no CRIU, too old a kernel. The hint says which and what mends it."""

    code = "not-protected"
    next = Next.ASK_USER


class AgentUnreachable(PerdureError):
    """Nobody answers on the agent's socket."""

    code = "agent-unreachable"
    next = Next.RETRY


class ProtocolMismatch(PerdureError):
    """Client and agent speak different versions."""

    code = "protocol-mismatch"
    next = Next.ASK_USER


class SandboxFailed(PerdureError):
    """The sandbox or the kernel in it could not be started."""

    code = "sandbox-failed"
    next = Next.ASK_USER


class KernelGone(PerdureError):
    """The kernel ended by itself while something was being done with it."""

    code = "kernel-gone"
    next = Next.RETRY


class SnapshotFailed(PerdureError):
    """The kernel could not be dumped; it goes on unharmed. The sentence names the object in the way where CRIU does."""

    code = "snapshot-failed"
    next = Next.RETRY


class NotLive(SnapshotFailed):
    """This engine could not do it, and another one may. The kernel goes on."""

    code = "not-live"


class NoRoom(PerdureError):
    """Memory or disk would run out. Nothing was started."""

    code = "no-room"
    next = Next.RETRY


class StoreFailed(PerdureError):
    """The repository can't be read or written."""

    code = "store-failed"
    next = Next.RETRY


class StoreAway(StoreFailed):
    """The repository does not answer, or asks to wait: it may be different soon. `unclear`: a write may have taken place."""

    code = "store-away"

    def __init__(self, sentence: str, *, hint: str = "", detail: str = "", unclear: bool = True) -> None:
        super().__init__(sentence, hint=hint, detail=detail)
        self.unclear = unclear


class Corrupt(StoreFailed):
    """Bytes in the repository are not what was written. Names the object."""

    code = "corrupt"
    next = Next.ASK_USER


class NewerFormat(StoreFailed):
    """The repository was written by a newer release."""

    code = "newer-format"
    next = Next.ASK_USER


class NoKey(StoreFailed):
    """The repository's key is configured, and it can't be had: nothing is read or written, least of all in plain."""

    code = "no-key"
    next = Next.ASK_USER


class WrongKey(StoreFailed):
    """The bytes are whole, and sealed with a key that isn't configured; or plain where one is."""

    code = "wrong-key"
    next = Next.ASK_USER


class PreflightRefused(PerdureError):
    """The restore would not be safe here. The sentence names the file, flag or credential; nothing was started."""

    code = "preflight-refused"
    next = Next.OTHER_HOST


class RestoreFailed(PerdureError):
    """CRIU could not bring the process back; the generation stays as it is."""

    code = "restore-failed"
    next = Next.OTHER_HOST


class NotProven(RestoreFailed):
    """The process is back but does not answer as the kernel it was."""

    code = "not-proven"
    next = Next.OTHER_HOST


def _by_code() -> dict[str, type[PerdureError]]:
    found: dict[str, type[PerdureError]] = {}
    todo: list[type[PerdureError]] = [PerdureError]
    while todo:
        cls = todo.pop()
        found[cls.code] = cls
        todo += cls.__subclasses__()
    return found
