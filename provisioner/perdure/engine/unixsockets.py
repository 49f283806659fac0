"""Who is at the other end of a Unix socket: asked of the kernel (sock_diag), since /proc doesn't tell."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

_SOCK_DIAG, _BY_FAMILY, _DONE, _ERROR = 4, 20, 3, 2
_REQUEST_DUMP = 0x1 | 0x300
_SHOW_NAME, _SHOW_PEER, _SHOW_PENDING = 0x1, 0x4, 0x8
_ATTR_NAME, _ATTR_PEER, _ATTR_PENDING = 0, 2, 3
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_BUFFER_BYTES = 1 << 18


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
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as diag:
        question = struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW_NAME | _SHOW_PEER | _SHOW_PENDING, 0, 0)
        diag.send(_HEADER.pack(_HEADER.size + len(question), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + question)
        while True:
            data = diag.recv(_BUFFER_BYTES)
            at = 0
            while at < len(data):
                size, kind, _, _, _ = _HEADER.unpack_from(data, at)
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    (code,) = struct.unpack_from("=i", data, at + _HEADER.size)
                    raise OSError(-code, os.strerror(-code))
                yield _parse(data[at + _HEADER.size : at + size])
                at += _aligned(size)


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
        at += max(_ATTRIBUTE.size, _aligned(size))
    return entry


def _aligned(size: int) -> int:
    return (size + 3) & ~3
