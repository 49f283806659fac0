"""Does an image give anybody more rights than the kernel's owner has?

CRIU is root and gives each thread the credentials that the image says, so an image is as good as a root shell for whoever can
write one. What is checked here: every thread of the image has exactly its owner's ids, groups among the owner's, and no
capability. `reach.py` checks what CRIU would open, make or remove on the image's behalf. What is not promised: CRIU itself is
not written to withstand hostile input, so a repository that others can write is not made safe by these checks; authenticity is.
"""

from __future__ import annotations

from pathlib import Path

from perdure.domain.errors import PreflightRefused
from perdure.domain.ids import Owner

from . import imagefile
from . import images as image
from .protobuf import MalformedMessage, Message

_HINT = "Restore an older generation; this image is not what a snapshot of that kernel looks like."
_THREAD_CORE, _CREDS, _TASK_CORE = 5, 10, 3
"""core.proto"""
_IDS = {1: "uid", 3: "euid", 5: "suid", 7: "fsuid", 2: "gid", 4: "egid", 6: "sgid", 8: "fsgid"}
_CAPABILITIES = {9: "inheritable", 10: "permitted", 11: "effective", 19: "ambient"}
_GROUPS = 14
"""creds.proto"""


def check(images: Path, owner: Owner) -> None:
    """Raises PreflightRefused naming thread and credential, or Corrupt. An image of root's may hold anything."""
    if owner.uid == 0:
        return
    threads = {thread for process in image.processes(images) for thread in (process.pid, *process.threads)}
    present = {int(path.stem.removeprefix("core-")) for path in images.glob("core-*.img") if path.stem[5:].isdigit()}
    for thread in sorted(threads | present):
        path = images / f"core-{thread}.img"
        if not path.is_file():
            raise imagefile.damaged(path, "it is missing")
        try:
            _check_thread(thread, path, owner)
        except MalformedMessage as error:
            raise imagefile.damaged(path, error) from error


def _check_thread(thread: int, path: Path, owner: Owner) -> None:
    _, entries = imagefile.read_entries(path)
    if len(entries) != 1:
        raise imagefile.damaged(path, f"{len(entries)} entries")
    core = only(entries[0], _THREAD_CORE)
    if core is None and only(entries[0], _TASK_CORE) is not None:
        return  # a zombie: nothing of it runs
    creds = only(core, _CREDS) if core is not None else None
    if creds is None:
        raise PreflightRefused(f"The image does not say whose thread {thread} is: it would be root's.", hint=_HINT)
    for number, name in _IDS.items():
        wanted = owner.uid if name.endswith("uid") else owner.gid
        values = creds.numbers(number)
        if values != [wanted]:
            found = ", ".join(str(value) for value in values) or "nothing"
            raise PreflightRefused(f"Thread {thread} of the image has {name} {found}, its owner has {wanted}.", hint=_HINT)
    for number, name in _CAPABILITIES.items():
        if any(creds.numbers(number)):
            raise PreflightRefused(f"Thread {thread} of the image has {name} capabilities, which its owner has not.", hint=_HINT)
    beyond = set(creds.numbers(_GROUPS)) - {owner.gid, *owner.groups}
    if beyond:
        raise PreflightRefused(f"Thread {thread} of the image is in group {min(beyond)}, its owner is not.", hint=_HINT)


def only(message: Message, number: int) -> Message | None:
    """The message in a field; None without one. Several of them raise MalformedMessage: protobuf would merge them unseen."""
    found = list(message.messages(number))
    if len(found) > 1:
        raise MalformedMessage(f"field {number} occurs {len(found)} times")
    return found[0] if found else None
