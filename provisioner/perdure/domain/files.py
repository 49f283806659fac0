"""Files that a kernel had open at the snapshot: what to do with one that is no longer as it was.

The table behind it is in docs/files.md. The rules, in short: what did not change is fine; what was only appended to is fine for a
kernel that appends or reads; else the captured copy is put back and the newer version is kept beside it; without a copy the
restore is refused by name. Programs and libraries are never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from .record import OpenFile

COMPANIONS = ("-journal", "-wal", "-shm", ".wal")
"""What SQLite and DuckDB keep beside a database `x` (`x-journal` …). A database without its own companions is a broken one."""
_ACCEPT = "`--accept-changed-files` restores with the file as it is now."


class Action(StrEnum):
    KEEP = "keep"
    PATCH_SIZE = "patch-size"
    """Leave the file alone and tell CRIU, which compares sizes, the present one."""
    PUT_BACK = "put-back"
    REFUSE = "refuse"


@dataclass(frozen=True)
class FileNow:
    """A file at the time of the restore, at the path that it had. None stands for one that is gone."""

    size: int
    mtime_ns: int
    inode: int
    regular: bool = True
    build_id: str = ""
    begins_same: bool | None = None
    """The first `then.size` bytes are what `then.digest` says. None: it could not be read, or there is no digest."""
    stuck: str = ""
    """Why the owner could not replace it ("it belongs to another user"), or nothing."""


@dataclass(frozen=True)
class Decision:
    action: Action
    sentence: str
    """What happened to the file and what is done about it; names the file."""
    acceptable: bool = False
    """A refusal that the user can overrule with --accept-changed-files."""
    hint: str = ""


def decide(then: OpenFile, now: FileNow | None, *, accept_changed: bool = False) -> Decision:
    """What to do with one file."""
    if now is None:
        if then.captured and not then.executable:
            return Decision(Action.PUT_BACK, f"{then.path} was deleted since the snapshot and has been put back.")
        return Decision(Action.REFUSE, f"{then.path} is missing here.", hint="Bring the file back, or restore where it exists.")
    if not now.regular:
        return Decision(
            Action.REFUSE,
            f"{then.path} can't be looked at: {now.stuck}." if now.stuck else f"{then.path} is no regular file any more.",
            hint="Move away what stands in its place, or restore where the file exists.",
        )
    if then.executable:
        return _decide_executable(then, now)
    if _unchanged(then, now):
        return Decision(Action.KEEP, f"{then.path} is unchanged.")
    if _only_grown(then, now):
        return Decision(Action.PATCH_SIZE, f"{then.path} has grown since the snapshot and stays as it is.")
    what = _what_happened(then, now)
    if then.captured and not now.stuck:
        return Decision(Action.PUT_BACK, f"{then.path} {what} since the snapshot; it has been put back.")
    why = now.stuck if then.captured else "it was not copied into the snapshot"
    sentence = f"{then.path} {what} since the snapshot and can't be put back: {why}."
    if then.mapped and now.size < then.size:
        hint = "It is mapped into memory, so the kernel would crash on reading it. Bring the old file back."
        return Decision(Action.REFUSE, sentence, hint=hint)
    if accept_changed:
        return Decision(Action.PATCH_SIZE, f"{then.path} {what} since the snapshot and was accepted as it is.")
    return Decision(Action.REFUSE, sentence, acceptable=True, hint=_ACCEPT)


def decide_all(
    files: Sequence[tuple[OpenFile, FileNow | None]], *, accept_changed: bool = False
) -> list[tuple[OpenFile, Decision]]:
    """`decide` for each, and nothing that tears a database and its companions apart.

    When one of such a group can't be put back, putting back the others would leave a broken database: they stay as they are, or,
    where one of them is missing and must come back, all is refused for good.
    """
    decisions = {then.path: decide(then, now, accept_changed=accept_changed) for then, now in files}
    groups: dict[str, list[str]] = {}
    for path in decisions:
        groups.setdefault(database_of(path, decisions), []).append(path)
    gone = {then.path for then, now in files if now is None}
    changed = {then.path for then, now in files if now is not None and not _unchanged(then, now)}
    for base, members in groups.items():
        put_back = {path for path in members if decisions[path].action is Action.PUT_BACK}
        stays = {path for path in members if path in changed and decisions[path].action is not Action.PUT_BACK}
        if not put_back or not stays:
            continue
        if not put_back.isdisjoint(gone):
            first = min(put_back & gone)
            sentence = f"{base} was changed since the snapshot and can't be put back, so {first} can't either."
            hint = "Bring the database back as it was at the snapshot, or restore an older generation."
            decisions.update({path: Decision(Action.REFUSE, sentence, hint=hint) for path in stays})
        elif accept_changed:
            for path in put_back:
                sentence = f"{path} was changed since the snapshot and stays as it is, like {min(stays)}."
                decisions[path] = Decision(Action.PATCH_SIZE, sentence)
        elif all(decisions[path].action is not Action.REFUSE for path in stays):
            sentence = f"{min(stays)} has grown since the snapshot, which does not fit {min(put_back)}."
            decisions.update({path: Decision(Action.REFUSE, sentence, acceptable=True, hint=_ACCEPT) for path in stays})
    return [(then, decisions[then.path]) for then, _ in files]


def database_of(path: str, others: object) -> str:
    """The database whose companion `path` is, if that one is among `others` (anything with `in`); else `path` itself."""
    for suffix in COMPANIONS:
        base = path.removesuffix(suffix)
        if base != path and base in others:  # type: ignore[operator]
            return base
    return path


def _decide_executable(then: OpenFile, now: FileNow) -> Decision:
    same = now.size == then.size
    same = same and (now.build_id == then.build_id if then.build_id and now.build_id else now.mtime_ns == then.mtime_ns)
    if same:
        return Decision(Action.KEEP, f"{then.path} is unchanged.")
    return Decision(
        Action.REFUSE,
        f"{then.path} is another build than the one the kernel runs.",
        hint="Install the version that was there at the snapshot, or restore where it is installed.",
    )


def _unchanged(then: OpenFile, now: FileNow) -> bool:
    if now.size != then.size or not now.regular:
        return False
    if now.begins_same is not None and (then.captured or not then.writable):
        return now.begins_same
    # Not copied, and writable: a sample of it proves nothing. Or unreadable.
    return now.mtime_ns == then.mtime_ns


def _only_grown(then: OpenFile, now: FileNow) -> bool:
    if now.size <= then.size or not now.begins_same or (then.writable and not then.append):
        return False
    return bool(then.captured) or now.inode == then.inode


def _what_happened(then: OpenFile, now: FileNow) -> str:
    if now.size < then.size:
        return "has shrunk"
    if now.inode != then.inode:
        return "was replaced"
    return "has grown" if now.size > then.size else "was changed"
