"""Open files that lost their name but live on under another one (hard links: uv's and conda's package files after an upgrade).

CRIU gives them a name again for the dump (link_remap.N beside the old one) and removes it when the kernel goes on, so the image
alone can't be restored. Their content is copied beside the image while the name exists, and put back for the restore. What comes
back is the same bytes; that another name led to the same file is forgotten.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from perdure.domain.errors import Corrupt, PreflightRefused, SnapshotFailed
from perdure.domain.ids import Owner
from perdure.domain.target import Target

from . import imagefile
from .images import RegularFile, open_files
from .limits import CaptureLimits
from .ownerfs import Root, as_owner

FOLDER = "links"
_LINKED = 0
"""remap-file-path.proto: the file is found under the name of another entry."""
_NAME = re.compile(r"link_remap\.\d+")


def save(target: Target, images: Path, limits: CaptureLimits) -> None:
    """While the tree is frozen. Raises SnapshotFailed naming a file that is too large."""
    for entry in _linked(images):
        source = _inside(target, entry.path)
        size = source.stat().st_size
        if size > limits.file_bytes:
            raise SnapshotFailed(
                f"An open file in {os.path.dirname(entry.path)} has lost its name and is too large to copy ({size >> 20} MiB).",
                hint="Restart what has it open, or raise the limit for copied files.",
            )
        (images / FOLDER).mkdir(exist_ok=True, mode=0o700)
        shutil.copy2(source, images / FOLDER / str(entry.id), follow_symlinks=False)


def put_back(target: Target, images: Path, owner: Owner) -> list[Path]:
    """Before the restore; gives what was made, for `clear`. An existing file of that name stays and is used."""
    made = []
    for entry in _linked(images):
        copy, place = images / FOLDER / str(entry.id), _inside(target, entry.path)
        if not _NAME.fullmatch(place.name) or ".." in place.parts:
            raise Corrupt(f"The image names a file that it can't have: {entry.path}.", hint="Restore an older generation.")
        try:
            handle = _make(target, entry.path, owner)
        except FileExistsError:
            continue
        except OSError as error:
            raise PreflightRefused(
                f"An open file in {os.path.dirname(entry.path)} had lost its name and can't be made again: {error.strerror}.",
                hint="Make that folder writable for the kernel's owner, or restore an older generation.",
                detail=str(error),
            ) from error
        made.append(place)
        with os.fdopen(handle, "wb") as out, copy.open("rb") as source:
            shutil.copyfileobj(source, out)
            os.fchmod(out.fileno(), copy.stat().st_mode & 0o777)
    return made


def _make(target: Target, path: str, owner: Owner) -> int:
    """A new file there, made as its owner would: the folder may have become a symbolic link to one that is not the owner's."""

    def make() -> int:
        with Root(f"/proc/{target.shim_pid}/root") as root:
            return root.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)

    return as_owner(owner, make)


def clear(made: list[Path]) -> None:
    """After the restore, whether it worked or not: the tree has its files open, or is gone."""
    for place in made:
        place.unlink(missing_ok=True)


def _linked(images: Path) -> list[RegularFile]:
    path = images / "remap-fpath.img"
    if not path.exists():
        return []
    wanted = {entry.number(2) for entry in imagefile.read_entries(path)[1] if entry.number(3) == _LINKED}
    return [entry for entry in open_files(images) if entry.id in wanted]


def _inside(target: Target, path: str) -> Path:
    return Path(f"/proc/{target.shim_pid}/root{path}")
