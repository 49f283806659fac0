"""TCP connections in an image: those inside the tree stay, those to the outside are restored as closed.

CRIU either closes every connection at the restore (also those of a Dask cluster or of a server thread to itself, whose programs
then see `b''` out of nothing) or re-establishes every one (also those to a peer that has long gone, or from an address that the
next host doesn't have). So the dump takes them all, and this rewrites the image: a socket whose peer is not in the image becomes
an unconnected one. Programs see that as a closed connection: ZMQ connects again, an HTTP client gets an error that it knows.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import imagefile
from .protobuf import Message

_INET_SOCKET = 4
"""fdinfo.proto: type of an inet socket's entry."""
_TCP, _CLOSE, _LISTEN = 6, 7, 10
_PROTOCOL, _STATE, _SRC_PORT, _DST_PORT, _BACKLOG, _SRC, _DST = 5, 6, 7, 8, 10, 11, 12

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class Connection:
    """One end, in the image."""

    inode: int
    local: tuple[Address, int]
    remote: tuple[Address, int]


def connections(images: Path) -> list[Connection]:
    """Every TCP socket in the image that has a peer."""
    _, entries = imagefile.read_entries(images / "files.img")
    return [_connection(entry) for entry in map(_tcp, entries) if entry is not None]


def close_outside(images: Path, here: Callable[[Address], bool] = lambda address: True) -> list[Connection]:
    """Rewrites the image; gives what was closed. `here`: whether this machine has an address (asked at a restore)."""
    path = images / "files.img"
    header, entries = imagefile.read_entries(path)
    ends = {(end.local, end.remote) for end in map(_connection, filter(None, map(_tcp, entries)))}
    closed = []
    for entry in entries:
        tcp = _tcp(entry)
        if tcp is None:
            continue
        end = _connection(tcp)
        if (end.remote, end.local) in ends and here(end.local[0]) and here(end.remote[0]):
            continue
        tcp.set(_STATE, _CLOSE).set(_SRC_PORT, 0).set(_DST_PORT, 0).set(_BACKLOG, 0)
        entry.set(_INET_SOCKET, tcp)
        (images / f"tcp-stream-{end.inode:x}.img").unlink(missing_ok=True)
        closed.append(end)
    if closed:
        imagefile.write_entries(path, header, entries)
    return closed


def listeners(images: Path) -> set[tuple[Address, int]]:
    """Where the image's TCP sockets listen."""
    _, entries = imagefile.read_entries(images / "files.img")
    found = (entry.message(_INET_SOCKET) for entry in entries if entry.number(1) == _INET_SOCKET)
    return {
        (_address(tcp.numbers(_SRC)), tcp.number(_SRC_PORT))
        for tcp in found
        if tcp is not None and tcp.number(_PROTOCOL) == _TCP and tcp.number(_STATE) == _LISTEN
    }


def made_by_us(images: Path, ends: list[Connection]) -> list[str]:
    """The peers that the tree had connected to, in words; clients of its own listeners (Jupyter's, first of all) are left out."""
    listening = {port for _, port in listeners(images)}
    return sorted({f"{end.remote[0]} port {end.remote[1]}" for end in ends if end.local[1] not in listening})


def local_address(address: Address) -> bool:
    """Whether this machine has the address."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def _tcp(entry: Message) -> Message | None:
    """The socket's part of a file's entry, when it is a TCP socket with a peer."""
    if entry.number(1) != _INET_SOCKET:
        return None
    found = entry.message(_INET_SOCKET)
    if found is None or found.number(_PROTOCOL) != _TCP or not found.number(_DST_PORT) or found.number(_STATE) == _LISTEN:
        return None
    return found


def _connection(tcp: Message) -> Connection:
    return Connection(
        inode=tcp.number(2),
        local=(_address(tcp.numbers(_SRC)), tcp.number(_SRC_PORT)),
        remote=(_address(tcp.numbers(_DST)), tcp.number(_DST_PORT)),
    )


def _address(words: list[int]) -> Address:
    """Addresses are written as they lie in memory; a mapped IPv4 address equals the plain one."""
    raw = b"".join(struct.pack("=I", word & 0xFFFFFFFF) for word in words)
    if len(raw) == 16:
        address = ipaddress.IPv6Address(raw)
        return address.ipv4_mapped or address
    return ipaddress.IPv4Address(raw[:4].ljust(4, b"\0"))
