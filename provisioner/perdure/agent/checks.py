"""What `perdure doctor` shows of the agent's host."""

from __future__ import annotations

import os
import shutil

from perdure import __version__
from perdure.domain.errors import NotProtected, PerdureError
from perdure.domain.ids import Owner
from perdure.runtime import privilege
from perdure.runtime.privilege import Fact
from perdure.wire.messages import HostInfo

from .host import Host

_LEAST_ROOM = 2 << 30
"""Bytes free for images on their way to the repository; a small kernel has 100 MiB, one with data some GiB."""


def host_info(host: Host, owner: Owner) -> HostInfo:
    """Blocks for some milliseconds (it makes a sandbox and ends it)."""
    facts = [*privilege.checks(), _state(host), _repository(host, owner)]
    criu: dict[str, str] | None = None
    why = fix = ""
    try:
        found = host.criu()
        criu = {"path": str(found.path), "version": found.name}
    except NotProtected as error:
        why, fix = error.sentence, error.hint
    for fact in facts:
        if fact.needed and not fact.ok and not why:
            why, fix = f"{fact.name}: {fact.found}. {fact.means}", fact.fix
    return HostInfo(
        hostname=host.name,
        version=__version__,
        pid=os.getpid(),
        criu=criu,
        protects=not why,
        why=why,
        fix=fix,
        repository=host.default_repository(owner),
        state=str(host.state),
        checks=tuple(fact.to_json() for fact in facts),
    )


def _state(host: Host) -> Fact:
    means = "Images pass through this folder on their way to the repository."
    try:
        free = shutil.disk_usage(host.state).free
    except OSError as error:
        return Fact("state-folder", False, f"{host.state}: {error.strerror}", means, f"mkdir -p {host.state}")
    ok = free >= _LEAST_ROOM
    fix = "" if ok else "Free some space there, or move it: perdure agent --state FOLDER."
    return Fact("state-folder", ok, f"{host.state}, {free >> 20} MiB free", means, fix, needed=False)


def _repository(host: Host, owner: Owner) -> Fact:
    url = host.default_repository(owner)
    means = "Snapshots are kept here."
    try:
        host.open_repository(url)
    except PerdureError as error:
        return Fact(
            "agent-repository", False, f"{url}: {error.sentence}", means, error.hint or "Make the folder writable for root."
        )
    return Fact("agent-repository", True, url, means)
