"""What is in `format-1/` and `format-1-sealed/`, repositories that the first release wrote, in plain and encrypted.

`python -m tests.golden.format_1` has made them, once. They are never made again: a reader of any later release must read exactly
these bytes. A new format gets folders of its own.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from perdure.domain.ids import KernelId
from perdure.store.keys import Key, Keys
from perdure.store.local import LocalBackend
from perdure.store.repository import Repository, SourceFile

FOLDER = Path(__file__).parent / "format-1"
SEALED = Path(__file__).parent / "format-1-sealed"
OLD, NEW = Key(bytes(range(32))), Key(bytes(range(32, 64)))
"""The first generation in `SEALED` was written with `OLD`, the second with `NEW`."""
KERNEL = KernelId("5f0f9e1c-2a55-4a3b-9a57-6f4c1b0f9d11")


def _noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


_ARRAY = _noise(8_000, 1)
_PAGES_1 = b"first" * 100 + bytes(70_000) + _ARRAY
_PAGES_2 = b"second, and shifted" * 100 + bytes(140_000) + _ARRAY

FILES: list[dict[str, bytes]] = [
    {"pages-1.img": _PAGES_1, "core-1000.img": b"core" * 500, "empty": b"", "shm/\udcffodd \n\u00e9": b"odd name"},
    {"pages-1.img": _PAGES_2, "core-1000.img": b"core" * 501, "zeros": bytes(3 << 20), "files/3": _noise(500, 2)},
]
MODES = {"core-1000.img": 0o640}
RECORD: dict[str, Any] = {
    "created": "2026-12-01T00:00:00Z",
    "text": 'é \u2028 " \\',
    "numbers": [0, -1, 1.5, 2**53],
    "nothing": None,
}


def cuts(name: str, data: bytes) -> Sequence[int] | None:
    """The array in pieces of 8 bytes, so that a small file has a recipe of several segments."""
    return [0, *range(len(data) - len(_ARRAY), len(data), 8)] if name == "pages-1.img" else None


def _make(folder: Path, *keys: Keys | None) -> None:
    """A generation with each of the `keys`."""
    folder.mkdir()
    for files, key in zip(FILES, keys, strict=True):
        repository = Repository.on(LocalBackend(folder), keys=key)
        with tempfile.TemporaryDirectory() as sources:
            repository.publish(KERNEL, list(_sources(Path(sources), files)), lambda _: RECORD)
    (folder / ".lock").unlink()


def _sources(folder: Path, files: dict[str, bytes]) -> Iterator[SourceFile]:
    for number, (name, data) in enumerate(files.items()):
        path = folder / str(number)
        path.write_bytes(data)
        yield SourceFile(name, path, MODES.get(name, 0o600), cuts(name, data))


if __name__ == "__main__":
    for made, keys in ((FOLDER, (None, None)), (SEALED, (Keys((OLD,)), Keys((NEW, OLD))))):
        if made.exists():
            print(f"{made} is there and stays as it is")
        else:
            _make(made, *keys)
