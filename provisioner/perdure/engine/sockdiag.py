"""Linux's sock_diag: asks the kernel about sockets, which /proc tells too little of. Just the framing of netlink."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

BY_FAMILY, DESTROY = 20, 21
_SOCK_DIAG = 4
_ERROR, _DONE = 2, 3
_REQUEST, _ACKNOWLEDGE, _DUMP = 0x1, 0x4, 0x300
_HEADER = struct.Struct("=IHHII")
_BUFFER_BYTES = 1 << 18
_ANSWER_S = 10.0


def dump(question: bytes) -> Iterator[bytes]:
    """The answers to a question about many sockets. OSError."""
    with _open() as diag:
        diag.send(_HEADER.pack(_HEADER.size + len(question), BY_FAMILY, _REQUEST | _DUMP, 1, 0) + question)
        while True:
            data = diag.recv(_BUFFER_BYTES)
            at = 0
            while at < len(data):
                size, kind, *_ = _HEADER.unpack_from(data, at)
                body = data[at + _HEADER.size : at + size]
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    _raise(body)
                yield body
                at += aligned(size)


def destroy(which: bytes) -> None:
    """Ends one socket. OSError: EOPNOTSUPP where Linux was built without it, ENOENT when it has gone."""
    with _open() as diag:
        diag.send(_HEADER.pack(_HEADER.size + len(which), DESTROY, _REQUEST | _ACKNOWLEDGE, 1, 0) + which)
        _raise(diag.recv(_BUFFER_BYTES)[_HEADER.size :])


def aligned(size: int) -> int:
    return (size + 3) & ~3


def _open() -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG)
    opened.settimeout(_ANSWER_S)
    return opened


def _raise(body: bytes) -> None:
    (code,) = struct.unpack_from("=i", body)
    if code:
        raise OSError(-code, os.strerror(-code))
