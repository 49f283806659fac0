"""Where snapshots go: can it be read and written, is there room."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from perdure.domain.errors import PerdureError

from .check import Check

if TYPE_CHECKING:
    from perdure.store.settings import StoreSettings

_ROOM = 2 << 30
"""A kernel with a small data set; below it the first snapshots of many will fail."""


def repository(url: str, settings: StoreSettings, *, ours: bool) -> tuple[list[Check], dict[str, Any]]:
    """The checks, and {url, exists, free_bytes}. `ours`: this process would write it (else the agent does)."""
    folder = Path(unquote(urlsplit(url).path)) if url.startswith("file://") else None
    exists = folder is not None and folder.is_dir() and any_entry(folder)
    checks = [_repository(url, settings, folder, exists=exists, ours=ours)]
    free = None
    if folder is not None:
        anchor = existing(folder)
        try:
            free = shutil.disk_usage(anchor).free
        except OSError:
            free = None
        if free is not None:
            checks.append(_room(anchor, free))
    return checks, {"url": url, "exists": exists, "free_bytes": free}


def any_entry(folder: Path) -> bool:
    try:
        return next(folder.iterdir(), None) is not None
    except OSError:
        return True  # it is there and can't be read: the next check says so


def existing(folder: Path) -> Path:
    """`folder`, or the nearest one above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def _repository(url: str, settings: StoreSettings, folder: Path | None, *, exists: bool, ours: bool) -> Check:
    from perdure.store.repository import Repository

    means = "Snapshots are stored there; without it none can be published."
    name = "repository"
    if folder is not None and not exists:
        anchor = existing(folder)
        if ours and not os.access(anchor, os.W_OK):
            return Check(
                name,
                False,
                f"{url} can't be made: {anchor} is not writable",
                means,
                f"Make {anchor} writable, or set PERDURE_REPOSITORY.",
            )
        return Check(name, True, f"{url}, not made yet: the first snapshot makes it", means)
    try:
        kernels = Repository.open(url, create=False, settings=settings).kernels()
    except PerdureError as error:
        if not ours and folder is not None and not os.access(folder, os.R_OK | os.X_OK):
            return Check(name, True, f"{url}, which only the agent reads", means)
        return Check(name, False, error.sentence, means, error.hint or "Set PERDURE_REPOSITORY to a folder that you can write.")
    if ours and folder is not None and not os.access(folder, os.W_OK):
        return Check(name, False, f"{url} is not writable", means, f"Make {folder} writable, or set PERDURE_REPOSITORY.")
    return Check(name, True, f"{url}, snapshots of {len(kernels)} kernels", means)


def _room(anchor: Path, free: int) -> Check:
    found = f"{free / (1 << 30):.1f} GiB free at {anchor}"
    means = "The first snapshot of a kernel takes up to as much as its memory, the next ones what has changed."
    fix = "" if free >= _ROOM else "Free some space, or set PERDURE_REPOSITORY to a folder with more."
    return Check("disk-room", free >= _ROOM, found, means, fix, needed=False)
