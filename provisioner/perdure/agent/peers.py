"""Who is at the other end of a connection. The kernel of the operating system says so, not the peer."""

from __future__ import annotations

import os
import pwd
import socket
import struct
from dataclasses import dataclass

from perdure.domain.ids import Owner

_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class Peer:
    uid: int
    gid: int

    @classmethod
    def of(cls, connection: socket.socket) -> Peer:
        _, uid, gid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        return cls(uid, gid)

    @property
    def root(self) -> bool:
        return self.uid == 0

    def may_touch(self, owner: Owner) -> bool:
        """Root sees everybody's kernels, others their own."""
        return self.root or self.uid == owner.uid

    def as_owner(self) -> Owner:
        """With the groups that the system's user database gives to it."""
        try:
            name = pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return Owner(self.uid, self.gid, (self.gid,))
        return Owner(self.uid, self.gid, tuple(sorted(set(os.getgrouplist(name, self.gid)))))
