"""A sealed repository in a folder, and ways to open it again with other keys."""

from __future__ import annotations

from pathlib import Path

from perdure.store.keys import Key
from perdure.store.repository import Repository
from perdure.store.settings import StoreSettings

from tests.unit.store.bench import Bench

OLD, NEW, STRANGE = (Key(letter * 32) for letter in (b"o", b"n", b"s"))


def key_file(path: Path, *keys: Key) -> Path:
    path.touch(0o600)
    path.write_text("".join(f"{key.text}\n" for key in keys))
    return path


class SealedBench(Bench):
    """`keys` are the first ones; `reopen` changes them."""

    def __init__(self, folder: Path, *keys: Key) -> None:
        self.keys = keys
        self._opened = 0
        super().__init__(folder)

    def open(self, *, create: bool = True) -> Repository:
        self._opened += 1
        if not self.keys:
            return Repository.open(self.root.as_uri(), create=create)
        file = key_file(self.folder / f"keys-{self._opened}", *self.keys)
        return Repository.open(self.root.as_uri(), create=create, settings=StoreSettings(key_file=str(file)))

    def reopen(self, *keys: Key, create: bool = True) -> None:
        self.keys = keys
        self.repository = self.open(create=create)

    def files(self) -> dict[str, bytes]:
        """All objects, by name."""
        found = {str(path.relative_to(self.root)): path for path in sorted(self.root.rglob("*")) if path.is_file()}
        return {name: path.read_bytes() for name, path in found.items() if name != ".lock"}
