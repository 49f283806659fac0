"""Names of objects and of the files in a snapshot (docs/format.md, "Names")."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NewType

from perdure.domain.ids import Generation, KernelId

Claim = NewType("Claim", str)

REPOSITORY = "repository"
KERNELS = "kernels/"
HIGHEST_GENERATION = (1 << 53) - 1
"""What every JSON reader holds exactly."""

_CLAIM = re.compile(r"([1-9][0-9]{0,15})-[0-9a-f]{16}")
_LONGEST_COMPONENT = 255
_LONGEST_NAME = 4000


def new_claim(number: int) -> Claim:
    return Claim(f"{number}-{secrets.token_hex(8)}")


def is_claim(text: object) -> bool:
    return isinstance(text, str) and _CLAIM.fullmatch(text) is not None


def generation_of(claim: Claim) -> Generation:
    return Generation(int(claim.partition("-")[0]))


@dataclass(frozen=True)
class KernelNames:
    """Where a kernel's objects are."""

    kernel: KernelId

    @property
    def folder(self) -> str:
        return f"{KERNELS}{self.kernel}/"

    @property
    def head(self) -> str:
        return f"{self.folder}head"

    @property
    def folders(self) -> tuple[str, str, str, str]:
        """In the order in which things are deleted: what refers first."""
        return (f"{self.folder}manifests/", f"{self.folder}index/", self.packs, self.damaged)

    @property
    def packs(self) -> str:
        return f"{self.folder}packs/"

    @property
    def damaged(self) -> str:
        return f"{self.folder}damaged/"

    def manifest(self, claim: Claim) -> str:
        return f"{self.folder}manifests/{claim}"

    def index(self, claim: Claim) -> str:
        return f"{self.folder}index/{claim}"

    def pack(self, claim: Claim, number: int) -> str:
        return f"{self.packs}{claim}-{number}"

    def mark(self, pack: str) -> str:
        """The object that says that a pack is damaged."""
        return f"{self.damaged}{pack.removeprefix(self.packs)}"

    @staticmethod
    def claim_in(name: str) -> str:
        """The claim that an object's name carries, or the last component where there is none."""
        last = name.rpartition("/")[2]
        found = _CLAIM.match(last)
        return found.group(0) if found else last


def unsafe_file_name(name: str) -> str | None:
    """Why `name` can't be a file's in a snapshot; None when it can."""
    try:
        raw = os.fsencode(name)
    except UnicodeEncodeError:
        return "it isn't text"
    if len(raw) > _LONGEST_NAME:
        return "it is too long"
    for part in raw.split(b"/"):
        if part in (b"", b".", b".."):
            return "it has an empty, `.` or `..` component"
        if b"\0" in part or len(part) > _LONGEST_COMPONENT:
            return "one of its components can't be a file's name"
    return None


def clash(names: Iterable[str]) -> str | None:
    """A name that is there twice, or is another one's folder; None when there is none."""
    seen = set[str]()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    for name in seen:
        at = name.find("/")
        while at != -1:
            if name[:at] in seen:
                return name[:at]
            at = name.find("/", at + 1)
    return None
