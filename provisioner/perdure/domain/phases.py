"""The phases of a kernel and the moves between them that exist."""

from __future__ import annotations

from enum import StrEnum

from .errors import Conflict


class Phase(StrEnum):
    """Where a kernel is in its life. The user interface shows exactly these."""

    STARTING = "starting"
    RUNNING = "running"
    SNAPSHOTTING = "snapshotting"
    DOZING = "dozing"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    RESUMING = "resuming"
    LOST = "lost"
    RESTORING = "restoring"
    FAILED = "failed"
    DEAD = "dead"

    @property
    def alive(self) -> bool:
        """What Jupyter is told: a kernel is dead only when nobody will bring it back."""
        return self not in (Phase.FAILED, Phase.DEAD)


_P = Phase
_MOVES: dict[Phase, frozenset[Phase]] = {
    _P.STARTING: frozenset({_P.RUNNING}),
    _P.RUNNING: frozenset({_P.SNAPSHOTTING, _P.DOZING, _P.SUSPENDING, _P.RESTORING}),
    _P.SNAPSHOTTING: frozenset({_P.RUNNING}),
    _P.DOZING: frozenset({_P.RUNNING, _P.SUSPENDING}),
    _P.SUSPENDING: frozenset({_P.SUSPENDED, _P.RUNNING}),
    _P.SUSPENDED: frozenset({_P.RESUMING}),
    _P.RESUMING: frozenset({_P.RUNNING, _P.SUSPENDED}),
    _P.LOST: frozenset({_P.RESTORING, _P.FAILED}),
    _P.RESTORING: frozenset({_P.RUNNING, _P.FAILED}),
    _P.FAILED: frozenset({_P.RESTORING, _P.STARTING}),
    _P.DEAD: frozenset({_P.STARTING, _P.RESTORING}),
}


def may_move(old: Phase, new: Phase) -> bool:
    """Whether `old` -> `new` exists. Anything may be lost or ended by the user, except what is already dead."""
    if new in _MOVES[old]:
        return True
    if new is Phase.DEAD:
        return old is not Phase.DEAD
    return new is Phase.LOST and old not in (Phase.DEAD, Phase.FAILED, Phase.LOST)


def move(old: Phase, new: Phase) -> Phase:
    """`new`, or Conflict when there is no such move."""
    if not may_move(old, new):
        raise Conflict(f"A kernel that is {old} can't become {new}.", hint="Wait until it is done and try again.")
    return new
