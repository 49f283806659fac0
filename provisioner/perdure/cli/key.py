"""`perdure key new` and `perdure key rotate`: files with the keys of encrypted repositories."""

from __future__ import annotations

from pathlib import Path

from .app import PerdureApp, later

_VERBS = {
    "new": (later("key", "NewApp"), "make a key file"),
    "rotate": (later("key", "RotateApp"), "put a new key before those that a file holds"),
}
_KEEP = "Without it nobody can read what it has encrypted: keep a copy away from this machine and from the repository."


class NewApp(PerdureApp):
    """Make a file with a new key, readable by you alone. An existing file stays as it is."""

    name = "perdure-key-new"
    description = __doc__
    arguments = ("FILE",)
    examples = """
    perdure key new /etc/perdure/key
    PERDURE_KEY_FILE=/etc/perdure/key perdure agent
    """

    def act(self, *arguments: str) -> int:
        from perdure.store import keyfile

        path = Path(arguments[0]).absolute()
        key = keyfile.create(path)
        self.show({"file": str(path), "key": key.id.hex()}, f"{path} holds the key {key.id.hex()}.\n{_KEEP}")
        return 0


class RotateApp(PerdureApp):
    """Put a new key before those in a key file: the first one encrypts from now on, all of them decrypt.

    Snapshots are stored in full once after it. When none from before is left, the old key's line may go.
    """

    name = "perdure-key-rotate"
    description = __doc__
    arguments = ("FILE",)

    def act(self, *arguments: str) -> int:
        from perdure.store import keyfile

        path = Path(arguments[0]).absolute()
        keys = keyfile.rotate(path)
        ids = [key.id.hex() for key in keys.all]
        self.show({"file": str(path), "keys": ids}, f"{path} encrypts with the new key {ids[0]} from now on.\n{_KEEP}")
        return 0


class KeyApp(PerdureApp):
    """Keys of encrypted repositories."""

    name = "perdure-key"
    description = __doc__
    subcommands = _VERBS
