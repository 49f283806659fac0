"""Names of things: kernels, generations, owners."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NewType

from .errors import BadRequest

KernelId = NewType("KernelId", str)
Generation = NewType("Generation", int)

_KERNEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
"""Jupyter's ids are UUIDs; a client may choose another one. It becomes a folder's name, so no dots and no slashes."""


def kernel_id(text: str) -> KernelId:
    """`text` as a kernel id. Raises BadRequest when it can't be one."""
    if not _KERNEL_ID.fullmatch(text):
        raise BadRequest(f"{text!r} is not a kernel id.", hint="Kernel ids are letters, digits, '-' and '_', 128 at most.")
    return KernelId(text)


def generation(number: int) -> Generation:
    """`number` as a generation (1, 2, 3 …). Raises BadRequest when it can't be one."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise BadRequest(f"{number!r} is not a generation.", hint="Generations are numbered from 1.")
    return Generation(number)


@dataclass(frozen=True)
class Owner:
    """Whose kernel it is: the credentials that it runs with and that a restore must not exceed."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"uid": self.uid, "gid": self.gid, "groups": list(self.groups)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Owner:
        return cls(int(data["uid"]), int(data["gid"]), tuple(int(group) for group in data.get("groups", ())))
