"""Ports that the dead kernel's closed connections still hold.

A connection that was closed lingers for a minute (TIME_WAIT), and a server that didn't ask for SO_REUSEADDR can't have its port
back until then. The kernel that is being restored owns these ports, so what lingers on them is ended before.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import struct
from pathlib import Path

from . import sockdiag
from .connections import Address, listeners

log = logging.getLogger(__name__)

_QUESTION = struct.Struct("=BBBBI")
_IDENTITY_AT, _IDENTITY_BYTES = 4, 48
_TIME_WAIT = 6


def end(images: Path) -> int:
    """Ends the closed connections on the image's listening ports; gives how many there were. Not being able to is no failure."""
    wanted = listeners(images)
    ended = 0
    if not wanted:
        return 0
    for family in (socket.AF_INET, socket.AF_INET6):
        question = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << _TIME_WAIT)
        try:
            for answer in list(sockdiag.dump(question + bytes(_IDENTITY_BYTES))):
                identity = answer[_IDENTITY_AT : _IDENTITY_AT + _IDENTITY_BYTES]
                if _held(identity, family, wanted):
                    sockdiag.destroy(question + identity)
                    ended += 1
        except OSError as error:
            log.info("closed connections can't be ended here: %s", error)
    return ended


def _held(identity: bytes, family: int, wanted: set[tuple[Address, int]]) -> bool:
    """Whether the connection's own end is one of the listening addresses, or on the port of one that listens everywhere."""
    (port,) = struct.unpack_from("!H", identity)
    raw = identity[4:20]
    address: Address = ipaddress.IPv4Address(raw[:4]) if family == socket.AF_INET else ipaddress.IPv6Address(raw)
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return any(port == listening and (where.is_unspecified or where == address) for where, listening in wanted)
