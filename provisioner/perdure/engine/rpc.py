"""CRIU's requests and answers (its rpc.proto), as far as we use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from perdure.domain.target import KERNEL_PID

from .protobuf import Message


class Kind(IntEnum):
    DUMP = 1
    RESTORE = 2
    NOTIFY = 6


class Option(IntEnum):
    """Fields of criu_opts."""

    IMAGES_DIR_FD = 1
    PID = 2
    LEAVE_RUNNING = 3
    TCP_ESTABLISHED = 5
    FILE_LOCKS = 8
    LOG_LEVEL = 9
    LOG_FILE = 10
    NOTIFY_SCRIPTS = 12
    LINK_REMAP = 18
    FORCE_IRMAP = 21
    INHERIT_FD = 27
    MANAGE_CGROUPS_MODE = 34
    GHOST_LIMIT = 35
    TIMEOUT = 45
    TCP_SKIP_IN_FLIGHT = 46
    ORPHAN_PTS_MASTER = 50
    NETWORK_LOCK = 64
    IMAGES_DIR = 68


LOG_LEVEL = 2
"""Debug: CRIU names the socket or file that it refuses only there. Costs about a millisecond per thousand lines."""
_CGROUPS_IGNORE = 0
_NETWORK_LOCK_SKIP = 3
_MOST_GHOST = (1 << 32) - 1


@dataclass(frozen=True)
class Reply:
    kind: int
    success: bool
    notify: str
    """Name of the hook when kind is NOTIFY."""
    pid: int
    """Of the restored kernel, as in the sandbox; 0 otherwise."""
    error: str
    """CRIU's first error line, or nothing."""

    @classmethod
    def parse(cls, data: bytes) -> Reply:
        message = Message.parse(data)
        notify, restored = message.message(5), message.message(4)
        return cls(
            kind=message.number(1),
            success=bool(message.number(2)),
            notify=notify.text(1) if notify else "",
            pid=restored.number(1) if restored else 0,
            error=message.text(9),
        )


def notified(success: bool) -> bytes:
    """The answer to a hook; False makes CRIU undo what it did and fail."""
    return Message().set(1, Kind.NOTIFY).set(3, success).encode()


def dump(images_fd: int, log: str, *, ghost_bytes: int, freeze_s: int) -> bytes:
    """A full dump of the kernel's tree that leaves it running. `images_fd` is CRIU's own descriptor of the folder."""
    options = _common(images_fd, log)
    options.set(Option.PID, KERNEL_PID).set(Option.LEAVE_RUNNING, True)
    options.set(Option.GHOST_LIMIT, min(ghost_bytes, _MOST_GHOST)).set(Option.TIMEOUT, freeze_s)
    options.set(Option.TCP_SKIP_IN_FLIGHT, True)
    return Message().set(1, Kind.DUMP).set(2, options).encode()


def restore(images_fd: int, log: str, *, inherit: Mapping[str, int]) -> bytes:
    """`inherit`: CRIU's name of an object in the image -> CRIU's own descriptor that takes its place."""
    options = _common(images_fd, log)
    for key, number in inherit.items():
        options.add(Option.INHERIT_FD, Message().set(1, key).set(2, number))
    return Message().set(1, Kind.RESTORE).set(2, options).encode()


def _common(images_fd: int, log: str) -> Message:
    """Why each: docs/engine.md. The folder is named through CRIU's own descriptor: its path may not exist in the sandbox, and
    the RPC's images_dir_fd goes through our pid, which doesn't exist there either."""
    return (
        Message()
        .set(Option.IMAGES_DIR_FD, -1)
        .set(Option.IMAGES_DIR, f"/proc/self/fd/{images_fd}")
        .set(Option.LOG_LEVEL, LOG_LEVEL)
        .set(Option.LOG_FILE, log)
        .set(Option.NOTIFY_SCRIPTS, True)
        .set(Option.TCP_ESTABLISHED, True)
        .set(Option.NETWORK_LOCK, _NETWORK_LOCK_SKIP)
        .set(Option.FILE_LOCKS, True)
        .set(Option.LINK_REMAP, True)
        .set(Option.ORPHAN_PTS_MASTER, True)
        .set(Option.MANAGE_CGROUPS_MODE, _CGROUPS_IGNORE)
    )
