"""Who is at the other end of a Unix socket: asked of the kernel (sock_diag), since /proc doesn't tell."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from . import sockdiag

_SHOW_NAME, _SHOW_PEER, _SHOW_PENDING = 0x1, 0x4, 0x8
_ATTR_NAME, _ATTR_PEER, _ATTR_PENDING = 0, 2, 3
_ATTRIBUTE = struct.Struct("=HH")


@dataclass
class _Socket:
    inode: int
    name: bytes = b""
    peer: int = 0
    pending: list[int] = field(default_factory=list)
    """Inodes of clients that it hasn't accepted yet."""


def outside(own: set[int]) -> list[tuple[int, str]]:
    """(inode of ours, the peer in words) for each of the Unix sockets `own` whose peer is not among them."""
    table = {entry.inode: entry for entry in _all()}
    found = []
    for inode in sorted(own & table.keys()):
        peer = table[inode].peer
        if peer and peer not in own:
            found.append((inode, _words(table[peer].name if peer in table else b"", peer)))
    for listener in table.values():
        if listener.inode not in own:
            found += [(client, _words(listener.name, listener.inode)) for client in listener.pending if client in own]
    return found


def _words(name: bytes, inode: int) -> str:
    if not name:
        return f"an unnamed Unix socket ({inode})"
    if name.startswith(b"\0"):
        return f"the abstract Unix socket @{os.fsdecode(name[1:])}"
    return f"the Unix socket {os.fsdecode(name.rstrip(bytes(1)))}"


def _all() -> Iterator[_Socket]:
    show = _SHOW_NAME | _SHOW_PEER | _SHOW_PENDING
    return map(_parse, sockdiag.dump(struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, show, 0, 0)))


def _parse(data: bytes) -> _Socket:
    _, _, _, _, inode, _, _ = struct.unpack_from("=BBBBIII", data)
    entry, at = _Socket(inode), 16
    while at + _ATTRIBUTE.size <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        value = data[at + _ATTRIBUTE.size : at + size]
        if kind == _ATTR_NAME:
            entry.name = value
        elif kind == _ATTR_PEER:
            (entry.peer,) = struct.unpack("=I", value)
        elif kind == _ATTR_PENDING:
            entry.pending = list(struct.unpack(f"={len(value) // 4}I", value))
        at += max(_ATTRIBUTE.size, sockdiag.aligned(size))
    return entry
