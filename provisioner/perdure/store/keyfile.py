"""Key files are made and changed whole or not at all: half a key is none."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.domain.errors import BadRequest

from . import durable, keys
from .keys import Key, Keys


def create(path: Path) -> Key:
    """A new file of mode 0600 with a new key. Raises BadRequest."""
    key = keys.new()
    _write(path, [key], replace=False)
    return key


def rotate(path: Path) -> Keys:
    """The file's keys with a new one before them. Raises NoKey, BadRequest; the file is as it was then."""
    changed = Keys((keys.new(), *keys.from_file(path).all))
    _write(path, changed.all, replace=True)
    return changed


def _write(path: Path, several: list[Key] | tuple[Key, ...], *, replace: bool) -> None:
    text = "".join(f"{key.text}\n" for key in several)
    try:
        durable.write(path, text.encode(), replace=replace, root=path.parent)
    except FileExistsError as error:
        raise BadRequest(f"{path} exists already.", hint="Name another file, or use `perdure key rotate`.") from error
    except OSError as error:
        raise BadRequest(f"{path} can't be written: {os.strerror(error.errno or 0)}.", hint="Is its folder there?") from error
